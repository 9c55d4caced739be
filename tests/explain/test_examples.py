"""The kept training rows most like a row."""

import numpy as np
import pytest

from addml import ADDML, MLP, load
from addml.explain.attribution import distilled_by_most


@pytest.fixture(scope="module", name="X")
def table():
    random = np.random.default_rng(0)
    X = random.standard_normal((120, 3))
    X[:10, 0] += 12 + 5 * np.arange(10)
    return X


def fitted(X, **settings):
    small = {
        "epochs": 3,
        "members": 2,
        "encoder": MLP((8,), 4),
        "random_state": 0,
        "device": "cpu",
    }
    return ADDML(**small).set_params(**settings).fit(X)


@pytest.mark.parametrize("scorer", ["center", "dissimilarity"])
def test_a_scorer_without_references_keeps_no_rows(X, scorer):
    with pytest.raises(ValueError, match=f"scorer='{scorer}' keeps no training rows; fit with scorer='views'"):
        fitted(X, scorer=scorer).nearest_normal(X)


def test_examples_are_bounded_kept_rows(X, monkeypatch):
    monkeypatch.setattr("addml.fit.EXAMPLES", 20)
    detector = fitted(X)
    found = detector.nearest_normal(X, k=5)
    assert found.rows.shape == found.distances.shape == (120, 5)
    assert len(np.unique(found.rows)) <= 20
    assert np.isin(found.rows, np.flatnonzero(detector.rows_kept()[-1].any(axis=0))).mean() > 0.9
    assert (np.diff(found.distances, axis=1) >= 0).all()


def test_rows_that_most_keep_by_hand():
    train = [np.array([0, 1, 2, 3]), np.array([0, 1, 2, 4]), np.array([0, 1, 3, 4])]
    kept = [np.array([0, 1]), np.array([0, 2]), np.array([0, 4])]
    assert distilled_by_most(kept, train, 6).tolist() == [0, 2, 4]  # 1 is kept by one of three, 5 is nobody's
    apart = [np.array([0]), np.array([1]), np.array([1])]
    assert distilled_by_most(apart, [np.arange(3)] * 3, 3).tolist() == [1]
    assert distilled_by_most([np.array([e]) for e in range(3)], [np.arange(3)] * 3, 3).tolist() == [
        0,
        1,
        2,
    ]  # no two agree


@pytest.mark.parametrize("seed", range(3))
def test_members_that_keep_other_rows_each(seed):
    X = np.random.default_rng(seed).standard_normal((300, 20))
    detector = fitted(X, normal_ratio=1e-9, members=5, epochs=1, random_state=seed)
    assert np.isfinite(detector.baseline_).all()
    assert len(detector.model_.examples.rows)


def test_the_nearest_by_brute_force(X):
    detector = fitted(X)
    found = detector.nearest_normal(X[:7], k=3)
    own = detector.model_.examples.rows
    z = detector.embed(X).reshape(120, 2, 4).astype(float)
    middle = z[own].mean(axis=0)
    spread = np.sqrt(((z[own] - middle) ** 2).sum(axis=2).mean(axis=0))
    distances = np.mean([np.linalg.norm(z[:7, None, e] - z[None, own, e], axis=2) / spread[e] for e in (0, 1)], axis=0)
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :3], atol=1e-4)


def test_a_kept_row_is_most_like_itself(X):
    detector = fitted(X)
    own = detector.model_.examples.rows
    np.testing.assert_array_equal(detector.nearest_normal(X[own], k=1).rows[:, 0], own)


def test_more_than_there_are_gives_all(X, monkeypatch):
    monkeypatch.setattr("addml.fit.EXAMPLE_NUMBERS", 4 * 3)  # room for four rows of three numbers
    assert fitted(X).nearest_normal(X[:2], k=50).rows.shape == (2, 4)


@pytest.mark.parametrize("k", [0, -1, 1.5, "many"])
def test_k_must_be_a_whole_number(X, k):
    with pytest.raises(ValueError, match=r"k=.* must be a whole number of at least 1"):
        fitted(X).nearest_normal(X, k=k)


def test_they_are_saved_with_the_model(X, tmp_path):
    detector = fitted(X)
    detector.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.model_.examples.rows, detector.model_.examples.rows)
    np.testing.assert_array_equal(again.nearest_normal(X).rows, detector.nearest_normal(X).rows)
