"""Two normal laws: against scikit-learn's mixture and by hand."""

import numpy as np
import pytest
from scipy.stats import norm

from addml.decisions.mixture import TwoNormals


def two_laws(share=0.2, apart=6.0, rows=4000, seed=0):
    random = np.random.default_rng(seed)
    upper = random.random(rows) < share
    return random.standard_normal(rows) + apart * upper


def test_two_laws_are_found_as_scikit_learn_finds_them():
    from sklearn.mixture import GaussianMixture

    scores = two_laws()
    found, theirs = TwoNormals.fit(scores), GaussianMixture(2, tol=1e-8, max_iter=500, random_state=0)
    theirs.fit(scores[:, None])
    order = np.argsort(theirs.means_.ravel())
    np.testing.assert_allclose(found.mean, theirs.means_.ravel()[order], atol=1e-3)
    np.testing.assert_allclose(found.weight, theirs.weights_[order], atol=1e-3)
    np.testing.assert_allclose(found.deviation**2, theirs.covariances_.ravel()[order], atol=5e-3)


@pytest.mark.parametrize(
    ("weight", "mean", "deviation", "crossing"),
    [
        ((0.5, 0.5), (0.0, 4.0), (1.0, 1.0), 2.0),
        ((0.9, 0.1), (0.0, 4.0), (1.0, 1.0), 2 + np.log(9) / 4),  # equal deviations: the line moves by the odds
        ((0.5, 0.5), (-1.0, 3.0), (2.0, 2.0), 1.0),
    ],
)
def test_the_crossing_by_hand(weight, mean, deviation, crossing):
    laws = TwoNormals(np.array(weight), np.array(mean), np.array(deviation))
    assert laws.crossing == pytest.approx(crossing, abs=1e-6)


@pytest.mark.parametrize("deviation", [(1.0, 0.3), (0.3, 1.0), (1.0, 3.0)])
def test_both_laws_are_as_likely_at_the_crossing(deviation):
    laws = TwoNormals(np.array([0.8, 0.2]), np.array([0.0, 5.0]), np.array(deviation))
    at = laws.crossing
    lower, upper = (w * norm.pdf(at, m, s) for w, m, s in zip(laws.weight, laws.mean, laws.deviation, strict=True))
    assert lower == pytest.approx(upper, rel=1e-6)
    assert 0 < at < 5


def test_one_law_is_not_taken_for_two():
    assert TwoNormals.fit(np.random.default_rng(1).standard_normal(2000)) is None


@pytest.mark.parametrize("scores", [np.ones(50), np.arange(5.0), np.array([1.0, 2.0]), np.full(1000, -3.5)])
def test_constant_or_few_scores_have_no_two_laws(scores):
    assert TwoNormals.fit(scores) is None


def test_two_heaps_are_told_from_a_long_tail():
    assert TwoNormals.fit(two_laws()).apart
    tail = TwoNormals.fit(np.random.default_rng(0).exponential(size=2000))
    assert tail is not None
    assert not tail.apart


def test_scale_and_place_do_not_matter():
    scores = two_laws(rows=500)
    one, other = TwoNormals.fit(scores), TwoNormals.fit(1e6 * scores - 5e7)
    assert other.crossing == pytest.approx(1e6 * one.crossing - 5e7, rel=1e-6)


def test_many_scores_take_no_longer_than_some():
    found = TwoNormals.fit(two_laws(rows=1_000_000))
    np.testing.assert_allclose(found.mean, [0, 6], atol=0.05)
    np.testing.assert_allclose(found.weight, [0.8, 0.2], atol=0.01)


def test_the_upper_law_may_be_bounded():
    """A narrow heap of copies, the other ordinary rows, the anomalies: the likeliest pair parts the first off."""
    random = np.random.default_rng(0)
    parts = random.normal(-1.0, 0.05, 280), random.normal(-0.4, 0.35, 160), random.normal(1.1, 0.25, 240)
    scores = np.concatenate(parts)
    likeliest, bounded = TwoNormals.fit(scores), TwoNormals.fit(scores, most=0.5)
    assert likeliest.weight[1] > 0.5
    np.testing.assert_allclose(bounded.weight[1], 240 / 680, atol=0.03)
    np.testing.assert_allclose(bounded.mean[1], 1.1, atol=0.05)
    assert TwoNormals.fit(scores, most=0.01) is None
