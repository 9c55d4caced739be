"""The encoder for images: 3 x 3 convolutions that halve the picture, then one linear layer; gradients by hand.

A convolution is a matrix product over the 3 x 3 neighbourhoods of every other pixel, so that one set of lines serves
all members, NumPy and torch alike. Pictures lie channels last inside: a neighbourhood is nine copies of whole channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, column_sums, copy, namespace, row_product
from addml.compute import blas_threads, in_threads
from addml.encoders.base import Design, expect_weights
from addml.encoders.mlp import ACTIVATIONS

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

    @property
    def numbers(self) -> int:
        """How many numbers that is."""
        return self.channels * self.height * self.width

    @property
    def channels_last(self) -> tuple[int, int, int]:
        """The shape of a picture inside the network."""
        return self.height, self.width, self.channels


class Conv:
    """Convolutions and one linear layer for E members: weights are one flat buffer (E, P), layers are views of it."""

    name: ClassVar[str] = "conv"

    def __init__(
        self, shape: Sequence[int], channels: Sequence[int], outputs: int, activations: Sequence[str], weights: Array
    ) -> None:
        """Shape is (channels, height, width) of a picture, channels those of each convolution; weights (E, P)."""
        self.shape, self.channels, self.outputs = tuple(shape), tuple(channels), outputs
        self.activations, self.weights = tuple(activations), weights
        self.sizes = sizes(self.shape, self.channels)
        self._layers = list(self._views(weights))
        self._acts = [ACTIVATIONS[name] for name in self.activations]

    @classmethod
    def initial(
        cls,
        shape: Sequence[int],
        channels: Sequence[int],
        outputs: int,
        activations: Sequence[str],
        randoms: Sequence[np.random.Generator],
    ) -> Conv:
        """Uniform Glorot weights and zero biases in float64, each member from its own generator."""
        layers = matrices(sizes(shape, channels), outputs)
        weights = np.stack([_glorot(layers, random) for random in randoms])
        return cls(shape, channels, outputs, activations, weights)

    @classmethod
    def designed(cls, shape: Sequence[int], design: Design, randoms: Sequence[np.random.Generator]) -> Conv:
        """The network for pictures of this shape, before training."""
        hidden = HIDDEN if design.hidden is None else design.hidden
        activations = [design.activation] * len(hidden) + [design.output_activation]
        return cls.initial(shape, hidden, design.metric_dim, activations, randoms)

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> Conv:
        """The network that `to_plain` described, with these weights; raises ValueError where they do not agree."""
        shape, channels, outputs = list(document["shape"]), list(document["channels"]), document["outputs"]
        activations = list(document["activations"])
        whole = all(type(number) is int and number > 0 for number in (*shape, *channels, outputs))
        known = whole and len(shape) == 3 and set(activations) <= set(ACTIVATIONS)
        if not known or len(activations) != len(channels) + 1:
            raise ValueError(f"pictures {shape}, channels {channels}, {outputs} outputs with {activations}")
        expect_weights(weights, weight_count(sizes(shape, channels), outputs))
        return cls(shape, channels, outputs, activations, weights)

    def to_plain(self) -> dict[str, Any]:
        """The layers as JSON values."""
        layers = {"shape": list(self.shape), "channels": list(self.channels), "outputs": self.outputs}
        return {"name": self.name, **layers, "activations": list(self.activations)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Conv, (self.shape, self.channels, self.outputs, self.activations, self.weights)

    @property
    def inputs(self) -> int:
        """How many numbers a row holds."""
        return self.sizes[0].numbers

    @property
    def operations(self) -> int:
        """Multiplications and additions for one row of all members."""
        layers = zip(matrices(self.sizes, self.outputs), [*self.sizes[1:], Size(0, 1, 1)], strict=True)
        return 2 * len(self.weights) * sum(a * b * size.height * size.width for (a, b, _), size in layers)

    def with_weights(self, weights: Array) -> Conv:
        """The same layers with other weights, other members, another device or another dtype."""
        return Conv(self.shape, self.channels, self.outputs, self.activations, weights)

    def is_matrix(self) -> Array:
        """Which of the P weights belong to a matrix (1), not to a bias (0)."""
        marks = copy(self.weights[:1])
        marks[:] = 1
        for _, bias in self._views(marks):
            bias[:] = 0
        return marks[0]

    def embed(self, x: Array) -> Array:
        """Embeddings (..., E, b, w) of flat rows x (..., E or 1, b, d); a stack of blocks goes block by block."""
        if x.ndim > 3:
            return namespace(x).stack([self.embed(block) for block in x])
        if isinstance(x, np.ndarray):
            return self._ahead(x)[0]
        some = self._rows_on_a_device()
        parts = [self._forward(x[:, start : start + some])[0] for start in range(0, x.shape[1], some)]
        return parts[0] if len(parts) == 1 else namespace(x).concat(parts, axis=1)

    def _rows_on_a_device(self) -> int:
        """So many rows of all members as the neighbourhoods of the widest layer may fill memory with."""
        widest = max([KERNEL**2 * a.channels * b.height * b.width for a, b in pairwise(self.sizes)], default=1)
        return max(1, NUMBERS_ON_A_DEVICE // (len(self.weights) * widest))

    def forward(self, x: Array) -> tuple[Array, _Back]:
        """Embeddings of x (E or 1, b, d), and the way back from dL/dZ to the gradient (E, P) of the weights."""
        if not isinstance(x, np.ndarray):
            return self._forward(x)
        z, ways = self._ahead(x, keep=True)
        return z, lambda grad: self._behind(ways, grad)

    # The CPU takes one member and a few rows at a time, which a core's cache holds, on as many threads as matrix
    # products may use. The sums do not depend on how many these are.

    def _ahead(self, x: np.ndarray, *, keep: bool = False) -> tuple[np.ndarray, dict[int, _Back]]:
        """Embeddings, and the ways back of all pieces where they are to be kept."""
        pieces, ways = self._pieces(x.shape[1]), dict[int, _Back]()
        members = [self.with_weights(self.weights[e : e + 1]) for e in range(len(self.weights))]
        z = np.empty((len(members), x.shape[1], self.outputs), x.dtype)

        def work(piece: int) -> None:
            e, rows = pieces[piece]
            z[e, rows], back = members[e]._forward(x[e % len(x), rows][None])
            if keep:
                ways[piece] = back

        in_threads(work, len(pieces), blas_threads.allowed)
        return z, ways

    def _behind(self, ways: dict[int, _Back], grad: Array) -> Array:
        pieces, parts = self._pieces(grad.shape[1]), dict[int, Array]()

        def work(piece: int) -> None:
            e, rows = pieces[piece]
            parts[piece] = ways[piece](grad[e : e + 1, rows])

        in_threads(work, len(pieces), blas_threads.allowed)
        gradient = np.zeros_like(self.weights)
        for piece, (e, _) in enumerate(pieces):  # in order, as a sum in another one rounds otherwise
            gradient[e] += parts[piece][0]
        return gradient

    def _pieces(self, rows: int) -> list[tuple[int, slice]]:
        starts = range(0, rows, ROWS_AT_ONCE)
        return [(e, slice(start, start + ROWS_AT_ONCE)) for e in range(len(self.weights)) for start in starts]

    def _forward(self, x: Array) -> tuple[Array, _Back]:
        """The same for all members and rows at once."""
        rows, inputs, outputs = x.shape[1], [], []
        pixels = self._channels_last(x)
        for layer, size in enumerate(self.sizes[:-1]):
            inputs.append(neighbourhoods(pixels, size))  # (E or 1, b h w, 9 c)
            outputs.append(self._layer(layer, inputs[-1]))
            pixels = outputs[-1].reshape(-1, rows, *self.sizes[layer + 1].channels_last)
        inputs.append(pixels.reshape(len(pixels), rows, -1))
        outputs.append(self._layer(len(self.channels), inputs[-1]))
        return outputs[-1], lambda grad: self._back(inputs, outputs, grad)

    def _channels_last(self, x: Array) -> Array:
        members, rows, _ = x.shape
        pictures = x.reshape(members, rows, *self.shape)
        return np.moveaxis(pictures, 2, -1) if isinstance(x, np.ndarray) else pictures.movedim(2, -1)

    def _layer(self, layer: int, x: Array) -> Array:
        matrix, bias = self._layers[layer]
        y = row_product(x, matrix)
        y += bias
        return self._acts[layer].apply(y)

    def _back(self, inputs: list[Array], outputs: list[Array], grad: Array) -> Array:
        xp, (members, rows) = namespace(grad), grad.shape[:2]
        gradient = xp.empty_like(self.weights)
        parts = list(self._views(gradient))
        for layer in reversed(range(len(self._acts))):
            grad = self._acts[layer].back(grad, outputs[layer])
            matrix, bias = parts[layer]
            xp.matmul(inputs[layer].mT, grad, out=matrix)
            column_sums(grad, out=bias)
            if layer:
                grad = grad @ self._layers[layer][0].mT
                if layer < len(self.channels):
                    grad = pixels_of(grad, rows, self.sizes[layer])
                grad = grad.reshape(members, -1, self.sizes[layer].channels)
        return gradient

    def _views(self, weights: Array) -> Iterator[tuple[Array, Array]]:
        """The matrices (E, in, out) and biases (E, 1, out) that lie one after another in weights (E, P)."""
        members, start = weights.shape[0], 0
        for a, b, _ in matrices(self.sizes, self.outputs):
            middle, end = start + a * b, start + a * b + b
            yield weights[:, start:middle].reshape(members, a, b), weights[:, middle:end].reshape(members, 1, b)
            start = end


def sizes(shape: Sequence[int], channels: Sequence[int]) -> list[Size]:
    """The size of a picture before every convolution and after the last; each one halves it, rounding up."""
    found = [Size(*shape)]
    for count in channels:
        found.append(_halved(found[-1])._replace(channels=count))
    return found


def _halved(size: Size) -> Size:
    return Size(size.channels, (size.height + 1) // STRIDE, (size.width + 1) // STRIDE)


def matrices(layers: Sequence[Size], outputs: int) -> list[tuple[int, int, int]]:
    """Rows and columns of every layer's matrix, and over how many places of a picture it is used."""
    convolutions = [(KERNEL**2 * a.channels, b.channels, KERNEL**2) for a, b in pairwise(layers)]
    return [*convolutions, (layers[-1].numbers, outputs, 1)]


def weight_count(layers: Sequence[Size], outputs: int) -> int:
    """P, the number of weights and biases of such layers."""
    return sum(a * b + b for a, b, _ in matrices(layers, outputs))


def neighbourhoods(pixels: Array, size: Size) -> Array:
    """The 3 x 3 neighbourhoods of every other pixel, (E, b h w, 9 c), of pictures (E, b, height, width, c)."""
    framed = _framed(pixels.shape[:2], size, pixels)
    framed[:, :, PAD:-PAD, PAD:-PAD] = pixels
    parts = [framed[place] for place in _places(size)]
    found = namespace(pixels).stack(parts, -2)
    return found.reshape(len(found), -1, len(parts) * size.channels)


def pixels_of(found: Array, rows: int, size: Size) -> Array:
    """The way back from neighbourhoods: what all of them hold of a pixel added up, (E, b, height, width, c)."""
    framed, halved = _framed((len(found), rows), size, found), _halved(size)
    found = found.reshape(len(found), rows, halved.height, halved.width, KERNEL**2, size.channels)
    for k, place in enumerate(_places(size)):
        framed[place] += found[..., k, :]
    return framed[:, :, PAD:-PAD, PAD:-PAD]


def _framed(leading: Sequence[int], size: Size, like: Array) -> Array:
    """Pictures of zeros with a frame around them."""
    shape = (*leading, size.height + 2 * PAD, size.width + 2 * PAD, size.channels)
    if isinstance(like, np.ndarray):
        return np.zeros(shape, like.dtype)
    return namespace(like).zeros(shape, dtype=like.dtype, device=like.device)


def _places(size: Size) -> Iterator[tuple[slice, ...]]:
    """Where the first, second, ... ninth pixels of all neighbourhoods lie in a framed picture."""
    high, wide = STRIDE * _halved(size).height, STRIDE * _halved(size).width
    for i, j in product(range(KERNEL), repeat=2):
        yield slice(None), slice(None), slice(i, i + high, STRIDE), slice(j, j + wide, STRIDE)


def _glorot(layers: Sequence[tuple[int, int, int]], random: np.random.Generator) -> np.ndarray:
    parts: list[np.ndarray] = []
    for a, b, places in layers:
        bound = math.sqrt(6 / (a + b * places))
        parts += [random.uniform(-bound, bound, a * b), np.zeros(b)]
    return np.concatenate(parts)
