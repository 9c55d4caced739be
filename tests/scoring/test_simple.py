"""Scorers against the definitions, written out over the embeddings of the training rows M."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from addml import ADDML, MLP
from addml.scoring import KNN, SCORERS, Center, Dissimilarity, Views

DISTANCES = {
    "sqeuclidean": lambda a, b: float(((a - b) ** 2).sum()),
    "euclidean": lambda a, b: float(np.sqrt(((a - b) ** 2).sum())),
    "cosine": lambda a, b: 1 - float(a @ b) / float(np.sqrt(a @ a) * np.sqrt(b @ b)),
}


@pytest.fixture(scope="module", name="X")
def table():
    random = np.random.default_rng(0)
    return random.standard_normal((50, 5)) @ random.standard_normal((5, 5)) + random.standard_normal(5)


def fit(X, **settings):
    """A fitted detector, its embeddings (E, n, w) in float64, and which rows are every member's M."""
    small = {"epochs": 2, "encoder": MLP((8,), 6), "random_state": 0, "device": "cpu"}
    detector = ADDML(**small, normal_ratio=1).set_params(**settings).fit(X)  # distillation then keeps all of M
    embeddings = detector.transform(X).astype(np.float64).reshape(len(X), -1, 6).swapaxes(0, 1)
    return detector, embeddings, detector.rows_kept()[0]


def to_center(z, train, distance):
    center = z[train].mean(axis=0)
    return [distance(row, center) for row in z]


def to_all(z, train, distance):
    return [np.mean([distance(row, other) for other in z[train]]) for row in z]


ORACLES = {"center": to_center, "dissimilarity": to_all}


@pytest.mark.parametrize("scorer", ORACLES)
@pytest.mark.parametrize("distance", DISTANCES)
def test_one_members_score_is_its_definition(X, scorer, distance):
    detector, (z,), (train,) = fit(X, members=1, scorer=scorer, loss__distance=distance)
    assert train.sum() == 45
    expected = ORACLES[scorer](z, train, DISTANCES[distance])
    np.testing.assert_allclose(detector.anomaly_scores_, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scorer", ORACLES)
@pytest.mark.parametrize("distance", DISTANCES)
def test_members_scores_are_standardised_logarithms_averaged(X, scorer, distance):
    detector, embeddings, trains = fit(X, members=3, scorer=scorer, loss__distance=distance)
    parts = [ORACLES[scorer](z, train, DISTANCES[distance]) for z, train in zip(embeddings, trains, strict=True)]
    logs = np.log(parts)
    expected = ((logs - logs.mean(axis=1, keepdims=True)) / logs.std(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(detector.anomaly_scores_, expected, rtol=1e-3, atol=1e-3)
    assert len({train.tobytes() for train in trains}) == 3  # each member has an M of its own


def test_squared_dissimilarity_is_the_centre_distance_plus_the_spread(X):
    center, (z,), (train,) = fit(X, members=1, scorer="center")
    dissimilarity, _, _ = fit(X, members=1, scorer="dissimilarity")
    spread = np.array(to_center(z, train, DISTANCES["sqeuclidean"]))[train].mean()
    np.testing.assert_allclose(dissimilarity.anomaly_scores_, center.anomaly_scores_ + spread, rtol=1e-5)


def nearest(references, z, k, distance):
    metric = "euclidean" if distance == "sqeuclidean" else distance
    found, _ = NearestNeighbors(n_neighbors=k, metric=metric).fit(references).kneighbors(z)
    return (found**2 if distance == "sqeuclidean" else found).mean(axis=1)


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("distance", DISTANCES)
def test_knn_is_the_mean_distance_to_the_nearest_references(X, k, distance):
    detector, (z,), _ = fit(X, members=1, scorer=KNN(k=k), loss__distance=distance)
    (references,) = detector.model_.scorer_arrays["references"].astype(np.float64)
    expected = nearest(references, z, k, distance)
    tolerance = 3e-3 if distance == "euclidean" else 1e-5  # the root of a float32 zero
    np.testing.assert_allclose(detector.anomaly_scores_, expected, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("references", [7, 30, 2048])
def test_references_are_rows_that_distillation_keeps(X, references):
    settings = {
        "epochs": 1,
        "encoder": MLP((8,), 6),
        "random_state": 0,
        "device": "cpu",
        "members": 2,
    }
    detector = ADDML(**settings, scorer=KNN(k=3, references=references), learning_rate=1e-12).fit(X)
    embeddings = detector.transform(X).reshape(50, 2, 6)
    kept = detector.rows_kept()[0]  # of the untrained networks, which hardly change
    stored = detector.model_.scorer_arrays["references"]
    assert stored.shape == (2, min(references, 30), 6)  # two thirds of 45 are kept
    for e in range(2):
        gaps = np.abs(stored[e][:, None] - embeddings[None, :, e]).max(axis=2)
        found = gaps.argmin(axis=1)
        assert gaps.min(axis=1).max() < 1e-6
        assert kept[e][found].all()
        assert len(set(found)) == len(found)


def test_more_neighbours_than_references_are_all_of_them(X):
    many, _, _ = fit(X, members=1, scorer=KNN(k=1000))
    all_of_them, _, _ = fit(X, members=1, scorer=KNN(k=45))
    np.testing.assert_array_equal(many.anomaly_scores_, all_of_them.anomaly_scores_)


@pytest.mark.parametrize(
    ("name", "scorer"),
    [("views", Views()), ("center", Center()), ("dissimilarity", Dissimilarity()), ("knn", KNN())],
)
def test_a_scorer_may_be_given_by_name_or_itself(X, name, scorer):
    np.testing.assert_array_equal(fit(X, scorer=name)[0].anomaly_scores_, fit(X, scorer=scorer)[0].anomaly_scores_)
    assert SCORERS[name] is type(scorer)


def test_dissimilarity_adds_up_references_in_parts(X, monkeypatch):
    whole, _, _ = fit(X, members=2, scorer="dissimilarity", loss__distance="euclidean")
    monkeypatch.setattr("addml.scoring.scorer.REFERENCES_AT_ONCE", 7)
    parts, _, _ = fit(X, members=2, scorer="dissimilarity", loss__distance="euclidean")
    np.testing.assert_allclose(parts.anomaly_scores_, whole.anomaly_scores_, rtol=1e-4, atol=1e-4)
