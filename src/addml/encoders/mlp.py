"""The paper's encoder f: fully connected layers, gradients written by hand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, namespace, row_product
from addml.encoders.base import ACTIVATIONS, Encoder, FlatNetwork, Shape, by_layer

HIDDEN = (64,)


@dataclass(repr=False)
class MLP(Encoder):
    """Fully connected layers over flat rows; hidden=None is (64,)."""

    name: ClassVar[str] = "mlp"

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> MLPNetwork:
        hidden = self.widths(HIDDEN)
        activations = [self.activation] * len(hidden) + [self.output_activation]
        return MLPNetwork.initial((math.prod(shape), *hidden, self.metric_dim), activations, rngs)


class MLPNetwork(FlatNetwork):
    """Fully connected layers for E members."""

    name: ClassVar[str] = "mlp"
    inputs = property(lambda self: self.widths[0])
    outputs = property(lambda self: self.widths[-1])
    depth = property(lambda self: len(self._acts))  # layers up to the metric space: all of them

    def __init__(self, widths: Sequence[int], activations: Sequence[str], weights: Array) -> None:
        self.widths, self.activations = tuple(widths), tuple(activations)
        super().__init__(self.widths, self.activations, weights)
        self.layers = by_layer(self.parts)  # matrices (E, in, out) and biases (E, 1, out)
        self._acts = [ACTIVATIONS[name] for name in self.activations]
        self._gradient: Array = None  # made once: every step overwrites it

    @staticmethod
    def shapes_of(widths: Sequence[int], activations: Sequence[str]) -> list[Shape]:
        return [shape for a, b in pairwise(widths) for shape in (Shape(a, b, b), Shape(1, b, 0))]

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> MLPNetwork:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        widths, activations = list(document["widths"]), list(document["activations"])
        known = all(type(width) is int and width > 0 for width in widths) and set(activations) <= set(ACTIVATIONS)
        if not known or not activations or len(activations) != len(widths) - 1:
            raise ValueError(f"layers {widths} with {activations}")
        return cls.saved(weights, widths, activations)

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, "widths": list(self.widths), "activations": list(self.activations)}

    @property
    def operations(self) -> int:
        return 2 * len(self.weights) * sum(a * b for a, b in pairwise(self.widths))

    def embed(self, x: Array) -> Array:
        return self.through(x, 0, self.depth)

    def through(self, x: Array, start: int, stop: int) -> Array:
        """What comes out of some layers in a row, in bits that do not depend on other rows."""
        for layer in range(start, stop):
            x = self._layer(layer, x, row_product)
        return x

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        outputs = [x]
        for layer in range(len(self._acts)):
            outputs.append(self._layer(layer, outputs[-1]))
        return outputs[-1], lambda grad: self._back(outputs, grad)

    def input_gradient(self, x: Array, grad: Array) -> Array:
        """dL/dX (b, d), summed over members, of rows x (b, d) from dL/dZ (E, b, w)."""
        outputs = [x[None]]
        for layer in range(self.depth):
            outputs.append(self._layer(layer, outputs[-1]))
        for layer in reversed(range(self.depth)):
            grad = self._acts[layer].back(grad, outputs[layer + 1]) @ self.layers[layer][0].mT
        return grad.sum(0)

    def _layer(self, layer: int, x: Array, product: Callable[[Array, Array], Array] = operator.matmul) -> Array:
        matrix, bias = self.layers[layer]
        x = product(x, matrix)
        x += bias
        return self._acts[layer].apply(x)

    def _back(self, outputs: list[Array], grad: Array) -> Array:
        xp = namespace(grad)
        if self._gradient is None:
            self._gradient = xp.empty_like(self.weights)
            self._gradient_layers = by_layer(list(self.views(self._gradient)))
        for layer in reversed(range(len(self._acts))):
            grad = self._acts[layer].back(grad, outputs[layer + 1])
            matrix, bias = self._gradient_layers[layer]
            xp.matmul(outputs[layer].mT, grad, out=matrix)
            column_sums(grad, out=bias)
            if layer:
                grad = grad @ self.layers[layer][0].mT
        return self._gradient
