"""The autoencoder of windows: layers into the metric space and, mirrored, back to the window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from addml.arrays import Array, dots, namespace
from addml.encoders.base import Encoder
from addml.encoders.mlp import HIDDEN, MLPNetwork


@dataclass(repr=False)
class Autoencoder(Encoder):
    """Fully connected layers over flat windows, trained to reconstruct them; hidden=None is (64,)."""

    metric_dim: int = 16  # of the layer in the middle
    name: ClassVar[str] = "autoencoder"
    kind: ClassVar[str | None] = "series"
    learning_rate: ClassVar[float] = 2e-3
    largest_batch: ClassVar[int] = 64  # few rows and many steps: windows beside each other tell the same
    rows_an_epoch: ClassVar[int | None] = 8000
    normal_ratio: ClassVar[float] = 0.9
    tolerance: ClassVar[float] = 3.0  # median residuals: a rare shape within that is learned, or it would be strange

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> AutoencoderNetwork:
        hidden, inputs = self.widths(HIDDEN), math.prod(shape)
        inner = [self.activation] * len(hidden)
        widths = (inputs, *hidden, int(self.metric_dim), *hidden[::-1], inputs)
        return AutoencoderNetwork.initial(widths, (*inner, self.output_activation, *inner, "linear"), rngs)


class AutoencoderNetwork(MLPNetwork):
    """An embedding is the middle layer, and the root of the mean square of what the reconstruction misses."""

    name: ClassVar[str] = "autoencoder"
    depth = property(lambda self: len(self.widths) // 2)  # layers up to the middle
    outputs = property(lambda self: self.widths[self.depth] + 1)  # the middle layer and the residual

    def embed(self, x: Array) -> Array:
        z = super().embed(x)
        missed = self.reconstructed(z) - x
        residual = namespace(x).sqrt(dots(missed, missed) / x.shape[-1])
        return namespace(x).concatenate([z, residual[..., None]], -1)

    def reconstructed(self, z: Array) -> Array:
        """The windows (..., E, b, d) that the middle layer (..., E, b, w) stands for."""
        return self.through(z, self.depth, len(self.activations))
