"""Encoders, which are kinds of networks, and networks, which have weights: one flat buffer for all members."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from addml.arrays import Array, as_like, namespace
from addml.parameters import WIDEST, Part, check_one_of, check_whole, check_widths


class Activation(NamedTuple):
    """An activation, which may work in place, and dL/d(input) from dL/d(output) and the output."""

    apply: Callable[[Array], Array]
    back: Callable[[Array, Array], Array]


def _tanh_back(grad: Array, y: Array) -> Array:
    slope = y * y
    slope *= -1
    slope += 1
    slope *= grad
    return slope


ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(lambda x: namespace(x).tanh(x, out=x), _tanh_back),
    "sigmoid": Activation(lambda x: 0.5 + 0.5 * namespace(x).tanh(0.5 * x), lambda grad, y: grad * (y - y * y)),
    "relu": Activation(lambda x: x.clip(0), lambda grad, y: grad * (y > 0)),
    "linear": Activation(lambda x: x, lambda grad, y: grad),
}


class Network(Protocol):
    """Networks of E members that map flat rows of features into the metric space."""

    name: ClassVar[str]

    @property
    def weights(self) -> Array: ...  # (E, P)
    @property
    def inputs(self) -> int: ...  # numbers of a flat row
    @property
    def outputs(self) -> int: ...  # dimensions of the metric space
    @property
    def operations(self) -> int: ...  # multiplications and additions for one row of all members
    def with_weights(self, weights: Array) -> Network: ...
    def is_matrix(self) -> Array: ...  # (P,): 1 for weights that decay, 0 for biases
    def embed(self, x: Array) -> Array: ...  # rows (..., E or 1, b, inputs) -> (..., E, b, outputs)
    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]: ...  # and dL/dZ -> gradient (E, P)
    def to_plain(self) -> dict[str, Any]: ...


@dataclass(repr=False)
class Encoder(Part, ABC):
    """A kind of network, and its layers."""

    hidden: Sequence[int] | None = None  # widths of the hidden layers; None for the encoder's own
    metric_dim: int = 32
    activation: str = "tanh"
    output_activation: str = "tanh"
    name: ClassVar[str]
    kind: ClassVar[str | None] = None  # of the rows that it is for, "images" or "series"; None for any
    frozen: ClassVar[bool] = False  # whether it is not trained
    learning_rate: ClassVar[float] = 1e-3  # unless the detector is given one
    normal_ratio: ClassVar[float] = 2 / 3  # likewise
    tolerance: ClassVar[float] = 0.0  # median scores up to which distillation keeps a row whatever that ratio
    largest_batch: ClassVar[int] = 2**30  # rows
    rows_an_epoch: ClassVar[int | None] = None  # as many as there are

    def check(self) -> None:
        """Raise ValueError for a parameter that has no meaning."""
        check_one_of("activation", self.activation, ACTIVATIONS)
        check_one_of("output_activation", self.output_activation, ACTIVATIONS)
        if self.hidden is not None:
            check_widths("hidden", self.hidden)
        check_whole("metric_dim", self.metric_dim, most=WIDEST)

    @abstractmethod
    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> Network:
        """Untrained networks for rows of this shape, in float64, one for each generator."""

    def widths(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.hidden is None else tuple(map(int, self.hidden))


class Shape(NamedTuple):
    """A matrix, or a bias, which is one row, in the flat buffer of the weights."""

    rows: int
    columns: int
    fan_out: int  # of Glorot's initial weights; 0 for a bias

    @property
    def size(self) -> int:
        return self.rows * self.columns


class FlatNetwork(ABC):
    """Networks whose matrices and biases are views of one flat buffer (E, P)."""

    def __init__(self, *arguments: Any) -> None:
        """What the layers look like, and the weights."""
        *self._layout, self.weights = arguments
        self.shapes = self.shapes_of(*self._layout)
        self.parts = list(self.views(self.weights))

    @staticmethod
    @abstractmethod
    def shapes_of(*layout: Any) -> list[Shape]:
        """The matrices and biases in the order in which they lie in the buffer."""

    @classmethod
    def initial(cls, *arguments: Any) -> Self:
        """Uniform Glorot weights and zero biases in float64; the last argument has one generator for each member."""
        *layout, rngs = arguments
        members = []
        for rng in rngs:
            parts = []
            for shape in cls.shapes_of(*layout):
                bound = math.sqrt(6 / (shape.rows + shape.fan_out))
                parts.append(rng.uniform(-bound, bound, shape.size) if shape.fan_out else np.zeros(shape.size))
            members.append(np.concatenate(parts))
        return cls(*layout, np.stack(members))

    @classmethod
    def saved(cls, weights: np.ndarray, *layout: Any) -> Self:
        """A saved network; raises ValueError where weights and layers do not agree."""
        expect_weights(weights, sum(shape.size for shape in cls.shapes_of(*layout)))
        return cls(*layout, weights)

    def with_weights(self, weights: Array) -> Self:
        """The same layers with other weights: of other members, on another device, in another dtype."""
        return type(self)(*self._layout, weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self._layout, self.weights)

    def is_matrix(self) -> Array:
        """Which of the P weights belong to a matrix (1), not to a bias (0)."""
        return as_like(np.concatenate([np.full(shape.size, shape.fan_out > 0) for shape in self.shapes]), self.weights)

    def views(self, weights: Array) -> Iterator[Array]:
        """The matrices and biases (E, rows, columns) that lie one after another in weights (E, P)."""
        start = 0
        for shape in self.shapes:
            end = start + shape.size
            yield weights[:, start:end].reshape(weights.shape[0], shape.rows, shape.columns)
            start = end


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Zeros of the kind, dtype and device of `like`."""
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(tuple(shape))


def by_layer(parts: Sequence[Array]) -> list[tuple[Array, Array]]:
    """The matrix and the bias of each layer."""
    return list(zip(parts[::2], parts[1::2], strict=True))


def expect_weights(weights: np.ndarray, count: int) -> None:
    """The weights of a saved network must be float32 of shape (E, count)."""
    if weights.dtype != np.float32 or weights.ndim != 2 or weights.shape[1] != count or not len(weights):
        raise ValueError(f"encoder.weights is {weights.dtype} {weights.shape}, not float32 (n, {count})")
