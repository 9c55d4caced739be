"""The deep autoencoder, trained by the package's own loop, with or without distillation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from addml import parameters
from addml.distances import count_of
from addml.encoders import ACTIVATIONS
from addml.encoders.mlp import AutoencoderNetwork
from addml.inputs import MemoryRows
from addml.learning.learner import ReconstructionLearner
from addml.learning.losses import CenterCloseness
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from addml.pipeline.rivals import Learned, Method

ROWS_AT_ONCE = 2048


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
    """The squared reconstruction error of a row by a network mirrored around its latent space.

    `normal_ratio` is the share of best reconstructed rows that each epoch trains on: 1 is the paper's autoencoder, 2/3
    the same with its distillation. The other settings are those of ADDML.
    """
    parameters.check_number("normal_ratio", normal_ratio, 0, 1, with_low=False)
    parameters.check_number("validation_ratio", validation_ratio, 0, 1, with_low=False, with_high=False)
    random = np.random.default_rng(parameters.generator_seed(seed))
    network = initial_network(Z.shape[1], random, hidden, latent_dim, activation, output_activation)
    member = _member(len(Z), random, validation_ratio, normal_ratio)
    schedule = Schedule(epochs, batch_size, learning_rate, weight_decay, patience, least_batch=1)
    state = trained(network, Z, member, schedule)
    best = network.with_weights(state.best.astype(np.float64))  # each row scored alike

    def score(rows: np.ndarray) -> np.ndarray:
        parts = [rows[None, start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
        return np.concatenate([rows.shape[1] * best.embed(part)[0, :, -1] ** 2 for part in parts])

    return Learned(score, score(Z))


def initial_network(
    width: int,
    random: np.random.Generator,
    hidden: tuple[int, ...] = (64,),
    latent_dim: int = 64,
    activation: str = "tanh",
    output_activation: str = "linear",
) -> AutoencoderNetwork:
    """The untrained network, in float32."""
    for name, value in (("activation", activation), ("output_activation", output_activation)):
        parameters.check_one_of(name, value, ACTIVATIONS)
    parameters.check_whole("latent_dim", latent_dim)
    parameters.check_widths("hidden", hidden)
    widths = (width, *hidden, latent_dim, *hidden[::-1], width)
    network = AutoencoderNetwork.initial(widths, [activation] * (len(widths) - 2) + [output_activation], [random])
    return network.with_weights(network.weights.astype(np.float32))


def _member(rows: int, random: np.random.Generator, validation_ratio: float, normal_ratio: float) -> Member:
    """A random validation set V and the rest M; with too few rows, all rows serve as both."""
    order = random.permutation(rows)
    held_out = count_of(validation_ratio, rows)
    training, validation = np.sort(order[held_out:]), np.sort(order[:held_out])
    if len(training) < 2:
        training = validation = np.arange(rows)
    return Member(training, validation, random, normal_ratio)


def trained(network: AutoencoderNetwork, Z: np.ndarray, member: Member, schedule: Schedule) -> TrainingState:
    """The state after training one member on standardised rows."""
    state = TrainingState.begin(network.weights, schedule.patience)
    learner = ReconstructionLearner(network, CenterCloseness())
    train(learner, MemoryRows(Z.astype(np.float32)), [member], schedule, state)
    return state


AUTOENCODERS = {
    "DeepAutoencoder": Method(deep_autoencoder, seeded=True),
    "DistilledAutoencoder": Method(partial(deep_autoencoder, normal_ratio=2 / 3), seeded=True),
    "SigmoidAutoencoder": Method(partial(deep_autoencoder, output_activation="sigmoid"), seeded=True),
}
