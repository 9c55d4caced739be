"""A vectorizer learns from the training rows how to turn X into rows of float32 features.

This module is the contract. Each kind of row has a module of its own; `vectorizer_for` picks the vectorizer.
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
from addml.text import IMAGE, SERIES, TABLE, did_you_mean, listed

if TYPE_CHECKING:
    from addml.inputs.series import Sampling
    from addml.inputs.table import Columns
    from addml.preprocessing.groups import Groups

ROWS_AT_ONCE = 65536
LONGEST = 2**20  # window, in steps
STRIDES = 4  # training windows that begin within one window, unless a stride is given
RANKS = {IMAGE: 3, SERIES: 2}  # dimensions of one row


class Rows:
    """Rows of features (n, d), in memory or prepared on demand."""

    values: Any
    original: Any = None  # the array or table that they come from, if that is known
    groups: np.ndarray | None = None  # (n,) the group of each row, if rows are judged within groups
    sampling: Sampling | None = None  # how the steps of a series were made even

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and the shape of one before it is prepared."""
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
        """The ranges of rows that are shuffled together; None for all rows."""
        yield None

    def for_training(self, device: str) -> Rows:
        """The rows on the training device; on the CPU, images stay bytes until they are taken."""
        if device == "cpu":
            return self
        parts = [self.slice(start, ROWS_AT_ONCE) for start in range(0, len(self), ROWS_AT_ONCE)]
        return MemoryRows(on_device(np.concatenate(parts), device))


class MemoryRows(Rows):
    """Prepared rows in memory or on a device."""

    def __init__(self, values: Array, groups: np.ndarray | None = None, original: Any = None) -> None:
        self.values, self.groups, self.original = values, groups, original

    def take(self, ids: Array) -> Array:
        return take(self.values, ids)

    def slice(self, start: int, size: int) -> np.ndarray:
        return np.asarray(self.values[start : start + size])

    def for_training(self, device: str) -> Rows:
        return MemoryRows(on_device(self.values, device))


class LazyRows(Rows):
    """Rows of an array, an Arrow table or images that are prepared on demand."""

    def __init__(self, values: Any, prepare: Callable[[Any], np.ndarray], groups: np.ndarray | None = None) -> None:
        self.values, self.prepare, self.groups, self.original = values, prepare, groups, values

    def take(self, ids: np.ndarray) -> np.ndarray:
        flat = ids.reshape(-1)
        is_array = isinstance(self.values, np.ndarray)  # an array's `take` would copy the whole of a view
        features = self.prepare(self.values[flat] if is_array else self.values.take(flat))
        return features.reshape(*ids.shape, features.shape[1])

    def slice(self, start: int, size: int) -> np.ndarray:
        with rows_before(start):
            return self.prepare(self.values[start : start + size])


def as_rows(rows: Rows | np.ndarray) -> Rows:
    """Rows unchanged, or an array of features as rows."""
    return MemoryRows(rows.astype(np.float32, copy=False)) if isinstance(rows, np.ndarray) else rows


def in_row_order(values: np.ndarray, source: Any) -> np.ndarray:
    """The values of steps in the order of the user's rows; `source` has the sampling, whose steps are in time order."""
    return values if source.sampling is None or source.sampling.steps is None else values[source.sampling.steps]


@dataclass(repr=False)
class Window(Part):
    """The window over a series: how many steps the encoder sees at once."""

    length: int | str = "auto"  # steps; "auto" for the period of a single channel, and 10 for several
    stride: int | None = None  # steps between two training windows; None for 8,000 windows, or a quarter of a window
    causal: bool = False  # whether a step is scored by its past only, as `stream` does
    name: ClassVar[str] = "window"

    def check(self) -> None:
        if self.length != "auto":
            check_whole("length", self.length, most=LONGEST)
        if self.stride is not None:
            check_whole("stride", self.stride, most=LONGEST)
        check_flag("causal", self.causal)


@dataclass(frozen=True)
class RowShape:
    """The kind and shape of one row; prepared rows are flat, and only the encoder reshapes them."""

    kind: str
    shape: tuple[int, ...]  # (channels, height, width) of an image, (steps, channels) of a window
    causal: bool = True  # whether a step is scored by its past only, not by all windows over it

    @property
    def is_series(self) -> bool:
        """Whether each row is the window that ends at a step of a series."""
        return self.kind == SERIES

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Colours of an image or quantities of a series; all numbers of a channel share a scale."""
        return self.shape[-1] if self.is_series else self.shape[0]

    def channel_of(self) -> np.ndarray:
        """The channel of each number of a flat row, (size,)."""
        numbers = np.arange(self.size)
        return numbers % self.channels if self.is_series else numbers // (self.size // self.channels)

    def counts(self) -> np.ndarray:
        """The weight of each number of a flat row, (size,): only the last step of a window counts."""
        if not self.is_series:
            return np.ones(self.size, np.float32)
        return (np.arange(self.size) >= self.size - self.channels).astype(np.float32)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RowShape:
        """The shape in a saved model; raises ValueError if it is invalid."""
        row_shape = cls(document["kind"], tuple(document["shape"]), document["causal"])
        if RANKS.get(row_shape.kind) != len(row_shape.shape):
            raise ValueError(f"rows of kind {row_shape.kind!r} and shape {row_shape.shape}")
        return row_shape


@dataclass(frozen=True, kw_only=True)
class Vectorizer(ABC):
    """Turns one kind of row into features; saved with the model."""

    features: Features  # the scaling
    columns_in: int  # columns, channels or numbers of an image in X
    names: tuple[str, ...] | None = None  # of the columns or channels
    columns: Columns | None = None  # of a table that has more than columns of numbers
    row_shape: RowShape | None = None  # of images and windows
    noun: ClassVar[str] = "row"

    @classmethod
    @abstractmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, Rows]:
        """Fit to X with the settings of an addml.config.Config; also returns the rows of X."""

    @abstractmethod
    def read(self, X: Any) -> Rows:
        """The rows of X, checked against training."""

    def prepare(self, values: Any) -> np.ndarray:
        """The values of rows as features (n, d)."""
        return self.features.transform(values.reshape(len(values), len(self.features.median)))

    @property
    def groups(self) -> Groups | None:
        return None if self.columns is None else self.columns.groups

    def with_groups(self, groups: Groups) -> Self:
        assert self.columns is not None
        return replace(self, columns=replace(self.columns, groups=groups))

    def groups_of(self, values: Any) -> np.ndarray | None:
        """The group of each row (n,), -1 if training did not see it; None without groups."""
        return None if self.groups is None else self.groups.codes(values)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        """The profile of each column over the `normal` (n,) training rows; `rows` is None if they are on disk."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """All fields but the scaling, which is saved as arrays."""
        return {
            "columns": None if self.columns is None else self.columns.to_plain(),
            "row_shape": None if self.row_shape is None else asdict(self.row_shape),
            "columns_in": self.columns_in,
            "names": self.names and list(self.names),
        }

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without cached properties."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def kind(self) -> str:
        """TABLE, IMAGE or SERIES."""
        return TABLE if self.row_shape is None else self.row_shape.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row as the encoder sees it."""
        return (self.features.width,) if self.row_shape is None else self.row_shape.shape

    @property
    def labels(self) -> list[str]:
        return labels_of(self.names, self.columns_in)

    def sides(self, one_sided: Any) -> np.ndarray:
        """The side that matters of each number of a row."""
        if self.row_shape is None:
            return sides_of(one_sided, self.labels)
        sides = sides_of(one_sided, labels_of(self.names, self.row_shape.channels))
        return np.asarray(sides[self.row_shape.channel_of()])


def vectorizer_for(X: Any, config: Any) -> type[Vectorizer]:
    from addml.inputs.array import ArrayVectorizer, ImageVectorizer, PhotoVectorizer  # these import this module
    from addml.inputs.frame import has_other_than_numbers, is_frame
    from addml.inputs.series_vectorizer import SeriesVectorizer
    from addml.inputs.table import TableVectorizer

    if config.window is not None:
        return SeriesVectorizer
    if config.by and not is_frame(X):
        raise ValueError(f"by={list(config.by)!r} names columns of a data frame, but X is {type(X).__name__}")
    if isinstance(X, (str, os.PathLike)) or getattr(X, "ndim", 2) in (3, 4) or config.takes_images:
        return PhotoVectorizer if config.frozen else ImageVectorizer
    return TableVectorizer if config.by or has_other_than_numbers(X) else ArrayVectorizer


def vectorizer_from_json(document: dict[str, Any], features: Features, *, photographs: bool) -> Vectorizer:
    """The vectorizer of a saved model; raises ValueError if its names and numbers do not match."""
    from addml.inputs.array import ArrayVectorizer, ImageVectorizer, PhotoVectorizer
    from addml.inputs.series_vectorizer import SeriesVectorizer
    from addml.inputs.table import Columns, TableVectorizer

    names, columns_in, numbers = document["names"], document["columns_in"], len(features.median)
    shared: dict[str, Any] = {"columns_in": columns_in, "names": names and tuple(names), "features": features}
    if document["columns"] is not None:
        columns = Columns.from_plain(document["columns"])
        vectorizer: Vectorizer = TableVectorizer(columns=columns, **shared)
        is_valid = len(columns.names) == numbers and set(columns.used) <= set(names)
    elif document["row_shape"] is not None:
        row_shape = RowShape.from_json(document["row_shape"])
        images = PhotoVectorizer if photographs else ImageVectorizer
        vectorizer = (SeriesVectorizer if row_shape.is_series else images)(row_shape=row_shape, **shared)
        expected = row_shape.channels if row_shape.is_series else row_shape.size
        is_valid = columns_in == expected and row_shape.size == numbers
    else:
        vectorizer = ArrayVectorizer(**shared)
        is_valid = columns_in == numbers
    if not is_valid or (names is not None and len(set(names)) != columns_in):
        raise ValueError(f"columns_in={columns_in!r}, the names {names} and {numbers} medians do not fit together")
    return vectorizer


def labels_of(names: Sequence[str] | None, columns: int) -> list[str]:
    """The names of columns, or their positions as text."""
    return list(names) if names is not None else list(map(str, range(columns)))


def check_sides(one_sided: Any) -> None:
    """Raise ValueError unless `one_sided` is None or maps columns to sides."""
    if one_sided is not None and not isinstance(one_sided, Mapping):
        raise ValueError(f"one_sided={one_sided!r} must map columns to 'high' or 'low', such as {{'amount': 'high'}}")
    for column, side in (one_sided or {}).items():
        if side not in ("high", "low"):
            raise ValueError(f"one_sided={{{column!r}: {side!r}}}: use 'high' or 'low'")


def sides_of(one_sided: Any, names: Sequence[str | None]) -> np.ndarray:
    """The side that matters of each feature: 1 high, -1 low, 0 both; a part of a column has None as its name."""
    sides = np.zeros(len(names), np.int64)
    columns = [name for name in names if name is not None]
    for column, side in (one_sided or {}).items():
        if str(column) not in columns:
            hint = did_you_mean(str(column), columns) or f" The number columns are: {listed(columns, 10)}."
            raise ValueError(f"one_sided names {column!r}, which is not a number column of X.{hint}")
        sides[list(names).index(str(column))] = 1 if side == "high" else -1
    return sides
