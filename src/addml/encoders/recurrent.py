"""The paper's encoder of windows of a series: recurrent layers, with their gradients through time by hand.

With hidden=() the states of one recurrent layer are the metric space, as in the paper. Otherwise the layers of `hidden`
states each are followed by a fully connected one, as the paper allows. Products are taken in tiles, so that a row gets
the same bits among any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, copy, namespace, row_product
from addml.encoders.base import ACTIVATIONS, Encoder, FlatNetwork, Shape, bias, matrix
from addml.parameters import check_one_of

POOLINGS = ("last", "mean")
HIDDEN = (64,)
TILE = 16  # rows of one product: a step that arrives alone is one tile, and gets the bits it gets among thousands


@dataclass(frozen=True)
class Layout:
    """What a recurrent network looks like."""

    window: int
    channels: int
    hidden: tuple[int, ...]
    metric_dim: int
    output_activation: str
    pooling: str

    def check(self) -> None:
        """Raise ValueError where no network looks like this."""
        whole = (self.window, self.channels, self.metric_dim, *self.hidden)
        known = self.pooling in POOLINGS and self.output_activation in ACTIVATIONS
        if not known or any(type(n) is not int or n < 1 for n in whole):
            raise ValueError(f"a recurrent network of {asdict(self)}")

    @property
    def layers(self) -> tuple[int, ...]:
        """The widths of the recurrent layers."""
        return self.hidden or (self.metric_dim,)


@dataclass(repr=False)
class Recurrent(Encoder):
    """Recurrent layers over the steps of a window; hidden=None is (64,)."""

    pooling: str = "mean"  # of the states over a window, or the "last" one, which is the paper's
    name: ClassVar[str] = "recurrent"
    kind: ClassVar[str | None] = "series"

    def check(self) -> None:
        super().check()
        check_one_of("pooling", self.pooling, POOLINGS)
        if self.activation != "tanh":
            raise ValueError(f"activation={self.activation!r}: the recurrence is made with tanh; leave it out")

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> RecurrentNetwork:
        window, channels = shape
        hidden = self.widths(HIDDEN)
        layout = Layout(window, channels, hidden, self.metric_dim, self.output_activation, self.pooling)
        layout.check()
        return RecurrentNetwork.initial(layout, rngs)


class RecurrentNetwork(FlatNetwork):
    """Layers that go through a window (steps, channels) of a series, for E members.

    The last state of the top one, or the mean of its states, comes out, and goes through a dense layer where states are
    hidden.
    """

    name: ClassVar[str] = "recurrent"
    inputs = property(lambda self: self.layout.window * self.layout.channels)
    outputs = property(lambda self: self.layout.metric_dim)

    def __init__(self, layout: Layout, weights: Array) -> None:
        super().__init__(layout, weights)
        self.layout, self.mean = layout, layout.pooling == "mean"
        self.layers = [self.parts[3 * place : 3 * place + 3] for place in range(len(layout.layers))]
        self.dense = self.parts[-2:] if layout.hidden else None
        self._act = ACTIVATIONS[layout.output_activation]

    @staticmethod
    def shapes_of(layout: Layout) -> list[Shape]:
        layers = pairwise((layout.channels, *layout.layers))
        shapes = [shape for a, b in layers for shape in (matrix(a, b), matrix(b, b), bias(b))]  # U, V and b
        dense = [matrix(layout.hidden[-1], layout.metric_dim), bias(layout.metric_dim)] if layout.hidden else []
        return shapes + dense

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> RecurrentNetwork:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        own = {field.name: document[field.name] for field in fields(Layout)}
        layout = Layout(**{**own, "hidden": tuple(own["hidden"])})
        layout.check()
        return cls.saved(weights, layout)

    def to_plain(self) -> dict[str, Any]:
        """The layers as JSON values."""
        return {"name": self.name, **asdict(self.layout), "hidden": list(self.layout.hidden)}

    @property
    def operations(self) -> int:
        recurrent = 3 * len(self.layers)
        times = [self.layout.window if place < recurrent else 1 for place in range(len(self.shapes))]
        products = zip(self.shapes, times, strict=True)
        return 2 * len(self.weights) * sum(count * shape.size for shape, count in products if shape.fan_out)

    def embed(self, x: Array) -> Array:
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        steps = self._steps(x)
        total: Array = None
        states = [zeros((len(self.weights), x.shape[1], width), self.weights) for width in self.layout.layers]
        for step in range(self.layout.window):
            below = steps[:, step]
            for place, parts in enumerate(self.layers):
                states[place] = below = next_state(seen_by(below, parts), states[place], parts)
            total = below if total is None or not self.mean else total + below
        return self.finish(total / self.layout.window if self.mean else total)

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        sequence, ways = self._steps(x), []
        for place, parts in enumerate(self.layers):
            sequence, back = _layer(sequence, parts, goes_on=place > 0)
            ways.append(back)
        pooled = sequence.mean(1) if self.mean else sequence[:, -1]
        z = self.finish(pooled)
        return z, lambda grad: self._back(grad, pooled, z, ways)

    def _steps(self, x: Array) -> Array:
        """Flat windows (E or 1, b, d) as sequences (E or 1, steps, b, channels), each step in one piece."""
        return _in_one_piece(x.reshape(*x.shape[:2], self.layout.window, self.layout.channels).swapaxes(1, 2))

    def finish(self, pooled: Array, rows: int | None = None) -> Array:
        """Embeddings (E, b, w) from what came out of the layers, of the first rows alone where so many are said."""
        if self.dense is None:
            return pooled[:, :rows]
        z = product(pooled, self.dense[0])[:, :rows]
        z += self.dense[1]
        return self._act.apply(z)

    def _back(self, grad: Array, pooled: Array, z: Array, ways: Sequence[Way]) -> Array:
        gradients: list[Array] = []
        if self.dense is not None:
            grad = self._act.back(grad, z)
            gradients = [pooled.mT @ grad, column_sums(grad)]
            grad = product(grad, self.dense[0].mT)
        last, share = self.layout.window - 1, grad / self.layout.window if self.mean else grad
        at: Callable[[int], Array | None] = lambda step: share if self.mean or step == last else None  # noqa: E731
        for way in reversed(ways):
            below, own = way(at)
            gradients, at = own + gradients, partial(_step_of, below)
        gradient = copy(self.weights)
        for part, values in zip(self.views(gradient), gradients, strict=True):
            part[:] = values
        return gradient


# One layer --------------------------------------------------------------------------------------------------

Parts = Sequence[Array]  # the matrices of one layer: U (E, c, w), V (E, w, w), the bias
Way = Callable[[Callable[[int], Array | None]], tuple[Array | None, list[Array]]]  # dL/dh of steps -> dL/dx, gradients


def product(x: Array, matrix: Array) -> Array:
    """Rows x (E or 1, ..., b, k) times matrices (E, k, n), or (E, 1, k, n) where the rows are tiles: (E, ..., b, n)."""
    if matrix.ndim > 3 or x.shape[1:-1] == (TILE,):  # tiles already, or one
        return row_product(x, matrix)
    b, k = x.shape[-2:]
    rows = (-1, TILE, k) if isinstance(x, np.ndarray) and b % TILE == 0 else (-1, k)
    between = (1,) * (len(rows) - 2)
    y = row_product(x.reshape(x.shape[0], *rows), matrix.reshape(matrix.shape[0], *between, k, matrix.shape[-1]))
    return y.reshape(y.shape[0], *x.shape[1:-1], y.shape[-1])


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


def _layer(x: Array, parts: Parts, *, goes_on: bool) -> tuple[Array, Way]:
    """The states (E, steps, b, w) of one layer over a sequence, and its way back."""
    members, width = parts[0].shape[0], parts[1].shape[1]
    states = zeros((members, x.shape[1] + 1, x.shape[2], width), x)
    for step in range(x.shape[1]):
        states[:, step + 1] = next_state(seen_by(x[:, step], parts), states[:, step], parts)
    return states[:, 1:], lambda at: _layer_back(at, x, states, parts, goes_on)


def _layer_back(
    at: Callable[[int], Array | None], x: Array, states: Array, parts: Parts, goes_on: bool
) -> tuple[Array | None, list[Array]]:
    """DL/dx where it goes on, and the gradients of the matrices, from dL/dh of every step."""
    (members, _, b, width), steps = states.shape, x.shape[1]
    inner = zeros((members, steps, b, width), states)  # dL/d(U x + V h + b)
    grad, turned = zeros((members, b, width), states), _in_one_piece(parts[1].mT)
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
    return (product(inner, _in_one_piece(parts[0].mT)) if goes_on else None), gradients


def _step_of(sequence: Array, step: int) -> Array:
    return sequence[:, step]


def _in_one_piece(x: Array) -> Array:
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Zeros of the kind, dtype and device of `like`."""
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(tuple(shape))
