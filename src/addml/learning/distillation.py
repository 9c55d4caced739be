"""Self-supervised data distillation: which training rows are likely normal, for the coming epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from addml.arrays import Array, as_like, folder_of, index_like, room, to_numpy
from addml.distances import count_of, smallest
from addml.learning.group import ALONE, Group
from addml.learning.state import Member

Portion = Sequence[tuple[int, int]]  # ranges of rows, ascending, that are shuffled together


def distill(scores: Array, members: Sequence[Member], group: Group = ALONE) -> tuple[Array, list[np.ndarray]]:
    """The cut-off of every member (E,) and which rows of M it keeps: at or under the cut-off, or labelled normal.

    Scores are (E, n), infinite behind the end of a member's own rows. The cut-off is that of the whole group.
    """
    sizes = [len(member.train) for member in members]
    totals = zip(members, group.counts(sizes), strict=True)
    ks = [count_of(member.normal_ratio, size, least=2) for member, size in totals]
    alone = group.size == 1
    cutoff = smallest(scores, ks) if alone else as_like(group.smallest(to_numpy(scores), ks), scores)  # tau^n
    near = _at_most(scores, cutoff[:, None])  # P
    own = zip(near, sizes, members, strict=True)
    return cutoff, [row[:n] if member.sure is None else row[:n] | member.sure for row, n, member in own]


def _at_most(scores: Array, cutoff: Array) -> np.ndarray:
    if not isinstance(scores, np.ndarray):
        return to_numpy(scores <= cutoff)
    near: np.ndarray = np.less_equal(scores, cutoff, out=room(scores.shape, bool, scores))
    return near


def packed(kept: Sequence[np.ndarray], members: Sequence[Member], rows: int) -> np.ndarray:
    """One bit a row of the whole table, set where a member kept it: (E, ceil(rows / 8))."""
    marks = np.zeros((len(members), rows), bool)
    for mark, keep, member in zip(marks, kept, members, strict=True):
        mark[member.train] = keep
    return np.packbits(marks, axis=1)


class Stacked:
    """As many ids of every member, each list in a file: (E, n), put together some columns at a time."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts, self.shape = parts, (len(parts), len(parts[0]))

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, at: tuple[slice, slice]) -> np.ndarray:
        """Some columns of all members."""
        return np.stack([part[at[1]] for part in self.parts])


def padded(parts: Sequence[np.ndarray], like: Array) -> Array:
    """Unequal lists of ids as one (E, longest) array; what pads them is a real id, so that it can be taken."""
    if folder_of(parts[0]) is not None:
        return Stacked(parts)
    longest = max(len(part) for part in parts)
    if len(parts) == 1:
        return index_like(parts[0][None], like)
    ids = np.zeros((len(parts), longest), np.int64)
    for row, part in zip(ids, parts, strict=True):
        row[: len(part)] = part
        row[len(part) :] = part[0] if len(part) else 0
    return index_like(ids, like)


def within(ids: np.ndarray, chosen: np.ndarray, portion: Portion | None) -> np.ndarray:
    """The chosen ones of ascending ids, or those of them within the ranges of a portion."""
    if portion is None:
        return np.asarray(ids[chosen])
    ends = [slice(*np.searchsorted(ids, span)) for span in portion]
    return np.concatenate([ids[part][chosen[part]] for part in ends])
