"""Fully connected layers, with gradients by hand: the paper's encoder f, and the autoencoder of windows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from addml.arrays import Array, dots, namespace, row_product
from addml.encoders.encoder import Encoder, LayeredNetwork, Shape
from addml.text import SERIES

HIDDEN = (64,)


@dataclass(repr=False)
class MLP(Encoder):
    """Fully connected layers over flat rows.

    Parameters
    ----------
    hidden : the widths of the hidden layers; None: (64,).
    metric_dim : dimensions of the metric space.
    activation, output_activation : of the hidden layers and of the last: "tanh", "sigmoid", "relu" or "linear".
    """

    name: ClassVar[str] = "mlp"

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> MLPNetwork:
        hidden = self.widths(HIDDEN)
        return MLPNetwork.initial((math.prod(shape), *hidden, self.metric_dim), self.activations(hidden), rngs)


class MLPNetwork(LayeredNetwork):
    """Fully connected layers for E members."""

    name: ClassVar[str] = "mlp"
    layout_names = ("widths", "activations")
    widths = property(lambda self: self._layout[0])
    inputs = property(lambda self: self.widths[0])
    outputs = property(lambda self: self.widths[-1])
    operations = property(lambda self: 2 * len(self.weights) * sum(a * b for a, b in pairwise(self.widths)))
    depth = property(lambda self: len(self.layers))  # layers up to the metric space: all of them

    @staticmethod
    def shapes_of(widths: Sequence[int], activations: Sequence[str]) -> list[Shape]:
        return [shape for a, b in pairwise(widths) for shape in (Shape(a, b, b), Shape(1, b, 0))]

    def embed(self, x: Array) -> Array:
        return self.through(x, 0, self.depth)

    def through(self, x: Array, start: int, stop: int) -> Array:
        """The output of layers `start` to `stop`; a row's bits do not depend on other rows."""
        product = operator.matmul if x.shape[-2] == 1 else row_product  # a single row cannot depend on others
        for layer in range(start, stop):
            x = self._layer(layer, x, product)
        return x

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        outputs = self._outputs(x, len(self.layers))
        return outputs[-1], lambda grad: self._back(outputs, grad)

    def input_gradient(self, x: Array, grad: Array) -> Array:
        """dL/dX (b, d), summed over members, of rows x (b, d) from dL/dZ (E, b, w)."""
        outputs = self._outputs(x[None], self.depth)
        for layer in reversed(range(self.depth)):
            grad = self._activations[layer].back(grad, outputs[layer + 1]) @ self.layers[layer][0].mT
        return grad.sum(0)

    def _outputs(self, x: Array, depth: int) -> list[Array]:
        """X and the outputs of the first `depth` layers."""
        outputs = [x]
        for layer in range(depth):
            outputs.append(self._layer(layer, outputs[-1], operator.matmul))
        return outputs

    def _back(self, outputs: list[Array], grad: Array) -> Array:
        gradient = namespace(grad).empty_like(self.weights)
        gradients = self.by_layer(gradient)
        for layer in reversed(range(len(self.layers))):
            grad = self._layer_back(layer, outputs[layer], outputs[layer + 1], grad, gradients)
        return gradient


@dataclass(repr=False)
class Autoencoder(Encoder):
    """Fully connected layers over flat windows, trained to reconstruct them; default: hidden=(64,)."""

    metric_dim: int = 16  # width of the middle layer
    name: ClassVar[str] = "autoencoder"
    kind: ClassVar[str | None] = SERIES
    learning_rate: ClassVar[float] = 2e-3
    largest_batch: ClassVar[int] = 64  # small: neighbouring windows are nearly the same
    rows_per_epoch: ClassVar[int | None] = 8000
    normal_ratio: ClassVar[float] = 0.9
    tolerance: ClassVar[float] = 3.0  # median residuals: rows within it are learned, so that rare shapes are normal

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> AutoencoderNetwork:
        hidden, inputs = self.widths(HIDDEN), math.prod(shape)
        inner = [self.activation] * len(hidden)
        widths = (inputs, *hidden, int(self.metric_dim), *hidden[::-1], inputs)
        return AutoencoderNetwork.initial(widths, (*inner, self.output_activation, *inner, "linear"), rngs)


class AutoencoderNetwork(MLPNetwork):
    """Embeds a window as its middle layer and its residual: the root mean square error of the reconstruction."""

    name: ClassVar[str] = "autoencoder"
    depth = property(lambda self: len(self.widths) // 2)  # layers up to the middle
    outputs = property(lambda self: self.widths[self.depth] + 1)  # the middle layer and the residual

    def embed(self, x: Array) -> Array:
        z = super().embed(x)
        error = self.reconstructed(z) - x
        residual = namespace(x).sqrt(dots(error, error) / x.shape[-1])
        return namespace(x).concatenate([z, residual[..., None]], -1)

    def reconstructed(self, z: Array) -> Array:
        """The reconstruction (..., E, b, d) of windows from the middle layer (..., E, b, w)."""
        return self.through(z, self.depth, len(self.activations))
