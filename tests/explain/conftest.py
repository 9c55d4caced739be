"""Random models whose features are the columns themselves, and the oracle: replace, score again, subtract."""

import numpy as np
import pytest

from addml.encoders import MLPNetwork
from addml.inputs.array import ArrayVectorizer
from addml.model import Model
from addml.preprocessing.scaling import Features
from addml.scoring import SCORERS
from addml.scoring.scorer import KNN, MetricSpace


def random_model(
    d, *, members=1, hidden=(8,), w=4, scorer="center", distance="sqeuclidean", activation="tanh", features=None, seed=0
):
    """A model with random weights, fitted to random rows as its scorer asks."""
    random = np.random.default_rng(seed)
    widths = (d, *hidden, w)
    encoder = MLPNetwork.initial(widths, [activation] * (len(widths) - 1), random.spawn(members))
    weights = encoder.weights + 0.1 * random.standard_normal(encoder.weights.shape)  # biases too
    encoder = encoder.with_weights(weights.astype(np.float32))
    features = features or as_they_are(d)
    rows = random.standard_normal((1, 60, d)).astype(np.float32)
    z = encoder.embed(rows)
    center, ids = z.mean(axis=1), np.arange(60)
    space = MetricSpace(
        center=center,
        scores=((z - center[:, None]) ** 2).sum(axis=-1),
        train=[ids] * members,
        kept=[ids] * members,
        not_anomalous=ids,
        column_weight=np.ones(d, np.float32),
        norms=abs(rows[0]).sum(axis=1),
        prepared=rows[0].__getitem__,
        embed=lambda places: np.take_along_axis(z, np.stack(places)[..., None], 1),
        distance=distance,
        random=random,
    )
    named = {name: kind() for name, kind in SCORERS.items()} | {"knn": KNN(k=5)}
    chosen = named[scorer] if isinstance(scorer, str) else scorer
    model = Model(vectorizer_with(features), encoder, distance, chosen, chosen.fit(space))
    rows = random.standard_normal((100, len(features.median)))
    return model.with_scale(model.member_scores(model.vectorizer.prepare(rows), "cpu", 1))


def vectorizer_with(features):
    """A vectorizer of arrays that scales them so."""
    return ArrayVectorizer(features=features, columns_in=len(features.median))


def as_they_are(d):
    """Features that are the columns themselves."""
    zeros, ones = np.zeros(d), np.ones(d)
    return Features(zeros, np.empty(0, np.int64), zeros, ones, np.zeros(d, np.int64), np.zeros(1), zeros, ones)


@pytest.fixture
def random():
    return np.random.default_rng(1)
