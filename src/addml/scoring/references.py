"""References: which of them a row is, which scores leave out, and how far rows lie from them along plain columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, convert, copy, index_like, namespace, to_numpy

NO_ROWS = np.empty(0, np.int64)
FEW = 5  # values of a column; with twice as many a product takes as long as the differences themselves
LARGEST = 32767  # of 16 bits
AT_ONCE = 2**16  # differences that are taken in one call: of a row or two
COARSEST = 0.05  # deviations; a step that is larger would matter
TILE = 2**18  # differences at a time, which then stay in a core's cache
NO_BUFFER = 16  # elements, the least that NumPy takes

SelfMatches = tuple[Array, Array]  # places of rows that are references themselves, and of those references


def row_keys(x: Array) -> Array:
    """A hash (b,) of every row of float32 numbers (b, d)."""
    factors = index_like(_factors(x.shape[1]), x)
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x + 0.0).view(np.int32).astype(np.int64) @ factors  # 0.0: there is a -0.0 too
    return ((x + 0.0).contiguous().view(namespace(x).int32).long() * factors).sum(1)


@lru_cache(maxsize=16)
def _factors(columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(2**40, 2**62, columns) | 1


class Keys(NamedTuple):
    """Distinct hashes (k,) of the references, ascending, and the place of the first reference of each, (k,)."""

    distinct: Array
    places: Array


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d). A row that equals several of them matches the first; the others are neighbours."""
    keys = row_keys(rows)
    distinct, places = np.unique(to_numpy(keys), return_index=True)
    return Keys(index_like(distinct, keys), index_like(places, keys))


def self_matches(x: Array, keys: Keys) -> SelfMatches:
    """Places of the rows of x that equal a reference to the last bit, and of those references."""
    found = row_keys(x)
    xp = namespace(x)
    at, last = xp.searchsorted(keys.distinct, found), len(keys.distinct) - 1
    at = np.minimum(at, last) if isinstance(at, np.ndarray) else at.clip(max=last)  # np.clip takes three times as long
    rows = xp.where(keys.distinct[at] == found)[0]
    return rows, keys.places[at[rows]]


@dataclass(frozen=True)
class Overlaps:
    """Windows of a series that share steps with references, and are near to these for no other reason."""

    rows: np.ndarray  # (k,) windows that are references, ascending
    references: np.ndarray  # (k,) those references
    first: np.ndarray  # (n,) the step at which each of all windows begins
    window: int  # steps

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], keys: Keys, first: np.ndarray, window: int) -> Overlaps:
        """Look up all windows, which come flat in blocks (b, d) one after the other."""
        done, rows, references = 0, [NO_ROWS], [NO_ROWS]
        for block in blocks:
            own, matched = self_matches(block, keys)
            rows, references, done = [*rows, own + done], [*references, matched], done + len(block)
        return cls(np.concatenate(rows), np.concatenate(references), first, window)

    def part(self, windows: slice, like: Array) -> SelfMatches:
        """Some windows, counted from the first of them, and the references that they share steps with."""
        around = windows.start - self.window + 1, windows.stop + self.window - 1
        some = slice(*np.searchsorted(self.rows, around))
        itself, reference = self.rows[some, None], self.references[some, None]
        beside = itself + np.arange(1 - self.window, self.window)  # (k', 2 window - 1)
        which = np.nonzero((beside >= windows.start) & (beside < windows.stop))
        pairs = np.stack([beside[which], reference[which[0], 0]])
        # not the difference of their places: steps may be missing, or of another series
        apart = abs(self.first[pairs[0]] - self.first[itself[which[0], 0]])
        rows, references = np.unique(pairs[:, apart < self.window], axis=1)
        return index_like(rows - windows.start, like), index_like(references, like)


# Distances along columns: the differences of two rows, added up in whole steps of 16 bits.
#
# Columns in which references take few values, such as those of a category, are one matrix product. From one value of a
# reference to the next, its distance to a row changes by an amount that depends on the row alone; the distance is that
# to the lowest value plus the changes on the way up to the reference's own.


@dataclass(frozen=True)
class Levels:
    """The columns of few values, which are whole numbers from 0.

    Numbers and sums are whole and less than 2^24, so that float32 holds them exactly, added up in any order.
    """

    many: np.ndarray  # (d,) flags of the other columns
    feature: np.ndarray  # (k,) the column of every rise from a value to the next, in order
    lower: Array  # (k,)
    upper: Array  # (k,)
    risen: Array  # (k, R) 1 where a reference has risen so far, else 0

    @classmethod
    def of(cls, columns: Array, like: Array) -> Levels:
        """References by column (d, R), whole numbers of which the least is 0; `like` has the dtype to work in."""
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
        """The distances (b, R) of rows (b, d) of whole numbers, none of them below 0."""
        x = convert(whole, self.lower)
        lowest = x[:, index_like(~self.many, x)].sum(1)[:, None]
        x = x[:, index_like(self.feature, x)]
        return (abs(x - self.upper) - abs(x - self.lower)) @ self.risen + lowest


@dataclass(frozen=True)
class ColumnReferences:
    """References by column, (d, R), in whole steps where those are fine enough; a step of 0 is none."""

    columns: Array
    weight: Array
    low: Array
    high: Array
    step: float
    levels: Levels | None = None  # with whole steps
    counted: Array | None = None  # the columns that count, where not all do

    @classmethod
    def of(cls, rows: Array, weight: Array) -> ColumnReferences:
        """References (R, d), and how much a step along each column counts (d,)."""
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
        """The distances (b, R) of rows (b, d) to the references within their range, and what lies beyond it (b,)."""
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
    """The nearest whole numbers of 16 bits."""
    return np.rint(x).astype(np.int16) if isinstance(x, np.ndarray) else x.round().to(namespace(x).int16)


def _added_up(x: Array, columns: Array, places: np.ndarray) -> Array:
    """The sums over the columns in these places of |x - r|, (b, R), of rows (b, d) and references by column (d, R)."""
    if not isinstance(x, np.ndarray):
        total = columns.new_zeros((len(x), columns.shape[1]))
        return _add_up(x, columns, places, total, namespace(x).empty_like(total))
    if len(x) * len(places) * columns.shape[1] <= AT_ONCE:
        if len(places) < len(columns):
            x, columns = x[:, places], columns[places]
        apart = x[:, :, None] - columns
        return np.abs(apart, out=apart).sum(1, dtype=columns.dtype)  # in the same order
    total = np.zeros((len(x), columns.shape[1]), columns.dtype)
    size = max(1, TILE // columns.shape[1])
    part = np.empty_like(total[:size])
    with np.errstate():  # where it ends, so does the next line
        np.setbufsize(NO_BUFFER)  # what is as short as a row would be copied into larger pieces first
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            _add_up(x[rows], columns, places, total[rows], part[: len(x) - start])
    return total


def _add_up(x: Array, columns: Array, places: np.ndarray, total: Array, part: Array) -> Array:
    """The same added to a total (b, R), with room for one part of it."""
    xp = namespace(x)
    for place in places:
        xp.subtract(x[:, place : place + 1], columns[place], out=part)
        xp.abs(part, out=part)
        total += part
    return total
