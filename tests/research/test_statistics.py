"""Ranks and tests against scipy, published critical values and values worked out by hand."""

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, spearmanr, wilcoxon

from addml.pipeline.ranking import rank_correlation
from research.statistics import Ranking, critical_difference, duels, holm, rank, ranks

# Four methods on fourteen sets, with ties of two and of all.
SCORES = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.975, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)
NAMES = ("a", "b", "c", "d")


def test_ranks_friedman_and_critical_difference():
    found = rank(NAMES, SCORES)
    assert found.mean_ranks == pytest.approx([44 / 14, 28 / 14, 41 / 14, 27 / 14])  # added up by hand
    assert found.critical_difference == pytest.approx(2.569 * (4 * 5 / (6 * 14)) ** 0.5, abs=0.001)
    assert found.chi2 == pytest.approx(friedmanchisquare(*SCORES.T).statistic)
    assert found.p == pytest.approx(friedmanchisquare(*SCORES.T).pvalue)


def test_ties_share_the_mean_of_their_ranks():
    assert ranks(np.array([[90.0, 90, 80, 95]])).tolist() == [[2.5, 2.5, 4, 1]]
    assert ranks(np.array([[1.0, 1, 1]])).tolist() == [[2, 2, 2]]


def test_friedman_by_hand():
    # Two sets on which three methods rank 1, 2, 3 both times: 12 / (2 * 3 * 4) * (2² + 4² + 6²) - 3 * 2 * 4 = 4.
    found = rank(("a", "b", "c"), np.array([[3.0, 2, 1], [30, 20, 10]]))
    assert found.mean_ranks == (1, 2, 3)
    assert found.chi2 == pytest.approx(4)
    assert found.p == pytest.approx(np.exp(-2))  # of chi2 with two degrees of freedom


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (8, 3.031), (10, 3.164)])
def test_critical_values_of_nemenyi(k, q):
    assert critical_difference(k, 12) == pytest.approx(q * (k * (k + 1) / 72) ** 0.5, abs=0.001)


def test_groups_that_are_not_told_apart():
    ranking = Ranking(("a", "b", "c", "d"), 10, (1.0, 3.6, 2.0, 3.0), 1.0, 0.1, 1.2)
    assert ranking.groups() == [("a", "c"), ("c", "d"), ("d", "b")]
    assert Ranking(("a", "b"), 10, (1.0, 2.0), 1.0, 0.1, 0.5).groups() == []
    assert Ranking(("a", "b", "c"), 10, (1.0, 1.5, 2.0), 1.0, 0.1, 3).groups() == [("a", "b", "c")]


def test_too_few_sets_or_methods_are_not_ranked():
    assert rank(("a", "b", "c"), np.ones((1, 3))) is None
    assert rank(("a", "b"), np.ones((5, 2))) is None


def test_equal_methods_do_not_differ():
    found = rank(("a", "b", "c"), np.ones((5, 3)))
    assert (found.chi2, found.p) == (0, 1)


def test_duels_count_and_test():
    found = {one.method: one for one in duels(NAMES, SCORES, "d")}
    assert set(found) == {"a", "b", "c"}
    gap = SCORES[:, 3] - SCORES[:, 0]
    assert (found["a"].wins, found["a"].losses) == (11, 2)
    assert found["a"].difference == pytest.approx(gap.mean())
    plain = [float(wilcoxon(SCORES[:, 3] - SCORES[:, place]).pvalue) for place in range(3)]
    assert found["a"].p == pytest.approx(holm(plain)[0])


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_rank_correlation_is_spearmans():
    random = np.random.default_rng(0)
    one, other = random.integers(0, 20, (2, 50)) / 7.0  # with ties
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation(one, np.exp(one)) == pytest.approx(1)
    assert rank_correlation(one, -one) == pytest.approx(-1)


def test_lists_in_which_all_are_tied():
    tied, other = np.ones(4), np.arange(4.0)
    assert rank_correlation(tied, tied + 1) == 1
    assert rank_correlation(tied, other) == 0
