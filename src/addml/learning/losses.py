"""Closeness losses with online hard normal mining; each returns its value and dL/dZ, for all members at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, column_sums, convert, count_mask, dots, gram, namespace, row_sums
from addml.distances import (
    DISTANCES,
    NOT_A_DISTANCE,
    Distance,
    center_distances,
    count_of,
    fill_diagonal,
    hardest,
    largest,
    pair_distances,
    unordered,
)
from addml.parameters import Part, check_flag, check_number, check_one_of

Miner = Callable[[Any, Any], tuple[Any, ...]]


@dataclass(repr=False)
class CenterCloseness(Part):
    """The mean of the largest distances between a mini-batch's rows and the centre.

    Parameters
    ----------
    distance : "sqeuclidean", "euclidean" or "cosine".
    hard_ratio : the share of distances, the largest ones, that count.
    margin : the distance that labelled anomalies keep from normal rows; None: the mean distance before training.
    """

    distance: Distance = "sqeuclidean"
    hard_ratio: float = 1 / 3
    margin: float | None = None
    name: ClassVar[str] = "center"

    def check(self) -> None:
        check_one_of("distance", self.distance, DISTANCES)
        check_number("hard_ratio", self.hard_ratio, 0, 1, with_low=False)
        if self.margin is not None:
            check_number("margin", self.margin, 0, with_low=False)

    @property
    def used_margin(self) -> float:
        return 1.0 if self.margin is None else self.margin


@dataclass(repr=False)
class InstanceCloseness(CenterCloseness):
    """The mean of the largest distances between the rows of a mini-batch, over all pairs.

    Parameters
    ----------
    distance, hard_ratio, margin : as in `CenterCloseness`.
    anomaly_pairs : whether to pull labelled anomalies together too.
    miner : a pair miner of pytorch-metric-learning, used instead of hard normal mining.
    """

    anomaly_pairs: bool = False
    miner: Miner | None = None
    name: ClassVar[str] = "instance"

    def check(self) -> None:
        super().check()
        check_flag("anomaly_pairs", self.anomaly_pairs)
        if self.miner is not None and not callable(self.miner):
            raise ValueError(f"miner={self.miner!r} must be None or a pair miner of pytorch-metric-learning")


CLOSENESS: dict[str, type[CenterCloseness]] = {part.name: part for part in (InstanceCloseness, CenterCloseness)}


class Batch(NamedTuple):
    """One mini-batch of every member: normal rows, then labelled anomalies, each padded to the longest member."""

    ids: Array  # (E, normal + anomalies)
    normal: int  # how many columns of ids hold normal rows
    normal_counts: Sequence[int]  # each member's normal rows, without padding
    anomaly_counts: Sequence[int]

    @property
    def is_padded(self) -> bool:
        """Whether some members have fewer normal rows than others."""
        return min(self.normal_counts) < self.normal

    @property
    def is_full(self) -> bool:
        """Whether there is neither padding nor an anomaly."""
        return not self.is_padded and not any(self.anomaly_counts)

    def leading(self, members: int) -> Batch:
        """The mini-batch of the first members."""
        return Batch(self.ids[:members], self.normal, self.normal_counts[:members], self.anomaly_counts[:members])


class Loss(NamedTuple):
    """Value (E,), gradient (E, b, w) with respect to the embeddings, mining cut-off (E,)."""

    value: Array
    grad: Array
    cutoff: Array


def instance_closeness(z: Array, center: Array, batch: Batch, part: InstanceCloseness) -> Loss:
    """Mean distance over the hard pairs of normal rows; a hinge over the pairs of a normal row and an anomaly."""
    if isinstance(z, np.ndarray) and batch.is_full and part.distance == "sqeuclidean" and part.miner is None:
        return hard_closeness(z, count_of(part.hard_ratio, batch.normal * (batch.normal - 1) // 2))
    distances, back = pair_distances(z, part.distance)  # D^(m)
    if part.miner is not None:
        return _mined_loss(part.miner, z, distances, back, batch, part.used_margin)
    size = batch.normal
    normal_pairs = distances[:, :size, :size]
    fill_diagonal(normal_pairs, NOT_A_DISTANCE)
    if batch.is_padded:
        is_padding = ~count_mask(batch.normal_counts, size, z)
        normal_pairs[is_padding[:, :, None] | is_padding[:, None, :]] = NOT_A_DISTANCE
    ks = [count_of(part.hard_ratio, rows * (rows - 1) // 2) for rows in batch.normal_counts]
    cutoff, count, mean = hardest(unordered(normal_pairs), ks)  # tau^h
    hard = convert(normal_pairs >= cutoff[:, None, None], normal_pairs)  # Q^(m), as 0 and 1
    if not any(batch.anomaly_counts):
        grad = back(hard)
        grad *= (1 / count.clip(1))[:, None, None]
        return Loss(mean, grad, cutoff)
    coefficients = namespace(z).zeros_like(distances)
    coefficients[:, :size, :size] = hard
    anomaly_loss, anomaly_count = _add_anomalies(coefficients, distances, batch, part)
    total = anomaly_loss + mean * count
    count = (count + anomaly_count).clip(1)
    return Loss(total / count, back(coefficients) / count[:, None, None], cutoff)


def hard_closeness(z: np.ndarray, k: int) -> Loss:
    """The mean squared distance over the k farthest pairs of z (E, b, w) and ties.

    The hard pairs form a graph with K edges and Laplacian L. The squared distances along the edges sum up to the sum
    of Z * (L Z), so one product gives both the mean distance and its gradient (2 / K) L Z.
    """
    z = z - column_sums(z) / z.shape[1]  # keeps all distances, with less cancellation in float32
    products = gram(z)
    squares = products.diagonal(axis1=1, axis2=2) / 2
    halves = squares[:, :, None] + squares[:, None, :] - products  # half the squared distances, symmetric to the bit
    fill_diagonal(halves, NOT_A_DISTANCE)
    cutoff = largest(unordered(halves), [k] * len(z))
    hard = convert(halves >= cutoff[:, None, None], halves)
    degree = row_sums(hard)[..., 0]
    fill_diagonal(hard, -degree)  # -L
    grad: np.ndarray = hard @ z
    grad *= (-4 / degree.sum(axis=1).clip(1))[:, None, None]
    flat = (len(z), -1)
    return Loss(dots(z.reshape(flat), grad.reshape(flat)) / 2, grad, 2 * cutoff)


def _add_anomalies(coefficients: Array, distances: Array, batch: Batch, part: InstanceCloseness) -> tuple[Array, Array]:
    """Set the coefficients of pairs with an anomaly; returns the sum of their losses and their number, (E,)."""
    size = batch.normal
    normal = count_mask(batch.normal_counts, size, distances)
    anomalous = count_mask(batch.anomaly_counts, distances.shape[1] - size, distances)
    mixed_pairs = anomalous[:, :, None] & normal[:, None, :]
    inside, total, count = _hinge(distances[:, size:, :size], mixed_pairs, part.used_margin)
    coefficients[:, size:, :size] = -inside
    coefficients[:, :size, size:] = -inside.mT
    if part.anomaly_pairs:
        anomaly_pairs = convert(anomalous[:, :, None] & anomalous[:, None, :], distances)
        fill_diagonal(anomaly_pairs, 0)
        coefficients[:, size:, size:] = anomaly_pairs
        total = total + (anomaly_pairs * distances[:, size:, size:]).sum(axis=(1, 2)) / 2
        count = count + anomaly_pairs.sum(axis=(1, 2)) / 2
    return total, count


def _hinge(distances: Array, mask: Array, margin: float) -> tuple[Array, Array, Array]:
    """Which distances (E, ...) of the mask are below the margin, as 0 and 1; the hinge loss; the size of the mask."""
    axes = tuple(range(1, distances.ndim))
    inside = convert(mask & (distances < margin), distances)
    return inside, (inside * (margin - distances)).sum(axis=axes), convert(mask.sum(axis=axes), distances)


def _mined_loss(
    miner: Miner, z: Array, distances: Array, back: Callable[[Array], Array], batch: Batch, margin: float
) -> Loss:
    """The contrastive loss over the pairs that the miner chooses, each unordered pair once."""
    import torch

    xp = namespace(z)
    coefficients, values, cutoffs = xp.zeros_like(distances), [], []
    normal = count_mask(batch.normal_counts, batch.normal, z)
    real = xp.concat([normal, count_mask(batch.anomaly_counts, z.shape[1] - batch.normal, z)], axis=1)
    for e in range(len(z)):
        (rows,) = xp.nonzero(real[e]) if xp.__name__ == "numpy" else xp.nonzero(real[e], as_tuple=True)
        mined = miner(torch.as_tensor(z[e][rows]), torch.as_tensor(rows >= batch.normal).long())
        if len(mined) != 4:
            raise ValueError(f"miner={miner!r} returned {len(mined)} index tensors; a pair miner returns four")
        indices = [part.cpu().numpy() for part in mined]  # anchors and positives, anchors and negatives
        pairs = np.zeros((2, len(rows), len(rows)))
        for matrix, anchors, others in zip(pairs, indices[::2], indices[1::2], strict=True):
            matrix[anchors, others] = matrix[others, anchors] = 1
            np.fill_diagonal(matrix, 0)
        positive, negative = as_like(pairs, z)
        distance = distances[e][rows[:, None], rows]
        inside = negative * (distance < margin)
        count = ((positive.sum() + negative.sum()) / 2).clip(1)
        values.append((positive * distance + inside * (margin - distance)).sum() / (2 * count))
        cutoffs.append(xp.where(positive > 0, distance, distance.max()).min())  # the maximum without positive pairs
        coefficients[e, rows[:, None], rows] = (positive - inside) / count
    return Loss(xp.stack(values), back(coefficients), xp.stack(cutoffs))


def center_closeness(z: Array, center: Array, batch: Batch, part: CenterCloseness) -> Loss:
    """Mean distance to the centre over the hard rows; a hinge over the anomalies."""
    xp = namespace(z)
    distances, back = center_distances(z, center, part.distance)  # D^(m)
    normal, anomalous = distances[:, : batch.normal], distances[:, batch.normal :]
    if batch.is_padded:
        normal = xp.where(count_mask(batch.normal_counts, batch.normal, z), normal, NOT_A_DISTANCE)
    cutoff, count, mean = hardest(normal, [count_of(part.hard_ratio, rows) for rows in batch.normal_counts])  # tau^h
    hard = convert(normal >= cutoff[:, None], normal)  # Q^(m), as 0 and 1
    if not any(batch.anomaly_counts):
        return Loss(mean, back(hard / count.clip(1)[:, None]), cutoff)
    real = count_mask(batch.anomaly_counts, anomalous.shape[1], z)
    inside, anomaly_loss, anomaly_count = _hinge(anomalous, real, part.used_margin)
    total = mean * count + anomaly_loss
    count = (count + anomaly_count).clip(1)
    coefficients = xp.concat([hard, -inside], axis=1)
    return Loss(total / count, back(coefficients / count[:, None]), cutoff)


LossFunction = Callable[[Array, Array, Batch, Any], Loss]
LOSSES: dict[str, LossFunction] = {"instance": instance_closeness, "center": center_closeness}
