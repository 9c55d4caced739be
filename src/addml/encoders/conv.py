"""The encoder for images: 3 x 3 convolutions that halve the image, then one linear layer; gradients by hand.

A convolution is a matrix product over the 3 x 3 neighbourhoods of every other pixel, so that the same code serves all
members, in NumPy and torch. Images are channels-last here: a neighbourhood is nine copies of all channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, namespace, zeros
from addml.compute import blas_threads, in_threads
from addml.encoders.encoder import Encoder, LayeredNetwork, Shape
from addml.text import IMAGE

HIDDEN = (16, 32)
ROWS_AT_ONCE = 32  # on the CPU: they fit into a core's cache
NUMBERS_ON_A_DEVICE = 2**27  # half a gigabyte
KERNEL, STRIDE, PAD = 3, 2, 1

_Back = Callable[[Array], Array]  # from dL/dZ to the gradient of the weights


class Size(NamedTuple):
    """The size of a layer's input or output."""

    channels: int
    height: int
    width: int


@dataclass(repr=False)
class Conv(Encoder):
    """Convolutions over images, then a fully connected layer.

    Parameters
    ----------
    hidden : the channels of the convolutions; None: (16, 32).
    metric_dim, activation, output_activation : as in `MLP`.
    """

    name: ClassVar[str] = "conv"
    kind: ClassVar[str | None] = IMAGE
    learning_rate: ClassVar[float] = 3e-5

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> ConvNetwork:
        hidden = self.widths(HIDDEN)
        return ConvNetwork.initial(tuple(shape), hidden, self.metric_dim, self.activations(hidden), rngs)


class ConvNetwork(LayeredNetwork):
    """Convolutions and one linear layer for E members."""

    name: ClassVar[str] = "conv"
    layout_names = ("shape", "channels", "outputs", "activations")
    inputs = property(lambda self: math.prod(self.shape))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.shape, self.channels, self.outputs, _ = self._layout
        self.sizes = sizes(self.shape, self.channels)

    @staticmethod
    def shapes_of(
        shape: Sequence[int], channels: Sequence[int], outputs: int, activations: Sequence[str]
    ) -> list[Shape]:
        layers = sizes(shape, channels)
        matrices = [Shape(KERNEL**2 * a.channels, b.channels, KERNEL**2 * b.channels) for a, b in pairwise(layers)]
        matrices.append(Shape(math.prod(layers[-1]), outputs, outputs))
        return [shape for matrix in matrices for shape in (matrix, Shape(1, matrix.columns, 0))]

    @property
    def operations(self) -> int:
        pixels = [size.height * size.width for size in self.sizes[1:]] + [1]
        products = sum(shape.size * count for shape, count in zip(self.shapes[::2], pixels, strict=True))
        return 2 * len(self.weights) * products

    def embed(self, x: Array) -> Array:
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        if isinstance(x, np.ndarray):
            return self._in_pieces(x, with_back=False)[0]
        largest = max([KERNEL**2 * a.channels * b.height * b.width for a, b in pairwise(self.sizes)], default=1)
        size = max(1, NUMBERS_ON_A_DEVICE // (len(self.weights) * largest))  # rows whose neighbourhoods fit in memory
        parts = [self._forward(x[:, start : start + size])[0] for start in range(0, x.shape[1], size)]
        return namespace(x).concat(parts, axis=1)

    def forward(self, x: Array) -> tuple[Array, _Back]:
        return self._in_pieces(x) if isinstance(x, np.ndarray) else self._forward(x)

    def _in_pieces(self, x: np.ndarray, *, with_back: bool = True) -> tuple[np.ndarray, _Back]:
        """Embeddings and their backward function, computed by threads for one member and a few rows at a time."""
        members = [self.with_weights(self.weights[e : e + 1]) for e in range(len(self.weights))]
        starts = range(0, x.shape[1], ROWS_AT_ONCE)
        pieces = [(e, slice(start, start + ROWS_AT_ONCE)) for e in range(len(members)) for start in starts]
        z = np.empty((len(members), x.shape[1], self.outputs), x.dtype)
        backs = dict[int, _Back]()

        def forward_piece(piece: int) -> None:
            e, rows = pieces[piece]
            z[e, rows], piece_back = members[e]._forward(x[e % len(x), rows][None])
            if with_back:
                backs[piece] = piece_back

        def back(grad: Array) -> Array:
            gradients = dict[int, Array]()

            def back_piece(piece: int) -> None:
                e, rows = pieces[piece]
                gradients[piece] = backs[piece](grad[e : e + 1, rows])

            in_threads(back_piece, len(pieces), blas_threads.allowed)
            gradient = np.zeros_like(self.weights)
            for piece, (e, _) in enumerate(pieces):  # in a fixed order, so that the sum rounds the same
                gradient[e] += gradients[piece][0]
            return gradient

        in_threads(forward_piece, len(pieces), blas_threads.allowed)
        return z, back

    def _forward(self, x: Array) -> tuple[Array, _Back]:
        """Embeddings and their backward function, for all members and rows at once."""
        rows, inputs, outputs = x.shape[1], [], []
        images = x.reshape(len(x), rows, *self.shape)
        pixels = np.moveaxis(images, 2, -1) if isinstance(x, np.ndarray) else images.movedim(2, -1)
        for layer, size in enumerate(self.sizes[:-1]):
            inputs.append(neighbourhoods(pixels, size))  # (E or 1, b h w, 9 c)
            outputs.append(self._layer(layer, inputs[-1]))
            channels, height, width = self.sizes[layer + 1]
            pixels = outputs[-1].reshape(-1, rows, height, width, channels)
        inputs.append(pixels.reshape(len(pixels), rows, -1))
        outputs.append(self._layer(len(self.channels), inputs[-1]))
        return outputs[-1], lambda grad: self._back(inputs, outputs, grad)

    def _back(self, inputs: list[Array], outputs: list[Array], grad: Array) -> Array:
        members, rows = grad.shape[:2]
        gradient = namespace(grad).empty_like(self.weights)
        gradients = self.by_layer(gradient)
        for layer in reversed(range(len(self.layers))):
            grad = self._layer_back(layer, inputs[layer], outputs[layer], grad, gradients)
            if 0 < layer < len(self.channels):
                grad = pixel_gradient(grad, rows, self.sizes[layer])
            if layer:
                grad = grad.reshape(members, -1, self.sizes[layer].channels)
        return gradient


def sizes(shape: Sequence[int], channels: Sequence[int]) -> list[Size]:
    """The sizes of an image before each convolution and after the last; each one halves the image, rounding up."""
    result = [Size(*shape)]
    for count in channels:
        result.append(Size(count, (result[-1].height + 1) // STRIDE, (result[-1].width + 1) // STRIDE))
    return result


def neighbourhoods(pixels: Array, size: Size) -> Array:
    """The 3 x 3 neighbourhoods (E, b h w, 9 c) of every other pixel of images (E, b, height, width, c)."""
    padded = zeros((*pixels.shape[:2], *_padded_shape(size)), pixels)
    padded[:, :, PAD:-PAD, PAD:-PAD] = pixels
    parts = [padded[key] for key in _offset_slices(size)]
    stacked = namespace(pixels).stack(parts, -2)
    return stacked.reshape(len(stacked), -1, len(parts) * size.channels)


def pixel_gradient(grad: Array, rows: int, size: Size) -> Array:
    """The gradient of pixels (E, b, height, width, c): a sum over the gradients of a pixel's neighbourhoods."""
    padded = zeros((len(grad), rows, *_padded_shape(size)), grad)
    grad = grad.reshape(len(grad), rows, (size.height + 1) // STRIDE, -1, KERNEL**2, size.channels)
    for k, key in enumerate(_offset_slices(size)):
        padded[key] += grad[..., k, :]
    return padded[:, :, PAD:-PAD, PAD:-PAD]


def _padded_shape(size: Size) -> tuple[int, int, int]:
    return size.height + 2 * PAD, size.width + 2 * PAD, size.channels


def _offset_slices(size: Size) -> Iterator[tuple[slice, ...]]:
    """The slices of a padded image that hold the first, second, ... ninth pixels of all neighbourhoods."""
    height, width = (side + side % STRIDE for side in size[1:])
    for i, j in product(range(KERNEL), repeat=2):
        yield slice(None), slice(None), slice(i, i + height, STRIDE), slice(j, j + width, STRIDE)
