"""Products of rows with one matrix a member, in tiles, so that a row's result is the same in any number of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from addml.arrays import Array, row_product

TILE = 16  # rows of one product: a step that arrives alone is one tile, and gets the bits it gets among thousands


def product(x: Array, matrix: Array) -> Array:
    """Rows x (E or 1, ..., b, k) times matrices (E, k, n), or (E, 1, k, n) where the rows are tiles: (E, ..., b, n)."""
    if matrix.ndim > 3 or x.shape[1:-1] == (TILE,):  # tiles already, or one
        return row_product(x, matrix)
    b, k = x.shape[-2:]
    rows = (-1, TILE, k) if isinstance(x, np.ndarray) and b % TILE == 0 else (-1, k)
    between = (1,) * (len(rows) - 2)
    y = row_product(x.reshape(x.shape[0], *rows), matrix.reshape(matrix.shape[0], *between, k, matrix.shape[-1]))
    return y.reshape(y.shape[0], *x.shape[1:-1], y.shape[-1])


def tile_of(row: np.ndarray) -> np.ndarray:
    """One row (E or 1, k) as the first of a tile (E or 1, TILE, k)."""
    tile = np.zeros((row.shape[0], TILE, row.shape[-1]), row.dtype)
    tile[:, 0] = row
    return tile


def empty(shape: Sequence[int], like: Array) -> Array:
    """Room for numbers of the kind, dtype and device of `like`."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_empty(tuple(shape))


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Zeros of the kind, dtype and device of `like`."""
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(tuple(shape))


class Shape(NamedTuple):
    """The shape of a matrix, or of a bias, which is one row."""

    rows: int
    columns: int
    is_bias: bool = False

    @property
    def size(self) -> int:
        """How many numbers that is."""
        return self.rows * self.columns


def bias(columns: int) -> Shape:
    """The shape of a bias."""
    return Shape(1, columns, True)


def views(shapes: Sequence[Shape], weights: Array) -> Iterator[Array]:
    """The matrices (E, rows, columns) that lie one after another in weights (E, P)."""
    start = 0
    for shape in shapes:
        end = start + shape.size
        yield weights[:, start:end].reshape(weights.shape[0], shape.rows, shape.columns)
        start = end


def glorot(shapes: Sequence[Shape], random: np.random.Generator, width: int | None = None) -> np.ndarray:
    """Uniform Glorot weights for matrices of blocks `width` columns wide (all of them if None), zeros for biases."""
    parts = []
    for shape in shapes:
        bound = math.sqrt(6 / (shape.rows + (width or shape.columns)))
        parts.append(np.zeros(shape.size) if shape.is_bias else random.uniform(-bound, bound, shape.size))
    return np.concatenate(parts)
