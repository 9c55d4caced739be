"""Members and networks for the tests of the training loop, in float64."""

import numpy as np
import pytest

from addml.encoders import MLPNetwork
from addml.inputs import MemoryRows
from addml.learning.learner import MetricLearner
from addml.learning.losses import CLOSENESS
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train

WIDTHS = (5, 8, 6)
ACTIVATIONS = ("tanh", "tanh")


@pytest.fixture
def rows():
    """200 rows of five columns: a curved cloud and twenty rows far from it."""
    random = np.random.default_rng(7)
    X = random.standard_normal((200, 5)) @ random.standard_normal((5, 5)) * 0.5
    X[180:] += random.standard_normal((20, 5)) * 4
    return MemoryRows(X)


@pytest.fixture
def fit(rows):
    """Train members with these seeds; (encoder before, members, state after)."""

    def run(
        seeds,
        *,
        epochs=3,
        batch_size=32,
        dtype=np.float64,
        ratios=None,
        patience=50,
        sizes=None,
        loss="instance",
        **settings,
    ):
        randoms = [np.random.default_rng(seed) for seed in seeds]
        before = MLPNetwork.initial(WIDTHS, ACTIVATIONS, randoms)
        members = []
        for i, random in enumerate(randoms):
            order = random.permutation(len(rows))[: sizes[i] if sizes else None]
            ratio = ratios[i] if ratios else 2 / 3
            members.append(Member(np.sort(order[20:]), np.sort(order[:20]), random, ratio))
        weights = before.weights.astype(dtype)
        learner = MetricLearner(before.with_weights(weights.copy()), CLOSENESS[loss](**settings))
        state = TrainingState.begin(learner.encoder.weights, patience)
        least = 1 if loss == "center" else 2
        schedule = Schedule(epochs=epochs, batch_size=batch_size, patience=patience, least_batch=least)
        table = MemoryRows(rows.values.astype(dtype))
        return before, members, train(learner, table, members, schedule, state)

    return run
