"""The encoder for images: 3 x 3 convolutions that halve the picture, then one linear layer; gradients by hand.

A convolution is a matrix product over the 3 x 3 neighbourhoods of every other pixel, so that one set of lines serves
all members, NumPy and torch alike. Pictures lie channels last inside: a neighbourhood is nine copies of whole channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, column_sums, namespace, row_product
from addml.compute import blas_threads, in_threads
from addml.encoders.base import ACTIVATIONS, Encoder, FlatNetwork, Shape, by_layer, zeros

HIDDEN = (16, 32)
ROWS_AT_ONCE = 32  # on the CPU
NUMBERS_ON_A_DEVICE = 2**27  # half a gigabyte
KERNEL, STRIDE, PAD = 3, 2, 1

_Back = Callable[[Array], Array]  # from dL/dZ to the gradient of the weights


class Size(NamedTuple):
    """What goes into a layer, or comes out of it."""

    channels: int
    height: int
    width: int


@dataclass(repr=False)
class Conv(Encoder):
    """Convolutions over images; hidden are their channels, None is (16, 32)."""

    name: ClassVar[str] = "conv"
    kind: ClassVar[str | None] = "images"
    learning_rate: ClassVar[float] = 3e-5

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> ConvNetwork:
        hidden = self.widths(HIDDEN)
        activations = [self.activation] * len(hidden) + [self.output_activation]
        return ConvNetwork.initial(shape, hidden, self.metric_dim, activations, rngs)


class ConvNetwork(FlatNetwork):
    """Convolutions and one linear layer for E members."""

    name: ClassVar[str] = "conv"
    inputs = property(lambda self: math.prod(self.shape))

    def __init__(
        self, shape: Sequence[int], channels: Sequence[int], outputs: int, activations: Sequence[str], weights: Array
    ) -> None:
        self.shape, self.channels, self.outputs = tuple(shape), tuple(channels), outputs
        self.activations, self.sizes = tuple(activations), sizes(shape, channels)
        super().__init__(self.shape, self.channels, outputs, self.activations, weights)
        self.layers = by_layer(self.parts)  # matrices (E, in, out) and biases (E, 1, out)
        self._acts = [ACTIVATIONS[name] for name in self.activations]

    @staticmethod
    def shapes_of(
        shape: Sequence[int], channels: Sequence[int], outputs: int, activations: Sequence[str]
    ) -> list[Shape]:
        layers = sizes(shape, channels)
        shapes = [Shape(KERNEL**2 * a.channels, b.channels, KERNEL**2 * b.channels) for a, b in pairwise(layers)]
        shapes.append(Shape(math.prod(layers[-1]), outputs, outputs))
        return [part for shape in shapes for part in (shape, Shape(1, shape.columns, 0))]

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> ConvNetwork:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        shape, channels, outputs = list(document["shape"]), list(document["channels"]), document["outputs"]
        activations = list(document["activations"])
        whole = all(type(number) is int and number > 0 for number in (*shape, *channels, outputs))
        known = whole and len(shape) == 3 and set(activations) <= set(ACTIVATIONS)
        if not known or len(activations) != len(channels) + 1:
            raise ValueError(f"pictures {shape}, channels {channels}, {outputs} outputs with {activations}")
        return cls.saved(weights, shape, channels, outputs, activations)

    def to_plain(self) -> dict[str, Any]:
        layers = {"shape": list(self.shape), "channels": list(self.channels), "outputs": self.outputs}
        return {"name": self.name, **layers, "activations": list(self.activations)}

    @property
    def operations(self) -> int:
        pixels = [size.height * size.width for size in self.sizes[1:]] + [1]
        products = sum(shape.size * count for shape, count in zip(self.shapes[::2], pixels, strict=True))
        return 2 * len(self.weights) * products

    def embed(self, x: Array) -> Array:
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        if isinstance(x, np.ndarray):
            return self._in_pieces(x, keep=False)[0]
        widest = max([KERNEL**2 * a.channels * b.height * b.width for a, b in pairwise(self.sizes)], default=1)
        some = max(1, NUMBERS_ON_A_DEVICE // (len(self.weights) * widest))  # rows whose neighbourhoods fit
        parts = [self._forward(x[:, start : start + some])[0] for start in range(0, x.shape[1], some)]
        return namespace(x).concat(parts, axis=1)

    def forward(self, x: Array) -> tuple[Array, _Back]:
        return self._in_pieces(x) if isinstance(x, np.ndarray) else self._forward(x)

    def _in_pieces(self, x: np.ndarray, *, keep: bool = True) -> tuple[np.ndarray, _Back]:
        """Embeddings, and the way back where it is to be kept.

        The CPU takes one member and a few rows at a time, which a core's cache holds, on as many threads as matrix
        products may use. The sums do not depend on how many these are.
        """
        members = [self.with_weights(self.weights[e : e + 1]) for e in range(len(self.weights))]
        starts = range(0, x.shape[1], ROWS_AT_ONCE)
        pieces = [(e, slice(start, start + ROWS_AT_ONCE)) for e in range(len(members)) for start in starts]
        z, ways = np.empty((len(members), x.shape[1], self.outputs), x.dtype), dict[int, _Back]()

        def work(piece: int) -> None:
            e, rows = pieces[piece]
            z[e, rows], way = members[e]._forward(x[e % len(x), rows][None])
            if keep:
                ways[piece] = way

        def back(grad: Array) -> Array:
            parts = dict[int, Array]()

            def work(piece: int) -> None:
                e, rows = pieces[piece]
                parts[piece] = ways[piece](grad[e : e + 1, rows])

            in_threads(work, len(pieces), blas_threads.allowed)
            gradient = np.zeros_like(self.weights)
            for piece, (e, _) in enumerate(pieces):  # in order, as a sum in another one rounds otherwise
                gradient[e] += parts[piece][0]
            return gradient

        in_threads(work, len(pieces), blas_threads.allowed)
        return z, back

    def _forward(self, x: Array) -> tuple[Array, _Back]:
        """The same for all members and rows at once."""
        rows, inputs, outputs = x.shape[1], [], []
        pictures = x.reshape(len(x), rows, *self.shape)
        pixels = np.moveaxis(pictures, 2, -1) if isinstance(x, np.ndarray) else pictures.movedim(2, -1)
        for layer, size in enumerate(self.sizes[:-1]):
            inputs.append(neighbourhoods(pixels, size))  # (E or 1, b h w, 9 c)
            outputs.append(self._layer(layer, inputs[-1]))
            after = self.sizes[layer + 1]
            pixels = outputs[-1].reshape(-1, rows, after.height, after.width, after.channels)
        inputs.append(pixels.reshape(len(pixels), rows, -1))
        outputs.append(self._layer(len(self.channels), inputs[-1]))
        return outputs[-1], lambda grad: self._back(inputs, outputs, grad)

    def _layer(self, layer: int, x: Array) -> Array:
        matrix, bias = self.layers[layer]
        y = row_product(x, matrix)
        y += bias
        return self._acts[layer].apply(y)

    def _back(self, inputs: list[Array], outputs: list[Array], grad: Array) -> Array:
        xp, (members, rows) = namespace(grad), grad.shape[:2]
        gradient = xp.empty_like(self.weights)
        layers = by_layer(list(self.views(gradient)))
        for layer in reversed(range(len(self._acts))):
            grad = self._acts[layer].back(grad, outputs[layer])
            matrix, bias = layers[layer]
            xp.matmul(inputs[layer].mT, grad, out=matrix)
            column_sums(grad, out=bias)
            if layer:
                grad = grad @ self.layers[layer][0].mT
                if layer < len(self.channels):
                    grad = pixels_of(grad, rows, self.sizes[layer])
                grad = grad.reshape(members, -1, self.sizes[layer].channels)
        return gradient


def sizes(shape: Sequence[int], channels: Sequence[int]) -> list[Size]:
    """The size of a picture before every convolution and after the last; each one halves it, rounding up."""
    found = [Size(*shape)]
    for count in channels:
        found.append(Size(count, (found[-1].height + 1) // STRIDE, (found[-1].width + 1) // STRIDE))
    return found


def neighbourhoods(pixels: Array, size: Size) -> Array:
    """The 3 x 3 neighbourhoods of every other pixel, (E, b h w, 9 c), of pictures (E, b, height, width, c)."""
    framed = zeros((*pixels.shape[:2], *_framed(size)), pixels)
    framed[:, :, PAD:-PAD, PAD:-PAD] = pixels
    parts = [framed[place] for place in _places(size)]
    found = namespace(pixels).stack(parts, -2)
    return found.reshape(len(found), -1, len(parts) * size.channels)


def pixels_of(found: Array, rows: int, size: Size) -> Array:
    """The way back from neighbourhoods: what all of them hold of a pixel added up, (E, b, height, width, c)."""
    framed = zeros((len(found), rows, *_framed(size)), found)
    found = found.reshape(len(found), rows, (size.height + 1) // STRIDE, -1, KERNEL**2, size.channels)
    for k, place in enumerate(_places(size)):
        framed[place] += found[..., k, :]
    return framed[:, :, PAD:-PAD, PAD:-PAD]


def _framed(size: Size) -> tuple[int, int, int]:
    """The shape of a picture with a frame around it."""
    return size.height + 2 * PAD, size.width + 2 * PAD, size.channels


def _places(size: Size) -> Iterator[tuple[slice, ...]]:
    """Where the first, second, ... ninth pixels of all neighbourhoods lie in a framed picture."""
    high, wide = (side + side % STRIDE for side in size[1:])
    for i, j in product(range(KERNEL), repeat=2):
        yield slice(None), slice(None), slice(i, i + high, STRIDE), slice(j, j + wide, STRIDE)
