"""Which references a row is itself: it is no neighbour of itself, nor of copies, nor of windows that overlap it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, index_like, namespace, to_numpy

NOWHERE = np.empty(0, np.int64)
OFTEN = 8  # times as often as rows on average: what stands among the references so often is its own neighbour

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
    """Keys (k,) of the references that are no neighbours of rows equal to them, and where these stand, (k,).

    The keys are there in main memory in order and as a set, too.
    """

    all: Array
    places: Array
    ordered: Array
    known: frozenset[int]


def reference_keys(rows: Array) -> Keys:
    """The keys of references (R, d).

    A row is no neighbour of itself, nor of its copies, which a table may hold for no reason of their own: they would
    put training rows nearer than any new row can lie. But what stands there far more often than other rows do, or may
    come about by chance, as where columns have few values, is where rows lie, new ones too: then only one of its
    copies is the row itself.
    """
    keys = row_keys(rows)
    places = index_like(_themselves(to_numpy(keys), to_numpy(rows)), keys)
    own = keys[places]
    return Keys(own, places, np.sort(own) if isinstance(own, np.ndarray) else own, frozenset(own.tolist()))


def _themselves(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The places of references (R, d) with these keys (R,), but of copies that count only the first."""
    distinct, first, which, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if len(distinct) == len(keys):
        return np.arange(len(keys))
    common = (counts * len(distinct) >= OFTEN * len(keys)) | _come_by_chance(rows[first], len(keys))
    alone = ~common[which]
    alone[first] = True
    return np.flatnonzero(alone)


def _come_by_chance(distinct: np.ndarray, rows: int) -> bool:
    """Whether two of so many rows would be alike, if these (k, d) are all there are and columns were independent."""
    k, pairs = len(distinct), rows * (rows - 1) / 2
    for column in distinct.T:
        if pairs < 1:
            return False
        _, counts = np.unique(column, return_counts=True)
        pairs *= (counts * (counts - 1.0)).sum() / max(1, k * (k - 1))
    return pairs >= 1


def own_references(x: Array, keys: Keys) -> Own:
    """Places of the rows of x that equal references to the last bit, and of those that are no neighbours of them."""
    own = row_keys(x)
    if not isinstance(x, np.ndarray):
        rows, references = (own[:, None] == keys.all).nonzero(as_tuple=True)
        return rows, keys.places[references]
    if len(own) == 1 and own.item() not in keys.known:  # quickly, as for a stream
        return NOWHERE, NOWHERE
    found = np.flatnonzero(keys.ordered.take(np.searchsorted(keys.ordered, own), mode="clip") == own)
    if not len(found):  # mostly
        return found, found
    rows, references = (own[found, None] == keys.all).nonzero()
    return found[rows], keys.places[references]


def own_of(ids: np.ndarray, own: Own, like: Array) -> Own:
    """The same for rows that are chosen, any number of times, from those."""
    rows, references = map(to_numpy, own)
    first = np.searchsorted(rows, ids)
    counts = np.searchsorted(rows, ids, "right") - first
    places = np.repeat(np.arange(len(ids)), counts)
    steps = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index_like(places, like), index_like(references[np.repeat(first, counts) + steps], like)


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
