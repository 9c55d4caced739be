"""A vectorizer turns what a user passes into rows of float32 features, first in training and then as in training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from addml.inputs.forms import Form
from addml.inputs.rows import Rows
from addml.preprocessing.scaling import Features
from addml.text import did_you_mean, listed

if TYPE_CHECKING:
    from addml.inputs.table import Columns


class Settings(Protocol):
    """The settings of a detector that concern its vectorizer."""

    @property
    def one_sided(self) -> Mapping[Any, str] | None: ...
    @property
    def robust(self) -> bool: ...
    @property
    def window(self) -> int | None: ...
    @property
    def causal(self) -> bool: ...


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
