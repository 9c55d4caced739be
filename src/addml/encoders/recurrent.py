"""The paper's encoder of windows of a series: recurrent layers.

With hidden=() the states of one recurrent layer are the metric space, as in the paper. Otherwise the layers of `hidden`
states each are followed by a fully connected one, as the paper allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, copy, namespace
from addml.encoders.base import ACTIVATIONS, Encoder, FlatNetwork, Shape, bias, matrix
from addml.encoders.cells import Cells, product
from addml.parameters import check_one_of

POOLINGS = ("last", "mean")
HIDDEN = (64,)


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

    def body(self) -> Cells:
        """The layers that go through a window."""
        return Cells((self.channels, *self.layers), self.pooling)


@dataclass(repr=False)
class Recurrent(Encoder):
    """Recurrent layers over the steps of a window; hidden=None is (64,)."""

    pooling: str = "mean"  # of the states over a window, or the "last" one, which is the paper's
    name: ClassVar[str] = "recurrent"
    kind: ClassVar[str | None] = "series"

    def check(self) -> None:
        """Raise ValueError for a parameter that has no meaning."""
        super().check()
        check_one_of("pooling", self.pooling, POOLINGS)
        if self.activation != "tanh":
            raise ValueError(f"activation={self.activation!r}: the recurrence is made with tanh; leave it out")

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> RecurrentNetwork:
        """Untrained networks for windows of this shape, (steps, channels)."""
        window, channels = shape
        hidden = self.widths(HIDDEN)
        layout = Layout(window, channels, hidden, self.metric_dim, self.output_activation, self.pooling)
        layout.check()
        return RecurrentNetwork.initial(layout, rngs)


class RecurrentNetwork(FlatNetwork):
    """Layers that go through a window (steps, channels) of a series, for E members."""

    name: ClassVar[str] = "recurrent"

    def __init__(self, layout: Layout, weights: Array) -> None:
        self.layout, self.body = layout, layout.body()
        super().__init__(layout, weights)
        self.dense = self.parts[-2:] if layout.hidden else None
        counts = [len(shapes) for shapes in self.body.shapes]
        starts = np.cumsum([0, *counts])
        self.layers = [self.parts[start : start + count] for start, count in zip(starts, counts, strict=False)]
        self._act = ACTIVATIONS[layout.output_activation]

    @staticmethod
    def shapes_of(layout: Layout) -> list[Shape]:
        """The matrices and biases of all layers, in the order in which they lie in the buffer."""
        return [shape for layer in layout.body().shapes for shape in layer] + _dense(layout)

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
        dense = sum(2 * shape.size for shape in _dense(self.layout) if shape.fan_out)
        return len(self.weights) * (self.body.operations(self.layout.window) + dense)

    def embed(self, x: Array) -> Array:
        """Embeddings (..., E, b, w) of flat windows (..., E or 1, b, d), block by block."""
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        return self.finish(self.body.embed(self._steps(x), self.layers))

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Embeddings of x (E or 1, b, d), and the way back from dL/dZ to the gradient (E, P) of the weights."""
        pooled, through = self.body.forward(self._steps(x), self.layers)
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
        for part, values in zip(self.views(gradient), own, strict=True):
            part[:] = values
        return gradient


def _dense(layout: Layout) -> list[Shape]:
    """The fully connected layer behind the others, where there is one."""
    return [matrix(layout.hidden[-1], layout.metric_dim), bias(layout.metric_dim)] if layout.hidden else []
