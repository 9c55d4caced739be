"""Distances in metric space with their gradients, and exact cut-offs.

The member axis comes first: embeddings are (E, b, w), centres (E, w). The distances that are trained on come with a
backward function from dL/d(distances) to dL/dZ, written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from addml.arrays import (
    Array,
    column_sums,
    convert,
    dots,
    empty_beside,
    index_like,
    namespace,
    plus_gram,
    row_product,
    row_sums,
    zeros,
)

Distance = Literal["sqeuclidean", "euclidean", "cosine"]
Back = Callable[[Array], Array]  # from the gradient of the output to the gradient of the input
DISTANCES: tuple[Distance, ...] = ("sqeuclidean", "euclidean", "cosine")
NOT_A_DISTANCE = -1.0  # below every cut-off: marks the diagonal and pairs with padding
FEW = 1024  # with fewer values, a sample does not bracket the k-th largest well enough


def count_of(ratio: float, n: int, least: int = 1) -> int:
    """A ratio of n as a number of elements: rounded up, at least `least`, at most n."""
    return min(n, max(least, math.ceil(ratio * n - 1e-9)))


def smallest(values: Array, ks: Sequence[int]) -> Array:
    """The ks[e]-th smallest value of each row e of values (E, n)."""
    if not isinstance(values, np.ndarray):
        return values.sort(-1).values.gather(1, index_like(np.asarray(ks) - 1, values)[:, None])[:, 0]
    return np.array([_kth_smallest(row, k) for row, k in zip(values, ks, strict=True)])


def _kth_smallest(values: np.ndarray, k: int) -> Any:
    copy = empty_beside(values.shape, values.dtype, values)  # on disk if the values are
    copy[...] = values
    copy.partition(k - 1)
    return copy[k - 1]


def hardest(values: Array, ks: Sequence[int]) -> tuple[Array, Array, Array]:
    """The ks[e]-th largest of each row e of values (E, n), how many are at least as large, and their mean."""
    if not isinstance(values, np.ndarray) and min(ks) == max(ks) > 0:
        return _hardest_on_device(values, ks[0])
    cutoff = largest(values, ks)
    is_hard = convert(values >= cutoff[:, None], values)
    count = row_sums(is_hard)[:, 0]
    return cutoff, count, dots(values, is_hard) / count.clip(1)


def _hardest_on_device(values: Array, k: int) -> tuple[Array, Array, Array]:
    """The same with one k for all members, the usual case: copies nothing to the device, adds up only k values."""
    top = values.topk(k, sorted=False).values
    cutoff = top.amin(-1)
    count = row_sums(convert(values >= cutoff[:, None], values))[:, 0]
    return cutoff, count, (top.sum(-1) + (count - k) * cutoff) / count  # ties are equal to the cut-off


def largest(values: Array, ks: Sequence[int]) -> Array:
    """The ks[e]-th largest value of each row e of values (E, n); infinity if ks[e] is 0."""
    if isinstance(values, np.ndarray):
        return np.array([_kth_largest(row, k) for row, k in zip(values, ks, strict=True)], values.dtype)
    if not any(ks):  # a last mini-batch of one row has no pairs to gather from
        return values.new_full((len(values),), math.inf)
    k, ordered = index_like(np.asarray(ks), values)[:, None], values.sort(-1, descending=True).values
    return namespace(values).where(k > 0, ordered.gather(1, (k - 1).clip(0)), math.inf)[:, 0]


def _kth_largest(values: np.ndarray, k: int) -> float:
    """Exact selection after Floyd and Rivest: a sample brackets the value, and only the bracket is partitioned.

    Selection is the most expensive part of a large batch; this takes a quarter of the time of a full partition.
    """
    n = len(values)
    if k == 0:
        return math.inf
    if n < FEW:
        return float(np.partition(values, n - k)[n - k])
    stride = round(n ** (1 / 3))
    sample = np.sort(values[::stride])
    guess = min(int(len(sample) * (1 - k / n)), len(sample) - 1)
    upper = values >= sample[guess]
    excess = int(np.count_nonzero(upper)) - k  # by how many the guess is off; the sample corrects it
    other_end = int(guess + excess / stride + math.copysign(2 * math.sqrt(abs(excess) / stride) + 3, excess))
    if excess >= 0:
        inside = values.compress(upper ^ (values > sample[other_end]) if other_end < len(sample) else upper)
    else:
        inside = values.compress(upper ^ (values >= sample[other_end]) if other_end >= 0 else ~upper)
    rank = excess if excess >= 0 else len(inside) + excess
    if not 0 <= rank < len(inside):
        return float(np.partition(values, n - k)[n - k])
    inside.partition(rank)
    return float(inside[rank])


def pair_distances(z: Array, distance: Distance) -> tuple[Array, Back]:
    """All pairwise distances of z (E, b, w) as symmetric matrices (E, b, b), and the backward function.

    The latter takes dL/dD of the unordered pairs as a symmetric matrix with a diagonal of zeros, and overwrites it.
    """
    if distance == "cosine":
        unit, unit_back = _normalised_with_back(z)
        ones = zeros((*z.shape[:2], z.shape[1]), z) + 1
        return plus_gram(ones, unit, -1), lambda grad: unit_back(-(grad @ unit))
    z = z - column_sums(z) / z.shape[1]  # keeps all distances, with less cancellation in float32
    squares = dots(z, z)
    squared = plus_gram(squares[:, :, None] + squares[:, None, :], z, -2)  # symmetric to the last bit, for cut-offs

    def back(grad: Array) -> Array:
        fill_diagonal(grad, -row_sums(grad)[..., 0])  # minus the Laplacian of the graph of pairs
        grad_z = grad @ z
        grad_z *= -2
        return grad_z

    if distance == "sqeuclidean":
        return squared, back
    roots = namespace(z).sqrt(squared.clip(0))
    return roots, lambda grad: back(_through_root(grad, roots))


def unordered(pairs: Array) -> Array:
    """Each unordered pair of the symmetric pairs (E, b, b) once: (E, b (b - 1) / 2).

    Skip the first number and read the rest in rows of b + 1. Column d then holds the pairs d columns right of the
    diagonal, or b + 1 - d columns left of it. The first half of each row has every pair once, without any lookup.
    """
    members, size = pairs.shape[:2]
    half, odd = divmod(size, 2)
    rows = pairs.reshape(members, size * size)[:, 1:].reshape(members, size - 1, size + 1)
    once = rows[:, :, :half].reshape(members, (size - 1) * half)
    if not odd:
        return once
    return namespace(pairs).concat([once, rows[:, :half, half]], axis=1)  # the middle column holds its pairs twice


def fill_diagonal(pairs: Array, value: float | Array) -> None:
    """Set the diagonal of every matrix of pairs (E, b, b) to one value, or to values (E, b)."""
    size = pairs.shape[-1]
    pairs.reshape(len(pairs), size * size)[:, :: size + 1] = value


def center_distances(z: Array, center: Array, distance: Distance) -> tuple[Array, Back]:
    """Distances (E, b) of z (E, b, w) to a centre (E, w), and the backward function; the centre is a constant."""
    if distance == "cosine":
        unit, unit_back = _normalised_with_back(z)
        mu = normalised(center[:, None])
        return 1 - (unit * mu).sum(axis=-1), lambda grad: unit_back(-grad[..., None] * mu)
    offset = z - center[:, None]
    if isinstance(offset, np.ndarray):
        squared = dots(offset, offset)  # a row's bits do not depend on its position
    else:
        squared = namespace(z).linalg.vector_norm(offset, dim=-1).square()  # a single pass

    def back(grad: Array) -> Array:
        return 2 * grad[..., None] * offset

    if distance == "sqeuclidean":
        return squared, back
    roots = namespace(z).sqrt(squared)
    return roots, lambda grad: back(_through_root(grad, roots))


def cross_distances(z: Array, references: Array, distance: Distance) -> Array:
    """Distances (E, b, r) of z (E, b, w) to every reference (E, r, w)."""
    if distance == "cosine":
        return 1 - row_product(normalised(z), normalised(references).mT)
    origin = references.mean(axis=1, keepdims=True)
    z, references = z - origin, references - origin
    squared = row_product(-2 * z, references.mT)
    squared += (z * z).sum(axis=-1, keepdims=True)
    squared += (references * references).sum(axis=-1)[:, None, :]
    squared = squared.clip(0)
    return squared if distance == "sqeuclidean" else namespace(z).sqrt(squared)


def matched_distances(z: Array, other: Array, distance: Distance) -> Array:
    """Distances (E, b) between each row of z (E, b, w) and the same row of `other`."""
    if distance == "cosine":
        return 1 - (normalised(z) * normalised(other)).sum(axis=-1)
    squared = ((z - other) ** 2).sum(axis=-1)
    return squared if distance == "sqeuclidean" else namespace(z).sqrt(squared)


def normalised(z: Array) -> Array:
    """The rows of z (..., w) at length 1; their Euclidean distances rank like cosine distances."""
    return _normalised_with_back(z)[0]


def _normalised_with_back(z: Array) -> tuple[Array, Back]:
    squares = (z * z).sum(axis=-1, keepdims=True)
    length = namespace(z).sqrt(squares).clip(1e-15)  # a row at the origin has no direction: distance 1 from all
    unit = z / length
    return unit, lambda grad: (grad - (grad * unit).sum(axis=-1, keepdims=True) * unit) / length


def _through_root(grad: Array, roots: Array) -> Array:
    # d sqrt(s) / ds = 1 / (2 sqrt(s)); zero is a subgradient where two rows coincide
    xp = namespace(grad)
    is_positive = roots > 0
    return xp.where(is_positive, grad / (2 * xp.where(is_positive, roots, 1.0)), 0.0)
