"""Thresholds by hand, and on scores that are awkward."""

import numpy as np
import pytest

from addml.decisions.decision import (
    Decision,
    TrainingScores,
    best_separation,
    budget_threshold,
    clear_threshold,
    foreign_threshold,
    quantile_threshold,
)
from addml.text import one_in


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


# auto, labels, budgets --------------------------------------------------------------------------------------

AWKWARD = {
    "constant": np.full(40, 2.5),
    "two rows": np.array([0.0, 1.0]),
    "three rows": np.array([3.0, 1.0, 2.0]),
    "nearly constant": np.append(np.zeros(99), 1.0),
    "ties": np.repeat([0.0, 1.0, 2.0], [80, 15, 5]),
    "heavy tail": np.random.default_rng(0).pareto(0.5, 500),
    "negative": -np.random.default_rng(0).lognormal(size=300),
    "tiny": 1e-300 * np.random.default_rng(0).random(50),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", AWKWARD)
def test_auto_never_flags_more_than_half(kind, compressed):
    tau = clear_threshold(np.sort(AWKWARD[kind]), compressed)
    assert np.isfinite(tau)
    assert (AWKWARD[kind] > tau).mean() <= 0.5


def test_no_row_of_equal_scores_is_flagged():
    assert not (AWKWARD["constant"] > clear_threshold(AWKWARD["constant"], True)).any()


def test_auto_flags_the_rows_far_from_an_exponential_bulk_and_no_other():
    bulk = -np.log((np.arange(1000) + 0.5) / 1000)[::-1]
    far = np.array([25.0, 30.0, 40.0])
    tau = clear_threshold(np.concatenate([bulk, far]), compressed=False)
    assert bulk[-1] <= tau < 25
    assert clear_threshold(bulk, compressed=False) > bulk[-1]  # nothing stands clear of an ordinary tail


def test_labels_of_both_kinds_decide_what_auto_takes():
    scores, labels = np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.array([0, -1, 0, 1, -1, 0, 1, 1])
    f1 = {tau: 2 * labels[scores > tau].clip(0).sum() / ((scores > tau) & (labels >= 0)).sum() for tau in (3.5, 6.5)}
    assert f1[3.5] == 1.5  # 3 hits of 4 flagged: F1 is 2 * 3 / (4 + 3), that of 6.5 is 2 * 2 / (2 + 3)
    assert best_separation(scores, labels) == 3.5
    held_out = np.zeros((1, 8), bool)
    assert TrainingScores.of(scores, held_out, labels, by_views=True).decide("auto").tau == 3.5
    assert TrainingScores.of(scores, held_out, labels.clip(max=0), by_views=True).separation is None


def test_labelled_rows_do_not_calibrate_and_without_views_only_held_out_rows_do():
    scores, labels = np.arange(6.0), np.array([0, -1, -1, -1, -1, 1])
    held_out = np.array([[False, True, False, True, False, True]])
    of = TrainingScores.of
    assert of(scores, held_out, labels, by_views=True).calibration.tolist() == [1, 2, 3, 4]
    assert of(scores, held_out, labels, by_views=False).calibration.tolist() == [1, 3]
    assert of(scores, held_out, by_views=False).calibration.tolist() == [1, 3, 5]


@pytest.mark.parametrize(("count", "flagged"), [(1, 1), (3, 3), (4, 3), (8, 8), (20, 8)])
def test_a_budget_flags_at_most_so_many(count, flagged):
    scores = np.array([5.0, 1, 2, 2, 2, 9, 7, 0])  # the fourth to the sixth are equal
    assert (scores > budget_threshold(scores, count)).sum() == flagged


def test_an_alarm_rate_that_the_rows_cannot_hold_is_refused():
    training = TrainingScores.of(np.arange(99.0), np.zeros((1, 99), bool), by_views=True)
    assert training.decide("alarm_rate", 0.01).tau == 98  # p = 1 / 100 above all
    assert training.decide("alarm_rate", 0.03).tau == 96
    with pytest.raises(ValueError, match=r"alarm_rate=0.001 flags nothing with 99 calibration rows.*1,000 rows"):
        training.decide("alarm_rate", 0.001)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision(1.0, "tau"), "as given"),
        (Decision(1.0, "quantile", 0.1), "the 10% highest-scoring training rows"),
        (Decision(1.0, "alarm_rate", 0.001), "at most 1 in 1,000 rows like the training rows"),
        (Decision(1.0, "max_false_alarms", 0.1), "at most 10% of the flagged rows are like the training rows"),
        (Decision(1.0, "flag", 20), "the 20 highest-scoring rows"),
        (Decision(1.0, "per_day", 5), "5 a day on average, the highest-scoring ones"),
        (Decision(1.0, "FILTER"), "by FILTER"),
    ],
)
def test_a_decision_says_how_it_was_made(decision, words):
    assert decision.words == decision.words_for("row") == words
    assert decision.words_for("image") == words.replace("rows", "images")


@pytest.mark.parametrize(
    ("p", "least", "words"),
    [
        (1 / 2400, 0, "1 in 2,400"),
        (1 / 1601, 1 / 1601, "fewer than 1 in 1,600"),
        (2 / 1601, 1 / 1601, "1 in 800"),
        (0.4, 0, "1 in 2"),
        (0.9, 0, "ordinary"),
    ],
)
def test_rarity_in_words(p, least, words):
    assert one_in(p, least) == words


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
