"""The reconstruction learner: a network that gives its input back, as the training loop wants it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from addml.arrays import Array, as_like, column_sums, namespace, present, row_sums, to_numpy
from addml.encoders import MLPNetwork
from addml.learning.learner import TakesRows
from addml.learning.losses import Batch, Loss

ROWS_AT_ONCE = 2048


class ReconstructionLearner:
    """An autoencoder under the mean squared error; distillation keeps the rows that it reconstructs best."""

    def __init__(self, network: MLPNetwork) -> None:
        self.network = network

    def set_weights(self, weights: Array) -> None:
        """Go on with these weights, which the loop changes in place."""
        self.network = self.network.with_weights(weights)

    def decays(self) -> Array:
        """Which weights (P,) decay: those of matrices, not biases."""
        return self.network.is_matrix()

    def row_scores(self, rows: TakesRows, ids: Array, sizes: Sequence[int]) -> tuple[Array, Array]:
        """No centre, as (E, 0), and every row's squared error (E, n), infinite past a member's size."""
        size = max(64, ROWS_AT_ONCE // len(ids))
        parts = [self.errors(rows.take(ids[:, start : start + size])) for start in range(0, ids.shape[1], size)]
        errors = namespace(parts[0]).concat(parts, axis=1)
        if min(sizes) < ids.shape[1]:
            errors[~present(sizes, ids.shape[1], errors)] = math.inf
        return self.network.weights[:, :0], errors

    def loss_and_grad(self, x: Array, center: Array, batch: Batch) -> tuple[Loss, Array]:
        """The mean squared error of a mini-batch and its gradient (E, P) with respect to the weights."""
        output, back = self.network.forward(x)
        error = output - x
        if min(batch.normal_counts) < batch.normal:
            error *= present(batch.normal_counts, batch.normal, error)[:, :, None]
        numbers = as_like(batch.normal_counts, error).clip(1) * x.shape[-1]  # (E,)
        value = row_sums(column_sums(error * error))[:, 0, 0] / numbers
        error *= 2 / numbers[:, None, None]
        return Loss(value, error, namespace(value).zeros_like(value)), back(error)

    def validation_loss(self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array) -> np.ndarray:
        """The mean squared error of the rows of V: (E,), no distillation."""
        errors = to_numpy(self.row_scores(rows, ids, sizes)[1])
        means = [own[:size].mean(dtype=np.float64) for own, size in zip(errors, sizes, strict=True)]
        return np.array(means) / self.network.widths[0]

    def errors(self, x: Array) -> Array:
        """The squared reconstruction error of rows x (E, b, d): (E, b)."""
        error = self.network.embed(x) - x
        return row_sums(error * error)[..., 0]
