"""The paper's encoder for windows of a series: recurrent layers, with backpropagation through time by hand.

With hidden=() the states of one recurrent layer are the embedding, as in the paper. Otherwise a fully connected layer
follows the recurrent layers, which the paper allows. Products are taken in tiles, so that the bits of a row do not
depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, column_sums, contiguous, namespace, row_product, zeros
from addml.encoders.encoder import ACTIVATIONS, Encoder, FlatNetwork, Shape
from addml.parameters import check_one_of
from addml.text import SERIES

POOLINGS = ("last", "mean")
HIDDEN = (64,)
TILE = 16  # rows of one product: a single step of a stream is one tile, with the same bits as among thousands


class Layout(NamedTuple):
    """The layers of a recurrent network."""

    window: int
    channels: int
    hidden: tuple[int, ...]
    metric_dim: int
    output_activation: str
    pooling: str

    @property
    def layers(self) -> tuple[int, ...]:
        return self.hidden or (self.metric_dim,)


@dataclass(repr=False)
class Recurrent(Encoder):
    """Recurrent tanh layers over the steps of a window, then a fully connected layer unless hidden=().

    Parameters
    ----------
    hidden : the states of each recurrent layer; None: (64,).
    metric_dim, output_activation : as in `MLP`.
    pooling : "mean" of a window's states, or the "last" state, as in the paper.
    """

    pooling: str = "mean"
    name: ClassVar[str] = "recurrent"
    kind: ClassVar[str | None] = SERIES

    def check(self) -> None:
        super().check()
        check_one_of("pooling", self.pooling, POOLINGS)
        if self.activation != "tanh":
            raise ValueError(f"activation={self.activation!r}: recurrent layers use tanh; leave activation out")

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> RecurrentNetwork:
        (window, channels), hidden = shape, self.widths(HIDDEN)
        layout = Layout(window, channels, hidden, self.metric_dim, self.output_activation, self.pooling)
        return RecurrentNetwork.initial(*layout, rngs)


class RecurrentNetwork(FlatNetwork):
    """Recurrent layers over windows of a series, then pooling of the top layer's states and a dense layer, if any."""

    name: ClassVar[str] = "recurrent"
    layout_names = Layout._fields
    inputs = property(lambda self: self.layout.window * self.layout.channels)
    outputs = property(lambda self: self.layout.metric_dim)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layout = layout = Layout(*self._layout)
        self.mean = layout.pooling == "mean"
        self.layers = [self.parts[3 * layer : 3 * layer + 3] for layer in range(len(layout.layers))]
        self.dense = self.parts[-2:] if layout.hidden else None
        self._activation = ACTIVATIONS[layout.output_activation]

    @staticmethod
    def shapes_of(*arguments: Any) -> list[Shape]:
        layout = Layout(*arguments)
        layers, w = pairwise((layout.channels, *layout.layers)), layout.metric_dim
        shapes = [shape for a, b in layers for shape in (Shape(a, b, b), Shape(b, b, b), Shape(1, b, 0))]  # U, V and b
        return [*shapes, Shape(layout.hidden[-1], w, w), Shape(1, w, 0)] if layout.hidden else shapes

    @property
    def operations(self) -> int:
        sizes = [shape.size if shape.fan_out else 0 for shape in self.shapes]
        recurrent = 3 * len(self.layers)
        return 2 * len(self.weights) * (self.layout.window * sum(sizes[:recurrent]) + sum(sizes[recurrent:]))

    def embed(self, x: Array) -> Array:
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        steps = self._steps(x)
        total: Array = None
        states = [zeros((len(self.weights), x.shape[1], width), self.weights) for width in self.layout.layers]
        for step in range(self.layout.window):
            below = steps[:, step]
            for layer, parts in enumerate(self.layers):
                states[layer] = below = next_state(input_part(below, parts), states[layer], parts)
            total = below if total is None or not self.mean else total + below
        return self.finish(total / self.layout.window if self.mean else total)

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        sequences = [self._steps(x)]  # the windows, then the states of each layer, which begin with zeros
        for parts in self.layers:
            below = sequences[-1] if len(sequences) == 1 else sequences[-1][:, 1:]
            states = zeros((len(self.weights), below.shape[1] + 1, below.shape[2], parts[1].shape[1]), below)
            for step in range(below.shape[1]):
                states[:, step + 1] = next_state(input_part(below[:, step], parts), states[:, step], parts)
            sequences.append(states)
        pooled = sequences[-1][:, 1:].mean(1) if self.mean else sequences[-1][:, -1]
        z = self.finish(pooled)
        return z, lambda grad: self._back(grad, pooled, z, sequences)

    def _steps(self, x: Array) -> Array:
        """Flat windows (E or 1, b, d) as sequences (E or 1, steps, b, channels), in which each step is contiguous."""
        return contiguous(x.reshape(*x.shape[:2], self.layout.window, self.layout.channels).swapaxes(1, 2))

    def finish(self, pooled: Array, rows: int | None = None) -> Array:
        """Embeddings (E, b, w) from pooled states; only of the first `rows`, if given."""
        if self.dense is None:
            return pooled[:, :rows]
        z = product(pooled, self.dense[0])[:, :rows]
        z += self.dense[1]
        return self._activation.apply(z)

    def _back(self, grad: Array, pooled: Array, z: Array, sequences: Sequence[Array]) -> Array:
        gradients: list[Array] = []
        if self.dense is not None:
            grad = self._activation.back(grad, z)
            gradients = [pooled.mT @ grad, column_sums(grad)]
            grad = product(grad, self.dense[0].mT)
        above = zeros((grad.shape[0], self.layout.window, *grad.shape[1:]), grad)
        above[:, slice(None) if self.mean else -1] = (grad / self.layout.window)[:, None] if self.mean else grad
        for layer, parts in reversed(list(enumerate(self.layers))):
            below, states = sequences[layer][:, 1 if layer else 0 :], sequences[layer + 1]
            inner = _through_time(above, states, parts)
            flat = inner.reshape(*inner.shape[:1], -1, inner.shape[-1])
            inputs, before = (part.reshape(len(part), flat.shape[1], -1) for part in (below, states[:, :-1]))
            gradients = [inputs.mT @ flat, before.mT @ flat, column_sums(flat), *gradients]
            above = product(inner, contiguous(parts[0].mT)) if layer else None
        return namespace(grad).concatenate([part.reshape(len(part), -1) for part in gradients], 1)


Parts = Sequence[Array]  # of one layer: U (E, c, w), V (E, w, w) and the bias (E, 1, w)


def product(x: Array, matrix: Array) -> Array:
    """Rows x (E or 1, ..., b, k) times matrices (E, k, n), or (E, 1, k, n) for rows in tiles: (E, ..., b, n)."""
    if matrix.ndim > 3 or x.shape[1:-1] == (TILE,):  # already in tiles
        return row_product(x, matrix)
    b, k = x.shape[-2:]
    rows = (-1, TILE, k) if isinstance(x, np.ndarray) and b % TILE == 0 else (-1, k)
    between = (1,) * (len(rows) - 2)
    y = row_product(x.reshape(x.shape[0], *rows), matrix.reshape(matrix.shape[0], *between, k, matrix.shape[-1]))
    return y.reshape(y.shape[0], *x.shape[1:-1], y.shape[-1])


def input_part(x: Array, parts: Parts) -> Array:
    """The input's part of a layer's states, U x + b (E, b, w), for x (E or 1, b, c)."""
    projected = product(x, parts[0])
    projected += parts[2]
    return projected


def next_state(projected: Array, h: Array, parts: Parts) -> Array:
    """The paper's recurrence, h_t = tanh(U x_t + V h_{t-1} + b), (E, b, w)."""
    a = product(h, parts[1])
    a += projected
    return namespace(a).tanh(a, out=a)


def _through_time(above: Array, states: Array, parts: Parts) -> Array:
    """dL/d(U x + V h + b) of every step (E, steps, b, w), from the states and the layer above's part of dL/dh."""
    inner, turned = namespace(above).zeros_like(above), contiguous(parts[1].mT)
    grad = 0.0
    for step in reversed(range(above.shape[1])):
        slope = states[:, step + 1] ** 2
        slope -= 1
        slope *= grad + above[:, step]
        slope *= -1
        inner[:, step] = slope
        grad = product(slope, turned)
    return inner
