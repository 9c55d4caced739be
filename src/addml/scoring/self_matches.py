"""Which reference a row equals: it skips one copy of itself, and windows of a series that overlap it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from addml.arrays import Array, index_like, namespace, to_numpy

if TYPE_CHECKING:
    from addml.scoring.scorers import Piece

NOWHERE = np.empty(0, np.int64)

Own = tuple[Array, Array]  # places of rows that are references themselves, and of those references


def row_keys(x: Array) -> Array:
    """A whole number (b,) for every row of float32 numbers (b, d), the same for the same row."""
    factors = index_like(_factors(x.shape[1]), x)
    if isinstance(x, np.ndarray):
        bits = np.ascontiguousarray(x + 0.0).view(np.int32).astype(np.int64)  # 0.0: there is a -0.0 too
    else:
        bits = (x + 0.0).contiguous().view(namespace(x).int32).long()
    return bits @ factors if isinstance(x, np.ndarray) else (bits * factors).sum(1)


@lru_cache(maxsize=16)
def _factors(columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(2**40, 2**62, columns) | 1


class Keys(NamedTuple):
    """Distinct keys (k,) of the references, ascending, and where each stands first, (k,); in main memory a set too."""

    distinct: Array
    places: Array
    known: frozenset[int]


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d). A row equal to several of them skips the first: the others are its neighbours."""
    keys = row_keys(rows)
    distinct, places = np.unique(to_numpy(keys), return_index=True)
    return Keys(index_like(distinct, keys), index_like(places, keys), frozenset(distinct.tolist()))


def own_references(x: Array, keys: Keys) -> Own:
    """Places of the rows of x that equal a reference to the last bit, and of those references."""
    own = row_keys(x)
    if len(own) == 1 and isinstance(x, np.ndarray) and own.item() not in keys.known:  # quickly, as for a stream
        return NOWHERE, NOWHERE
    xp = namespace(x)
    at = xp.searchsorted(keys.distinct, own).clip(0, len(keys.distinct) - 1)
    rows = xp.where(keys.distinct[at] == own)[0]
    return rows, keys.places[at[rows]]


def own_of(ids: np.ndarray, own: Own, like: Array) -> Own:
    """The same for rows that are chosen, any number of times, from those."""
    rows, references = map(to_numpy, own)
    first = np.searchsorted(rows, ids)
    counts = np.searchsorted(rows, ids, "right") - first
    places = np.repeat(np.arange(len(ids)), counts)
    steps = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index_like(places, like), index_like(references[np.repeat(first, counts) + steps], like)


def changed_rows(x: np.ndarray, parts: list[Piece], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of x those of the parts are, (size,), and their features after the changes, (size, d).

    Rows that are missing are filled up by the first of x.
    """
    ids = np.concatenate([some for some, _, _ in parts])
    ids = np.concatenate([ids, np.zeros(size - len(ids), np.int64)])
    after, done = x[ids], 0
    for some, change, features in parts:
        block = slice(done, done + len(some))
        after[block, features] = x[some[:, None], features] + change  # in float64, as the change is
        done = block.stop
    return ids, after


@dataclass(frozen=True)
class Overlaps:
    """Windows of a series that share steps with references: as near to these as to themselves, for no other reason.

    Those that are references (k,) in their order, which these are (k,), and where each of all windows (n,) begins.
    """

    rows: np.ndarray
    references: np.ndarray
    first: np.ndarray
    window: int

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], keys: Keys, first: np.ndarray, window: int) -> Overlaps:
        """Those of all windows, which come flat in blocks (b, d) one after the other."""
        done, rows, references = 0, [NOWHERE], [NOWHERE]
        for block in blocks:
            own, found = own_references(block, keys)
            rows, references, done = [*rows, own + done], [*references, found], done + len(block)
        return cls(np.concatenate(rows), np.concatenate(references), first, window)

    def part(self, windows: slice, like: Array) -> Own:
        """Some windows, counted from the first of them, and the references that they share steps with."""
        reach = windows.start - self.window + 1, windows.stop + self.window - 1
        some = slice(*np.searchsorted(self.rows, reach))
        itself, reference = self.rows[some, None], self.references[some, None]
        beside = itself + np.arange(1 - self.window, self.window)  # (k', 2 window - 1)
        which = np.nonzero((beside >= windows.start) & (beside < windows.stop))
        pairs = np.stack([beside[which], reference[which[0], 0]])
        apart = abs(
            self.first[pairs[0]] - self.first[itself[which[0], 0]]
        )  # steps may be missing, or of another series
        rows, references = np.unique(pairs[:, apart < self.window], axis=1)
        return index_like(rows - windows.start, like), index_like(references, like)
