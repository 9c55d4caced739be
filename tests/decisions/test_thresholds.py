"""Thresholds by hand, against scipy's laws, and on scores that are awkward."""

import numpy as np
import pytest
from scipy.stats import expon, genpareto, norm

from addml.decisions.thresholds import (
    AUTO_SHARE,
    METHODS,
    auto_threshold,
    foreign_threshold,
    iqr_threshold,
    mad_threshold,
    pareto_tail,
    quantile_threshold,
    tail_threshold,
)


@pytest.mark.parametrize(
    ("scores", "contamination", "expected"),
    [
        ([1, 2, 3, 4], 0.25, 3.25),  # three quarters of the way from the first to the last place
        ([4, 1, 3, 2], 0.25, 3.25),
        ([1, 2, 3, 4], 0.5, 2.5),
        (range(1, 11), 0.1, 9.1),
        ([0, 10], 0.5, 5),
        ([0, 10], 0.1, 9),
        ([7, 7, 7], 0.3, 7),
        ([-4, -2, 0], 0.5, -2),
    ],
)
def test_by_hand(scores, contamination, expected):
    assert quantile_threshold(np.array(scores, float), contamination) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [10, 20, 50, 100, 1000, 49000])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5])
def test_exactly_the_share_lies_above(rows, share):
    scores = np.random.default_rng(rows).lognormal(size=rows)
    assert (scores > quantile_threshold(scores, share)).sum() == round(share * rows)


@pytest.mark.parametrize("rows", [2, 3, 7, 11, 101])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.45])
def test_a_share_that_is_no_whole_number_of_rows_is_off_by_less_than_one(rows, share):
    scores = np.random.default_rng(rows).standard_normal(rows)
    assert abs((scores > quantile_threshold(scores, share)).sum() - share * rows) < 1


def test_ties_at_the_threshold_lie_not_above():
    assert (np.repeat([1.0, 2.0], [5, 15]) > quantile_threshold(np.repeat([1.0, 2.0], [5, 15]), 0.1)).sum() == 0


# Other methods ----------------------------------------------------------------------------------------------

AWKWARD = {
    "constant": np.full(40, 2.5),
    "two rows": np.array([0.0, 1.0]),
    "three rows": np.array([3.0, 1.0, 2.0]),
    "nearly constant": np.append(np.zeros(99), 1.0),
    "ties": np.repeat([0.0, 1.0, 2.0], [80, 15, 5]),
    "heavy tail": np.random.default_rng(0).pareto(0.5, 500),
    "huge": np.random.default_rng(0).lognormal(0, 60, 200),
    "negative": -np.random.default_rng(0).lognormal(size=300),
    "tiny": 1e-300 * np.random.default_rng(0).random(50),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", AWKWARD)
def test_no_method_fails_on_awkward_scores(method, kind):
    scores = AWKWARD[kind]
    tau = METHODS[method](scores, 0.1 if method == "quantile" else None)
    assert isinstance(tau, float)
    assert np.isfinite(tau)
    assert (scores > tau).mean() <= 0.5


@pytest.mark.parametrize("method", METHODS)
def test_no_row_of_equal_scores_is_an_anomaly(method):
    assert not (AWKWARD["constant"] > METHODS[method](AWKWARD["constant"], 0.1)).any()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_follows_place_and_scale_of_the_scores(method):
    scores = np.random.default_rng(3).gamma(2.0, size=400)
    share = 0.1 if method == "quantile" else None
    assert METHODS[method](8 * scores - 3, share) == pytest.approx(8 * METHODS[method](scores, share) - 3)


def test_three_deviations_above_the_median():
    scores = norm.ppf((np.arange(10_001) + 0.5) / 10_001)
    assert mad_threshold(scores) == pytest.approx(3, rel=1e-3)


def test_the_whisker_of_a_box_plot():
    assert iqr_threshold(np.arange(101.0)) == 75 + 1.5 * 50


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.3, 0.8])
def test_the_tail_is_scipys(shape):
    peaks = genpareto.ppf((np.arange(20_000) + 0.5) / 20_000, shape, scale=2.5)
    assert pareto_tail(peaks) == pytest.approx((shape, 2.5), abs=0.01)


@pytest.mark.parametrize("alarms", [0.02, 0.01, 0.001])
def test_false_alarms_come_as_often_as_allowed(alarms):
    scores = expon.ppf((np.arange(20_000) + 0.5) / 20_000)
    assert tail_threshold(scores, alarms) == pytest.approx(-np.log(alarms), rel=0.02)


def test_anomalies_in_the_tail_hardly_move_it():
    scores = expon.ppf((np.arange(20_000) + 0.5) / 20_000)
    strange = np.append(scores, np.full(300, 40.0))  # 1.5 % of the rows, far out
    assert tail_threshold(strange, 0.001) < 2 * -np.log(0.001)  # by a fit to all peaks it would lie beyond them
    assert (strange > tail_threshold(strange, 0.001)).sum() == 300


def test_auto_splits_two_heaps_and_else_takes_a_share():
    random = np.random.default_rng(0)
    heaps = np.concatenate([random.normal(0, 1, 900), random.normal(9, 1, 100)])
    assert (heaps > auto_threshold(heaps)).sum() == 100
    one = random.standard_normal(1000)
    assert (one > auto_threshold(one)).mean() == AUTO_SHARE
    upside_down = np.concatenate([random.normal(0, 1, 100), random.normal(9, 1, 900)])
    assert (upside_down > auto_threshold(upside_down)).mean() == AUTO_SHARE  # most rows are no anomalies


# PyThresh ---------------------------------------------------------------------------------------------------


class Marks:
    """A thresholder that marks what it is told to."""

    def __init__(self, rule):
        self.rule = rule

    def eval(self, scores):
        return self.rule(scores)


@pytest.mark.parametrize(
    ("rule", "flagged"),
    [
        (lambda scores: (scores > 6.5).astype(int), 3),
        (lambda scores: np.zeros(10), 0),
        (lambda scores: np.ones(10), 10),
        (lambda scores: (scores % 5 == 1).astype(int), 2),  # does not follow the scores: as many, the highest ones
        (lambda scores: scores.sort() or np.ones(10), 10),  # what it does to the scores is its own affair
    ],
)
def test_a_thresholder_of_somebody_else(rule, flagged, caplog):
    scores = np.arange(10.0)[::-1].copy()
    assert (scores > foreign_threshold(scores, Marks(rule))).sum() == flagged
    np.testing.assert_array_equal(scores, np.arange(10.0)[::-1])
    assert not caplog.records


@pytest.mark.parametrize("rule", [lambda scores: 1 / 0, lambda scores: np.ones(3), lambda scores: None], ids=range(3))
def test_a_thresholder_that_fails_marks_none_and_that_is_said(rule, caplog):
    scores = np.arange(10.0)
    assert foreign_threshold(scores, Marks(rule)) == 9
    assert [record.getMessage()[:12] for record in caplog.records] == ["Marks failed"]


def test_objects_of_pythresh():
    thresholds = pytest.importorskip("pythresh.thresholds.iqr")
    scores = np.random.default_rng(0).lognormal(size=200)
    expected = thresholds.IQR().eval(scores)
    np.testing.assert_array_equal(scores > foreign_threshold(scores, thresholds.IQR()), expected == 1)
