"""The deep autoencoder, trained by the package's own loop, with distillation or without."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml import parameters
from addml.baselines.reconstruction import ROWS_AT_ONCE, ReconstructionLearner
from addml.baselines.rival import Rival
from addml.distances import count_of
from addml.encoders import ACTIVATIONS, MLPNetwork
from addml.inputs.rows import MemoryRows
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train


class DeepAutoencoder(Rival):
    """The squared error of a row's reconstruction from a latent space, by a network mirrored around it.

    `normal_ratio` is the share of rows, those reconstructed best, that each epoch learns from: 1 is the paper's
    autoencoder, 2/3 the same with its distillation. The other parameters are those of ADDML.
    """

    def __init__(
        self,
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
        contamination: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.activation = activation
        self.output_activation = output_activation
        self.normal_ratio = normal_ratio
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_ratio = validation_ratio
        self.patience = patience
        self.contamination = contamination
        self.random_state = random_state

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, n)."""
        bits = np.array(self._kept_bits, np.uint8).reshape(len(self._kept_bits), -1)
        return np.unpackbits(bits, axis=-1, count=len(self.anomaly_scores_)).astype(bool)

    def _check_parameters(self) -> None:
        parameters.widths("hidden", self.hidden)
        for name in ("latent_dim", "epochs", "batch_size", "patience"):
            parameters.whole(name, getattr(self, name))
        for name in ("activation", "output_activation"):
            parameters.one_of(name, getattr(self, name), ACTIVATIONS)
        parameters.number("normal_ratio", self.normal_ratio, 0, 1, with_low=False)
        parameters.number("validation_ratio", self.validation_ratio, 0, 1, with_low=False, with_high=False)
        parameters.number("learning_rate", self.learning_rate, 0, with_low=False)
        parameters.number("weight_decay", self.weight_decay, 0, with_low=True)

    def _fit(self, Z: np.ndarray) -> None:
        random = np.random.default_rng(parameters.generator_seed(self.random_state))
        network = self._new_network(Z.shape[1], random)
        state = TrainingState.begin(network.weights, self.patience)
        train(
            ReconstructionLearner(network),
            MemoryRows(Z.astype(np.float32)),
            [self._member(len(Z), random)],
            self._schedule(),
            state,
        )
        self.history_, self._kept_bits = state.history, state.kept
        self.network_ = network.with_weights(state.best.astype(np.float64))  # so a score depends on its row alone

    def _score(self, Z: np.ndarray) -> np.ndarray:
        learner = ReconstructionLearner(self.network_)
        parts = [learner.errors(Z[None, start : start + ROWS_AT_ONCE])[0] for start in range(0, len(Z), ROWS_AT_ONCE)]
        return np.concatenate(parts)

    def _new_network(self, width: int, random: np.random.Generator) -> MLPNetwork:
        hidden = parameters.widths("hidden", self.hidden)
        widths = (width, *hidden, self.latent_dim, *hidden[::-1], width)
        activations = [self.activation] * (len(widths) - 2) + [self.output_activation]
        network = MLPNetwork.initial(widths, activations, [random])
        return network.with_weights(network.weights.astype(np.float32))

    def _member(self, rows: int, random: np.random.Generator) -> Member:
        """V drawn at random, the rest M; too few rows to spare serve as both."""
        order = random.permutation(rows)
        held_out = count_of(self.validation_ratio, rows)
        training, validation = np.sort(order[held_out:]), np.sort(order[:held_out])
        if len(training) < 2:
            training = validation = np.arange(rows)
        return Member(training, validation, random, self.normal_ratio)

    def _schedule(self) -> Schedule:
        return Schedule(
            self.epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience, least_batch=1
        )
