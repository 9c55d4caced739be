"""The autoencoder of windows: layers into the metric space and, mirrored, back."""

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
    """Fully connected layers over flat windows, trained to reconstruct them; default: hidden=(64,)."""

    metric_dim: int = 16  # width of the middle layer
    name: ClassVar[str] = "autoencoder"
    kind: ClassVar[str | None] = "series"
    learning_rate: ClassVar[float] = 2e-3
    largest_batch: ClassVar[int] = 64  # small: neighbouring windows are nearly the same
    rows_an_epoch: ClassVar[int | None] = 8000
    normal_ratio: ClassVar[float] = 0.9
    tolerance: ClassVar[float] = 3.0  # median residuals: rows within it are learned, so that rare shapes are normal

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> AutoencoderNetwork:
        hidden, inputs = self.widths(HIDDEN), math.prod(shape)
        inner = [self.activation] * len(hidden)
        widths = (inputs, *hidden, int(self.metric_dim), *hidden[::-1], inputs)
        return AutoencoderNetwork.initial(widths, (*inner, self.output_activation, *inner, "linear"), rngs)


class AutoencoderNetwork(MLPNetwork):
    """Embeds a window as its middle layer and its residual: the root mean square error of the reconstruction."""

    name: ClassVar[str] = "autoencoder"
    depth = property(lambda self: len(self.widths) // 2)  # layers up to the middle
    outputs = property(lambda self: self.widths[self.depth] + 1)  # the middle layer and the residual

    def embed(self, x: Array) -> Array:
        z = super().embed(x)
        missed = self.reconstructed(z) - x
        residual = namespace(x).sqrt(dots(missed, missed) / x.shape[-1])
        return namespace(x).concatenate([z, residual[..., None]], -1)

    def reconstructed(self, z: Array) -> Array:
        """The reconstruction (..., E, b, d) of windows from the middle layer (..., E, b, w)."""
        return self.through(z, self.depth, len(self.activations))
