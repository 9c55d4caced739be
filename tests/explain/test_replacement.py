"""Contributions against replacing every column by hand and scoring the rows again."""

import numpy as np
import pytest
import torch

import addml.model
from addml.detector import ADDML
from addml.explain import baseline_row, feature_origins, replacement
from addml.explain.contributions import features_by_column
from addml.preprocessing.scaling import FARTHEST, Features
from tests.explain.conftest import brute_force, column_contributions, random_model
from tests.grids import pairwise

D = 7


def rows_and_usual(random, m=50, d=D):
    return (2 * random.standard_normal((m, d))).astype(np.float32), random.standard_normal(d).astype(np.float32)


def assert_exact(model, X, usual, origins, **how):
    columns = [np.flatnonzero(np.asarray(origins) == column) for column in range(max(origins) + 1)]
    expected = brute_force(model, X, usual, columns)
    found = column_contributions(model, X, usual, origins, **how)
    assert found.shape == expected.shape
    assert found.dtype == np.float64
    size = np.abs(model.scores(X, "cpu", 1)).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(1, size))


@pytest.mark.parametrize(
    ("members", "scorer", "distance"),
    pairwise([1, 3], ["center", "dissimilarity", "knn"], ["sqeuclidean", "euclidean", "cosine"]),
)
def test_scorers_distances_and_members(random, members, scorer, distance):
    model = random_model(D, members=members, scorer=scorer, distance=distance)
    assert_exact(model, *rows_and_usual(random), range(D))


@pytest.mark.parametrize(
    ("members", "hidden", "activation"),
    pairwise([1, 3], [(), (5,), (16, 9), (6, 6, 6)], ["tanh", "relu", "leaky_relu", "elu", "sigmoid", "linear"]),
)
def test_layers_and_activations(random, members, hidden, activation):
    model = random_model(D, members=members, hidden=hidden, activation=activation)
    assert_exact(model, *rows_and_usual(random), range(D))


@pytest.mark.parametrize("origins", [[0, 0, 1, 1, 1, 2, 2], [2, 0, 1, 0, 1, 2, 2], [0] * 7, [0, 3, 3, 1, 1, 2, 0]])
@pytest.mark.parametrize("members", [1, 3])
def test_several_features_of_a_column_are_replaced_together(random, origins, members):
    assert_exact(random_model(D, members=members), *rows_and_usual(random), origins)


def test_many_rows_in_many_chunks_on_many_threads(random, monkeypatch):
    monkeypatch.setattr(replacement, "ROWS", 37)
    model = random_model(D, members=3)
    X, usual = rows_and_usual(random, m=1000)
    X[random.random(X.shape) < 0.4] = 0.0
    usual[:] = 0.0
    assert_exact(model, X, usual, [0, 0, 1, 1, 2, 3, 4], threads=3)


def test_only_the_columns_farthest_from_the_usual_may_be_tried(random):
    model, (X, usual) = random_model(D, members=3), rows_and_usual(random)
    X[:, 2] += 40
    work = replacement.Replacement(model, X, usual, "cpu", 1)
    columns = features_by_column([0, 0, 1, 2, 3, 4, 4])
    scores, every = work.by_column(columns)
    some_scores, some = work.by_column(columns, tried=2)
    np.testing.assert_array_equal(some_scores, scores)
    assert ((some != 0).sum(axis=1) == 2).all()
    assert (some[:, 1] != 0).all()
    np.testing.assert_allclose(some[some != 0], every[some != 0], atol=1e-5)
    np.testing.assert_array_equal(work.by_column(columns, tried=5)[1], every)


def test_memory_stays_within_the_cells(random, monkeypatch):
    monkeypatch.setattr(replacement, "CELLS", 100)
    assert_exact(random_model(D, members=3), *rows_and_usual(random), range(D))


@pytest.mark.parametrize("activation", ["tanh", "relu", "linear"])
def test_a_value_a_billion_deviations_out_leaves_no_rounding_behind(random, activation):
    # a float32 sum that held 1e9 is off by 64 after taking it out again
    model = random_model(D, activation=activation)
    X, usual = rows_and_usual(random, m=20)
    X[np.arange(20), np.arange(20) % D] = FARTHEST
    expected = brute_force(model, X, usual, [[column] for column in range(D)])
    found = column_contributions(model, X, usual, range(D))
    assert np.isfinite(found).all()
    out = X == FARTHEST
    np.testing.assert_allclose(found[out], expected[out], rtol=2e-5)
    if activation == "tanh":  # elsewhere what is left is far below the rounding of the score
        left = model.scores(X, "cpu", 1)[:, None] - found
        np.testing.assert_allclose(left[out], model.scores(np.where(out, usual, X), "cpu", 1), rtol=1e-4)


@pytest.mark.parametrize(("scorer", "activation"), [("center", "tanh"), ("dissimilarity", "relu"), ("knn", "sigmoid")])
def test_an_accelerator_gives_the_same(random, monkeypatch, scorer, activation):
    # torch on the CPU stands for torch on the device
    for module in (replacement, addml.model):
        monkeypatch.setattr(module, "on_device", lambda x, device: torch.tensor(x) if device == "cuda" else x)
    model = random_model(D, members=3, hidden=(8, 8), scorer=scorer, activation=activation)
    assert_exact(model, *rows_and_usual(random), [0, 0, 1, 2, 3, 4, 4], device="cuda")


def test_gap_flags_count_with_their_column(random):
    X = random.standard_normal((200, 4))
    X[random.random(X.shape) < [0, 0.2, 0, 0.3]] = np.nan
    features = Features.fit(X)
    assert features.gaps.tolist() == [1, 3]
    origins = feature_origins(range(4), features.gaps)
    assert origins == [0, 1, 2, 3, 1, 3]
    model = random_model(6, members=3, features=features)
    usual = np.array([0.1, 0.2, -0.1, np.nan])
    expected = brute_force(model, X, usual, [[column] for column in range(4)])
    found = column_contributions(model, features.transform(X), features.transform(usual[None])[0], origins)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert np.isfinite(found).all()


def test_what_is_usual_already_contributes_exactly_nothing(random):
    model = random_model(D, members=3)
    X, usual = rows_and_usual(random)
    X[:, 2] = usual[2]  # a constant column
    X[7] = usual
    found = column_contributions(model, X, usual, range(D))
    assert (found[:, 2] == 0).all()
    assert (found[7] == 0).all()
    assert (found[np.arange(50) != 7][:, [0, 1, 3, 4, 5, 6]] != 0).all()


def test_no_rows_have_no_contributions(random):
    found = column_contributions(
        random_model(D), np.empty((0, D), np.float32), np.zeros(D, np.float32), [0, 1, 2] + [3] * 4
    )
    assert found.shape == (0, 4)


def test_one_row_of_many_columns(random):
    model = random_model(150, members=2)
    assert_exact(model, *rows_and_usual(random, m=1, d=150), range(150))


def test_rows_and_baseline_stay_as_they_are(random):
    X, usual = rows_and_usual(random)
    X.setflags(write=False)
    usual.setflags(write=False)
    model = random_model(D, activation="linear", hidden=())
    first = column_contributions(model, X, usual, range(D))
    np.testing.assert_array_equal(first, column_contributions(model, X, usual, range(D)))


def test_the_usual_row_takes_medians_and_real_values_of_categories():
    levels = np.repeat([0, 1, 2], [40, 35, 25])  # no level has a half: the median of each is 0, a row of no level
    values = np.column_stack([np.eye(3)[levels], np.arange(100.0)])
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    usual = baseline_row(scaled, [0, 0, 0, 1]) * values.std(axis=0) + values.mean(axis=0)
    np.testing.assert_allclose(usual, [1, 0, 0, 49.5], atol=1e-6)


@pytest.mark.parametrize("members", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_shifted_column_comes_first(members):
    random, d, m = np.random.default_rng(0), 12, 300
    mixing = random.standard_normal((d, 4)) @ random.standard_normal((4, d)) + random.standard_normal((d, d))
    X, planted = random.standard_normal((2000, d)) @ mixing, random.standard_normal((m, d)) @ mixing
    column, side = random.integers(0, d, m), random.choice([-4, 4], m)
    planted[np.arange(m), column] += side * X.std(axis=0)[column]
    detector = ADDML(members=members, scorer="center", random_state=0, device="cpu").fit(X)
    prepare = detector.model_.features.transform
    usual = baseline_row(prepare(X), range(d))
    first = column_contributions(detector.model_, prepare(planted), usual, range(d)).argmax(axis=1)
    top = detector.anomaly_score(planted) > np.quantile(detector.anomaly_scores_, 0.9)
    assert top.sum() > 250
    assert (first == column)[top].mean() >= 0.95
