"""References: which rows are references themselves, and distances to references along columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, convert, copy, index_like, namespace, to_numpy

NO_ROWS = np.empty(0, np.int64)
MAX_LEVELS = 5  # values of a column in a product: with 10 it is no faster than differences
LARGEST = 32767  # of int16
AT_ONCE = 2**16  # differences computed in one call
MAX_STEP = 0.05  # deviations: a larger step would be imprecise
TILE = 2**18  # differences at a time, so that they stay in the cache
MIN_BUFFER = 16  # elements: the smallest buffer NumPy accepts

SelfMatches = tuple[Array, Array]  # indices of rows that are references, and of these references


def row_keys(x: Array) -> Array:
    """Hashes (b,) of float32 rows (b, d)."""
    factors = index_like(_factors(x.shape[1]), x)
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x + 0.0).view(np.int32).astype(np.int64) @ factors  # + 0.0 turns -0.0 into 0.0
    return ((x + 0.0).contiguous().view(namespace(x).int32).long() * factors).sum(1)


@lru_cache(maxsize=16)
def _factors(columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(2**40, 2**62, columns) | 1


class Keys(NamedTuple):
    """Distinct hashes (k,) of the references, ascending, and the index (k,) of the first reference with each."""

    distinct: Array
    places: Array


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d). A row matches the first of equal references; the others are neighbours."""
    keys = row_keys(rows)
    distinct, first = np.unique(to_numpy(keys), return_index=True)
    return Keys(index_like(distinct, keys), index_like(first, keys))


def self_matches(x: Array, keys: Keys) -> SelfMatches:
    """Indices of the rows of x that equal a reference bit for bit, and of these references."""
    hashes, xp = row_keys(x), namespace(x)
    index = xp.searchsorted(keys.distinct, hashes)
    index = index * (index < len(keys.distinct))  # hashes above all others match none; for one row faster than `clip`
    rows = xp.where(keys.distinct[index] == hashes)[0]
    return rows, keys.places[index[rows]]


@dataclass(frozen=True)
class Overlaps:
    """Windows that share steps with references, which would be near for that reason alone."""

    rows: np.ndarray  # (k,) windows that are references, ascending
    references: np.ndarray  # (k,) the reference that each of them is
    first: np.ndarray  # (n,) the step at which each window begins
    window: int  # steps

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], keys: Keys, first: np.ndarray, window: int) -> Overlaps:
        """Look up all windows, flat, in consecutive blocks (b, d)."""
        rows, references, start = [NO_ROWS], [NO_ROWS], 0
        for block in blocks:
            block_rows, block_references = self_matches(block, keys)
            rows.append(start + block_rows)
            references.append(block_references)
            start += len(block)
        return cls(np.concatenate(rows), np.concatenate(references), first, window)

    def part(self, windows: slice, like: Array) -> SelfMatches:
        """Pairs of windows, counted from the start of the slice, and references that share steps."""
        nearby = slice(*np.searchsorted(self.rows, [windows.start - self.window + 1, windows.stop + self.window - 1]))
        neighbours = self.rows[nearby, None] + np.arange(1 - self.window, self.window)  # (k', 2 window - 1)
        match, offset = np.nonzero((neighbours >= windows.start) & (neighbours < windows.stop))
        pairs = np.stack([neighbours[match, offset], self.references[nearby][match]])
        # not the difference of indices: steps may be missing or belong to another series
        lags = abs(self.first[pairs[0]] - self.first[self.rows[nearby][match]])
        rows, references = np.unique(pairs[:, lags < self.window], axis=1)
        return index_like(rows - windows.start, like), index_like(references, like)


# Distances along columns: sums of absolute differences, in 16-bit whole steps.
#
# Columns in which references have few values, such as categories, take one matrix product: from one value to the next,
# the distance to a row changes by an amount that depends on the row alone. So the distance to a reference is that to
# the lowest value plus the changes up to the reference's value.


@dataclass(frozen=True)
class Levels:
    """The columns with few values, as whole numbers from 0.

    All sums stay under 2^24, so float32 is exact in any order.
    """

    continuous: np.ndarray  # (d,) flags of the other columns
    column: np.ndarray  # (k,) the column of each rise from one value to the next
    lower: Array  # (k,)
    upper: Array  # (k,)
    reached: Array  # (k, R) 1 if the reference is at or above `upper`, else 0

    @classmethod
    def of(cls, columns: Array, like: Array) -> Levels:
        """For references by column (d, R), as whole numbers from 0; `like` has the dtype to compute in."""
        levels = [np.unique(column) for column in to_numpy(columns)]
        continuous = np.array([len(values) > MAX_LEVELS for values in levels])
        levels = [values[:0] if skip else values for values, skip in zip(levels, continuous, strict=True)]
        column = np.repeat(np.arange(len(levels)), [len(values[1:]) for values in levels])
        lower = convert(index_like(np.concatenate([values[:-1] for values in levels]), like), like)
        upper = convert(index_like(np.concatenate([values[1:] for values in levels]), like), like)
        reached = convert(columns[index_like(column, like)] >= upper[:, None], like)
        return cls(continuous, column, lower, upper, reached)

    def distances(self, whole: Array) -> Array:
        """Distances (b, R) of rows (b, d) of whole numbers from 0."""
        x = convert(whole, self.lower)
        to_lowest = x[:, index_like(~self.continuous, x)].sum(1)[:, None]
        x = x[:, index_like(self.column, x)]
        return (abs(x - self.upper) - abs(x - self.lower)) @ self.reached + to_lowest


@dataclass(frozen=True)
class ColumnReferences:
    """References by column (d, R): in whole steps if these are fine enough, else as floats with a step of 0."""

    columns: Array
    weight: Array
    low: Array
    high: Array
    step: float
    levels: Levels | None = None  # with whole steps
    counted: Array | None = None  # the columns with a nonzero weight, unless all have one

    @classmethod
    def of(cls, rows: Array, weight: Array) -> ColumnReferences:
        """For references (R, d) and weights of the columns (d,)."""
        counted = np.flatnonzero(to_numpy(weight))
        if 0 < len(counted) < len(weight):
            index = index_like(counted, rows)
            return replace(cls.of(rows[:, index], weight[index]), counted=index)
        weighted = rows * weight
        xp, columns = namespace(rows), copy(weighted.T)
        low, high = xp.amin(weighted, 0), xp.amax(weighted, 0)
        step = float(to_numpy(high - low).sum(dtype=np.float64)) / max(1, LARGEST - len(columns))
        if not 0 < step <= MAX_STEP or len(columns) >= LARGEST:
            return cls(columns, weight, low, high, 0.0)
        whole = _whole((columns - low[:, None]) / step)
        return cls(whole, weight, low, high, step, Levels.of(whole, low))

    def distances(self, x: Array) -> tuple[Array, Array]:
        """Distances (b, R) of rows (b, d), clipped to the range of the references, and the part (b,) beyond it."""
        x = (x if self.counted is None else x[:, self.counted]) * self.weight
        inside = namespace(x).minimum(namespace(x).maximum(x, self.low), self.high)
        beyond = abs(x - inside).sum(1)
        if self.levels is None:
            return _distances(inside, self.columns, np.arange(len(self.columns))), beyond
        whole, continuous = _whole((inside - self.low) / self.step), np.flatnonzero(self.levels.continuous)
        steps = self.levels.distances(whole) if len(continuous) < len(self.columns) else 0
        if len(continuous):
            steps = convert(_distances(whole, self.columns, continuous), inside) + steps
        return steps * self.step, beyond


def _whole(x: Array) -> Array:
    return np.rint(x).astype(np.int16) if isinstance(x, np.ndarray) else x.round().to(namespace(x).int16)


def _distances(x: Array, columns: Array, chosen: np.ndarray) -> Array:
    """Sums (b, R) of |x - r| over the chosen columns, for rows (b, d) and references by column (d, R)."""
    if not isinstance(x, np.ndarray):
        total = columns.new_zeros((len(x), columns.shape[1]))
        return _add_distances(x, columns, chosen, total, namespace(x).empty_like(total))
    if len(x) * len(chosen) * columns.shape[1] <= AT_ONCE:
        if len(chosen) < len(columns):
            x, columns = x[:, chosen], columns[chosen]
        differences = x[:, :, None] - columns
        return np.abs(differences, out=differences).sum(1, dtype=columns.dtype)  # in the order of `_add_distances`
    total = np.zeros((len(x), columns.shape[1]), columns.dtype)
    size = max(1, TILE // columns.shape[1])
    scratch = np.empty_like(total[:size])
    with np.errstate():  # restores the buffer size at its end
        np.setbufsize(MIN_BUFFER)  # with more, NumPy buffers arrays as short as a row
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            _add_distances(x[rows], columns, chosen, total[rows], scratch[: len(x) - start])
    return total


def _add_distances(x: Array, columns: Array, chosen: np.ndarray, total: Array, scratch: Array) -> Array:
    """Add the sums over the chosen columns to `total` (b, R); `scratch` has the same shape."""
    xp = namespace(x)
    for column in chosen:
        xp.subtract(x[:, column : column + 1], columns[column], out=scratch)
        xp.abs(scratch, out=scratch)
        total += scratch
    return total
