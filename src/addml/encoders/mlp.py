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
from addml.encoders.base import ACTIVATIONS, Encoder, FlatNetwork, Shape, bias, by_layer, matrix

HIDDEN = (64,)


@dataclass(repr=False)
class MLP(Encoder):
    """Fully connected layers over flat rows; hidden=None is (64,)."""

    name: ClassVar[str] = "mlp"

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> MLPNetwork:
        """Untrained networks for rows of this shape."""
        hidden = self.widths(HIDDEN)
        activations = [self.activation] * len(hidden) + [self.output_activation]
        return MLPNetwork.initial((math.prod(shape), *hidden, self.metric_dim), activations, rngs)


class MLPNetwork(FlatNetwork):
    """Fully connected layers for E members."""

    name: ClassVar[str] = "mlp"

    def __init__(self, widths: Sequence[int], activations: Sequence[str], weights: Array) -> None:
        """Widths are (in, hidden..., metric_dim); there is one activation for each layer; weights are (E, P)."""
        self.widths, self.activations = tuple(widths), tuple(activations)
        super().__init__(self.widths, self.activations, weights)
        self.layers = by_layer(self.parts)  # matrices (E, in, out) and biases (E, 1, out)
        self._acts = [ACTIVATIONS[name] for name in self.activations]
        self._gradient: Array = None  # made once: every step overwrites it

    @staticmethod
    def shapes_of(widths: Sequence[int], activations: Sequence[str]) -> list[Shape]:
        """The matrix and the bias of every layer."""
        return [shape for a, b in pairwise(widths) for shape in (matrix(a, b), bias(b))]

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> MLPNetwork:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        widths, activations = list(document["widths"]), list(document["activations"])
        known = all(type(width) is int and width > 0 for width in widths) and set(activations) <= set(ACTIVATIONS)
        if not known or not activations or len(activations) != len(widths) - 1:
            raise ValueError(f"layers {widths} with {activations}")
        return cls.saved(weights, widths, activations)

    def to_plain(self) -> dict[str, Any]:
        """The layers as JSON values."""
        return {"name": self.name, "widths": list(self.widths), "activations": list(self.activations)}

    @property
    def inputs(self) -> int:
        """Numbers of a row."""
        return self.widths[0]

    @property
    def outputs(self) -> int:
        """Dimensions of the metric space."""
        return self.widths[-1]

    @property
    def operations(self) -> int:
        """Multiplications and additions for one row of all members."""
        return 2 * len(self.weights) * sum(a * b for a, b in pairwise(self.widths))

    def embed(self, x: Array) -> Array:
        """Embeddings (E, b, w) of rows x, (E, b, d): a row's bits do not depend on the others."""
        return self.through(x, 0, self.depth)

    @property
    def depth(self) -> int:
        """Layers up to the metric space: all of them."""
        return len(self._acts)

    def through(self, x: Array, start: int, stop: int) -> Array:
        """What comes out of some layers in a row, in bits that do not depend on other rows."""
        for layer in range(start, stop):
            x = self._layer(layer, x, row_product)
        return x

    @property
    def first_layer(self) -> tuple[Array, Array]:
        """The matrix (E, d, h) and the bias (E, 1, h) of the first layer."""
        return self.layers[0]

    def embed_from_first(self, x: Array) -> Array:
        """Embeddings (E, b, w) of rows that have come to the first activation, x (E, b, h), which is used up."""
        return self.through(self._acts[0].apply(x), 1, self.depth)

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Embeddings of x, and the way back from dL/dZ to the gradient (E, P) of the weights, good until the next."""
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
        if not isinstance(x, np.ndarray) and len(matrix) == 1:
            flat = namespace(x).addmm(bias[0, 0], x.reshape(-1, x.shape[-1]), matrix[0])  # one pass over the result
            return self._acts[layer].apply(flat.reshape(*x.shape[:-1], flat.shape[-1]))
        if not isinstance(x, np.ndarray) and x.ndim == 3:
            return self._acts[layer].apply(namespace(x).baddbmm(bias, x, matrix))  # one launch less
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
