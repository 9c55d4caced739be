"""Causal dilated convolutions over a window, with their gradients by hand: the temporal convolution.

Layer l sees three steps, 2^l apart. Nothing is filled in before the first step: a layer's sequence is shorter than
the one below, and what comes out of a step depends on the steps it sees alone, not on where its window began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from addml.arrays import Array, column_sums, copy, namespace
from addml.encoders.base import ACTIVATIONS, Shape, bias, matrix
from addml.encoders.cells import Parts, product

KERNEL = 3


def receptive_field(layers: int) -> int:
    """How many steps the top one of so many layers sees."""
    return 1 + (KERNEL - 1) * ((1 << layers) - 1)


class Convolutions:
    """Convolutions on top of each other; the last output of the top one, or the mean of its outputs, comes out."""

    def __init__(self, activation: str, widths: Sequence[int], pooling: str) -> None:
        """Widths are (channels, outputs of each layer...)."""
        self.activation, self.widths, self.mean = ACTIVATIONS[activation], tuple(widths), pooling == "mean"
        pairs = zip(self.widths, self.widths[1:], strict=False)
        self.shapes: list[list[Shape]] = [[matrix(KERNEL * a, b), bias(b)] for a, b in pairs]

    def operations(self, window: int) -> int:
        """Multiplications and additions for one window of one member."""
        total = 0
        for layer, shapes in enumerate(self.shapes):
            window -= (KERNEL - 1) * 2**layer
            total += 2 * window * shapes[0].size
        return total

    def embed(self, x: Array, layers: Sequence[Parts]) -> Array:
        """What comes out, (E, b, w), of windows x (E or 1, steps, b, c)."""
        for layer, parts in enumerate(layers):
            x = self.convolve(steps_seen(x, 2**layer), parts)
        return self._pooled(x)

    def _pooled(self, x: Array) -> Array:
        return mean_of_steps(x) if self.mean else x[:, -1]

    def convolve(self, seen: Array, parts: Parts) -> Array:
        """The outputs (E, ..., b, w) of what a layer sees, (E or 1, ..., b, 3 c)."""
        y = product(seen, parts[0])
        y += parts[1].reshape(parts[1].shape[0], *(1,) * (y.ndim - 2), -1)
        return self.activation.apply(y)

    def forward(self, x: Array, layers: Sequence[Parts]) -> tuple[Array, Callable[[Array], list[list[Array]]]]:
        """What comes out, and the way back from its gradient to those of all matrices, layer by layer."""
        inputs, outputs = [], []
        for layer, parts in enumerate(layers):
            inputs.append(steps_seen(x, 2**layer))
            x = self.convolve(inputs[-1], parts)
            outputs.append(x)

        def back(grad: Array) -> list[list[Array]]:
            y, gradients = outputs[-1], list[list[Array]]()
            grad = grad[:, None] / y.shape[1] + 0 * y if self.mean else _last_only(grad, y)
            for layer in reversed(range(len(layers))):
                grad = self.activation.back(grad, outputs[layer])
                seen, flat = _flat(inputs[layer]), _flat(grad)
                gradients.insert(0, [seen.mT @ flat, column_sums(flat)])
                if layer:
                    grad = _spread(product(grad, layers[layer][0].mT), outputs[layer - 1], 2**layer)
            return gradients

        return self._pooled(x), back


def mean_of_steps(x: Array) -> Array:
    """The mean over the steps of x (E, steps, b, w), added up in their order."""
    total = copy(x[:, 0])
    for step in x.swapaxes(0, 1)[1:]:
        total += step
    return total / x.shape[1]


def steps_seen(x: Array, dilation: int) -> Array:
    """What the steps of a layer see of x (E, steps, b, c): (E, fewer steps, b, 3 c), the newest last."""
    count = x.shape[1] - (KERNEL - 1) * dilation
    parts = [x[:, k * dilation : k * dilation + count] for k in range(KERNEL)]
    return namespace(x).concatenate(parts, -1)


def _spread(grad: Array, below: Array, dilation: int) -> Array:
    """DL/d(outputs below) (E, steps, b, c) from dL/d(what was seen of them) (E, fewer steps, b, 3 c)."""
    result, count, c = namespace(below).zeros_like(below), grad.shape[1], below.shape[-1]
    for k in range(KERNEL):
        result[:, k * dilation : k * dilation + count] += grad[..., k * c : (k + 1) * c]
    return result


def _last_only(grad: Array, y: Array) -> Array:
    result = namespace(y).zeros_like(y)
    result[:, -1] = grad
    return result


def _flat(x: Array) -> Array:
    return x.reshape(x.shape[0], -1, x.shape[-1])
