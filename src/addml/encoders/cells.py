"""Recurrent layers, one state a step, with their gradients through time by hand.

Products are taken in tiles, so that a row gets the same bits among any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from addml.arrays import Array, column_sums, namespace, row_product
from addml.encoders.base import bias, matrix

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


def empty(shape: Sequence[int], like: Array) -> Array:
    """Room for numbers of the kind, dtype and device of `like`."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_empty(tuple(shape))


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Zeros of the kind, dtype and device of `like`."""
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(tuple(shape))


Parts = Sequence[Array]  # the matrices of one layer: U (E, c, w), V (E, w, w), the bias


def seen_by(x: Array, parts: Parts) -> Array:
    """What a layer sees of its input x (E or 1, b, c): U x + b, (E, b, w)."""
    seen = product(x, parts[0])
    seen += parts[2]
    return seen


def next_state(seen: Array, h: Array, parts: Parts) -> Array:
    """The paper's recurrence, h_t = tanh(U x_t + V h_{t-1} + b), (E, b, w)."""
    a = product(h, parts[1])
    a += seen
    return namespace(a).tanh(a, out=a)


class Cells:
    """Recurrent layers on top of each other; the last state of the top one, or the mean of its states, comes out."""

    def __init__(self, widths: Sequence[int], pooling: str) -> None:
        """Widths are (channels, states of each layer...)."""
        self.widths, self.mean = tuple(widths), pooling == "mean"
        self.shapes = [[matrix(a, b), matrix(b, b), bias(b)] for a, b in pairwise(self.widths)]  # U, V and b

    def operations(self, window: int) -> int:
        """Multiplications and additions for one window of one member."""
        return 2 * window * sum(shape.size for layer in self.shapes for shape in layer if shape.fan_out)

    def embed(self, x: Array, layers: Sequence[Parts]) -> Array:
        """What comes out, (E, b, w), of windows x (E or 1, steps, b, c)."""
        states, total = self.begin(x.shape[2], layers), None
        for step in range(x.shape[1]):
            self.advance(x[:, step], states, layers)
            total = states[-1] if total is None or not self.mean else total + states[-1]
        return total / x.shape[1] if self.mean else total

    def begin(self, rows: int, layers: Sequence[Parts]) -> list[Array]:
        """The states (E, rows, w) of each layer before the first step."""
        sizes = zip(layers, self.widths[1:], strict=True)
        return [zeros((parts[0].shape[0], rows, width), parts[0]) for parts, width in sizes]

    def advance(self, x: Array, states: list[Array], layers: Sequence[Parts]) -> None:
        """All layers one step on, in place of the states before."""
        for place, parts in enumerate(layers):
            states[place] = x = next_state(seen_by(x, parts), states[place], parts)

    def forward(self, x: Array, layers: Sequence[Parts]) -> tuple[Array, Callable[[Array], list[list[Array]]]]:
        """What comes out, and the way back from its gradient to those of all matrices, layer by layer."""
        steps, ways = x.shape[1], []
        for place, parts in enumerate(layers):
            x, back = self._layer(x, parts, place > 0)
            ways.append(back)
        out = x.mean(1) if self.mean else x[:, -1]

        def back_through(grad: Array) -> list[list[Array]]:
            def after(step: int) -> Array | None:
                return grad if step == steps - 1 else None

            at = (lambda step: grad / steps) if self.mean else after
            gradients: list[list[Array]] = []
            for way in reversed(ways):
                below, own = way(at)
                gradients.insert(0, own)
                at = partial(_step_of, below)
            return gradients

        return out, back_through

    def _layer(self, x: Array, parts: Parts, goes_on: bool) -> tuple[Array, Callable[..., Any]]:
        """The states (E, steps, b, w) of one layer over a sequence, and its way back."""
        members, width = parts[0].shape[0], parts[1].shape[1]
        states = empty((members, x.shape[1] + 1, x.shape[2], width), x)
        states[:, 0] = 0
        for step in range(x.shape[1]):
            states[:, step + 1] = next_state(seen_by(x[:, step], parts), states[:, step], parts)
        return states[:, 1:], lambda at: self._back(at, x, states, parts, goes_on)

    def _back(
        self, at: Callable[[int], Array | None], x: Array, states: Array, parts: Parts, goes_on: bool
    ) -> tuple[Array | None, list[Array]]:
        """DL/dx where it goes on, and the gradients of the matrices, from dL/dh of every step."""
        (members, _, b, width), steps = states.shape, x.shape[1]
        inner = empty((members, steps, b, width), states)  # dL/d(U x + V h + b)
        grad, turned = zeros((members, b, width), states), _turned(parts[1])
        for step in reversed(range(steps)):
            new = at(step)
            grad = grad if new is None else grad + new
            slope = states[:, step + 1] ** 2
            slope -= 1
            slope *= grad
            slope *= -1
            inner[:, step] = slope
            grad = product(slope, turned)
        flat, below = inner.reshape(members, steps * b, -1), x.reshape(x.shape[0], steps * b, -1)
        before = states[:, :-1].reshape(members, steps * b, width)
        gradients = [below.mT @ flat, before.mT @ flat, column_sums(flat)]
        return (product(inner, _turned(parts[0])) if goes_on else None), gradients


def _step_of(sequence: Array, step: int) -> Array:
    return sequence[:, step]


def _turned(matrix: Array) -> Array:
    """The matrices (E, k, n) with rows and columns exchanged, in one piece."""
    return np.ascontiguousarray(matrix.mT) if isinstance(matrix, np.ndarray) else matrix.mT.contiguous()
