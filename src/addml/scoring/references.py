"""References: rows that are references themselves, and distances to references along columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, convert, copy, index_like, namespace, to_numpy

NO_ROWS = np.empty(0, np.int64)
FEW = 5  # values of a column: with 10 a product is no faster than the differences
LARGEST = 32767  # of int16
AT_ONCE = 2**16  # differences computed in one call
COARSEST = 0.05  # deviations: a larger step would be imprecise
TILE = 2**18  # differences at a time, so that they stay in the cache
NO_BUFFER = 16  # elements: the smallest buffer NumPy accepts

SelfMatches = tuple[Array, Array]  # positions of rows that are references, and of these references


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
    """Distinct hashes (k,) of the references, ascending, and the first reference with each, (k,)."""

    distinct: Array
    places: Array


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d). A row matches the first of equal references; the others are neighbours."""
    keys = row_keys(rows)
    distinct, places = np.unique(to_numpy(keys), return_index=True)
    return Keys(index_like(distinct, keys), index_like(places, keys))


def self_matches(x: Array, keys: Keys) -> SelfMatches:
    """Positions of the rows of x that equal a reference bit for bit, and of these references."""
    found = row_keys(x)
    xp = namespace(x)
    at = xp.searchsorted(keys.distinct, found)
    at = at * (at < len(keys.distinct))  # a hash beyond the last one matches none; cheaper than `clip` for one row
    rows = xp.where(keys.distinct[at] == found)[0]
    return rows, keys.places[at[rows]]


@dataclass(frozen=True)
class Overlaps:
    """Windows that share steps with references: these would be near for that reason alone."""

    rows: np.ndarray  # (k,) windows that are references, ascending
    references: np.ndarray  # (k,) those references
    first: np.ndarray  # (n,) the step at which each window begins
    window: int  # steps

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], keys: Keys, first: np.ndarray, window: int) -> Overlaps:
        """Look up all windows, flat, in consecutive blocks (b, d)."""
        done, rows, references = 0, [NO_ROWS], [NO_ROWS]
        for block in blocks:
            own, matched = self_matches(block, keys)
            rows, references, done = [*rows, own + done], [*references, matched], done + len(block)
        return cls(np.concatenate(rows), np.concatenate(references), first, window)

    def part(self, windows: slice, like: Array) -> SelfMatches:
        """Pairs of windows, counted from the start of the slice, and references that share steps."""
        around = windows.start - self.window + 1, windows.stop + self.window - 1
        some = slice(*np.searchsorted(self.rows, around))
        itself, reference = self.rows[some, None], self.references[some, None]
        beside = itself + np.arange(1 - self.window, self.window)  # (k', 2 window - 1)
        which = np.nonzero((beside >= windows.start) & (beside < windows.stop))
        pairs = np.stack([beside[which], reference[which[0], 0]])
        # not the difference of positions: steps may be missing or belong to another series
        apart = abs(self.first[pairs[0]] - self.first[itself[which[0], 0]])
        rows, references = np.unique(pairs[:, apart < self.window], axis=1)
        return index_like(rows - windows.start, like), index_like(references, like)


# Distances along columns: sums of absolute differences, in 16-bit whole steps.
#
# Columns in which references have few values, such as categories, take one matrix product: from one value to the next,
# the distance to a row changes by an amount that depends on the row alone. So the distance is that to the lowest value
# plus the changes up to the value of the reference.


@dataclass(frozen=True)
class Levels:
    """The columns with few values, as whole numbers from 0.

    All sums stay under 2^24, so float32 is exact in any order.
    """

    many: np.ndarray  # (d,) flags of the other columns
    feature: np.ndarray  # (k,) the column of each rise from one value to the next
    lower: Array  # (k,)
    upper: Array  # (k,)
    risen: Array  # (k, R) 1 if the reference is at or above `upper`, else 0

    @classmethod
    def of(cls, columns: Array, like: Array) -> Levels:
        """For references by column (d, R), as whole numbers from 0; `like` has the dtype to compute in."""
        values = [np.unique(column) for column in to_numpy(columns)]
        many = np.array([len(own) > FEW for own in values])
        few = [own[: 0 if left else None] for own, left in zip(values, many, strict=True)]
        feature = np.repeat(np.arange(len(few)), [len(own[1:]) for own in few])
        lower, upper = (
            convert(index_like(np.concatenate([own[ends] for own in few]), like), like)
            for ends in (slice(None, -1), slice(1, None))
        )
        return cls(many, feature, lower, upper, convert(columns[index_like(feature, like)] >= upper[:, None], like))

    def distances(self, whole: Array) -> Array:
        """Distances (b, R) of rows (b, d) of whole numbers from 0."""
        x = convert(whole, self.lower)
        lowest = x[:, index_like(~self.many, x)].sum(1)[:, None]
        x = x[:, index_like(self.feature, x)]
        return (abs(x - self.upper) - abs(x - self.lower)) @ self.risen + lowest


@dataclass(frozen=True)
class ColumnReferences:
    """References by column (d, R), in whole steps if these are fine enough, else with a step of 0."""

    columns: Array
    weight: Array
    low: Array
    high: Array
    step: float
    levels: Levels | None = None  # with whole steps
    counted: Array | None = None  # the columns with a weight, if not all have one

    @classmethod
    def of(cls, rows: Array, weight: Array) -> ColumnReferences:
        """For references (R, d) and weights of the columns (d,)."""
        counted = np.flatnonzero(to_numpy(weight))
        if 0 < len(counted) < len(weight):
            places = index_like(counted, rows)
            return replace(cls.of(rows[:, places], weight[places]), counted=places)
        weighted = rows * weight
        xp, columns = namespace(rows), copy(weighted.T)
        low, high = xp.amin(weighted, 0), xp.amax(weighted, 0)
        step = float(to_numpy(high - low).sum(dtype=np.float64)) / max(1, LARGEST - len(columns))
        if not 0 < step <= COARSEST or len(columns) >= LARGEST:
            return cls(columns, weight, low, high, 0.0)
        whole = _whole((columns - low[:, None]) / step)
        return cls(whole, weight, low, high, step, Levels.of(whole, low))

    def distances(self, x: Array) -> tuple[Array, Array]:
        """Distances (b, R) of rows (b, d), clipped to the range of the references, and the part (b,) beyond it."""
        x = (x if self.counted is None else x[:, self.counted]) * self.weight
        inside = namespace(x).minimum(namespace(x).maximum(x, self.low), self.high)
        beyond = abs(x - inside).sum(1)
        if self.levels is None:
            return _added_up(inside, self.columns, np.arange(len(self.columns))), beyond
        whole, many = _whole((inside - self.low) / self.step), np.flatnonzero(self.levels.many)
        steps = self.levels.distances(whole) if len(many) < len(self.columns) else 0
        if len(many):
            steps = convert(_added_up(whole, self.columns, many), inside) + steps
        return steps * self.step, beyond


def _whole(x: Array) -> Array:
    """Rounded to int16."""
    return np.rint(x).astype(np.int16) if isinstance(x, np.ndarray) else x.round().to(namespace(x).int16)


def _added_up(x: Array, columns: Array, places: np.ndarray) -> Array:
    """Sums (b, R) over the columns at `places` of |x - r|, for rows (b, d) and references by column (d, R)."""
    if not isinstance(x, np.ndarray):
        total = columns.new_zeros((len(x), columns.shape[1]))
        return _add_up(x, columns, places, total, namespace(x).empty_like(total))
    if len(x) * len(places) * columns.shape[1] <= AT_ONCE:
        if len(places) < len(columns):
            x, columns = x[:, places], columns[places]
        apart = x[:, :, None] - columns
        return np.abs(apart, out=apart).sum(1, dtype=columns.dtype)  # in the order of `_add_up`
    total = np.zeros((len(x), columns.shape[1]), columns.dtype)
    size = max(1, TILE // columns.shape[1])
    part = np.empty_like(total[:size])
    with np.errstate():  # restores the buffer size at its end
        np.setbufsize(NO_BUFFER)  # else NumPy buffers arrays as short as a row
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            _add_up(x[rows], columns, places, total[rows], part[: len(x) - start])
    return total


def _add_up(x: Array, columns: Array, places: np.ndarray, total: Array, part: Array) -> Array:
    """Add these sums to `total` (b, R), with `part` as scratch space."""
    xp = namespace(x)
    for place in places:
        xp.subtract(x[:, place : place + 1], columns[place], out=part)
        xp.abs(part, out=part)
        total += part
    return total
