"""A vectorizer turns what a user passes into rows of float32 features, first in training and then as in training.

This is the contract; each kind of row has a module of its own, which `vectorizer_for` chooses.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from addml.arrays import Array, take
from addml.compute import on_device
from addml.errors import rows_before
from addml.parameters import Part, check_flag, check_whole
from addml.preprocessing.profile import ColumnProfile
from addml.preprocessing.scaling import Features
from addml.text import did_you_mean, listed

if TYPE_CHECKING:
    from addml.inputs.series import Sampling
    from addml.inputs.table import Columns
    from addml.preprocessing.groups import Groups

ROWS_AT_ONCE = 65536
LONGEST = 2**20  # window, in steps
STRIDES = 4  # windows to learn from that begin within one, unless a stride is given
RANKS = {"images": 3, "series": 2}  # of one row


# Rows -------------------------------------------------------------------------------------------------------


class Rows:
    """Rows of features (n, d), in memory or prepared when they are asked for."""

    values: Any
    groups: np.ndarray | None = None  # (n,) the group of each row, where rows are judged within groups
    sampling: Sampling | None = None  # what was done to make the steps of a series even

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of one before it is prepared."""
        return tuple(self.values.shape)

    def take(self, ids: Any) -> Any:
        """The rows with these ids, of shape (*ids.shape, d)."""
        raise NotImplementedError

    def slice(self, start: int, size: int) -> np.ndarray:
        """The `size` rows from `start`, (size, d)."""
        raise NotImplementedError

    def usable(self, stride: int) -> np.ndarray:
        """The ids of the rows to learn from."""
        return np.arange(len(self))

    def portions(self, epoch: int) -> Iterator[Any]:
        """The ranges of rows that are shuffled together; None is all rows."""
        yield None

    def for_training(self, device: str) -> Rows:
        """The rows on the device of the training; on the CPU images stay bytes until they are taken."""
        if device == "cpu":
            return self
        parts = [self.slice(start, ROWS_AT_ONCE) for start in range(0, len(self), ROWS_AT_ONCE)]
        return MemoryRows(on_device(np.concatenate(parts), device))


class MemoryRows(Rows):
    """Prepared rows in memory or on a device."""

    def __init__(self, values: Array, groups: np.ndarray | None = None) -> None:
        self.values, self.groups = values, groups

    def take(self, ids: Array) -> Array:
        return take(self.values, ids)

    def slice(self, start: int, size: int) -> np.ndarray:
        return np.asarray(self.values[start : start + size])

    def for_training(self, device: str) -> Rows:
        return MemoryRows(on_device(self.values, device))


class LazyRows(Rows):
    """Rows of an array, an Arrow table or images that are prepared when they are asked for."""

    def __init__(self, values: Any, prepare: Callable[[Any], np.ndarray], prepared: np.ndarray | None = None) -> None:
        """`prepared` are their features, where these are at hand."""
        self.values, self.prepare, self.prepared = values, prepare, prepared

    def take(self, ids: np.ndarray) -> np.ndarray:
        flat = ids.reshape(-1)
        if self.prepared is not None or not isinstance(self.values, np.ndarray):
            found = (self.prepare(self.values) if self.prepared is None else self.prepared)[flat]
        else:
            found = self.prepare(self.values[flat])  # not `take`, which would copy the whole of a view
        return np.asarray(found).reshape(*ids.shape, found.shape[1])

    def slice(self, start: int, size: int) -> np.ndarray:
        if self.prepared is not None:
            return self.prepared[start : start + size]
        if isinstance(self.values, np.ndarray):
            return self.prepare(self.values[start : start + size])
        with rows_before(start):
            return self.prepare(self.values.slice(start, size))

    def for_training(self, device: str) -> Rows:
        return super().for_training(device) if self.prepared is None else MemoryRows(on_device(self.prepared, device))


def as_rows(rows: Rows | np.ndarray) -> Rows:
    """Rows, or an array of features as such."""
    return MemoryRows(rows.astype(np.float32, copy=False)) if isinstance(rows, np.ndarray) else rows


def of_rows(values: np.ndarray, source: Any) -> np.ndarray:
    """The values of the rows as given, from those of steps, which are in time order; `source` has the sampling."""
    return values if source.sampling is None or source.sampling.steps is None else values[source.sampling.steps]


# Vectorizers ------------------------------------------------------------------------------------------------


@dataclass(repr=False)
class Window(Part):
    """The steps of a series that are looked at together."""

    length: int | str = "auto"  # steps; "auto" for the period of a single channel, and 10 for several
    stride: int | None = None  # steps between two windows to learn from; None for 8,000 windows, or a quarter of one
    causal: bool = False  # whether a step is scored by the steps up to it alone, as `stream` does
    name: ClassVar[str] = "window"

    def check(self) -> None:
        if self.length != "auto":
            check_whole("length", self.length, most=LONGEST)
        if self.stride is not None:
            check_whole("stride", self.stride, most=LONGEST)
        check_flag("causal", self.causal)


@dataclass(frozen=True)
class Form:
    """The kind of the rows and the shape of one of them.

    An image is (channels, height, width), a window of a series (steps, channels). Prepared rows are flat; the encoder
    alone reshapes them.
    """

    kind: str
    shape: tuple[int, ...]
    causal: bool = True  # whether a step is scored by its past alone, not by all windows over it

    @property
    def is_series(self) -> bool:
        """Whether rows are the windows that end at each step of a series."""
        return self.kind == "series"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Colours of an image, quantities of a series: the numbers of one are scaled alike."""
        return self.shape[-1] if self.is_series else self.shape[0]

    def channel_of(self) -> np.ndarray:
        """The channel that each number of a flat row belongs to, (size,)."""
        numbers = np.arange(self.size)
        return numbers % self.channels if self.is_series else numbers // (self.size // self.channels)

    def counts(self) -> np.ndarray:
        """How much each number of a flat row counts along plain columns, (size,): of a window its last step alone."""
        if not self.is_series:
            return np.ones(self.size, np.float32)
        return (np.arange(self.size) >= self.size - self.channels).astype(np.float32)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Form:
        """The form of a saved model; raises ValueError where it is none."""
        form = cls(document["kind"], tuple(document["shape"]), document["causal"])
        lengths = all(type(length) is int and length > 0 for length in form.shape)
        if RANKS.get(form.kind) != len(form.shape) or not lengths or type(form.causal) is not bool:
            raise ValueError(f"rows of kind {form.kind!r} and shape {form.shape}")
        return form


@dataclass(frozen=True, kw_only=True)
class Vectorizer(ABC):
    """How one kind of row becomes features; saved with the model."""

    features: Features  # the scaling
    columns_in: int  # columns, channels or numbers of an image that were given
    names: tuple[str, ...] | None = None  # of the columns or channels
    columns: Columns | None = None  # of a table with other columns than numbers
    form: Form | None = None  # of images and windows
    noun: ClassVar[str] = "row"

    @classmethod
    @abstractmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, Rows]:
        """Learn from X by the settings of an addml.config.Config, and read its rows."""

    @abstractmethod
    def read(self, X: Any) -> Rows:
        """The rows of X, checked against training."""

    def prepare(self, values: Any) -> np.ndarray:
        """Some rows as features (n, d)."""
        return self.features.transform(values.reshape(len(values), len(self.features.median)))

    @property
    def groups(self) -> Groups | None:
        """The groups that rows are judged within."""
        return None if self.columns is None else self.columns.groups

    def with_groups(self, groups: Groups) -> Self:
        """The vectorizer with these groups, and what is to be said of them."""
        columns = self.columns
        assert columns is not None
        notes = [groups.note if columns.groups and note == columns.groups.note else note for note in columns.notes]
        return replace(self, columns=replace(columns, groups=groups, notes=notes))

    def groups_of(self, values: Any) -> np.ndarray | None:
        """The group of each of these rows (n,), -1 for one unseen in training; None where there are no groups."""
        return None if self.groups is None else self.groups.codes(values)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        """The typical values of each column in the training rows, unless these are on disk, that are normal (n,)."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """What can be read of it; the scaling is arrays."""
        return {
            "columns": None if self.columns is None else self.columns.to_plain(),
            "form": None if self.form is None else asdict(self.form),
            "columns_in": self.columns_in,
            "names": self.names and list(self.names),
        }

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: nothing that can be worked out again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row as the encoder takes it."""
        return (self.features.width,) if self.form is None else self.form.shape

    @property
    def labels(self) -> list[str]:
        """The names of the columns or channels, or their places."""
        return names_or_places(self.names, self.columns_in)

    def sides(self, one_sided: Any) -> np.ndarray:
        """Which side of each number matters, by these settings."""
        return sides_of(one_sided, self.labels)


def vectorizer_for(X: Any, config: Any) -> type[Vectorizer]:
    """The vectorizer for the kind of rows that X and the settings ask for."""
    from addml.inputs.array import ArrayVectorizer, ImageVectorizer, PhotoVectorizer
    from addml.inputs.frame import has_other_than_numbers, is_frame  # the kinds of rows import this module
    from addml.inputs.series_vectorizer import SeriesVectorizer
    from addml.inputs.table import TableVectorizer

    if config.window is not None:
        return SeriesVectorizer
    if config.by and not is_frame(X):
        kind = type(X).__name__
        raise ValueError(f"by={list(config.by)!r} names columns of a data frame or an Arrow table, and X is {kind}")
    if isinstance(X, (str, os.PathLike)) or getattr(X, "ndim", 2) in (3, 4) or config.takes_images:
        return PhotoVectorizer if config.frozen else ImageVectorizer
    return TableVectorizer if config.by or has_other_than_numbers(X) else ArrayVectorizer


def vectorizer_from_json(document: dict[str, Any], features: Features, *, photographs: bool) -> Vectorizer:
    """The vectorizer of a saved model; raises ValueError where its parts do not fit together."""
    from addml.inputs.array import ArrayVectorizer, ImageVectorizer, PhotoVectorizer
    from addml.inputs.series_vectorizer import SeriesVectorizer
    from addml.inputs.table import Columns, TableVectorizer

    names, given, numbers = document["names"], document["columns_in"], len(features.median)
    own: dict[str, Any] = {"columns_in": given, "names": names and tuple(names), "features": features}
    if document["columns"] is not None:
        columns = Columns.from_plain(document["columns"])
        one: Vectorizer = TableVectorizer(columns=columns, **own)
        fits = len(columns.names) == numbers and set(columns.used) <= set(names)
    elif document["form"] is not None:
        form = Form.from_json(document["form"])
        images = PhotoVectorizer if photographs else ImageVectorizer
        one = (SeriesVectorizer if form.is_series else images)(form=form, **own)
        fits = given == (form.channels if form.is_series else form.size) and form.size == numbers
    else:
        one, fits = ArrayVectorizer(**own), given == numbers
    named = names is None or (len(set(names)) == given and all(isinstance(name, str) for name in names))
    gaps = features.gaps.tolist()
    if type(given) is not int or not named or not fits or gaps != sorted({*gaps} & {*range(numbers)}):
        raise ValueError(f"columns_in={given!r}, the names {names} and {numbers} medians do not fit together")
    return one


def names_or_places(names: Sequence[str] | None, columns: int) -> list[str]:
    """The names of columns, or their places as text."""
    return list(names) if names is not None else list(map(str, range(columns)))


def check_sides(one_sided: Any) -> None:
    """Columns and the side of each that matters, or None."""
    if one_sided is not None and not isinstance(one_sided, Mapping):
        raise ValueError(f"one_sided={one_sided!r} must map columns to 'high' or 'low', such as {{'amount': 'high'}}")
    for column, side in (one_sided or {}).items():
        if side not in ("high", "low"):
            raise ValueError(f"one_sided={{{column!r}: {side!r}}}: use 'high' or 'low'")


def sides_of(one_sided: Any, names: Sequence[str | None]) -> np.ndarray:
    """Which side of each column matters: 1 high, -1 low, 0 both; None names a feature that is only part of a column."""
    check_sides(one_sided)
    sides, known = np.zeros(len(names), np.int64), [name for name in names if name is not None]
    for column, side in (one_sided or {}).items():
        if str(column) not in known:
            hint = did_you_mean(str(column), known) or f" The columns of numbers are: {listed(known, 10)}."
            raise ValueError(f"one_sided names {column!r}, which is not a column of numbers here.{hint}")
        sides[list(names).index(str(column))] = 1 if side == "high" else -1
    return sides
