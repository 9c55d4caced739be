"""The deep autoencoder, trained by the package's own loop, with distillation or without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from addml import parameters
from addml.arrays import Array, as_like, column_sums, namespace, present, row_sums, to_numpy
from addml.distances import count_of
from addml.encoders import ACTIVATIONS, MLPNetwork
from addml.inputs.rows import MemoryRows
from addml.learning.learner import TakesRows
from addml.learning.losses import Batch, Loss
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from addml.pipeline.rivals import Learned, Method

ROWS_AT_ONCE = 2048


class ReconstructionLearner:
    """An autoencoder under the mean squared error; distillation keeps the rows that it reconstructs best."""

    def __init__(self, network: MLPNetwork) -> None:
        self.network = network

    def set_weights(self, weights: Array) -> None:
        """Continue with these weights, which the loop changes in place."""
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
        """The mean squared error of the rows of V: (E,), without distillation."""
        errors = to_numpy(self.row_scores(rows, ids, sizes)[1])
        means = [own[:size].mean(dtype=np.float64) for own, size in zip(errors, sizes, strict=True)]
        return np.array(means) / self.network.widths[0]

    def errors(self, x: Array) -> Array:
        """The squared reconstruction error of rows x (E, b, d): (E, b)."""
        error = self.network.embed(x) - x
        return row_sums(error * error)[..., 0]


def deep_autoencoder(
    Z: np.ndarray,
    seed: Any,
    *,
    hidden: tuple[int, ...] = (64,),
    latent_dim: int = 64,
    activation: str = "tanh",
    output_activation: str = "linear",
    normal_ratio: float = 1.0,
    epochs: int = 50,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-5,
    validation_ratio: float = 0.1,
    patience: int = 5,
) -> Learned:
    """The squared error of a row's reconstruction from a latent space, by a network mirrored around it.

    `normal_ratio` is the share of rows, those reconstructed best, that each epoch learns from: 1 is the paper's
    autoencoder, 2/3 the same with its distillation. The other settings are those of ADDML.
    """
    parameters.check_number("normal_ratio", normal_ratio, 0, 1, with_low=False)
    parameters.check_number("validation_ratio", validation_ratio, 0, 1, with_low=False, with_high=False)
    random = np.random.default_rng(parameters.generator_seed(seed))
    network = initial_network(Z.shape[1], random, hidden, latent_dim, activation, output_activation)
    member = _member(len(Z), random, validation_ratio, normal_ratio)
    schedule = Schedule(epochs, batch_size, learning_rate, weight_decay, patience, least_batch=1)
    state = trained(network, Z, member, schedule)
    learner = ReconstructionLearner(network.with_weights(state.best.astype(np.float64)))  # each row scored alike

    def score(rows: np.ndarray) -> np.ndarray:
        starts = range(0, len(rows), ROWS_AT_ONCE)
        return np.concatenate([learner.errors(rows[None, start : start + ROWS_AT_ONCE])[0] for start in starts])

    return Learned(score, score(Z))


def initial_network(
    width: int,
    random: np.random.Generator,
    hidden: tuple[int, ...] = (64,),
    latent_dim: int = 64,
    activation: str = "tanh",
    output_activation: str = "linear",
) -> MLPNetwork:
    """The untrained network, in float32."""
    for name, value in (("activation", activation), ("output_activation", output_activation)):
        parameters.check_one_of(name, value, ACTIVATIONS)
    parameters.check_whole("latent_dim", latent_dim)
    parameters.check_widths("hidden", hidden)
    widths = (width, *hidden, latent_dim, *hidden[::-1], width)
    network = MLPNetwork.initial(widths, [activation] * (len(widths) - 2) + [output_activation], [random])
    return network.with_weights(network.weights.astype(np.float32))


def _member(rows: int, random: np.random.Generator, validation_ratio: float, normal_ratio: float) -> Member:
    """V drawn at random, the rest M; if there are too few rows, all serve as both."""
    order = random.permutation(rows)
    held_out = count_of(validation_ratio, rows)
    training, validation = np.sort(order[held_out:]), np.sort(order[:held_out])
    if len(training) < 2:
        training = validation = np.arange(rows)
    return Member(training, validation, random, normal_ratio)


def trained(network: MLPNetwork, Z: np.ndarray, member: Member, schedule: Schedule) -> TrainingState:
    """The state after training one member on standardised rows."""
    state = TrainingState.begin(network.weights, schedule.patience)
    train(ReconstructionLearner(network), MemoryRows(Z.astype(np.float32)), [member], schedule, state)
    return state


AUTOENCODERS = {
    "DeepAutoencoder": Method(deep_autoencoder, "DAE", seeded=True),
    "DistilledAutoencoder": Method(partial(deep_autoencoder, normal_ratio=2 / 3), seeded=True),
    "SigmoidAutoencoder": Method(partial(deep_autoencoder, output_activation="sigmoid"), seeded=True),
}
