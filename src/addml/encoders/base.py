"""Encoders whose way back from the loss to the weights is torch's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from addml.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor


class Autograd(ABC):
    """Networks of E members written in torch: a subclass says how weights and rows become embeddings.

    Arrays of either kind come in, and what goes out is of the same kind.
    """

    weights: Array  # (E, P)

    @abstractmethod
    def _embed(self, weights: Tensor, x: Tensor) -> Tensor:
        """Embeddings (E, b, w) of flat rows x, (E or 1, b, d), by networks with these weights (E, P)."""

    def embed(self, x: Array) -> Array:
        """Embeddings (..., E, b, w) of rows (..., E or 1, b, d), one block after another."""
        import torch

        with torch.no_grad():
            rows, weights = _tensor(x), _tensor(self.weights)
            blocks = [self._embed(weights, block) for block in rows.reshape(-1, *rows.shape[-3:])]
            z = torch.stack(blocks).reshape(*rows.shape[:-3], *blocks[0].shape)
        return z.numpy() if isinstance(x, np.ndarray) else z

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Embeddings of x (E or 1, b, d), and the way back from dL/dZ to the gradient (E, P) of the weights."""
        import torch

        with torch.enable_grad():
            weights = _tensor(self.weights).detach().requires_grad_()
            z = self._embed(weights, _tensor(x))

        def back(grad: Array) -> Array:
            (gradient,) = torch.autograd.grad(z, weights, _tensor(grad))
            return gradient.numpy() if isinstance(grad, np.ndarray) else gradient

        out = z.detach()
        return (out.numpy() if isinstance(x, np.ndarray) else out), back


def _tensor(x: Any) -> Tensor:
    """An array as a tensor, in the same memory."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x


# What a network is to look like, and what every encoder offers.


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
