"""What the training loop trains, and the distillation of the rows to train on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from addml.arrays import (
    Array,
    as_like,
    column_sums,
    count_mask,
    empty_beside,
    evenly_spaced_with_ends,
    folder_of,
    index_like,
    namespace,
    row_sums,
    to_numpy,
    zeros,
)
from addml.distances import center_distances, count_of, cross_distances, matched_distances, smallest, unordered
from addml.learning.group import ALONE, Group
from addml.learning.losses import LOSSES, Batch, CenterCloseness, Loss
from addml.learning.state import Member

ROWS_AT_ONCE = 2048  # embedded in one call on the CPU, of all members together
NUMBERS_AT_ONCE = 2**23  # limits the rows of large images
ROWS_ON_A_DEVICE = 2**20  # embedded in one call
EMBEDDINGS_TO_CACHE = 64 * 2**20  # numbers; more are computed again in each pass
MOST_VALIDATION_PAIRS = 1_000_000
PAIRED_ROWS = 65_536  # evenly spaced rows of V whose pairs are used, if V is on disk
VALIDATION_SHIFTS = 32  # with more pairs, each row of V is paired with the rows this many fixed random offsets away

Portion = Sequence[tuple[int, int]]  # ranges of rows, ascending, that are shuffled together


class TakesRows(Protocol):
    """What training needs of addml.inputs.Rows."""

    values: Any  # a tensor if they lie on a device

    def __len__(self) -> int: ...
    def take(self, ids: Array) -> Array: ...
    def portions(self, epoch: int) -> Iterable[Portion | None]: ...


class MetricLearner:
    """The paper's learner f, with its closeness loss."""

    can_collapse: ClassVar[bool] = True

    def __init__(self, encoder: Any, loss: CenterCloseness, group: Group = ALONE) -> None:
        self.encoder, self.loss, self.group = encoder, loss, group

    @property
    def recordable(self) -> bool:
        """Whether CUDA can record a step: all steps on full batches are the same operations, without user code."""
        return getattr(self.loss, "miner", None) is None and self.encoder.name != "module"

    def set_weights(self, weights: Array) -> None:
        """Use these weights, which training changes in place."""
        if weights is not self.encoder.weights:
            self.encoder = self.encoder.with_weights(weights)

    def center(self, rows: TakesRows, ids: Array, sizes: Sequence[int]) -> Array:
        """The centre mu (E, w) of the rows with ids (E, n), over the whole group."""
        return self._mean(self._embeddings(rows, ids)(), real_ids(ids, sizes), sizes)

    def row_scores(
        self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array | None = None
    ) -> tuple[Array, Array]:
        """The centre mu (E, w), computed unless given, and each row's distance to it (E, n), infinite for padding."""
        blocks, real = self._embeddings(rows, ids), real_ids(ids, sizes)
        if center is None:
            center = self._mean(blocks(), real, sizes)
        scores = self._to_center(blocks(), center, ids)
        if real is not None:
            scores = namespace(scores).where(real, scores, math.inf)
        return center, scores

    def loss_and_grad(self, x: Array, center: Array, batch: Batch) -> tuple[Loss, Array]:
        """The loss of a mini-batch and its gradient (E, P) with respect to the weights."""
        z, back = self.encoder.forward(x)
        loss = LOSSES[self.loss.name](z, center, batch, self.loss)
        return loss, back(loss.grad)

    def validation_loss(self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array) -> np.ndarray:
        """The mean distance (E,) over all pairs of V, or of the rows of V to the centre, without mining."""
        if self.loss.name == "instance" and self.loss.distance != "sqeuclidean":
            return self._mean_of_pairs(rows, ids, sizes)
        blocks, real = self._embeddings(rows, ids), real_ids(ids, sizes)
        if self.loss.name == "instance":
            center = self._mean(blocks(), real, sizes)
        distances = self._to_center(blocks(), center, ids)
        if real is not None:
            distances = namespace(distances).where(real, distances, 0)
        total = self.group.sum(to_numpy(distances.sum(axis=1)).astype(float))
        n = np.asarray(self.group.counts(sizes), float)
        # The lemma: the mean over unordered pairs of squared distances is 2n/(n-1) times the mean to the centre.
        return np.asarray(total / n if self.loss.name == "center" else 2 * total / np.maximum(n - 1, 1))

    def embed(self, rows: TakesRows, ids: Array) -> np.ndarray:
        """The embeddings (E, n, w) of the rows with ids (E, n)."""
        return np.concatenate([to_numpy(z) for z in self._embeddings(rows, ids)()], axis=1)

    def _mean_of_pairs(self, rows: TakesRows, ids: Array, sizes: Sequence[int]) -> np.ndarray:
        """The mean distance (E,) over the pairs of each member's rows."""
        if isinstance(ids, IdFiles) and ids.shape[1] > PAIRED_ROWS:
            ids = np.stack([evenly_spaced_with_ends(part, PAIRED_ROWS) for part in ids.parts])
            sizes = [PAIRED_ROWS] * len(ids)
        z = namespace(self.encoder.weights).concat(list(self._embeddings(rows, ids)()), axis=1)
        means = [self._pair_mean(part[None, :size]) for part, size in zip(z, sizes, strict=True)]
        return self.group.mean(np.array(means), np.asarray(sizes))

    def _pair_mean(self, z: Array) -> float:
        """The mean distance over the pairs of z (1, n, w), or over a fixed sample of many pairs."""
        n = z.shape[1]
        if n * (n - 1) // 2 <= MOST_VALIDATION_PAIRS:
            return float(unordered(cross_distances(z, z, self.loss.distance)).mean())
        shifts = np.random.default_rng(0).choice(np.arange(1, n), VALIDATION_SHIFTS, replace=False)
        others = (namespace(z).roll(z, int(shift), 1) for shift in shifts)
        return float(np.mean([float(matched_distances(z, other, self.loss.distance).mean()) for other in others]))

    def _to_center(self, blocks: Iterable[Array], center: Array, ids: Array) -> Array:
        """The distances (E, n) of all blocks to the centre; in a file if the ids (E, n) are."""
        parts = (center_distances(z, center, self.loss.distance)[0] for z in blocks)
        if not isinstance(ids, IdFiles):
            return namespace(center).concat(list(parts), axis=1)
        distances = empty_beside(ids.shape, to_numpy(center).dtype, ids.parts[0])
        start = 0
        for part in parts:
            distances[:, start : start + part.shape[1]] = to_numpy(part)
            start += part.shape[1]
        return distances

    def _embeddings(self, rows: TakesRows, ids: Array) -> Callable[[], Iterable[Array]]:
        """A function that returns the embeddings of the rows with ids (E, n) in blocks, cached if memory allows."""
        if isinstance(self.encoder.weights, np.ndarray):  # blocks of all members fit into a core's cache
            size = min(max(64, ROWS_AT_ONCE // len(ids)), max(8, NUMBERS_AT_ONCE // self.encoder.inputs))
        else:
            size = max(1, ROWS_ON_A_DEVICE // len(ids))

        def compute() -> Iterator[Array]:
            starts = range(0, ids.shape[1], size)
            return (self.encoder.embed(rows.take(ids[:, start : start + size])) for start in starts)

        blocks = compute()
        first = next(blocks)
        if isinstance(ids, IdFiles) or first.shape[0] * ids.shape[1] * first.shape[-1] > EMBEDDINGS_TO_CACHE:
            return compute
        cached = [first, *blocks]
        return lambda: cached

    def _mean(self, blocks: Iterable[Array], real: Array | None, sizes: Sequence[int]) -> Array:
        total, start = 0.0, 0
        for z in blocks:
            stop = start + z.shape[1]
            total = total + column_sums(z if real is None else z * real[:, start:stop, None])[:, 0]
            start = stop
        return self.group.total(total) / as_like(self.group.counts(sizes), self.encoder.weights)[:, None]


class ReconstructionLearner(MetricLearner):
    """An autoencoder with the mean squared error as its loss; distillation keeps the rows that it reconstructs best."""

    can_collapse: ClassVar[bool] = False  # equal residuals are not a collapse

    def _to_center(self, blocks: Iterable[Array], center: Array, ids: Array) -> Array:
        """The residuals (E, n), which are the last dimension of the embeddings, in place of distances."""
        return namespace(center).concat([z[..., -1] for z in blocks], axis=1)

    def loss_and_grad(self, x: Array, center: Array, batch: Batch) -> tuple[Loss, Array]:
        x = x[:, : batch.normal]
        output, back = self.encoder.forward(x)
        error = output - x
        rows = zeros(error.shape[:1], error) + batch.normal
        if batch.is_padded:
            error *= count_mask(batch.normal_counts, batch.normal, error)[:, :, None]
            rows = as_like(batch.normal_counts, error).clip(1)
        numbers = rows * x.shape[-1]  # (E,)
        value = row_sums(column_sums(error * error))[:, 0, 0] / numbers
        error *= 2 / numbers[:, None, None]
        return Loss(value, error, namespace(value).zeros_like(value)), back(error)

    def validation_loss(self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array) -> np.ndarray:
        residuals = to_numpy(self.row_scores(rows, ids, sizes, center)[1])
        return np.array([(row[:size].astype(float) ** 2).mean() for row, size in zip(residuals, sizes, strict=True)])


def real_ids(ids: Array, sizes: Sequence[int]) -> Array | None:
    """Which ids (E, n) are not padding; None if all are real."""
    return None if min(sizes) == ids.shape[1] else count_mask(sizes, ids.shape[1], ids)


def distill(scores: Array, members: Sequence[Member], group: Group = ALONE) -> tuple[Array, list[np.ndarray]]:
    """The cut-off (E,) of each member's scores (E, n), over the whole group, and flags for the rows of M that it keeps.

    A row is kept if its score is at most the cut-off, or if it is labelled normal. Padding has an infinite score.
    """
    sizes = [len(member.train) for member in members]
    totals = group.counts(sizes)

    def quantiles(ratios: Sequence[float]) -> Array:
        """The quantile (E,) of each member's scores at its ratio."""
        ks = [count_of(ratio, size, least=2) for ratio, size in zip(ratios, totals, strict=True)]
        return smallest(scores, ks) if group.size == 1 else as_like(group.smallest(to_numpy(scores), ks), scores)

    cutoff = quantiles([member.normal_ratio for member in members])  # tau^n
    if any(member.tolerance for member in members):
        medians = quantiles([0.5] * len(members))
        tolerances = as_like(np.array([member.tolerance for member in members]), medians)
        cutoff = namespace(cutoff).maximum(cutoff, medians * tolerances)
    if isinstance(scores, np.ndarray):
        is_normal = np.less_equal(scores, cutoff[:, None], out=empty_beside(scores.shape, bool, scores))
    else:
        is_normal = to_numpy(scores <= cutoff[:, None])
    kept = [row[:size] for row, size in zip(is_normal, sizes, strict=True)]  # P
    for e, member in enumerate(members):
        if member.labelled_normal is not None:
            kept[e] = kept[e] | member.labelled_normal
    return cutoff, kept


def packed(kept: Sequence[np.ndarray], members: Sequence[Member], rows: int) -> np.ndarray:
    """The rows of the whole table that each member kept, as bits: (E, ceil(rows / 8))."""
    flags = np.zeros((len(members), rows), bool)
    for row, keep, member in zip(flags, kept, members, strict=True):
        row[member.train] = keep
    return np.packbits(flags, axis=1)


class IdFiles:
    """The ids (E, n) of all members, each member's in a file; slices of columns are read into memory."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts, self.shape = parts, (len(parts), len(parts[0]))

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        return np.stack([part[key[1]] for part in self.parts])


def padded(parts: Sequence[np.ndarray], like: Array) -> Array:
    """Lists of ids as one (E, longest) array, padded with the first id of each list, so that `take` works."""
    if folder_of(parts[0]) is not None:
        return IdFiles(parts)
    if len(parts) == 1:
        return index_like(parts[0][None], like)
    ids = np.zeros((len(parts), max(map(len, parts))), np.int64)
    for row, part in zip(ids, parts, strict=True):
        row[: len(part)] = part
        row[len(part) :] = part[0] if len(part) else 0
    return index_like(ids, like)


def kept_ids(ids: np.ndarray, kept: np.ndarray, portion: Portion | None) -> np.ndarray:
    """The ids, which are ascending, of the rows kept; only those in the ranges of the portion if there is one."""
    if portion is None:
        return np.asarray(ids[kept])
    parts = [slice(*np.searchsorted(ids, span)) for span in portion]
    return np.concatenate([ids[part][kept[part]] for part in parts])
