"""Contributions to the local score against the loops of tests/scoring/by_hand.py over rows with a column replaced."""

import numpy as np
import pytest

from addml.data.features import FARTHEST
from addml.detector import ADDML
from addml.explain import column_contributions, replacement
from addml.scoring import Local
from tests.explain.conftest import random_model
from tests.grids import pairwise
from tests.scoring import by_hand

D = 5


def rows_of(model, random, strangers=10):
    """Some references, one of them twice, and rows that training did not hold."""
    known = model.scorer_arrays["rows"][0, [0, 7, 21, 42, 7]]
    return np.r_[known, 2 * random.standard_normal((strangers, D)).astype(np.float32)]


def scores_by_hand(model, rows, own):
    z = model.encoder.embed(rows[None])
    seen = by_hand.local_scores(z, rows, model.scorer_arrays, model.distance, model.scorer.axes, own)
    return model.combine(seen)


def contributions_by_hand(model, rows, usual, columns):
    """A row stays itself when a column is replaced: the reference that it is does not become its neighbour."""
    own = [by_hand.same_row(row, model.scorer_arrays["rows"][0]) for row in rows]
    before, falls = scores_by_hand(model, rows, own), []
    for features in columns:
        replaced = rows.copy()
        replaced[:, features] = usual[features]
        falls.append(before - scores_by_hand(model, replaced, own))
    return np.stack(falls, axis=1)


def assert_by_hand(model, rows, usual, origins, tolerance=5e-3):
    """Within the steps of 16 bits along the columns."""
    columns = [np.flatnonzero(np.asarray(origins) == column) for column in range(max(origins) + 1)]
    expected = contributions_by_hand(model, rows, usual, columns)
    found = column_contributions(model, rows, usual, origins)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("axes", "members", "distance", "origins"),
    pairwise([True, False], [1, 3], ["sqeuclidean", "cosine"], [range(D), [0, 0, 1, 2, 2]]),
)
def test_a_column_brings_what_its_replacement_takes_away(random, axes, members, distance, origins):
    model = random_model(D, members=members, scorer=Local(axes=axes), distance=distance)
    assert_by_hand(model, rows_of(model, random), random.standard_normal(D).astype(np.float32), list(origins))


def test_a_reference_is_no_neighbour_of_itself_after_a_replacement(random):
    """The usual value may be the one that the row has: were it its own neighbour, all would seem to fall."""
    model = random_model(D, members=3, scorer="local")
    rows = model.scorer_arrays["rows"][0, :8].copy()
    usual = rows[0].copy()
    found = column_contributions(model, rows, usual, range(D))
    assert (found[0] == 0).all()
    close = usual + np.float32(1e-4)
    assert (np.abs(column_contributions(model, rows[:1], close, range(D))) < 1e-2).all()


@pytest.mark.parametrize(("far", "axes"), [(1e3, True), (1e6, False), (FARTHEST, True), (FARTHEST, False)])
def test_a_value_however_far_leaves_no_rounding_behind(random, far, axes):
    model = random_model(D, members=2, scorer=Local(axes=axes))
    rows, usual = rows_of(model, random), random.standard_normal(D).astype(np.float32)
    rows[np.arange(len(rows)), np.arange(len(rows)) % D] = far
    assert_by_hand(model, rows, usual, range(D))


def test_chunks_blocks_and_threads_change_nothing(random, monkeypatch):
    model = random_model(D, members=2, scorer="local")
    rows = np.r_[rows_of(model, random, 500), rows_of(model, random, 200)]
    usual = random.standard_normal(D).astype(np.float32)
    whole = column_contributions(model, rows, usual, range(D))
    monkeypatch.setattr(replacement, "ROWS", 37)
    np.testing.assert_allclose(column_contributions(model, rows, usual, range(D), threads=3), whole, atol=1e-3)


def test_the_scores_are_those_of_the_detector(random):
    X = random.standard_normal((300, 4)) @ random.standard_normal((4, 4))
    detector = ADDML(epochs=2, members=2, random_state=0, device="cpu").fit(X)
    model = detector.model_
    work = replacement.Replacement(model, model.prepare(X), np.zeros(4, np.float32), "cpu", 1)
    scores, falls = work.by_column(replacement.features_by_column(range(4)))
    np.testing.assert_allclose(scores, detector.anomaly_scores_, atol=1e-3)
    assert falls.shape == (300, 4)


def test_the_strange_column_is_the_one_that_brings_most(random):
    X = random.standard_normal((500, 6))
    strange = np.zeros((6, 6))
    np.fill_diagonal(strange, 8)
    detector = ADDML(epochs=3, random_state=0, device="cpu").fit(X)
    rows = detector.model_.prepare(strange)
    usual = np.median(detector.model_.prepare(X), axis=0)
    found = column_contributions(detector.model_, rows, usual, range(6))
    assert found.argmax(axis=1).tolist() == list(range(6))
