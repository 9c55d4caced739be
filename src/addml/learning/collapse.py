"""Members whose embeddings meet in one point: a loss of 0 that scores nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from addml.arrays import Array, index_like, namespace, to_numpy
from addml.learning.learner import TakesRows
from addml.learning.state import Member, TrainingState

COLLAPSED = 1e-8  # of the untrained network's mean distance to the centre
ROWS_TO_COMPARE = 1024  # how many rows tell whether scores still differ


def stop_collapsed(
    state: TrainingState, scores: Array, present: Sequence[Member], distinct: Sequence[Callable[[], int]]
) -> bool:
    """Stop the members whose embeddings met in one point; their best network is the last one before that."""
    sizes = [len(member.train) for member in present]
    spread = _means(scores, sizes)
    if state.untrained_spread is None:
        if not np.isfinite(spread).all():
            raise ValueError("the encoder's embeddings of the training rows are not finite before any step; mend it")
        state.untrained_spread = spread[np.argsort(state.active)]  # of all members, in their own order
        return False
    shrunk = ~(spread >= COLLAPSED * state.untrained_spread[state.active])  # true for NaN too
    some = [row[:size] for row, size in zip(to_numpy(scores[:, :ROWS_TO_COMPARE]), sizes, strict=True)]
    tied = [_tied(row, distinct[e]) for e, row in zip(state.active, some, strict=True)]
    gone = shrunk | np.array(tied)
    if not gone.any():
        state.healthy[:] = state.weights
        return False
    ended = state.active[gone]
    state.best[index_like(ended, state.best)] = state.healthy[index_like(gone, state.healthy)]
    state.collapsed[ended], state.best_epoch[ended] = state.epoch, state.epoch - 1
    state.stop(gone)
    return True


def _means(scores: Array, sizes: Sequence[int]) -> np.ndarray:
    """The mean of each member's scores (E, n), which are infinite past its size."""
    if isinstance(scores, np.ndarray):
        return np.array([float(np.add.reduce(row[:size])) / size for row, size in zip(scores, sizes, strict=True)])
    xp = namespace(scores)
    return np.asarray(to_numpy(xp.where(xp.isinf(scores), 0, scores).sum(-1)) / np.asarray(sizes))


def _tied(scores: np.ndarray, distinct_rows: Callable[[], int]) -> bool:
    """Whether fewer than half of the distinct rows have a score of their own; the rows are looked at where they may."""
    ordered = np.sort(scores)
    twice = 2 + 2 * int(np.count_nonzero(ordered[1:] != ordered[:-1]))
    return twice < len(scores) and twice < distinct_rows()


def distinct_rows(rows: TakesRows, member: Member, like: Array) -> int:
    """How many of a member's first rows are distinct."""
    values = to_numpy(rows.take(index_like(member.train[:ROWS_TO_COMPARE], like)))
    return len({row.tobytes() for row in values})
