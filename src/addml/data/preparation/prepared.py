"""What every prepared column offers, whatever its kind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

RARE = 0.02  # of the rows; what is at least as rare as this begins to stand out
HALF = 2.0  # scale of a 0/1 feature of a category: two different values lie half a squared deviation apart
TEXT = math.inf  # what `read` gives for a text in a column of numbers, in which no infinity is allowed


class CellError(ValueError):
    """A cell that does not fit its column. Whoever cut the rows out of a larger table may add to `row`."""

    def __init__(self, column: str, row: int, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem  # rows count from 1

    def __str__(self) -> str:
        return f"column {self.column!r}, row {self.row:,} {self.problem}"


class Prepared(Protocol):
    """One original column: how its values become features, and how they lay in training."""

    @property
    def name(self) -> str:
        """The original column."""

    @property
    def kind(self) -> str:
        """One of "number", "boolean", "date", "category"."""

    @property
    def features(self) -> list[str]:
        """The names of its features."""

    @property
    def scales(self) -> list[float]:
        """What to divide each feature by; NaN for its deviation in training."""

    @property
    def usual(self) -> list[float]:
        """The features of its most ordinary value."""

    @property
    def table(self) -> np.ndarray | None:
        """Where the values are codes, the features of each code (codes, features)."""

    @property
    def shares(self) -> np.ndarray:
        """Shares of the training rows in each bin of `tally`; the last bin holds the gaps."""

    def read(self, column: pa.Array) -> np.ndarray:
        """The values in NumPy (n,): numbers, TEXT for a text among them, days since 1970 or codes of levels."""

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the features of values (n,) into out (n, features)."""

    def tally(self, values: np.ndarray) -> np.ndarray:
        """How many of the values fall into each bin, the gaps last."""

    def strange(self, values: np.ndarray) -> int:
        """How many values lie far outside the training range, or were not seen in training."""

    def to_plain(self) -> dict[str, Any]:
        """The column as a JSON object."""


def rarity(share: np.ndarray | float) -> np.ndarray:
    """How far a value stands out that is as rare as `share`, in deviations: 0 from RARE on, then with the logarithm.

    A share is that of all values at least as rare, a tail as of a p-value: where most values are rare, none stands out.
    """
    return np.log(RARE / np.clip(share, 1e-300, RARE))


def flag_distance(share: np.ndarray | float) -> np.ndarray:
    """How far a missing value lies from a known one, in deviations, where this share of the rows has none.

    As far as false from true, and farther where it is rare.
    """
    return np.asarray(np.maximum(math.sqrt(2) / HALF, rarity(share)))
