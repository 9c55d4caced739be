"""From a table of numbers with gaps to standardised float32 rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLUMNS_AT_ONCE = 64
FARTHEST = 1e9  # deviations; what lies farther is as far as anything, and float32 products stay finite


@dataclass(frozen=True)
class Features:
    """How columns become features: gaps take the training median and a flag, then all is standardised."""

    median: np.ndarray  # (d,)
    gaps: np.ndarray  # columns that had gaps in training, each with a flag of its own behind the columns
    mean: np.ndarray  # (d + flags,)
    scale: np.ndarray  # (d + flags,), 1 where a column is constant
    sides: np.ndarray  # (d,): 1 where only high values matter, -1 where only low ones, else 0

    @classmethod
    def fit(cls, X: np.ndarray, sides: np.ndarray | None = None) -> Features:
        """Learn medians, means and deviations from X (n, d)."""
        sides = np.zeros(X.shape[1], np.int64) if sides is None else sides
        blocks = [slice(start, start + COLUMNS_AT_ONCE) for start in range(0, X.shape[1], COLUMNS_AT_ONCE)]
        parts = [_statistics(X[:, block], sides[block]) for block in blocks]
        median, mean, scale, share = (np.concatenate(part) for part in zip(*parts, strict=True))
        gaps = np.flatnonzero(share > 0)
        deviation = np.sqrt(share[gaps] * (1 - share[gaps]))
        flags = np.where(deviation > 0, deviation, 1.0)
        return cls(median, gaps, np.concatenate([mean, share[gaps]]), np.concatenate([scale, flags]), sides)

    @property
    def width(self) -> int:
        """How many features a row has."""
        return len(self.mean)

    @property
    def empty(self) -> np.ndarray:
        """Columns that had nothing but gaps in training."""
        empty: np.ndarray = self.gaps[self.mean[len(self.median) :] == 1]
        return empty

    def transform(self, X: np.ndarray) -> np.ndarray:
        """X (n, d) as float32 features (n, width); a value over a billion deviations out counts as that far."""
        columns = X.shape[1]
        values = np.empty((len(X), self.width))
        with np.errstate(over="ignore", invalid="ignore"):
            values[:, :columns] = X  # a copy and then in place: faster than subtracting across types
            _fold(values[:, :columns], self.sides, self.median)
            values[:, :columns] -= self.mean[:columns]
            values[:, columns:] = -self.mean[columns:]
            values /= self.scale
            features = values.astype(np.float32)
            if not np.isfinite(features.sum()):
                self._mend(X, values)
                features = values.astype(np.float32)
        return np.clip(features, -FARTHEST, FARTHEST, out=features)

    def _mend(self, X: np.ndarray, values: np.ndarray) -> None:
        """Fill gaps, and divide before subtracting where a difference is beyond float64; in the columns with such."""
        columns = X.shape[1]
        mean, scale = self.mean[:columns], self.scale[:columns]
        for column in np.flatnonzero(~np.isfinite(values[:, :columns].sum(axis=0))):
            own, missing = values[:, column], np.isnan(X[:, column])
            own[missing] = (self.median[column] - mean[column]) / scale[column]
            far = np.isinf(own)
            own[far] = X[far, column] / scale[column] - mean[column] / scale[column]
        for flag, column in enumerate(self.gaps, start=columns):
            values[:, flag] = (np.isnan(X[:, column]) - self.mean[flag]) / self.scale[flag]

    def new_gaps(self, X: np.ndarray) -> np.ndarray:
        """Columns of X with gaps that had none in training."""
        with np.errstate(over="ignore", invalid="ignore"):
            if X.dtype.kind != "f" or np.isfinite(X.sum()):
                return np.empty(0, np.int64)
        return np.setdiff1d(np.flatnonzero(np.isnan(X).any(axis=0)), self.gaps)


def _fold(X: np.ndarray, sides: np.ndarray, median: np.ndarray) -> None:
    """Put the median in place of values on the side that does not matter, in place."""
    for column in np.flatnonzero(sides):
        keep = np.maximum if sides[column] > 0 else np.minimum
        keep(X[:, column], median[column], out=X[:, column])  # a gap stays a gap


def _statistics(X: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, ...]:
    """Median, mean, deviation and share of gaps of each column, gaps filled by the median."""
    X = np.array(X, np.float64, order="C")  # sums round alike whatever the order in memory
    missing = np.isnan(X)
    share, median = missing.mean(axis=0), 2 * np.median(X / 2, axis=0)  # halves: the sum of two may overflow
    for column in np.flatnonzero(share > 0):
        known = X[~missing[:, column], column]
        median[column] = 2 * np.median(known / 2) if len(known) else 0.0
        X[missing[:, column], column] = median[column]
    _fold(X, sides, median)
    low, high = X.min(axis=0), X.max(axis=0)
    largest = np.maximum(np.maximum(-low, high), np.finfo(float).tiny)  # values around 1e200 must not overflow
    X /= largest
    mean, scale = X.mean(axis=0), X.std(axis=0)
    constant = low == high
    mean, scale = np.where(constant, low, mean * largest), np.where(constant, 1.0, scale * largest)
    return median, mean, np.where(scale > 0, scale, 1.0), share
