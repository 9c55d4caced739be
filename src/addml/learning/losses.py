"""Closeness losses: each returns its value and dL/dZ, for all members at once.

A mini-batch holds `normal` rows first and a sample of labelled anomalies behind them, where there are any.
Normal (or unknown) rows are pulled together and mined; anomalies are pushed beyond the margin and are not mined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from addml.arrays import Array, at_least_one, convert, from_cutoff, namespace, present
from addml.geometry import NOT_A_DISTANCE, Distance, center_distances, count_of, fill_diagonal, pair_distances
from addml.learning import fused, laplacian
from addml.learning.mining import Miner, hard_normals, hard_pairs, mined_pairs


@dataclass(frozen=True)
class Objective:
    """What is minimised."""

    loss: Literal["instance", "center"] = "instance"
    distance: Distance = "sqeuclidean"
    hard_ratio: float = 1 / 3
    margin: float = 1.0
    anomaly_pairs: bool = False
    miner: Miner | None = None


class Batch(NamedTuple):
    """One mini-batch of every member: (E, normal + anomalies) row ids, each part padded to its longest member."""

    ids: Array
    normal: int  # columns of ids that hold normal rows
    normal_counts: Sequence[int]  # how many of them are real, for each member
    anomaly_counts: Sequence[int]


class Loss(NamedTuple):
    """Value (E,), gradient (E, b, w) with respect to the embeddings, cut-off of mining (E,)."""

    value: Array
    grad: Array
    cutoff: Array


def instance_closeness(z: Array, center: Array, batch: Batch, objective: Objective) -> Loss:
    """Mean distance over the hard pairs of normal rows, and the hinge over pairs of a normal row and an anomaly."""
    if objective.distance == "sqeuclidean" and objective.miner is None and _is_full(batch):
        pairs = batch.normal * (batch.normal - 1) // 2
        for way in (laplacian, fused):  # fewer passes over the pairs than below
            if way.applies(z):
                return Loss(*way.hard_closeness(z, count_of(objective.hard_ratio, pairs)))
    distances, back = pair_distances(z, objective.distance)  # D^(m)
    if objective.miner is not None:
        return _mined_by(objective.miner, z, distances, back, batch, objective)
    size = batch.normal
    pulled = distances[:, :size, :size]
    fill_diagonal(pulled, NOT_A_DISTANCE)
    if min(batch.normal_counts) < size:
        absent = ~present(batch.normal_counts, size, z)
        pulled[absent[:, :, None] | absent[:, None, :]] = NOT_A_DISTANCE
    (cutoff, count, mean), hard = hard_pairs(pulled, batch.normal_counts, objective.hard_ratio)  # tau^h, Q^(m)
    if not any(batch.anomaly_counts):
        grad = back(hard)
        grad *= (1 / at_least_one(count))[:, None, None]
        return Loss(mean, grad, cutoff)
    coefficients = namespace(z).zeros_like(distances)
    coefficients[:, :size, :size] = hard
    total, pairs = _push(coefficients, distances, batch, objective)
    total, count = total + mean * count, at_least_one(count + pairs)
    return Loss(total / count, back(coefficients) / count[:, None, None], cutoff)


def _is_full(batch: Batch) -> bool:
    """Whether every member has as many rows as the batch is wide, and no labelled anomalies."""
    return min(batch.normal_counts) == batch.normal and not any(batch.anomaly_counts)


def _push(coefficients: Array, distances: Array, batch: Batch, objective: Objective) -> tuple[Array, Array]:
    """Fill in the coefficients of pairs with an anomaly; the sum of their losses and how many they are, (E,)."""
    size = batch.normal
    normal = present(batch.normal_counts, size, distances)
    anomalous = present(batch.anomaly_counts, distances.shape[1] - size, distances)
    pushed = distances[:, size:, :size]
    pairs = anomalous[:, :, None] & normal[:, None, :]
    inside = convert(pairs & (pushed < objective.margin), distances)
    coefficients[:, size:, :size] = -inside
    coefficients[:, :size, size:] = -inside.mT
    total = (inside * (objective.margin - pushed)).sum(axis=(1, 2))
    count = convert(pairs.sum(axis=(1, 2)), distances)
    if objective.anomaly_pairs:
        both = convert(anomalous[:, :, None] & anomalous[:, None, :], distances)
        fill_diagonal(both, 0)
        coefficients[:, size:, size:] = both
        total = total + (both * distances[:, size:, size:]).sum(axis=(1, 2)) / 2
        count = count + both.sum(axis=(1, 2)) / 2
    return total, count


def _mined_by(
    miner: Miner, z: Array, distances: Array, back: Callable[[Array], Array], batch: Batch, objective: Objective
) -> Loss:
    """The contrastive loss over the pairs that a miner of the metric-learning literature chooses."""
    xp = namespace(z)
    coefficients, values, lowest = xp.zeros_like(distances), [], []
    normal = present(batch.normal_counts, batch.normal, z)
    real = xp.concat([normal, present(batch.anomaly_counts, z.shape[1] - batch.normal, z)], axis=1)
    for e in range(len(z)):
        (own,) = xp.nonzero(real[e]) if xp.__name__ == "numpy" else xp.nonzero(real[e], as_tuple=True)
        positive, negative = mined_pairs(miner, z[e][own], own >= batch.normal)
        near = distances[e][own[:, None], own]
        inside = negative * (near < objective.margin)
        count = ((positive.sum() + negative.sum()) / 2).clip(1)
        values.append((positive * near + inside * (objective.margin - near)).sum() / (2 * count))
        lowest.append(xp.where(positive > 0, near, near.max()).min())  # the largest where it chose no positive pair
        coefficients[e, own[:, None], own] = (positive - inside) / count
    return Loss(xp.stack(values), back(coefficients), xp.stack(lowest))


def center_closeness(z: Array, center: Array, batch: Batch, objective: Objective) -> Loss:
    """Mean distance to the centre over the hard rows, and the hinge over the anomalies."""
    xp = namespace(z)
    distances, back = center_distances(z, center, objective.distance)  # D^(m)
    pulled, pushed = distances[:, : batch.normal], distances[:, batch.normal :]
    if min(batch.normal_counts) < batch.normal:
        pulled = xp.where(present(batch.normal_counts, batch.normal, z), pulled, NOT_A_DISTANCE)
    cutoff, count, mean = hard_normals(pulled, batch.normal_counts, objective.hard_ratio)  # tau^h
    hard = from_cutoff(pulled, cutoff[:, None])  # Q^(m), as 0 and 1
    if not any(batch.anomaly_counts):
        return Loss(mean, back(hard / at_least_one(count)[:, None]), cutoff)
    anomalous = present(batch.anomaly_counts, pushed.shape[1], z)
    inside = convert(anomalous & (pushed < objective.margin), z)
    coefficients = xp.concat([hard, -inside], axis=1)
    total = mean * count + (inside * (objective.margin - pushed)).sum(axis=1)
    count = (count + convert(anomalous.sum(axis=1), z)).clip(1)
    return Loss(total / count, back(coefficients / count[:, None]), cutoff)


LOSSES: dict[str, Callable[[Array, Array, Batch, Objective], Loss]] = {
    "instance": instance_closeness,
    "center": center_closeness,
}
