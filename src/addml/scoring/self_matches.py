"""Which reference a row is: scores leave it out, and with it the windows of a series that share steps with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, index_like, namespace, to_numpy

NO_ROWS = np.empty(0, np.int64)

SelfMatches = tuple[Array, Array]  # places of rows that are references themselves, and of those references


def row_keys(x: Array) -> Array:
    """A hash (b,) of every row of float32 numbers (b, d)."""
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
    """Distinct hashes (k,) of the references, ascending, and the place of the first reference of each, (k,)."""

    distinct: Array
    places: Array
    known: frozenset[int]


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d). A row that equals several of them matches the first; the others are neighbours."""
    keys = row_keys(rows)
    distinct, places = np.unique(to_numpy(keys), return_index=True)
    return Keys(index_like(distinct, keys), index_like(places, keys), frozenset(distinct.tolist()))


def self_matches(x: Array, keys: Keys) -> SelfMatches:
    """Places of the rows of x that equal a reference to the last bit, and of those references."""
    found = row_keys(x)
    if len(found) == 1 and isinstance(x, np.ndarray) and found.item() not in keys.known:  # quickly, as for a stream
        return NO_ROWS, NO_ROWS
    xp = namespace(x)
    at = xp.searchsorted(keys.distinct, found).clip(0, len(keys.distinct) - 1)
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
