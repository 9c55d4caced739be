"""The paper's encoder f: fully connected layers, gradients written by hand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, column_sums, copy, namespace, row_product
from addml.encoders.base import Design, expect_weights

LEAK = 0.01
HIDDEN = (64,)


@dataclass(frozen=True)
class Activation:
    """An activation, which may work in place, and dL/d(input) from dL/d(output) and the output."""

    apply: Callable[[Array], Array]
    back: Callable[[Array, Array], Array]


def _tanh_back(grad: Array, y: Array) -> Array:
    if not isinstance(y, np.ndarray):
        return namespace(y).ops.aten.tanh_backward(grad, y)  # one launch in place of three
    slope = y * y
    np.subtract(1, slope, out=slope)
    slope *= grad
    return slope


ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(lambda x: namespace(x).tanh(x, out=x), _tanh_back),
    "sigmoid": Activation(lambda x: 0.5 + 0.5 * namespace(x).tanh(0.5 * x), lambda grad, y: grad * (y - y * y)),
    "relu": Activation(lambda x: x.clip(0), lambda grad, y: grad * (y > 0)),
    "leaky_relu": Activation(
        lambda x: namespace(x).where(x > 0, x, LEAK * x),
        lambda grad, y: namespace(y).where(y > 0, grad, LEAK * grad),
    ),
    "elu": Activation(
        lambda x: namespace(x).where(x > 0, x, namespace(x).expm1(x.clip(None, 0))),
        lambda grad, y: grad * (1 + y.clip(None, 0)),
    ),
    "linear": Activation(lambda x: x, lambda grad, y: grad),
}


class MLP:
    """Fully connected layers for E members: weights are one flat buffer (E, P), layers are views of it."""

    name: ClassVar[str] = "mlp"

    def __init__(self, widths: Sequence[int], activations: Sequence[str], weights: Array) -> None:
        """Widths are (in, hidden..., metric_dim); activations one a layer; weights (E, P)."""
        self.widths, self.activations, self.weights = tuple(widths), tuple(activations), weights
        self.layers = list(_layer_views(self.widths, weights))
        self._acts = [ACTIVATIONS[name] for name in self.activations]
        self._gradient: Array = None  # made once: what one step has given, the next one overwrites

    @classmethod
    def initial(cls, widths: Sequence[int], activations: Sequence[str], randoms: Sequence[np.random.Generator]) -> MLP:
        """Uniform Glorot weights and zero biases in float64, each member from its own generator."""
        return cls(widths, activations, np.stack([_glorot(widths, random) for random in randoms]))

    @classmethod
    def designed(cls, shape: Sequence[int], design: Design, randoms: Sequence[np.random.Generator]) -> MLP:
        """The network for rows of this shape, laid flat, before training."""
        hidden = HIDDEN if design.hidden is None else design.hidden
        activations = [design.activation] * len(hidden) + [design.output_activation]
        return cls.initial((math.prod(shape), *hidden, design.metric_dim), activations, randoms)

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> MLP:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        widths, activations = list(document["widths"]), list(document["activations"])
        known = all(type(width) is int and width > 0 for width in widths) and set(activations) <= set(ACTIVATIONS)
        if not known or not activations or len(activations) != len(widths) - 1:
            raise ValueError(f"layers {widths} with {activations}")
        expect_weights(weights, weight_count(widths))
        return cls(widths, activations, weights)

    def to_plain(self) -> dict[str, Any]:
        """The layers as JSON values."""
        return {"name": self.name, "widths": list(self.widths), "activations": list(self.activations)}

    def __reduce__(self) -> tuple[Any, ...]:
        return MLP, (self.widths, self.activations, self.weights)

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

    def with_weights(self, weights: Array) -> MLP:
        """The same layers with other weights, other members, another device or another dtype."""
        return MLP(self.widths, self.activations, weights)

    def is_matrix(self) -> Array:
        """Which of the P weights belong to a matrix (1), not to a bias (0)."""
        marks = copy(self.weights[:1])
        marks[:] = 1
        for _, bias in _layer_views(self.widths, marks):
            bias[:] = 0
        return marks[0]

    def embed(self, x: Array) -> Array:
        """Embeddings (E, b, w) of rows x, (E, b, d): a row's bits do not depend on the others."""
        for layer in range(len(self._acts)):
            x = self._layer(layer, x, row_product)
        return x

    @property
    def first_layer(self) -> tuple[Array, Array]:
        """The matrix (E, d, h) and the bias (E, 1, h) of the first layer."""
        return self.layers[0]

    def embed_from_first(self, x: Array) -> Array:
        """Embeddings (E, b, w) of rows that have come to the first activation, x (E, b, h), which is used up."""
        x = self._acts[0].apply(x)
        for layer in range(1, len(self._acts)):
            x = self._layer(layer, x, row_product)
        return x

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Embeddings of x, and the way back from dL/dZ to the gradient (E, P) of the weights, good until the next."""
        outputs = [x]
        for layer in range(len(self._acts)):
            outputs.append(self._layer(layer, outputs[-1]))
        return outputs[-1], lambda grad: self._back(outputs, grad)

    def input_gradient(self, x: Array, grad: Array) -> Array:
        """dL/dX (b, d), summed over members, of rows x (b, d) from dL/dZ (E, b, w)."""
        outputs = [x[None]]
        for layer in range(len(self._acts)):
            outputs.append(self._layer(layer, outputs[-1]))
        for layer in reversed(range(len(self._acts))):
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
            self._parts = list(_layer_views(self.widths, self._gradient))
        gradient, parts = self._gradient, self._parts
        for layer in reversed(range(len(self._acts))):
            grad = self._acts[layer].back(grad, outputs[layer + 1])
            matrix, bias = parts[layer]
            xp.matmul(outputs[layer].mT, grad, out=matrix)
            column_sums(grad, out=bias)
            if layer:
                grad = grad @ self.layers[layer][0].mT
        return gradient


def weight_count(widths: Sequence[int]) -> int:
    """P, the number of weights and biases of such layers."""
    return sum(a * b + b for a, b in pairwise(widths))


def _layer_views(widths: Sequence[int], weights: Array) -> Iterator[tuple[Array, Array]]:
    """The matrices (E, in, out) and biases (E, 1, out) that lie one after another in weights (E, P)."""
    members, start = weights.shape[0], 0
    for a, b in pairwise(widths):
        middle, end = start + a * b, start + a * b + b
        yield weights[:, start:middle].reshape(members, a, b), weights[:, middle:end].reshape(members, 1, b)
        start = end


def _glorot(widths: Sequence[int], random: np.random.Generator) -> np.ndarray:
    parts: list[np.ndarray] = []
    for a, b in pairwise(widths):
        bound = math.sqrt(6 / (a + b))
        parts += [random.uniform(-bound, bound, a * b), np.zeros(b)]
    return np.concatenate(parts)
