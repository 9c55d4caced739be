"""Random models whose features are the columns themselves, and the oracle: replace, score again, subtract."""

import numpy as np
import pytest

from addml.data.features import Features
from addml.encoders import MLP
from addml.model import MetricModel
from addml.scoring.scorers import SCORERS, MetricSpace


def random_model(
    d, *, members=1, hidden=(8,), w=4, scorer="center", distance="sqeuclidean", activation="tanh", features=None, seed=0
):
    """A model with random weights, fitted to random rows as its scorer asks."""
    random = np.random.default_rng(seed)
    widths = (d, *hidden, w)
    encoder = MLP.initial(widths, [activation] * (len(widths) - 1), random.spawn(members))
    weights = encoder.weights + 0.1 * random.standard_normal(encoder.weights.shape)  # biases too
    encoder = encoder.with_weights(weights.astype(np.float32))
    z = encoder.embed(random.standard_normal((1, 60, d)).astype(np.float32))
    center = z.mean(axis=1)
    squared = ((z - center[:, None]) ** 2).sum(axis=-1)
    kept = [np.arange(60)] * members
    space = MetricSpace(
        center, squared, kept, lambda places: np.take_along_axis(z, places[..., None], 1), distance, random
    )
    chosen = SCORERS[scorer](k=5) if scorer == "knn" else SCORERS[scorer]()
    features = features or Features(np.zeros(d), np.empty(0, np.int64), np.zeros(d), np.ones(d), np.zeros(d, np.int64))
    model = MetricModel(features, encoder, distance, chosen, chosen.fit(space))
    rows = random.standard_normal((100, len(features.median)))
    return model.with_scale(model.member_scores(rows, "cpu", 1))


def brute_force(model, X, usual, columns):
    """Falls (m, len(columns)) of the scores of raw rows X when the values in `columns[i]` become the usual ones."""
    before, falls = model.scores(X, "cpu", 1), []
    for column in columns:
        replaced = X.copy()
        replaced[:, column] = usual[column]
        falls.append(before - model.scores(replaced, "cpu", 1))
    return np.stack(falls, axis=1)


@pytest.fixture
def random():
    return np.random.default_rng(1)
