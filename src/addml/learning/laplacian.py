"""The instance closeness of full batches on the CPU, in as few passes over the pairs as NumPy allows.

The hard pairs are a graph. With L its Laplacian, K its edges and Z the embeddings, the sum of squared distances along
the edges is the sum of Z * (L Z), so that one product gives the mean distance and its gradient (2 / K) L Z alike.
"""

from __future__ import annotations

import numpy as np

from addml.arrays import Array, at_least_one, column_sums, dots, from_cutoff, gram, pair_sums, row_sums
from addml.geometry import NOT_A_DISTANCE, fill_diagonal, largest, unordered


def applies(z: Array) -> bool:
    """Whether embeddings z are on the CPU."""
    return isinstance(z, np.ndarray)


def hard_closeness(z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean squared distance (E,) over the k farthest pairs of z (E, b, w) and their ties, its gradient, the cut-off."""
    z = z - column_sums(z) / z.shape[1]  # distances do not change; float32 cancels less
    products = gram(z)
    halves = pair_sums(products.diagonal(axis1=1, axis2=2) / 2)  # of squared distances, symmetric to the last bit
    halves -= products
    fill_diagonal(halves, NOT_A_DISTANCE)
    cutoff = largest(unordered(halves), [k] * len(z))
    hard = from_cutoff(halves, cutoff[:, None, None])
    degree = row_sums(hard)[..., 0]
    fill_diagonal(hard, -degree)  # the Laplacian, of the other sign
    grad: np.ndarray = hard @ z
    grad *= (-4 / at_least_one(degree.sum(axis=1)))[:, None, None]
    flat = (len(z), -1)
    return dots(z.reshape(flat), grad.reshape(flat)) / 2, grad, 2 * cutoff
