"""The learner of an autoencoder: the paper's distillation keeps the rows that it reconstructs best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from addml.arrays import Array, as_like, column_sums, namespace, present, row_sums, to_numpy
from addml.learning.learner import MetricLearner, TakesRows, real_ids
from addml.learning.losses import Batch, Loss


class ReconstructionLearner(MetricLearner):
    """An autoencoder under the mean squared error; the last dimension of its embeddings is the residual."""

    can_collapse: ClassVar[bool] = False  # windows that are all reconstructed equally well are no mistake

    @property
    def capturable(self) -> bool:
        return False

    def row_scores(
        self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array | None = None
    ) -> tuple[Array, Array]:
        blocks, real = self._embeddings(rows, ids), real_ids(ids, sizes)
        center = self._mean(blocks(), real, sizes) if center is None else center
        scores = namespace(center).concat([z[..., -1] for z in blocks()], axis=1)
        return center, scores if real is None else namespace(scores).where(real, scores, math.inf)

    def loss_and_grad(self, x: Array, center: Array, batch: Batch) -> tuple[Loss, Array]:
        x = x[:, : batch.normal]
        output, back = self.encoder.forward(x)
        error = output - x
        if min(batch.normal_counts) < batch.normal:
            error *= present(batch.normal_counts, batch.normal, error)[:, :, None]
        numbers = as_like(batch.normal_counts, error).clip(1) * x.shape[-1]  # (E,)
        value = row_sums(column_sums(error * error))[:, 0, 0] / numbers
        error *= 2 / numbers[:, None, None]
        return Loss(value, error, namespace(value).zeros_like(value)), back(error)

    def validation_loss(self, rows: TakesRows, ids: Array, sizes: Sequence[int], center: Array) -> np.ndarray:
        residuals = to_numpy(self.row_scores(rows, ids, sizes, center)[1])
        return np.array([(own[:size].astype(float) ** 2).mean() for own, size in zip(residuals, sizes, strict=True)])
