"""Steps that the processes of a group make together: with the mean of their gradients, or of their weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, index_like, to_numpy
from addml.learning.group import Group
from addml.learning.learner import TakesRows
from addml.learning.losses import Batch
from addml.learning.state import TrainingState, adam


def rounds(batches: Iterator[Batch], group: Group) -> Iterator[Iterator[Batch]]:
    """All batches, or in a group so many at a time until no process has any left."""
    if group.size == 1:
        yield batches
        return
    while True:
        part = list(islice(batches, group.every))
        if group.counts([len(part)]) == [0]:
            return
        yield iter(part)


def average(state: TrainingState, made: np.ndarray, group: Group) -> None:
    """Go on with the mean of the processes' weights and moments, each by the steps (A,) it made since the last one."""
    if group.size == 1:
        return
    parts = (state.weights, state.first, state.second)
    steps = np.zeros((group.size, len(made)))
    steps[group.rank] = made
    own = [to_numpy(part) * made[:, None].astype(np.float64) for part in parts]
    total = group.sum(np.concatenate([steps.ravel(), *(part.ravel() for part in own)]))
    steps, sums = total[: steps.size].reshape(steps.shape), total[steps.size :].reshape(3, *state.weights.shape)
    moved = index_like(np.flatnonzero(steps.any(axis=0)), state.weights)
    mean = sums / np.maximum(steps.sum(axis=0), 1)[:, None]
    for part, new in zip(parts, mean, strict=True):
        part[moved] = as_like(new, part)[moved]
    state.steps += steps.max(axis=0).astype(np.int64) - made


def steps_together(
    learner: Any,
    rows: TakesRows,
    batches: Iterator[Batch],
    center: Array,
    learning_rate: float,
    least_batch: int,
    decay: Array,
    state: TrainingState,
    group: Group,
) -> np.ndarray:
    """Steps with the mean gradient of the processes that have rows left, each of its own part of the batch."""
    members, shape = len(state.active), state.weights.shape
    sums, made = np.zeros((2, members)), np.zeros(members)
    while True:
        batch = next(batches, None)
        own = np.zeros((3 + shape[1], members))  # loss, cut-off and gradient of members that make a step, and 1
        if batch is not None:
            loss, gradient = learner.loss_and_grad(rows.take(batch.ids), center, batch)
            moving = np.asarray(batch.normal_counts) >= least_batch
            found = np.stack([to_numpy(loss.value), to_numpy(loss.cutoff), np.ones(members), *to_numpy(gradient).T])
            own[:, moving] = found[:, moving]
        flat = group.sum(np.append(own, batch is not None))
        if not flat[-1]:
            return np.asarray(sums / np.maximum(made, 1))
        total = flat[:-1].reshape(own.shape)
        moving = total[2] > 0
        total /= np.maximum(total[2], 1)
        sums, made = sums + total[:2], made + moving
        gradient = as_like(np.ascontiguousarray(total[3:].T), state.weights) + state.weights * decay
        adam(state, gradient, learning_rate, None if moving.all() else moving)
