"""The only epoch loop of the package: the paper's complete training procedure, for all members at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from addml.arrays import Array, index_like, namespace, no_grad, to_numpy
from addml.compute import blas_threads
from addml.learning.distillation import distill, packed, padded
from addml.learning.losses import Batch, Loss
from addml.learning.metric import TakesRows
from addml.learning.state import Member, TrainingState, adam

logger = logging.getLogger("addml")

COLLAPSED = 1e-8  # of the untrained network's mean distance to the centre
ROWS_TO_COMPARE = 4096  # how many rows tell whether scores still differ
MOST_ROWS_REMEMBERED = 1_000_000  # above that, which rows were kept is not
ANOMALY_SHARE = 0.25  # of a batch, at the most, joins it as labelled anomalies


class Learner(Protocol):
    """What the loop trains: scores for distillation, a loss with its gradient, a validation loss."""

    def set_weights(self, weights: Array) -> None: ...
    def decays(self) -> Array: ...
    def row_scores(self, rows: TakesRows, ids: Array, sizes: Sequence[int]) -> tuple[Array, Array]: ...
    def loss_and_grad(self, x: Array, center: Array, batch: Batch) -> tuple[Loss, Array]: ...
    def validation_loss(self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array) -> np.ndarray: ...


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps to train."""

    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    patience: int = 5
    least_batch: int = 2  # rows that make a step: 2 for pairs, 1 for distances to the centre
    threads: int = 1  # of a matrix product; more than one pays only where products are large


def train(
    learner: Learner,
    rows: TakesRows,
    members: Sequence[Member],
    schedule: Schedule,
    state: TrainingState,
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None,
) -> TrainingState:
    """Train every member to its best network, from where the state stands."""
    with no_grad(state.weights), blas_threads(schedule.threads), np.errstate(over="ignore", invalid="ignore"):
        distinct = [_distinct_rows(rows, member, state.weights) for member in members]
        while state.epoch < schedule.epochs and len(state.active):
            began = time.perf_counter()
            center, scores, present = _survey(learner, rows, members, state)  # mu, F
            if _stop_collapsed(state, scores, present, distinct):
                continue
            cutoff, kept = distill(scores, present)  # tau^n, P
            losses = _steps(learner, rows, present, kept, center, schedule, state)
            validation = _validate(learner, rows, present, center)
            state.epoch += 1
            _remember(state, present, kept, len(rows), len(members))
            on_epoch(_record(state, began, losses, validation, cutoff, kept))
            _keep_best(state, validation, schedule.patience)
        if len(state.active):
            _, scores, present = _survey(learner, rows, members, state)
            _stop_collapsed(state, scores, present, distinct)
    return state


def _survey(
    learner: Learner, rows: TakesRows, members: Sequence[Member], state: TrainingState
) -> tuple[Array, Array, list[Member]]:
    """The centre and the distances of all of M under the present networks, and the members still in training."""
    present = [members[e] for e in state.active]
    learner.set_weights(state.weights)
    ids = padded([member.train for member in present], state.weights)
    return *learner.row_scores(rows, ids, [len(member.train) for member in present]), present


def _steps(
    learner: Learner,
    rows: TakesRows,
    present: Sequence[Member],
    kept: Sequence[np.ndarray],
    center: Array,
    schedule: Schedule,
    state: TrainingState,
) -> np.ndarray:
    """One epoch of mini-batches; the mean loss and the mean hard cut-off of every member, (2, A)."""
    loss_sum, cutoff_sum, made = 0.0, 0.0, np.zeros(len(present), int)
    decay = learner.decays() * schedule.weight_decay
    for batch in minibatches(present, kept, schedule.batch_size, center):
        loss, gradient = learner.loss_and_grad(rows.take(batch.ids), center, batch)
        gradient += state.weights * decay
        moving = None
        if min(batch.normal_counts) < schedule.least_batch:  # some members have no rows left, or one that makes no pair
            moving = np.asarray(batch.normal_counts) >= schedule.least_batch
            loss = _only(loss, moving)
        adam(state, gradient, schedule.learning_rate, moving)
        made += 1 if moving is None else moving
        loss_sum, cutoff_sum = loss_sum + loss.value, cutoff_sum + loss.cutoff
    return np.stack([to_numpy(loss_sum), to_numpy(cutoff_sum)]) / np.maximum(made, 1)


def _only(loss: Loss, moving: np.ndarray) -> Loss:
    """The loss with zeros for the members that had no step in this batch."""
    xp, flags = namespace(loss.value), index_like(moving, loss.value)
    return Loss(xp.where(flags, loss.value, 0), loss.grad, xp.where(flags, loss.cutoff, 0))


def minibatches(members: Sequence[Member], kept: Sequence[np.ndarray], size: int, like: Array) -> Iterator[Batch]:
    """Every member's normal rows, shuffled, `size` at a time, each batch joined by a sample of labelled anomalies."""
    normal = [member.random.permutation(member.train[keep]) for member, keep in zip(members, kept, strict=True)]
    ids, lengths = padded(normal, like), [len(part) for part in normal]
    for start in range(0, ids.shape[1], size):
        counts = [min(max(length - start, 0), size) for length in lengths]
        width, anomalies = max(counts), [_some_anomalies(member, size) for member in members]
        columns = ids[:, start : start + width]
        if any(len(part) for part in anomalies):
            columns = namespace(ids).concat([columns, padded(anomalies, like)], axis=1)
        yield Batch(columns, width, counts, [len(part) for part in anomalies])


def _some_anomalies(member: Member, size: int) -> np.ndarray:
    most = max(1, int(size * ANOMALY_SHARE))
    if len(member.anomalies) <= most:
        return member.anomalies
    return member.random.choice(member.anomalies, most, replace=False)


def _validate(learner: Learner, rows: TakesRows, present: Sequence[Member], center: Array) -> np.ndarray:
    ids = padded([member.validation for member in present], center)
    return learner.validation_loss(rows, ids, [len(member.validation) for member in present], center)


def _keep_best(state: TrainingState, validation: np.ndarray, patience: int) -> None:
    """Copy the networks that are better than before; let members without patience stop."""
    better = validation < state.best_loss[state.active]
    winners = state.active[better]
    state.best[index_like(winners, state.best)] = state.weights[index_like(better, state.weights)]
    state.best_loss[winners], state.best_epoch[winners] = validation[better], state.epoch
    state.patience_left[state.active] -= 1
    state.patience_left[winners] = patience  # e^v
    done = state.patience_left[state.active] <= 0
    if done.any():
        state.stop(done)


# Collapse ---------------------------------------------------------------------------------------------------


def _stop_collapsed(state: TrainingState, scores: Array, present: Sequence[Member], distinct: Sequence[int]) -> bool:
    """Stop the members whose embeddings met in one point; their best network is the last one before that."""
    own = [row[: len(member.train)] for row, member in zip(to_numpy(scores), present, strict=True)]
    spread = np.array([row.mean(dtype=np.float64) for row in own])
    if state.untrained_spread is None:
        state.untrained_spread = spread
        return False
    shrunk = ~(spread >= COLLAPSED * state.untrained_spread[state.active])  # true for NaN too
    tied = [2 * len(np.unique(row[:ROWS_TO_COMPARE])) < distinct[e] for e, row in zip(state.active, own, strict=True)]
    gone = shrunk | np.array(tied)
    if not gone.any():
        state.healthy[:] = state.weights
        return False
    ended = state.active[gone]
    state.best[index_like(ended, state.best)] = state.healthy[index_like(gone, state.healthy)]
    state.collapsed[ended], state.best_epoch[ended] = state.epoch, state.epoch - 1
    state.stop(gone)
    return True


def _distinct_rows(rows: TakesRows, member: Member, like: Array) -> int:
    values = to_numpy(rows.take(index_like(member.train[:ROWS_TO_COMPARE], like)))
    return len({row.tobytes() for row in values})


# History ----------------------------------------------------------------------------------------------------


def _remember(
    state: TrainingState, present: Sequence[Member], kept: Sequence[np.ndarray], rows: int, members: int
) -> None:
    """Which rows distillation kept in this epoch, one bit each, no bits for members that have stopped."""
    if rows > MOST_ROWS_REMEMBERED:
        return
    bits = np.zeros((members, (rows + 7) // 8), np.uint8)
    bits[state.active] = packed(kept, present, rows)
    state.kept.append(bits)


def _record(
    state: TrainingState,
    began: float,
    losses: np.ndarray,
    validation: np.ndarray,
    cutoff: Array,
    kept: Sequence[np.ndarray],
) -> dict[str, Any]:
    """One entry of the history: the means over members in training, and each of them."""
    columns = {
        "train_loss": losses[0],
        "validation_loss": validation,
        "normal_cutoff": to_numpy(cutoff),
        "hard_cutoff": losses[1],
        "rows_kept": np.array([int(keep.sum()) for keep in kept]),
    }
    entry: dict[str, Any] = {"epoch": state.epoch, **{name: float(column.mean()) for name, column in columns.items()}}
    entry["seconds"] = time.perf_counter() - began
    entry["members"] = [
        {"member": int(e), **{name: column[a].item() for name, column in columns.items()}}
        for a, e in enumerate(state.active)
    ]
    state.history.append(entry)
    logger.info("epoch %(epoch)d: loss %(train_loss).4g, validation %(validation_loss).4g, kept %(rows_kept).0f", entry)
    return entry
