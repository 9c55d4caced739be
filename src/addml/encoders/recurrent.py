"""Encoders of windows of a series: recurrent layers, the paper's or gated ones, or temporal convolutions.

With hidden=() the states of one recurrent layer are the metric space, as in the paper. Otherwise the layers of `hidden`
states each are followed by a fully connected one, as the paper allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, copy, namespace
from addml.encoders.base import Design, expect_weights
from addml.encoders.cells import CELLS, Cells, Shape, bias, glorot, product, views
from addml.encoders.mlp import ACTIVATIONS
from addml.encoders.tcn import Convolutions, reach

KINDS = (*CELLS, "tcn")
POOLINGS = ("last", "mean")
HIDDEN = (64,)
CONVOLUTION, MOST_CONVOLUTIONS = 32, 4  # outputs of a layer, and layers, where nothing is said


@dataclass(frozen=True)
class Layout:
    """What a recurrent network looks like."""

    window: int
    channels: int
    cell: str
    hidden: tuple[int, ...]
    metric_dim: int
    activation: str
    output_activation: str
    pooling: str

    def check(self) -> None:
        """Raise ValueError where no network looks like this."""
        whole = (self.window, self.channels, self.metric_dim, *self.hidden)
        known = self.cell in KINDS and self.pooling in POOLINGS
        activations = {self.activation, self.output_activation}
        if not known or not activations <= set(ACTIVATIONS) or any(type(n) is not int or n < 1 for n in whole):
            raise ValueError(f"a recurrent network of {asdict(self)}")
        if self.cell == "tcn" and reach(len(self.layers)) > self.window:
            raise ValueError(
                f"hidden={self.hidden}: {len(self.layers)} convolutions see {reach(len(self.layers))} steps, more than "
                f"window={self.window}; give fewer layers or a longer window"
            )

    @property
    def layers(self) -> tuple[int, ...]:
        """The widths of the recurrent layers, or of the convolutions."""
        return self.hidden or (self.metric_dim,)

    def body(self) -> Cells | Convolutions:
        """The layers that go through a window."""
        widths = (self.channels, *self.layers)
        if self.cell == "tcn":
            return Convolutions(self.activation, widths, self.pooling)
        return Cells(CELLS[self.cell], widths, self.pooling)


def usual_hidden(cell: str, window: int) -> tuple[int, ...]:
    """The layers where nothing is said: one recurrent one, or as many convolutions as the window has steps for."""
    if cell != "tcn":
        return HIDDEN
    most = max([1, *(n for n in range(1, MOST_CONVOLUTIONS + 1) if reach(n) <= window)])
    return (CONVOLUTION,) * most


class Recurrent:
    """Networks that go through a window (steps, channels) of a series: weights are one flat buffer (E, P)."""

    name: ClassVar[str] = "recurrent"

    def __init__(self, layout: Layout, weights: Array) -> None:
        self.layout, self.weights, self.body = layout, weights, layout.body()
        parts = list(views(self._shapes, weights))
        self.dense = parts[len(parts) - 2 :] if layout.hidden else None
        counts = [len(shapes) for shapes in self.body.shapes]
        starts = np.cumsum([0, *counts])
        self.parts = [parts[start : start + count] for start, count in zip(starts, counts, strict=False)]
        self._act = ACTIVATIONS[layout.output_activation]

    @classmethod
    def designed(cls, shape: Sequence[int], design: Design, randoms: Sequence[np.random.Generator]) -> Recurrent:
        """The network for windows of this shape (steps, channels), before training."""
        window, channels = shape
        hidden = usual_hidden(design.cell, window) if design.hidden is None else tuple(design.hidden)
        widths = (hidden, design.metric_dim, design.activation, design.output_activation)
        layout = Layout(window, channels, design.cell, *widths, design.pooling)
        layout.check()
        return cls(layout, np.stack([_initial(layout, random) for random in randoms]))

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> Recurrent:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        own = {field.name: document[field.name] for field in fields(Layout)}
        layout = Layout(**{**own, "hidden": tuple(own["hidden"])})
        layout.check()
        expect_weights(weights, sum(shape.size for shape in shapes_of(layout)))
        return cls(layout, weights)

    def to_plain(self) -> dict[str, Any]:
        """The layers as JSON values."""
        return {"name": self.name, **asdict(self.layout), "hidden": list(self.layout.hidden)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Recurrent, (self.layout, self.weights)

    @cached_property
    def _shapes(self) -> list[Shape]:
        return shapes_of(self.layout)

    @property
    def inputs(self) -> int:
        """Numbers of a flat window."""
        return self.layout.window * self.layout.channels

    @property
    def outputs(self) -> int:
        """Dimensions of the metric space."""
        return self.layout.metric_dim

    @property
    def operations(self) -> int:
        """Multiplications and additions for one row of all members."""
        dense = sum(2 * shape.size for shape in _dense(self.layout) if not shape.is_bias)
        return len(self.weights) * (self.body.operations(self.layout.window) + dense)

    def with_weights(self, weights: Array) -> Recurrent:
        """The same layers with other weights, other members, another device or another dtype."""
        return Recurrent(self.layout, weights)

    def is_matrix(self) -> Array:
        """Which of the P weights belong to a matrix (1), not to a bias (0)."""
        marks = copy(self.weights[:1])
        for shape, part in zip(self._shapes, views(self._shapes, marks), strict=True):
            part[:] = 0 if shape.is_bias else 1
        return marks[0]

    def embed(self, x: Array) -> Array:
        """Embeddings (..., E, b, w) of flat windows (..., E or 1, b, d), block by block."""
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        return self.finish(self.body.embed(self._steps(x), self.parts))

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Embeddings of x (E or 1, b, d), and the way back from dL/dZ to the gradient (E, P) of the weights."""
        pooled, through = self.body.forward(self._steps(x), self.parts)
        z = self.finish(pooled)
        return z, lambda grad: self._back(grad, pooled, z, through)

    def _steps(self, x: Array) -> Array:
        """Flat windows (E or 1, b, d) as sequences (E or 1, steps, b, channels), each step in one piece."""
        steps = x.reshape(*x.shape[:2], self.layout.window, self.layout.channels).swapaxes(1, 2)
        return np.ascontiguousarray(steps) if isinstance(steps, np.ndarray) else steps.contiguous()

    def finish(self, pooled: Array, rows: int | None = None) -> Array:
        """Embeddings (E, b, w) from what came out of the layers, of the first rows alone where so many are said."""
        if self.dense is None:
            return pooled[:, :rows]
        z = product(pooled, self.dense[0])[:, :rows]
        z += self.dense[1]
        return self._act.apply(z)

    def _back(self, grad: Array, pooled: Array, z: Array, through: Callable[[Array], list[list[Array]]]) -> Array:
        last: list[Array] = []
        if self.dense is not None:
            grad = self._act.back(grad, z)
            last = [pooled.mT @ grad, column_sums(grad)]
            grad = product(grad, self.dense[0].mT)
        gradient = copy(self.weights)
        own = [part for layer in through(grad) for part in layer] + last
        for part, values in zip(views(self._shapes, gradient), own, strict=True):
            part[:] = values
        return gradient


def shapes_of(layout: Layout) -> list[Shape]:
    """The matrices and biases of all layers, in the order in which they lie in the buffer."""
    shapes = [shape for layer in layout.body().shapes for shape in layer]
    return shapes + _dense(layout)


def _dense(layout: Layout) -> list[Shape]:
    """The fully connected layer behind the others, where there is one."""
    return [Shape(layout.hidden[-1], layout.metric_dim), bias(layout.metric_dim)] if layout.hidden else []


def _initial(layout: Layout, random: np.random.Generator) -> np.ndarray:
    """Uniform Glorot weights, those of a gate by themselves, and zero biases."""
    body = layout.body()
    parts = [glorot(shapes, random, width) for shapes, width in zip(body.shapes, body.blocks(), strict=True)]
    if layout.hidden:
        parts.append(glorot(_dense(layout), random))
    return np.concatenate(parts)
