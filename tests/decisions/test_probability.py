"""Probabilities: the law by hand, curves that rise, calibration, labels."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression

from addml.decisions.probability import SHARE, Probability, of_share
from tests.decisions.test_thresholds import AWKWARD


def test_the_law_by_hand():
    """With S = (1 - pi) S0 + pi sqrt(S0), the anomalies' part of the density at S0."""
    pi, ordinary = 0.15, np.array([1.0, 0.5, 0.1, 1e-3, 1e-8])
    above = (1 - pi) * ordinary + pi * np.sqrt(ordinary)
    density = pi * 0.5 / np.sqrt(ordinary)  # of the anomalies, where that of the others is 1 - pi
    np.testing.assert_allclose(of_share(above, pi), density / (density + 1 - pi))


def test_all_rows_together_have_the_share_of_anomalies():
    even = (np.arange(1_000_000) + 0.5) / 1_000_000
    assert of_share(even).mean() == pytest.approx(SHARE, abs=1e-3)


@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("labelled", [False, True])
def test_a_curve_never_falls_and_stays_between_0_and_1(kind, labelled):
    scores = AWKWARD[kind]
    labels = np.where(np.arange(len(scores)) % 3 == 0, np.arange(len(scores)) % 2, -1) if labelled else None
    curve = Probability.fit(scores, labels).checked()
    low, high = scores.min(), scores.max()
    at = np.sort(np.concatenate([scores, np.linspace(low - 1, high + 1, 101), [-1e300, 1e300]]))
    likely = curve(at)
    assert (np.diff(likely) >= 0).all()
    assert 0 <= likely[0] <= likely[-1] <= 1


def test_what_lies_far_beyond_training_is_an_anomaly():
    scores = np.random.default_rng(0).standard_normal(2000)
    likely = Probability.fit(scores)(np.array([0.0, scores.max(), 10.0, 100.0]))
    assert likely[0] < 0.2
    assert (np.diff(likely) > 0).all()
    assert likely[-1] > 0.99


@pytest.mark.parametrize("highest", [-3.0, 0.0, 1e6])
def test_whatever_scores_higher_than_rows_that_are_all_alike_is_an_anomaly(highest):
    likely = Probability.fit(np.full(50, highest))(highest + np.array([-1.0, 0.0, 1e-3, 1.0, 1e9]))
    assert likely[0] == likely[1] == pytest.approx(of_share(np.array(0.5)))
    assert (likely[2:] > 0.99).all()


def test_many_rows_that_share_the_highest_score():
    """Of two scores the step from one to the other is the tail's median: each more of it halves the share above."""
    steps = np.array([0.0, 1.0, 2.0, 5.0, 30.0])
    likely = Probability.fit(np.repeat([3.0, 4.0], [40, 60]))(4 + steps)
    np.testing.assert_allclose(likely, of_share(0.3 * 0.5**steps), rtol=0.01)
    assert likely[-1] > 0.99


def test_two_heaps_are_calibrated():
    random = np.random.default_rng(0)
    true = random.random(20_000) < 0.2
    scores = random.standard_normal(20_000) + 4 * true
    likely = Probability.fit(scores)(scores)
    exact = 0.2 * norm.pdf(scores, 4) / (0.2 * norm.pdf(scores, 4) + 0.8 * norm.pdf(scores))
    np.testing.assert_allclose(likely, exact, atol=0.05)


def test_labels_of_all_rows_give_isotonic_regression():
    random = np.random.default_rng(1)
    scores = random.standard_normal(400)
    labels = (random.random(400) < 1 / (1 + np.exp(-3 * scores))).astype(int)
    theirs = IsotonicRegression().fit(scores, labels).predict(scores)
    ours = Probability.fit(scores, labels)(scores)
    assert np.mean(abs(ours - theirs)) < 0.03  # straight between the middles of its steps
    assert np.mean((ours - labels) ** 2) < np.mean((labels.mean() - labels) ** 2)


def test_labels_bring_probabilities_nearer_to_the_truth():
    random = np.random.default_rng(2)
    true = random.random(3000) < 0.4
    scores = random.standard_normal(3000) + 1.5 * true
    labels = np.where(np.arange(3000) < 150, true, -1)
    without, having = (np.mean((Probability.fit(scores, given)(scores) - true) ** 2) for given in (None, labels))
    assert having < 0.9 * without


@pytest.mark.parametrize("kind", [0, 1])
def test_labels_of_one_kind_only_move_a_little(kind):
    scores = np.random.default_rng(3).standard_normal(1000)
    labels = np.full(1000, -1)
    labels[np.argsort(-scores)[:5]] = kind
    change = Probability.fit(scores, labels)(scores) - Probability.fit(scores)(scores)
    assert (change[np.argsort(-scores)[:5]].mean() > 0) == (kind == 1)
    assert abs(change).mean() < 0.02


def test_unknown_labels_change_nothing():
    scores = np.random.default_rng(4).standard_normal(100)
    one, other = Probability.fit(scores), Probability.fit(scores, np.full(100, -1))
    np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize(
    "curve",
    [
        Probability(np.array([0.0, 0.0]), np.array([0.1, 0.2])),
        Probability(np.array([0.0, 1.0]), np.array([0.3, 0.2])),
        Probability(np.array([0.0, 1.0]), np.array([0.3, 1.2])),
        Probability(np.array([0.0, 1.0]), np.array([0.3])),
        Probability(np.empty(0), np.empty(0)),
    ],
)
def test_what_is_no_curve_is_refused(curve):
    with pytest.raises(ValueError, match="curve"):
        curve.checked()
