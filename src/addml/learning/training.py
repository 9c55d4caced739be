"""The only epoch loop of the package: the paper's complete training procedure, for all members at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np

from addml.arrays import Array, index_like, namespace, no_grad, to_numpy
from addml.compute import blas_threads, reuse_memory_of_steps
from addml.distances import count_of
from addml.learning.group import ALONE, Group, average, rounds, steps_together
from addml.learning.learner import MetricLearner, Portion, TakesRows, distill, packed, padded, within
from addml.learning.losses import Batch
from addml.learning.state import Member, TrainingState, adam

logger = logging.getLogger("addml")

MOST_ROWS_REMEMBERED = 1_000_000  # above that, which rows were kept is not
COLLAPSED = 1e-8  # of the untrained network's mean distance to the centre
ROWS_TO_COMPARE = 1024  # how many rows tell whether scores still differ
LEAST_PART = 16  # rows of a batch that a process of a group has: pairs to choose hard ones from
ANOMALY_SHARE = 0.25  # of a batch, at most, joins it as labelled anomalies


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps to train."""

    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    patience: int = 5
    least_batch: int = 2  # rows that make a step: 2 for pairs, 1 for distances to the centre
    passes: int = 1  # over the rows in an epoch: a short series makes few steps
    threads: int = 1  # of a matrix product; more than one pays only where products are large


def train(
    learner: MetricLearner,
    rows: TakesRows,
    members: Sequence[Member],
    schedule: Schedule,
    state: TrainingState,
    on_epoch: Callable[[TrainingState], None] = lambda state: None,
    group: Group = ALONE,
) -> TrainingState:
    """Train every member to its best network, from where the state stands; `on_epoch` may keep it after each epoch.

    The processes of a group have rows of their own and the same state after every epoch.
    """
    reuse_memory_of_steps()
    with no_grad(state.weights), blas_threads(schedule.threads), np.errstate(over="ignore", invalid="ignore"):
        distinct = [cache(partial(distinct_rows, rows, member, state.weights)) for member in members]
        loop = _Loop(learner, rows, schedule, state, group)
        kept_rows = group.counts([count_of(members[e].normal_ratio, len(members[e].train)) for e in state.active])
        state.choose(np.argsort(-np.asarray(kept_rows), stable=True))  # those with rows late in an epoch come first
        while state.epoch < schedule.epochs and len(state.active):
            began = time.perf_counter()
            present = [members[e] for e in state.active]
            center, scores = loop.survey(present)  # mu, F
            if learner.can_collapse and stop_collapsed(state, scores, present, distinct, group):
                continue
            cutoff, kept = distill(scores, present, group)  # tau^n, P
            losses = loop.steps(present, kept, center)
            validation = loop.validate(present, center)
            state.epoch += 1
            if group.size == 1 and len(rows) <= MOST_ROWS_REMEMBERED:  # no bits for members that have stopped
                state.kept.append(np.zeros((len(members), (len(rows) + 7) // 8), np.uint8))
                state.kept[-1][state.active] = packed(kept, present, len(rows))
            _record(state, began, losses, validation, cutoff, group.counts([int(keep.sum()) for keep in kept]))
            _keep_best(state, validation, schedule.patience)
            on_epoch(state)
        if len(state.active) and learner.can_collapse:
            present = [members[e] for e in state.active]
            stop_collapsed(state, loop.survey(present)[1], present, distinct, group)
        state.choose(np.argsort(state.active))
    return state


class _Loop:
    """What all steps share."""

    def __init__(
        self, learner: MetricLearner, rows: TakesRows, schedule: Schedule, state: TrainingState, group: Group
    ) -> None:
        self.learner, self.rows, self.schedule, self.state, self.group = learner, rows, schedule, state, group
        self.decay = learner.encoder.is_matrix() * schedule.weight_decay  # (P,)

    def survey(self, present: Sequence[Member]) -> tuple[Array, Array]:
        """The centre and the distances of all of M under the present networks."""
        self.learner.set_weights(self.state.weights)
        train = [member.train for member in present]
        return self.learner.row_scores(self.rows, padded(train, self.state.weights), [len(ids) for ids in train])

    def validate(self, present: Sequence[Member], center: Array) -> np.ndarray:
        ids = [member.validation for member in present]
        return self.learner.validation_loss(self.rows, padded(ids, self.state.weights), list(map(len, ids)), center)

    def steps(self, present: Sequence[Member], kept: Sequence[np.ndarray], center: Array) -> np.ndarray:
        """One epoch of mini-batches; the mean loss and the mean hard cut-off of every member, (2, A)."""
        schedule, state, group = self.schedule, self.state, self.group
        each_step = group.size > 1 and not group.every  # each process then has its part of a batch
        size = max(LEAST_PART, -(-schedule.batch_size // group.size)) if each_step else schedule.batch_size
        portions = chain.from_iterable(self.rows.portions(state.epoch) for _ in range(schedule.passes))
        batches = minibatches(present, kept, size, center, portions)
        if each_step:
            own = schedule.learning_rate, schedule.least_batch, self.decay
            return steps_together(self.learner, self.rows, batches, center, *own, state, group)
        made, sums = np.zeros(len(present), int), namespace(center).zeros_like(state.weights[:, :2]).mT
        for part in rounds(batches, group):
            before = made.copy()
            self._own_steps(part, center, made, sums)
            average(state, made - before, group)
        self.learner.set_weights(state.weights)
        return group.mean(to_numpy(sums) / np.maximum(made, 1), np.stack([made, made]))

    def _own_steps(self, batches: Iterator[Batch], center: Array, made: np.ndarray, sums: Array) -> None:
        """A step for each batch, counted in `made` (A,), its loss and its cut-off added to `sums` (2, A)."""
        schedule, part = self.schedule, self.state
        for whole in batches:
            own = slice(1 + int(np.flatnonzero(whole.normal_counts)[-1]))  # the others have no rows left
            batch = Batch(whole.ids[own], whole.normal, whole.normal_counts[own], whole.anomaly_counts[own])
            if own.stop != len(part.active):
                part = self.state.leading(own.stop)
            self.learner.set_weights(part.weights)
            loss, gradient = self.learner.loss_and_grad(self.rows.take(batch.ids), center[own], batch)
            gradient += part.weights * self.decay
            moving = np.asarray(batch.normal_counts) >= schedule.least_batch
            at = own if moving.all() else index_like(np.flatnonzero(moving), sums)  # one row makes no pair
            sums[0, at] += loss.value[at]
            sums[1, at] += loss.cutoff[at]
            adam(part, gradient, schedule.learning_rate, None if moving.all() else moving)
            made[own] += moving


# Batches ----------------------------------------------------------------------------------------------------


def minibatches(
    members: Sequence[Member],
    kept: Sequence[np.ndarray],
    size: int,
    like: Array,
    portions: Iterable[Portion | None] = (None,),
) -> Iterator[Batch]:
    """Every member's normal rows, shuffled, `size` at a time, each batch joined by a sample of labelled anomalies.

    Rows of a table on disk are shuffled portion by portion.
    """
    labelled, none = any(len(member.anomalies) for member in members), [0] * len(members)
    for portion in portions:
        near = [within(member.train, keep, portion) for member, keep in zip(members, kept, strict=True)]
        normal = [member.random.permutation(ids) for member, ids in zip(members, near, strict=True)]
        ids, lengths = padded(normal, like), [len(part) for part in normal]
        for start in range(0, ids.shape[1], size):
            counts = [min(max(length - start, 0), size) for length in lengths]
            batch = Batch(ids[:, start : start + size], max(counts), counts, none)
            yield _joined(batch, members, max(1, int(size * ANOMALY_SHARE))) if labelled else batch


def _joined(batch: Batch, members: Sequence[Member], most: int) -> Batch:
    """The batch with at most so many labelled anomalies of each member."""
    anomalies = [member.anomalies for member in members]
    for e, (own, member) in enumerate(zip(anomalies, members, strict=True)):
        anomalies[e] = own if len(own) <= most else member.random.choice(own, most, replace=False)
    ids = namespace(batch.ids).concat([batch.ids, padded(anomalies, batch.ids)], axis=1)
    return batch._replace(ids=ids, anomaly_counts=[len(part) for part in anomalies])


def _keep_best(state: TrainingState, validation: np.ndarray, patience: int) -> None:
    """Copy the networks that are better than before; let members without patience stop."""
    better = validation < state.best_loss[state.active]
    winners = state.active[better]
    state.best[index_like(winners, state.best)] = state.weights[index_like(better, state.weights)]
    state.best_loss[winners], state.best_epoch[winners] = validation[better], state.epoch
    state.patience_left[state.active] -= 1
    state.patience_left[winners] = patience  # e^v
    going_on = state.patience_left[state.active] > 0
    if not going_on.all():
        state.choose(np.flatnonzero(going_on))


# Members whose embeddings meet in one point: a loss of 0 that scores nothing.


def stop_collapsed(
    state: TrainingState,
    scores: Array,
    present: Sequence[Member],
    distinct: Sequence[Callable[[], int]],
    group: Group = ALONE,
) -> bool:
    """Stop the members whose embeddings met in one point; their best network is the last one before that."""
    sizes = [len(member.train) for member in present]
    own = [row[:size] for row, size in zip(to_numpy(scores), sizes, strict=True)]
    spread = group.mean(np.array([float(np.add.reduce(row)) / len(row) for row in own]), np.asarray(sizes))
    if state.untrained_spread is None:
        if not np.isfinite(spread).all():
            raise ValueError("the encoder's embeddings of the training rows are not finite before any step; mend it")
        state.untrained_spread = spread[np.argsort(state.active)]  # of all members, in their own order
        return False
    shrunk = ~(spread >= COLLAPSED * state.untrained_spread[state.active])  # true for NaN too
    tied = [_tied(row[:ROWS_TO_COMPARE], distinct[e]) for e, row in zip(state.active, own, strict=True)]
    gone = shrunk | (np.array(group.counts(tied)) == group.size)  # tied with everybody
    if not gone.any():
        state.healthy[:] = state.weights
        return False
    ended = state.active[gone]
    state.best[index_like(ended, state.best)] = state.healthy[index_like(gone, state.healthy)]
    state.collapsed[ended], state.best_epoch[ended] = state.epoch, state.epoch - 1
    state.choose(np.flatnonzero(~gone))
    return True


def _tied(scores: np.ndarray, distinct_rows: Callable[[], int]) -> bool:
    """Whether fewer than half of the distinct rows have a score of their own; the rows are looked at where they may."""
    ordered = np.sort(scores)
    twice = 2 + 2 * int(np.count_nonzero(ordered[1:] != ordered[:-1]))
    return twice < len(scores) and twice < distinct_rows()


def distinct_rows(rows: TakesRows, member: Member, like: Array) -> int:
    values = to_numpy(rows.take(index_like(member.train[:ROWS_TO_COMPARE], like)))
    return len({row.tobytes() for row in values})


# History ----------------------------------------------------------------------------------------------------


def _record(
    state: TrainingState,
    began: float,
    losses: np.ndarray,
    validation: np.ndarray,
    cutoff: Array,
    rows_kept: Sequence[int],
) -> None:
    """One entry of the history: the means over members in training, and each of them."""
    names = "train_loss", "validation_loss", "normal_cutoff", "hard_cutoff", "rows_kept"
    table = np.array([losses[0], validation, to_numpy(cutoff), losses[1], rows_kept], float)
    means = table.sum(axis=1) / len(validation)  # NumPy's own mean costs more than its work
    entry: dict[str, Any] = {"epoch": state.epoch, **dict(zip(names, means.tolist(), strict=True))}
    entry["seconds"] = time.perf_counter() - began
    entry["members"] = [
        {"member": int(e), **dict(zip(names, own, strict=True)), "rows_kept": rows}
        for e, own, rows in sorted(zip(state.active, table.T.tolist(), rows_kept, strict=True))
    ]
    state.history.append(entry)
    logger.info("epoch %(epoch)d: loss %(train_loss).4g, validation %(validation_loss).4g, kept %(rows_kept).0f", entry)
