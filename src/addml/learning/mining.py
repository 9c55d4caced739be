"""Online hard normal mining: which distances of a mini-batch take part in its loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, from_cutoff
from addml.geometry import Hardest, count_of, hardest, unordered

Miner = Callable[[Any, Any], tuple[Any, ...]]


def hard_normals(distances: Array, sizes: Sequence[int], hard_ratio: float) -> Hardest:
    """The hard distances of every member, among its sizes[e] true ones in distances (E, n)."""
    return hardest(distances, [count_of(hard_ratio, size) for size in sizes])  # tau^h, Q^(m)


def hard_pairs(distances: Array, sizes: Sequence[int], hard_ratio: float) -> tuple[Hardest, Array]:
    """The hard ones of the distances (E, b, b) between sizes[e] rows of a member, and 1 where they are, 0 elsewhere."""
    pairs = [size * (size - 1) // 2 for size in sizes]
    found = hard_normals(unordered(distances), pairs, hard_ratio)
    return found, from_cutoff(distances, found.cutoff[:, None, None])


def mined_pairs(miner: Miner, embeddings: Array, anomalous: Array) -> tuple[Array, Array]:
    """Positive and negative pairs that a pytorch-metric-learning miner chose, each unordered pair once.

    Embeddings are (b, w), anomalous flags (b,). Two symmetric 0/1 matrices (b, b).
    """
    import torch

    chosen = miner(torch.as_tensor(embeddings), torch.as_tensor(anomalous).long())
    if len(chosen) != 4:
        raise ValueError(
            f"miner={miner!r} returned {len(chosen)} index tensors; a pair miner returns four "
            "(anchors, positives, anchors, negatives): choose one of those"
        )
    anchors, positives, others, negatives = (part.cpu().numpy() for part in chosen)
    return _pairs(anchors, positives, embeddings), _pairs(others, negatives, embeddings)


def _pairs(first: np.ndarray, second: np.ndarray, like: Array) -> Array:
    pairs = np.zeros((like.shape[0], like.shape[0]))
    pairs[first, second] = pairs[second, first] = 1
    np.fill_diagonal(pairs, 0)
    return as_like(pairs, like)
