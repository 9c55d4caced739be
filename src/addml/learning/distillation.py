"""Self-supervised data distillation: which training rows are likely normal, for the coming epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from addml.arrays import Array, index_like, to_numpy
from addml.geometry import count_of, smallest
from addml.learning.state import Member


def distill(scores: Array, members: Sequence[Member]) -> tuple[Array, list[np.ndarray]]:
    """The cut-off of every member (E,) and which rows of M it keeps: at or under the cut-off, or labelled normal.

    Scores are (E, n), infinite behind the end of a member's own rows.
    """
    sizes = [len(member.train) for member in members]
    ks = [count_of(member.normal_ratio, size, least=2) for member, size in zip(members, sizes, strict=True)]
    cutoff = smallest(scores, ks)  # tau^n
    near = to_numpy(scores <= cutoff[:, None])  # P
    return cutoff, [_kept(row[:size], member) for row, size, member in zip(near, sizes, members, strict=True)]


def _kept(near: np.ndarray, member: Member) -> np.ndarray:
    return near if member.sure is None else near | member.sure


def packed(kept: Sequence[np.ndarray], members: Sequence[Member], rows: int) -> np.ndarray:
    """One bit a row of the whole table, set where a member kept it: (E, ceil(rows / 8))."""
    marks = np.zeros((len(members), rows), bool)
    for mark, keep, member in zip(marks, kept, members, strict=True):
        mark[member.train[keep]] = True
    return np.packbits(marks, axis=1)


def padded(parts: Sequence[np.ndarray], like: Array) -> Array:
    """Unequal lists of ids as one (E, longest) array; what pads them is a real id, so that it can be taken."""
    longest = max(len(part) for part in parts)
    if len(parts) == 1:
        return index_like(parts[0][None], like)
    ids = np.zeros((len(parts), longest), np.int64)
    for row, part in zip(ids, parts, strict=True):
        row[: len(part)] = part
        row[len(part) :] = part[0] if len(part) else 0
    return index_like(ids, like)
