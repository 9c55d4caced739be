"""A vectorizer turns what a user passes into rows of float32 features, first in training and then as in training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from addml.inputs.rows import Rows
from addml.parameters import Part, check_flag, check_whole
from addml.preprocessing.profile import ColumnProfile
from addml.preprocessing.scaling import Features
from addml.text import did_you_mean, listed

if TYPE_CHECKING:
    from addml.inputs.table import Columns
    from addml.preprocessing.groups import Groups


LONGEST = 2**20  # window, in steps
STRIDES = 4  # windows to learn from that begin within one, unless a stride is given
RANKS = {"images": 3, "series": 2}  # of one row


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

    An image is (channels, height, width), a window of a series (steps, channels). Behind the preparation all rows are
    flat; the encoder alone lays them out again.
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
        return self.shape[-1] if self.kind == "series" else self.shape[0]

    def channel_of(self) -> np.ndarray:
        """The channel that each number of a flat row belongs to, (size,)."""
        numbers = np.arange(self.size)
        return numbers % self.channels if self.kind == "series" else numbers // (self.size // self.channels)

    def counts(self) -> np.ndarray:
        """How much each number of a flat row counts along plain columns, (size,): of a window its last step alone."""
        if not self.is_series:
            return np.ones(self.size, np.float32)
        return (np.arange(self.size) >= self.size - self.channels).astype(np.float32)

    def to_plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "shape": list(self.shape), "causal": self.causal}

    @classmethod
    def from_plain(cls, document: dict[str, Any]) -> Form:
        """The form that `to_plain` described; raises ValueError where it is none."""
        kind, shape = document["kind"], tuple(document["shape"])
        if RANKS.get(kind) != len(shape) or any(type(length) is not int or length < 1 for length in shape):
            raise ValueError(f"rows of kind {kind!r} and shape {shape}")
        if type(document["causal"]) is not bool:
            raise ValueError(f"causal={document['causal']!r}")
        return cls(kind, shape, document["causal"])


class Settings(Protocol):
    """The settings of a detector that concern its vectorizer."""

    @property
    def one_sided(self) -> Mapping[Any, str] | None: ...
    @property
    def robust(self) -> bool: ...
    @property
    def frozen(self) -> bool: ...
    @property
    def window(self) -> Window | None: ...
    @property
    def by(self) -> tuple[str, ...]: ...


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
    def fit(cls, X: Any, settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Self, Rows]:
        """Learn from X, and read its rows."""

    @abstractmethod
    def read(self, X: Any) -> Rows:
        """The rows of X, checked against training."""

    @abstractmethod
    def prepare(self, values: Any) -> np.ndarray:
        """Some rows as features (n, d)."""

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
            "form": None if self.form is None else self.form.to_plain(),
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
    """Which side of each column matters: 1 high, -1 low, 0 both; None is the name of what is no column by itself."""
    check_sides(one_sided)
    marks, known = np.zeros(len(names), np.int64), [name for name in names if name is not None]
    for column, side in (one_sided or {}).items():
        if str(column) not in known:
            hint = did_you_mean(str(column), known) or f" The columns of numbers are: {listed(known, 10)}."
            raise ValueError(f"one_sided names {column!r}, which is not a column of numbers here.{hint}")
        marks[list(names).index(str(column))] = 1 if side == "high" else -1
    return marks
