"""The package's only epoch loop: the paper's training procedure, for all members at once."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, index_like, namespace, no_grad, to_numpy
from addml.compute import blas_threads, reuse_memory_of_steps
from addml.distances import count_of
from addml.learning.group import ALONE, Group, average, rounds
from addml.learning.learner import MetricLearner, Portion, TakesRows, distill, packed, padded, within
from addml.learning.losses import Batch
from addml.learning.state import Member, TrainingState, adam, corrected, move

logger = logging.getLogger("addml")

MOST_ROWS_REMEMBERED = 1_000_000  # larger tables do not record which rows distillation kept
COLLAPSED = 1e-8  # of the untrained network's mean distance to the centre
ROWS_TO_COMPARE = 1024  # rows whose scores are compared to detect a collapse
LEAST_PART = 16  # rows of a batch per process: fewer make too few pairs to mine
ANOMALY_SHARE = 0.25  # labelled anomalies added to a batch, at most, as a share of its rows


@dataclass(frozen=True)
class Schedule:
    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    patience: int = 5
    least_batch: int = 2  # rows a step needs: 2 for pairs, 1 for distances to the centre
    passes: int = 1  # over the rows per epoch; more for a short series, which makes few steps
    threads: int = 1  # of a matrix product; more than one pays only for large products


def train(
    learner: MetricLearner,
    rows: TakesRows,
    members: Sequence[Member],
    schedule: Schedule,
    state: TrainingState,
    on_epoch: Callable[[TrainingState], None] = lambda state: None,
    group: Group = ALONE,
) -> TrainingState:
    """Train every member to its best network, resuming from `state`; `on_epoch` is called after each epoch.

    Each process of a group has its own rows; all of them end an epoch with the same state.
    """
    reuse_memory_of_steps()
    with no_grad(state.weights), blas_threads(schedule.threads), np.errstate(over="ignore", invalid="ignore"):
        loop = _Loop(learner, rows, members, schedule, state, group)
        kept_rows = group.counts([count_of(one.normal_ratio, len(one.train)) for one in loop.active])
        state.choose(np.argsort(-np.asarray(kept_rows), stable=True))  # members whose rows last longest come first
        while state.epoch < schedule.epochs and len(state.active):
            began = time.perf_counter()
            center, scores = loop.survey()  # mu, F
            if learner.can_collapse and loop.stop_collapsed(scores):
                continue
            cutoff, kept = distill(scores, loop.active, group)  # tau^n, P
            losses = loop.steps(kept, center)
            validation = loop.validate(center)
            state.epoch += 1
            if group.size == 1 and len(rows) <= MOST_ROWS_REMEMBERED:
                state.kept.append(np.zeros((len(members), (len(rows) + 7) // 8), np.uint8))
                state.kept[-1][state.active] = packed(kept, loop.active, len(rows))
            _record(state, began, losses, validation, cutoff, group.counts([int(keep.sum()) for keep in kept]))
            _keep_best(state, validation, schedule.patience)
            on_epoch(state)
        if len(state.active) and learner.can_collapse:
            loop.stop_collapsed(loop.survey()[1])
        state.choose(np.argsort(state.active))
    return state


@dataclass
class _Loop:
    """The parts of an epoch, and what they share."""

    learner: MetricLearner
    rows: TakesRows
    members: Sequence[Member]
    schedule: Schedule
    state: TrainingState
    group: Group

    def __post_init__(self) -> None:
        self.decay = self.learner.encoder.is_matrix() * self.schedule.weight_decay  # (P,)
        on_cuda = getattr(self.decay, "is_cuda", False) and not isinstance(self.rows.values, np.ndarray)
        self.records = on_cuda and self.learner.recordable
        self.recorded: dict[int, _RecordedStep] = {}  # by the number of members

    @property
    def active(self) -> list[Member]:
        return [self.members[e] for e in self.state.active]

    def survey(self) -> tuple[Array, Array]:
        """The centre of M under the current networks, and the distances of M to it."""
        self.learner.set_weights(self.state.weights)
        train = [member.train for member in self.active]
        return self.learner.row_scores(self.rows, padded(train, self.state.weights), [len(ids) for ids in train])

    def validate(self, center: Array) -> np.ndarray:
        ids = [member.validation for member in self.active]
        return self.learner.validation_loss(self.rows, padded(ids, self.state.weights), list(map(len, ids)), center)

    def steps(self, kept: Sequence[np.ndarray], center: Array) -> np.ndarray:
        """One epoch of mini-batches; every member's mean loss and mean hard cut-off, (2, A)."""
        schedule, state, group = self.schedule, self.state, self.group
        each_step = group.size > 1 and not group.every  # every process then takes its part of each batch
        size = max(LEAST_PART, -(-schedule.batch_size // group.size)) if each_step else schedule.batch_size
        portions = chain.from_iterable(self.rows.portions(state.epoch) for _ in range(schedule.passes))
        batches = minibatches(self.active, kept, size, center, portions)
        if each_step:
            return self._synchronous_steps(batches, center)
        made, sums = np.zeros(len(state.active), int), namespace(center).zeros_like(state.weights[:, :2]).mT
        for part in rounds(batches, group):
            before = made.copy()
            self._local_steps(part, center, made, sums)
            average(state, made - before, group)
        self.learner.set_weights(state.weights)
        return group.mean(to_numpy(sums) / np.maximum(made, 1), np.stack([made, made]))

    def _local_steps(self, batches: Iterator[Batch], center: Array, made: np.ndarray, sums: Array) -> None:
        """A step per batch; adds to the members' step counts `made` (A,) and to their losses and cut-offs `sums`."""
        schedule, part = self.schedule, self.state
        for whole in batches:
            own = slice(1 + int(np.flatnonzero(whole.normal_counts)[-1]))  # the others have no rows left
            batch = Batch(whole.ids[own], whole.normal, whole.normal_counts[own], whole.anomaly_counts[own])
            if own.stop != len(part.active):
                part = self.state.leading(own.stop)
            is_full = min(batch.normal_counts) == schedule.batch_size and not any(batch.anomaly_counts)
            if is_full and (step := self._recorded_step(part)) is not None:
                sums[:, own] += step(part, center[own], batch.ids, schedule.learning_rate)
                made[own] += 1
                continue
            self.learner.set_weights(part.weights)
            loss, gradient = self.learner.loss_and_grad(self.rows.take(batch.ids), center[own], batch)
            gradient += part.weights * self.decay
            moving = np.asarray(batch.normal_counts) >= schedule.least_batch
            at = own if moving.all() else index_like(np.flatnonzero(moving), sums)  # a single row makes no pair
            sums[0, at] += loss.value[at]
            sums[1, at] += loss.cutoff[at]
            adam(part, gradient, schedule.learning_rate, None if moving.all() else moving)
            made[own] += moving

    def _recorded_step(self, part: TrainingState) -> _RecordedStep | None:
        """A step of so many members on CUDA; None if it cannot be recorded."""
        members = len(part.weights)
        if self.records and members not in self.recorded:
            try:
                self.recorded[members] = _RecordedStep(self, part)
            except RuntimeError as error:
                logger.info("training steps are not recorded: %s", error)
                self.records = False
        return self.recorded.get(members)

    def _synchronous_steps(self, batches: Iterator[Batch], center: Array) -> np.ndarray:
        """Steps by the mean gradient of all processes that have rows left."""
        schedule, state = self.schedule, self.state
        members, parameters = state.weights.shape
        sums, made = np.zeros((2, members)), np.zeros(members)
        while True:
            batch = next(batches, None)
            own = np.zeros((3 + parameters, members))  # loss, cut-off, 1 and gradient of members that make a step
            if batch is not None:
                loss, gradient = self.learner.loss_and_grad(self.rows.take(batch.ids), center, batch)
                moving = np.asarray(batch.normal_counts) >= schedule.least_batch
                own[:3] = to_numpy(loss.value), to_numpy(loss.cutoff), np.ones(members)
                own[3:] = to_numpy(gradient).T
                own[:, ~moving] = 0
            flat = self.group.sum(np.append(own, batch is not None))
            if not flat[-1]:
                return np.asarray(sums / np.maximum(made, 1))
            total = flat[:-1].reshape(own.shape)
            moving = total[2] > 0
            total /= np.maximum(total[2], 1)
            sums, made = sums + total[:2], made + moving
            gradient = as_like(np.ascontiguousarray(total[3:].T), state.weights) + state.weights * self.decay
            adam(state, gradient, schedule.learning_rate, None if moving.all() else moving)

    # Collapse: all embeddings of a member meet in one point; its loss is 0 and its scores mean nothing ---------

    def stop_collapsed(self, scores: Array) -> bool:
        """Stop collapsed members, each with its last network before the collapse; whether there were any."""
        state, group, active = self.state, self.group, self.active
        sizes = [len(member.train) for member in active]
        own = [row[:size] for row, size in zip(to_numpy(scores), sizes, strict=True)]
        spread = group.mean(np.array([float(np.add.reduce(row)) / len(row) for row in own]), np.asarray(sizes))
        if state.untrained_spread is None:
            if not np.isfinite(spread).all():
                raise ValueError("the untrained encoder's embeddings are not finite; check its layers and weights")
            state.untrained_spread = spread[np.argsort(state.active)]  # in the order of all members
            return False
        shrunk = ~(spread >= COLLAPSED * state.untrained_spread[state.active])  # true for NaN too
        tied = [self._tied(e, row[:ROWS_TO_COMPARE]) for e, row in zip(state.active, own, strict=True)]
        gone = shrunk | (np.array(group.counts(tied)) == group.size)  # tied in every process
        if not gone.any():
            state.healthy[:] = state.weights
            return False
        ended = state.active[gone]
        state.best[index_like(ended, state.best)] = state.healthy[index_like(gone, state.healthy)]
        state.collapsed[ended], state.best_epoch[ended] = state.epoch, state.epoch - 1
        state.choose(np.flatnonzero(~gone))
        return True

    def _tied(self, e: int, scores: np.ndarray) -> bool:
        """Whether member e's first rows have fewer than half as many distinct scores as distinct values."""
        ordered = np.sort(scores)
        twice = 2 + 2 * int(np.count_nonzero(ordered[1:] != ordered[:-1]))
        if twice >= len(scores):
            return False
        ids = index_like(self.members[e].train[:ROWS_TO_COMPARE], self.state.weights)
        return twice < len({row.tobytes() for row in to_numpy(self.rows.take(ids))})


class _RecordedStep:
    """A step on a full batch, recorded as a CUDA graph: one launch in place of dozens."""

    def __init__(self, loop: _Loop, part: TrainingState) -> None:
        import torch

        members, self.learner, self.rows, self.decay = len(part.weights), copy.copy(loop.learner), loop.rows, loop.decay
        self.state = (part.weights.clone(), part.first.clone(), part.second.clone())
        self.learner.set_weights(self.state[0])
        self.center = part.weights.new_zeros(members, self.learner.encoder.outputs)
        self.ids = torch.zeros(members, loop.schedule.batch_size, dtype=torch.int64, device=part.weights.device)
        self.rates = part.weights.new_ones(2, members, 1)
        beside, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            self._step()  # what is allocated only once must not be part of the record
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.sums = self._step()

    def _step(self) -> Array:
        """Make a step; returns losses and cut-offs (2, A)."""
        members, size = self.ids.shape
        batch = Batch(self.ids, size, [size] * members, [0] * members)
        loss, gradient = self.learner.loss_and_grad(self.rows.take(self.ids), self.center, batch)
        gradient += self.state[0] * self.decay
        rate, epsilon = self.rates
        move(*self.state, gradient, rate, epsilon)
        return namespace(gradient).stack([loss.value, loss.cutoff])

    def __call__(self, part: TrainingState, center: Array, ids: Array, learning_rate: float) -> Array:
        """Make a step of these members; returns their losses and cut-offs (2, A)."""
        part.steps += 1
        rates = as_like(np.stack(corrected(learning_rate, part.steps))[..., None], self.rates)
        theirs = (part.weights, part.first, part.second, center, ids, rates)
        mine = (*self.state, self.center, self.ids, self.rates)
        for target, source in zip(mine, theirs, strict=True):
            target.copy_(source)
        self.graph.replay()
        for target, source in zip(theirs[:3], mine[:3], strict=True):
            target.copy_(source)
        return self.sums


def minibatches(
    members: Sequence[Member],
    kept: Sequence[np.ndarray],
    size: int,
    like: Array,
    portions: Iterable[Portion | None] = (None,),
) -> Iterator[Batch]:
    """Every member's kept rows, shuffled, `size` at a time; a sample of labelled anomalies joins each batch.

    A table on disk is shuffled portion by portion.
    """
    labelled, none = any(len(member.anomalies) for member in members), [0] * len(members)
    for portion in portions:
        near = [within(member.train, keep, portion) for member, keep in zip(members, kept, strict=True)]
        normal = [member.random.permutation(ids) for member, ids in zip(members, near, strict=True)]
        ids, lengths = padded(normal, like), [len(part) for part in normal]
        for start in range(0, ids.shape[1], size):
            counts = [min(max(length - start, 0), size) for length in lengths]
            batch = Batch(ids[:, start : start + size], max(counts), counts, none)
            yield _with_anomalies(batch, members, max(1, int(size * ANOMALY_SHARE))) if labelled else batch


def _with_anomalies(batch: Batch, members: Sequence[Member], most: int) -> Batch:
    """The batch and a sample of up to `most` labelled anomalies of each member."""
    anomalies = []
    for member in members:
        own = member.anomalies
        anomalies.append(own if len(own) <= most else member.random.choice(own, most, replace=False))
    ids = namespace(batch.ids).concat([batch.ids, padded(anomalies, batch.ids)], axis=1)
    return batch._replace(ids=ids, anomaly_counts=[len(part) for part in anomalies])


def _keep_best(state: TrainingState, validation: np.ndarray, patience: int) -> None:
    """Copy networks that improved; stop members that have run out of patience."""
    better = validation < state.best_loss[state.active]
    winners = state.active[better]
    state.best[index_like(winners, state.best)] = state.weights[index_like(better, state.weights)]
    state.best_loss[winners], state.best_epoch[winners] = validation[better], state.epoch
    state.patience_left[state.active] -= 1
    state.patience_left[winners] = patience  # e^v
    going_on = state.patience_left[state.active] > 0
    if not going_on.all():
        state.choose(np.flatnonzero(going_on))


def _record(
    state: TrainingState,
    began: float,
    losses: np.ndarray,
    validation: np.ndarray,
    cutoff: Array,
    rows_kept: Sequence[int],
) -> None:
    """Add an entry to the history: means over the members in training, then each member."""
    names = "train_loss", "validation_loss", "normal_cutoff", "hard_cutoff", "rows_kept"
    table = np.array([losses[0], validation, to_numpy(cutoff), losses[1], rows_kept], float)
    means = table.sum(axis=1) / len(validation)  # np.mean costs more than the work here
    entry: dict[str, Any] = {"epoch": state.epoch, **dict(zip(names, means.tolist(), strict=True))}
    entry["seconds"] = time.perf_counter() - began
    entry["members"] = [
        {"member": int(e), **dict(zip(names, own, strict=True)), "rows_kept": rows}
        for e, own, rows in sorted(zip(state.active, table.T.tolist(), rows_kept, strict=True))
    ]
    state.history.append(entry)
    logger.info("epoch %(epoch)d: loss %(train_loss).4g, validation %(validation_loss).4g, kept %(rows_kept).0f", entry)
