"""Encoders, which choose a kind of network, and networks, which hold weights: one flat buffer for all members."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from addml.arrays import Array, as_like, column_sums, namespace, row_product
from addml.parameters import WIDEST, Part, check_one_of, check_whole, check_widths


class Activation(NamedTuple):
    """An activation, which may work in place, and its gradient from dL/d(output) and the output."""

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
    """The networks of E members, which map flat rows of features into the metric space."""

    name: ClassVar[str]

    @property
    def weights(self) -> Array: ...  # (E, P)
    @property
    def inputs(self) -> int: ...  # features of a flat row
    @property
    def outputs(self) -> int: ...  # dimensions of the metric space
    @property
    def operations(self) -> int: ...  # multiplications and additions per row, for all members
    def with_weights(self, weights: Array) -> Network: ...
    def is_matrix(self) -> Array: ...  # (P,): 1 for weights that decay, 0 for biases
    def embed(self, x: Array) -> Array: ...  # rows (..., E or 1, b, inputs) -> (..., E, b, outputs)
    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]: ...  # Z; dL/dZ -> dL/d(weights) (E, P)
    def to_plain(self) -> dict[str, Any]: ...


@dataclass(repr=False)
class Encoder(Part, ABC):
    """A kind of network and its layers."""

    hidden: Sequence[int] | None = None  # None: the encoder's default
    metric_dim: int = 32
    activation: str = "tanh"
    output_activation: str = "tanh"
    name: ClassVar[str]
    kind: ClassVar[str | None] = None  # the kind of row it encodes, "image" or "series"; None: any
    frozen: ClassVar[bool] = False  # whether it is not trained
    learning_rate: ClassVar[float] = 1e-3  # default of the detector's parameter
    normal_ratio: ClassVar[float] = 2 / 3  # likewise
    tolerance: ClassVar[float] = 0.0  # distillation keeps rows up to this many median scores, whatever the ratio
    largest_batch: ClassVar[int] = 2**30  # rows
    rows_per_epoch: ClassVar[int | None] = None  # None: all rows

    def check(self) -> None:
        check_one_of("activation", self.activation, ACTIVATIONS)
        check_one_of("output_activation", self.output_activation, ACTIVATIONS)
        if self.hidden is not None:
            check_widths("hidden", self.hidden)
        check_whole("metric_dim", self.metric_dim, most=WIDEST)

    @abstractmethod
    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> Network:
        """Untrained float64 networks for rows of this shape, one per generator."""

    def widths(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.hidden is None else tuple(map(int, self.hidden))

    def activations(self, hidden: Sequence[int]) -> tuple[str, ...]:
        return (*[self.activation] * len(hidden), self.output_activation)


class Shape(NamedTuple):
    """A matrix, or a bias as a single row, in the flat buffer of weights."""

    rows: int
    columns: int
    fan_out: int  # of Glorot's initial weights; 0 for a bias

    @property
    def size(self) -> int:
        return self.rows * self.columns


class FlatNetwork(ABC):
    """Networks whose matrices and biases are views of one flat buffer (E, P)."""

    name: ClassVar[str]
    layout_names: ClassVar[tuple[str, ...]]  # in a model file

    def __init__(self, *arguments: Any) -> None:
        """Takes the layout of the layers, as in `shapes_of`, then the weights."""
        *self._layout, self.weights = arguments
        self.shapes = self.shapes_of(*self._layout)
        self.parts = list(self.views(self.weights))

    @staticmethod
    @abstractmethod
    def shapes_of(*layout: Any) -> list[Shape]:
        """The matrices and biases in the order of the buffer."""

    @classmethod
    def initial(cls, *arguments: Any) -> Self:
        """Uniform Glorot weights and zero biases in float64; takes the layout, then one generator per member."""
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
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> Self:
        """The network described by `to_plain`; raises an error if its weights do not fit its layers."""
        plain = [document[name] for name in cls.layout_names]
        layout = [tuple(value) if isinstance(value, list) else value for value in plain]
        expect_weights(weights, sum(shape.size for shape in cls.shapes_of(*layout)))
        return cls(*layout, weights)

    def to_plain(self) -> dict[str, Any]:
        layout = [list(value) if isinstance(value, tuple) else value for value in self._layout]
        return {"name": self.name, **dict(zip(self.layout_names, layout, strict=True))}

    def with_weights(self, weights: Array) -> Self:
        """The same layers with other weights, possibly of other members, on another device or in another dtype."""
        return type(self)(*self._layout, weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self._layout, self.weights)

    def is_matrix(self) -> Array:
        """Which of the P weights belong to a matrix (1) and which to a bias (0)."""
        return as_like(np.concatenate([np.full(shape.size, shape.fan_out > 0) for shape in self.shapes]), self.weights)

    def views(self, weights: Array) -> Iterator[Array]:
        """The matrices and biases (E, rows, columns) in weights (E, P)."""
        start = 0
        for shape in self.shapes:
            end = start + shape.size
            yield weights[:, start:end].reshape(weights.shape[0], shape.rows, shape.columns)
            start = end


Layer = tuple[Array, Array]  # a matrix (E, in, out) and a bias (E, 1, out)


class LayeredNetwork(FlatNetwork):
    """Layers y = activation(x W + b), with gradients by hand; the layout ends with the layers' activations."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.activations: tuple[str, ...] = self._layout[-1]
        self.layers = self.by_layer(self.weights)
        self._activations = [ACTIVATIONS[name] for name in self.activations]

    def by_layer(self, weights: Array) -> list[Layer]:
        """The matrices and biases in weights, or in their gradient, (E, P)."""
        parts = list(self.views(weights))
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _layer(self, layer: int, x: Array, product: Callable[[Array, Array], Array] = row_product) -> Array:
        matrix, bias = self.layers[layer]
        y = product(x, matrix)
        y += bias
        return self._activations[layer].apply(y)

    def _layer_back(self, layer: int, x: Array, y: Array, grad: Array, gradients: Sequence[Layer]) -> Array:
        """Fill in the gradients of a layer from dL/dy; returns dL/dx, or None for the first layer."""
        grad = self._activations[layer].back(grad, y)
        matrix, bias = gradients[layer]
        namespace(grad).matmul(x.mT, grad, out=matrix)
        column_sums(grad, out=bias)
        return grad @ self.layers[layer][0].mT if layer else None


def expect_weights(weights: np.ndarray, count: int) -> None:
    """Raise ValueError unless each member of a saved network has `count` weights."""
    if weights.shape[1:] != (count,):
        raise ValueError(f"encoder.weights has the shape {weights.shape}, not (n, {count})")
