"""Recurrent layers, one state a step, with their gradients through time by hand.

Products are taken in tiles, so that a row gets the same bits among any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, namespace, row_product
from addml.encoders.base import Shape, bias, matrix

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


Parts = Sequence[Array]  # the matrices of one layer: U (E, c, g w), V (E, w, g w), biases


class Cell:
    """What recurrent layers have in common."""

    @staticmethod
    def seen(x: Array, parts: Parts) -> Array:
        """What a layer sees of its input x (E or 1, b, c): U x + b, (E, b, g w)."""
        seen = product(x, parts[0])
        seen += parts[2]
        return seen


class Tanh(Cell):
    """The paper's recurrence, h_t = tanh(U x_t + V h_{t-1} + b)."""

    gates: ClassVar[int] = 1

    @staticmethod
    def shapes(inputs: int, width: int) -> list[Shape]:
        """U, V and b."""
        return [matrix(inputs, width), matrix(width, width), bias(width)]

    @staticmethod
    def next(seen: Array, h: Array, parts: Parts) -> tuple[Array, Any]:
        """The next state (E, b, w) of states h and of what they see, (E, b or 1, w), and what the way back needs."""
        a = product(h, parts[1])
        a += seen
        return namespace(a).tanh(a, out=a), None

    @staticmethod
    def back(grad: Array, before: Array, h: Array, kept: Any, parts: Parts) -> tuple[Array, Array, Array | None]:
        """DL/d(U x + b), dL/d(V h_{t-1}), and what reaches h_{t-1} not through V, from dL/dh."""
        slope = h * h
        slope -= 1
        slope *= grad
        slope *= -1
        return slope, slope, None


class Gru(Cell):
    """The gated recurrent unit: h_t = (1 - z) n + z h_{t-1}, n = tanh(U_n x + b_n + r (V_n h_{t-1} + c))."""

    gates: ClassVar[int] = 3

    @staticmethod
    def shapes(inputs: int, width: int) -> list[Shape]:
        """U and V for r, z and n side by side, b, and c."""
        return [matrix(inputs, 3 * width, width), matrix(width, 3 * width, width), bias(3 * width), bias(width)]

    @staticmethod
    def next(seen: Array, h: Array, parts: Parts) -> tuple[Array, Any]:
        """The next state (E, b, w) of states h and of what they see, (E, b or 1, 3 w), and what the way back needs."""
        w, own = h.shape[-1], product(h, parts[1])
        gates = seen[..., : 2 * w] + own[..., : 2 * w]
        _sigmoid(gates)
        r, z, inner = gates[..., :w], gates[..., w:], own[..., 2 * w :] + parts[3]
        n = r * inner
        n += seen[..., 2 * w :]
        namespace(n).tanh(n, out=n)
        state = h - n
        state *= z
        state += n
        return state, (r, z, n, inner)

    @staticmethod
    def back(grad: Array, before: Array, h: Array, kept: Any, parts: Parts) -> tuple[Array, Array, Array | None]:
        """DL/d(U x + b), dL/d(V h_{t-1}), and what reaches h_{t-1} not through V, from dL/dh."""
        r, z, n, inner = kept
        candidate = grad * (1 - z) * (1 - n * n)
        reset, update = candidate * inner * (r - r * r), grad * (before - n) * (z - z * z)
        xp = namespace(grad)
        return (
            xp.concatenate([reset, update, candidate], -1),
            xp.concatenate([reset, update, candidate * r], -1),
            grad * z,
        )


def _sigmoid(x: Array) -> None:
    """The logistic function, in place."""
    x *= 0.5
    namespace(x).tanh(x, out=x)
    x *= 0.5
    x += 0.5


class Cells:
    """Recurrent layers on top of each other; the last state of the top one, or the mean of its states, comes out."""

    def __init__(self, cell: type[Tanh] | type[Gru], widths: Sequence[int], pooling: str) -> None:
        """Widths are (channels, states of each layer...)."""
        self.cell, self.widths, self.mean = cell, tuple(widths), pooling == "mean"
        self.shapes = [cell.shapes(a, b) for a, b in zip(self.widths, self.widths[1:], strict=False)]

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
            states[place] = x = self.cell.next(self.cell.seen(x, parts), states[place], parts)[0]

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
        kept = []
        for step in range(x.shape[1]):
            seen = self.cell.seen(x[:, step], parts)
            states[:, step + 1], needed = self.cell.next(seen, states[:, step], parts)
            kept.append(needed)
        return states[:, 1:], lambda at: self._back(at, x, states, kept, parts, goes_on)

    def _back(
        self,
        at: Callable[[int], Array | None],
        x: Array,
        states: Array,
        kept: list[Any],
        parts: Parts,
        goes_on: bool,
    ) -> tuple[Array | None, list[Array]]:
        """DL/dx where it goes on, and the gradients of the matrices, from dL/dh of every step."""
        (members, _, b, width), steps = states.shape, x.shape[1]
        inner = empty((members, steps, b, self.cell.gates * width), states)
        outer = inner if self.cell.gates == 1 else empty(inner.shape, states)
        grad, turned = zeros((members, b, width), states), _turned(parts[1])
        for step in reversed(range(steps)):
            new = at(step)
            grad = grad if new is None else grad + new
            before, after = states[:, step], states[:, step + 1]
            outer[:, step], through, direct = self.cell.back(grad, before, after, kept[step], parts)
            if outer is not inner:
                inner[:, step] = through
            grad = product(through, turned)
            grad = grad if direct is None else grad + direct
        flat, own = outer.reshape(members, steps * b, -1), inner.reshape(members, steps * b, -1)
        below = x.reshape(x.shape[0], steps * b, -1)
        gradients = [below.mT @ flat, states[:, :-1].reshape(members, steps * b, width).mT @ own, column_sums(flat)]
        if len(parts) > 3:
            gradients.append(column_sums(own)[..., -width:])
        return (product(outer, _turned(parts[0])) if goes_on else None), gradients


def _step_of(sequence: Array, step: int) -> Array:
    return sequence[:, step]


def _turned(matrix: Array) -> Array:
    """The matrices (E, k, n) with rows and columns exchanged, in one piece."""
    return np.ascontiguousarray(matrix.mT) if isinstance(matrix, np.ndarray) else matrix.mT.contiguous()


CELLS: dict[str, type[Tanh] | type[Gru]] = {"tanh": Tanh, "gru": Gru}
