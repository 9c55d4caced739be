"""Encoders whose way back from the loss to the weights is torch's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
