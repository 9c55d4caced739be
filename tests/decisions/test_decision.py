"""Decisions: stability against brute resampling, the best expected F1 against all cuts."""

import numpy as np
import pytest

from addml.decisions.decision import Decision, TrainingScores, best_expected
from addml.decisions.thresholds import quantile_threshold


def resampled(scores, training, share, rounds=4000):
    """How often rows are anomalies by thresholds of rows drawn again."""
    random = np.random.default_rng(0)
    taus = [quantile_threshold(random.choice(training, len(training)), share) for _ in range(rounds)]
    return (scores[:, None] > np.array(taus)).mean(axis=1)


@pytest.mark.parametrize(("rows", "share"), [(60, 0.1), (200, 0.1), (200, 0.4), (1000, 0.02)])
def test_stability_is_what_resampling_gives(rows, share):
    training = np.sort(np.random.default_rng(rows).standard_normal(rows))
    tau, scores = quantile_threshold(training, share), np.linspace(-1, 3, 81)
    often = resampled(scores, training, share)
    expected = np.where(scores > tau, often, 1 - often)
    found = TrainingScores(training).stability(scores, tau)
    assert abs(found - expected).max() < 0.25  # between two rows of a small sample
    assert abs(found - expected).mean() < 0.03


def test_far_from_the_threshold_decisions_are_sure_and_near_it_they_are_not():
    training = np.sort(np.random.default_rng(0).standard_normal(500))
    tau = quantile_threshold(training, 0.1)
    near, below, above = TrainingScores(training).stability(np.array([tau, -2.0, 9.0]), tau)
    assert 0.3 < near < 0.7
    assert min(below, above) > 0.99


@pytest.mark.parametrize("flagged", [0, 1, 2])
def test_far_above_all_training_rows_decisions_are_sure_however_few_of_those_are_flagged(flagged):
    training = np.sort(np.random.default_rng(0).standard_normal(500))
    tau = training[-1 - flagged]
    sure = TrainingScores(training).stability(training[-1] + np.array([1e-9, 0.1, 0.5, 2.0, 9.0, 1e9]), tau)
    assert (np.diff(sure) > 0).sum() >= 4
    assert (np.diff(sure) >= 0).all()
    assert sure[0] < 0.9
    assert sure[-2] > 0.9
    assert sure[-1] > 0.999


def test_a_threshold_above_all_training_rows_divides_what_lies_above_them():
    training = np.sort(np.random.default_rng(0).standard_normal(500))
    below, above, far = TrainingScores(training).stability(np.array([4.0, 6.1, 20.0]), 6.0)
    assert 0.5 < below < 1  # a decision that it is normal
    assert above < 0.6
    assert far > 0.95


def test_what_scores_above_rows_that_are_all_alike_is_an_anomaly_for_sure():
    same, higher = TrainingScores(np.zeros(50)).stability(np.array([0.0, 1.0]), 0.0)
    assert same > 0.5
    assert higher > 0.99


@pytest.mark.parametrize("tau", [-1e9, 1e9, 0.0])
def test_stability_of_any_threshold_lies_between_0_and_1(tau):
    training = np.repeat([0.0, 1.0], 10)
    sure = TrainingScores(training).stability(np.array([-5.0, 0.0, 0.5, 1.0, 7.0]), tau)
    assert ((sure >= 0) & (sure <= 1)).all()


@pytest.mark.parametrize("most", [0, 10**6])
def test_stability_is_the_binomial_law_whether_it_is_remembered_or_not(most, monkeypatch):
    from scipy.stats import binom

    monkeypatch.setattr("addml.decisions.decision.MOST_REMEMBERED", most)
    random = np.random.default_rng(1)
    training, tau = np.sort(random.standard_normal(300)), 1.0
    flagged = (training > tau).sum()
    for scores in (random.standard_normal(400), random.standard_normal(7)):  # of the second most are known by then
        share = ((training > scores[:, None]).sum(axis=1) + 1) / 302
        often = (binom.cdf(flagged - 1, 300, share) + binom.cdf(flagged, 300, share)) / 2
        found = TrainingScores(training).stability(scores, tau)
        assert found == pytest.approx(np.where(scores > tau, often, 1 - often), abs=1e-12)


def test_the_best_expected_f1_against_all_cuts():
    random = np.random.default_rng(0)
    scores = random.standard_normal(300).round(1)  # with ties
    likely = 1 / (1 + np.exp(2 - 2 * scores))
    expected = {tau: 2 * likely[scores > tau].sum() / ((scores > tau).sum() + likely.sum()) for tau in scores}
    best = best_expected(scores, likely)
    assert 2 * likely[scores > best].sum() / ((scores > best).sum() + likely.sum()) == pytest.approx(
        max(expected.values())
    )


def test_labels_of_both_kinds_decide_what_auto_takes():
    random = np.random.default_rng(0)
    true = random.random(2000) < 0.4
    scores = random.standard_normal(2000) + 2.5 * true
    labels = np.where(np.arange(2000) < 200, true, -1)

    def f1(tau):
        return 2 * ((scores > tau) & true).sum() / ((scores > tau).sum() + true.sum())

    assert f1(TrainingScores(scores, labels).decide("auto").tau) > 0.97 * max(map(f1, scores))
    assert TrainingScores(scores, np.where(labels == 1, 1, -1)).labelled is False


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision(1.0, "tau"), "as given"),
        (Decision(1.0, "quantile", 0.1), "by the share 0.1 of the training rows"),
        (Decision(1.0, "tail", 0.01), "by the tail of the scores for 0.01 false alarms"),
        (Decision(1.0, "auto"), "by what the scores themselves tell (auto)"),
        (Decision(1.0, "FILTER"), "by FILTER"),
    ],
)
def test_a_decision_says_how_it_was_made(decision, words):
    assert decision.words == words
