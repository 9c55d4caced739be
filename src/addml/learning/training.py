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
from addml.learning.learner import MetricLearner, Portion, TakesRows, distill, kept_ids, packed, padded
from addml.learning.losses import Batch
from addml.learning.state import Member, TrainingState, adam, bias_corrected, update

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
        trainer = _Trainer(learner, rows, members, schedule, state, group)
        kept_rows = group.counts([count_of(member.normal_ratio, len(member.train)) for member in trainer.active])
        state.select(np.argsort(-np.asarray(kept_rows), stable=True))  # members with the most mini-batches first
        while state.epoch < schedule.epochs and len(state.active):
            start = time.perf_counter()
            center, scores = trainer.center_and_scores()  # mu, F
            if learner.can_collapse and trainer.stop_collapsed(scores):
                continue
            cutoff, kept = distill(scores, trainer.active, group)  # tau^n, P
            losses = trainer.train_on_minibatches(kept, center)
            validation = trainer.validate(center)
            state.epoch += 1
            if group.size == 1 and len(rows) <= MOST_ROWS_REMEMBERED:
                state.kept.append(np.zeros((len(members), (len(rows) + 7) // 8), np.uint8))
                state.kept[-1][state.active] = packed(kept, trainer.active, len(rows))
            _record(state, start, losses, validation, cutoff, group.counts([int(flags.sum()) for flags in kept]))
            _keep_best(state, validation, schedule.patience)
            on_epoch(state)
        if len(state.active) and learner.can_collapse:
            trainer.stop_collapsed(trainer.center_and_scores()[1])
        state.select(np.argsort(state.active))
    return state


@dataclass
class _Trainer:
    """The parts of an epoch, and the state they share."""

    learner: MetricLearner
    rows: TakesRows
    members: Sequence[Member]
    schedule: Schedule
    state: TrainingState
    group: Group

    def __post_init__(self) -> None:
        self.decay = self.learner.encoder.is_matrix() * self.schedule.weight_decay  # (P,)
        is_on_cuda = getattr(self.decay, "is_cuda", False) and not isinstance(self.rows.values, np.ndarray)
        self.can_record = is_on_cuda and self.learner.recordable
        self.recorded_steps: dict[int, _RecordedStep] = {}  # by the number of members

    @property
    def active(self) -> list[Member]:
        return [self.members[e] for e in self.state.active]

    def center_and_scores(self) -> tuple[Array, Array]:
        """The centre of M under the current networks, and the distances of M to it."""
        self.learner.set_weights(self.state.weights)
        train = [member.train for member in self.active]
        return self.learner.row_scores(self.rows, padded(train, self.state.weights), [len(ids) for ids in train])

    def validate(self, center: Array) -> np.ndarray:
        ids = [member.validation for member in self.active]
        return self.learner.validation_loss(self.rows, padded(ids, self.state.weights), list(map(len, ids)), center)

    def train_on_minibatches(self, kept: Sequence[np.ndarray], center: Array) -> np.ndarray:
        """Make the steps of one epoch; returns every member's mean loss and mean hard cut-off, (2, A)."""
        schedule, state, group = self.schedule, self.state, self.group
        size = schedule.batch_size
        is_synchronous = group.size > 1 and not group.every
        if is_synchronous:  # each process takes its part of every batch
            size = max(LEAST_PART, -(-size // group.size))
        portions = chain.from_iterable(self.rows.portions(state.epoch) for _ in range(schedule.passes))
        batches = minibatches(self.active, kept, size, center, portions)
        if is_synchronous:
            return self._synchronous_steps(batches, center)
        steps = np.zeros(len(state.active), int)
        sums = namespace(center).zeros_like(state.weights[:, :2]).mT
        for batches_of_round in rounds(batches, group):
            before = steps.copy()
            self._local_steps(batches_of_round, center, steps, sums)
            average(state, steps - before, group)
        self.learner.set_weights(state.weights)
        return group.mean(to_numpy(sums) / np.maximum(steps, 1), np.stack([steps, steps]))

    def _local_steps(self, batches: Iterator[Batch], center: Array, steps: np.ndarray, sums: Array) -> None:
        """Make a step per batch; adds to each member's `steps` (A,) and to the `sums` (2, A) of losses and cut-offs."""
        schedule, state = self.schedule, self.state
        for batch in batches:
            count = 1 + int(np.flatnonzero(batch.normal_counts)[-1])  # the members after these have no rows left
            batch = batch.leading(count)
            if count != len(state.active):
                state = self.state.leading(count)
            is_full = batch.is_full and batch.normal == schedule.batch_size
            recorded_step = self._recorded_step(state) if is_full else None
            if recorded_step is not None:
                sums[:, :count] += recorded_step(state, center[:count], batch.ids, schedule.learning_rate)
                steps[:count] += 1
                continue
            self.learner.set_weights(state.weights)
            loss, gradient = self.learner.loss_and_grad(self.rows.take(batch.ids), center[:count], batch)
            gradient += state.weights * self.decay
            mask = np.asarray(batch.normal_counts) >= schedule.least_batch  # a single row makes no pair
            members = slice(count) if mask.all() else index_like(np.flatnonzero(mask), sums)
            sums[0, members] += loss.value[members]
            sums[1, members] += loss.cutoff[members]
            adam(state, gradient, schedule.learning_rate, None if mask.all() else mask)
            steps[:count] += mask

    def _recorded_step(self, state: TrainingState) -> _RecordedStep | None:
        """A step of so many members on CUDA; None if it cannot be recorded."""
        members = len(state.weights)
        if self.can_record and members not in self.recorded_steps:
            try:
                self.recorded_steps[members] = _RecordedStep(self, state)
            except RuntimeError as error:
                logger.info("training steps are not recorded: %s", error)
                self.can_record = False
        return self.recorded_steps.get(members)

    def _synchronous_steps(self, batches: Iterator[Batch], center: Array) -> np.ndarray:
        """Make steps by the mean gradient of all processes that have rows left."""
        schedule, state = self.schedule, self.state
        members, parameters = state.weights.shape
        sums, steps = np.zeros((2, members)), np.zeros(members)
        while True:
            batch = next(batches, None)
            values = np.zeros((3 + parameters, members))  # loss, cut-off, 1 and gradient of members that make a step
            if batch is not None:
                loss, gradient = self.learner.loss_and_grad(self.rows.take(batch.ids), center, batch)
                values[:3] = to_numpy(loss.value), to_numpy(loss.cutoff), np.ones(members)
                values[3:] = to_numpy(gradient).T
                values[:, np.asarray(batch.normal_counts) < schedule.least_batch] = 0
            flat = self.group.sum(np.append(values, batch is not None))
            if not flat[-1]:  # no process has rows left
                return np.asarray(sums / np.maximum(steps, 1))
            means = flat[:-1].reshape(values.shape)
            mask = means[2] > 0
            means /= np.maximum(means[2], 1)
            sums += means[:2]
            steps += mask
            gradient = as_like(np.ascontiguousarray(means[3:].T), state.weights) + state.weights * self.decay
            adam(state, gradient, schedule.learning_rate, None if mask.all() else mask)

    def stop_collapsed(self, scores: Array) -> bool:
        """Stop members whose embeddings met in one point, with the network before that; returns whether any did."""
        state, group, active = self.state, self.group, self.active
        sizes = [len(member.train) for member in active]
        distances = [row[:size] for row, size in zip(to_numpy(scores), sizes, strict=True)]
        spread = group.mean(np.array([float(np.add.reduce(row)) / len(row) for row in distances]), np.asarray(sizes))
        if state.untrained_spread is None:
            if not np.isfinite(spread).all():
                raise ValueError("the untrained encoder's embeddings are not finite; check its layers and weights")
            state.untrained_spread = spread[np.argsort(state.active)]  # in the order of all members
            return False
        is_collapsed = ~(spread >= COLLAPSED * state.untrained_spread[state.active])  # true for NaN too
        ties = [self._has_ties(e, row[:ROWS_TO_COMPARE]) for e, row in zip(state.active, distances, strict=True)]
        is_collapsed |= np.array(group.counts(ties)) == group.size  # ties in every process
        if not is_collapsed.any():
            state.healthy[:] = state.weights
            return False
        members = state.active[is_collapsed]
        state.best[index_like(members, state.best)] = state.healthy[index_like(is_collapsed, state.healthy)]
        state.best_epoch[members] = state.epoch - 1
        state.collapsed[members] = state.epoch
        state.select(np.flatnonzero(~is_collapsed))
        return True

    def _has_ties(self, e: int, distances: np.ndarray) -> bool:
        """Whether member e's first rows have fewer than half as many distinct distances as distinct values."""
        ordered = np.sort(distances)
        distinct = 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
        if 2 * distinct >= len(distances):
            return False
        ids = index_like(self.members[e].train[:ROWS_TO_COMPARE], self.state.weights)
        return 2 * distinct < len({row.tobytes() for row in to_numpy(self.rows.take(ids))})


class _RecordedStep:
    """A step on a full batch, recorded as a CUDA graph: one launch in place of dozens."""

    def __init__(self, trainer: _Trainer, state: TrainingState) -> None:
        import torch

        weights = state.weights
        self.learner, self.rows, self.decay = copy.copy(trainer.learner), trainer.rows, trainer.decay
        self.buffers = (weights.clone(), state.first.clone(), state.second.clone())
        self.learner.set_weights(self.buffers[0])
        self.center = weights.new_zeros(len(weights), self.learner.encoder.outputs)
        self.ids = torch.zeros(len(weights), trainer.schedule.batch_size, dtype=torch.int64, device=weights.device)
        self.rates = weights.new_ones(2, len(weights), 1)
        self.graph, warm_up = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            self._step()  # one-time allocations must not be part of the record
        torch.cuda.current_stream().wait_stream(warm_up)
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.sums = self._step()

    def _step(self) -> Array:
        """Make a step; returns the losses and cut-offs (2, A)."""
        members, size = self.ids.shape
        batch = Batch(self.ids, size, [size] * members, [0] * members)
        loss, gradient = self.learner.loss_and_grad(self.rows.take(self.ids), self.center, batch)
        gradient += self.buffers[0] * self.decay
        update(*self.buffers, gradient, *self.rates)
        return namespace(gradient).stack([loss.value, loss.cutoff])

    def __call__(self, state: TrainingState, center: Array, ids: Array, learning_rate: float) -> Array:
        """Make a step with these members; returns their losses and cut-offs (2, A)."""
        state.steps += 1
        rates = as_like(np.stack(bias_corrected(learning_rate, state.steps))[..., None], self.rates)
        inputs = (state.weights, state.first, state.second, center, ids, rates)
        recorded = (*self.buffers, self.center, self.ids, self.rates)
        for target, source in zip(recorded, inputs, strict=True):
            target.copy_(source)
        self.graph.replay()
        for target, source in zip(inputs[:3], recorded[:3], strict=True):
            target.copy_(source)
        return self.sums


def minibatches(
    members: Sequence[Member],
    kept: Sequence[np.ndarray],
    size: int,
    like: Array,
    portions: Iterable[Portion | None] = (None,),
) -> Iterator[Batch]:
    """The rows kept of every member, shuffled within portions, `size` at a time; labelled anomalies join each batch."""
    has_anomalies = any(len(member.anomalies) for member in members)
    for portion in portions:
        parts = [kept_ids(member.train, flags, portion) for member, flags in zip(members, kept, strict=True)]
        normal = [member.random.permutation(part) for member, part in zip(members, parts, strict=True)]
        ids = padded(normal, like)
        for start in range(0, ids.shape[1], size):
            counts = [min(max(len(part) - start, 0), size) for part in normal]
            batch = Batch(ids[:, start : start + size], max(counts), counts, [0] * len(members))
            yield _with_anomalies(batch, members, max(1, int(size * ANOMALY_SHARE))) if has_anomalies else batch


def _with_anomalies(batch: Batch, members: Sequence[Member], most: int) -> Batch:
    """The batch and a sample of up to `most` labelled anomalies of each member."""
    samples = []
    for member in members:
        ids = member.anomalies
        samples.append(ids if len(ids) <= most else member.random.choice(ids, most, replace=False))
    ids = namespace(batch.ids).concat([batch.ids, padded(samples, batch.ids)], axis=1)
    return batch._replace(ids=ids, anomaly_counts=list(map(len, samples)))


def _keep_best(state: TrainingState, validation: np.ndarray, patience: int) -> None:
    """Copy the networks that improved; stop members that have run out of patience."""
    is_better = validation < state.best_loss[state.active]
    improved = state.active[is_better]
    state.best[index_like(improved, state.best)] = state.weights[index_like(is_better, state.weights)]
    state.best_loss[improved] = validation[is_better]
    state.best_epoch[improved] = state.epoch
    state.patience_left[state.active] -= 1
    state.patience_left[improved] = patience  # e^v
    continues = state.patience_left[state.active] > 0
    if not continues.all():
        state.select(np.flatnonzero(continues))


def _record(
    state: TrainingState, start: float, losses: np.ndarray, validation: np.ndarray, cutoff: Array, kept: Sequence[int]
) -> None:
    """Add an entry to the history: means over the members in training, then each member."""
    names = "train_loss", "validation_loss", "normal_cutoff", "hard_cutoff", "rows_kept"
    table = np.array([losses[0], validation, to_numpy(cutoff), losses[1], kept], float)
    means = table.sum(axis=1) / len(validation)  # np.mean costs more than the work here
    entry: dict[str, Any] = {"epoch": state.epoch, **dict(zip(names, means.tolist(), strict=True))}
    entry["seconds"] = time.perf_counter() - start
    entry["members"] = [
        {"member": int(e), **dict(zip(names, values, strict=True)), "rows_kept": rows}
        for e, values, rows in sorted(zip(state.active, table.T.tolist(), kept, strict=True))
    ]
    state.history.append(entry)
    logger.info("epoch %(epoch)d: loss %(train_loss).4g, validation %(validation_loss).4g, kept %(rows_kept).0f", entry)
