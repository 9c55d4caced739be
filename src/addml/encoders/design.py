"""What a network is to look like, and what every encoder offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from addml.arrays import Array


@dataclass(frozen=True)
class Design:
    """The settings of a network, as the detector's constructor documents them."""

    hidden: tuple[int, ...] | None = None  # None for the encoder's own
    metric_dim: int = 64
    activation: str = "tanh"
    output_activation: str = "tanh"
    cell: str = "tanh"  # of recurrent networks, as is pooling
    pooling: str = "mean"


class Encoder(Protocol):
    """Networks of E members that map prepared rows, flat, into the metric space."""

    name: ClassVar[str]

    @property
    def weights(self) -> Array: ...  # (E, P)
    @property
    def inputs(self) -> int: ...  # numbers of a flat row
    @property
    def outputs(self) -> int: ...  # dimensions of the metric space
    @property
    def operations(self) -> int: ...  # multiplications and additions for one row of all members
    def with_weights(self, weights: Array) -> Encoder: ...
    def is_matrix(self) -> Array: ...  # (P,): 1 for weights that decay, 0 for biases
    def embed(self, x: Array) -> Array: ...  # rows (..., E or 1, b, inputs) -> (..., E, b, outputs)
    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]: ...  # and dL/dZ -> gradient (E, P)
    def to_plain(self) -> dict[str, Any]: ...


class Kind(Encoder, Protocol):
    """A kind of encoder that the package can make by itself."""

    @classmethod
    def designed(cls, shape: Sequence[int], design: Design, randoms: Sequence[np.random.Generator]) -> Kind: ...
    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> Kind: ...


def expect_weights(weights: np.ndarray, count: int) -> None:
    """The weights of a saved encoder must be float32 of shape (E, count)."""
    if weights.dtype != np.float32 or weights.ndim != 2 or weights.shape[1] != count or not len(weights):
        raise ValueError(f"encoder.weights is {weights.dtype} {weights.shape}, not float32 (n, {count})")
