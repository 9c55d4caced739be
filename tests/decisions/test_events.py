"""Events: how flagged steps are joined, and thresholds by the tail of the training peaks or by a number of events."""

import numpy as np
import pytest

from addml.decisions.events import Event, event_budget_threshold, event_figures, events, peaks, tail_threshold

SCORES = np.array([0, 5, 7, 6, 0, 0, 9, 0, 5.0])


def test_flagged_steps_in_a_row_are_one_event():
    assert events(SCORES, 4) == [Event(6, 7, 6), Event(1, 4, 2), Event(8, 9, 8)]
    assert events(SCORES, 9) == []
    found = [Event(6, 7, 6), Event(2, 4, 2), Event(1, 2, 1), Event(8, 9, 8)]
    assert events(SCORES, 4, begins=[0, 2, 5, 8]) == found


def test_steps_within_a_window_are_joined_and_short_events_are_none():
    assert events(SCORES, 4, window=2) == [Event(6, 9, 6), Event(1, 4, 2)]
    assert events(SCORES, 4, window=3) == [Event(1, 9, 6)]
    assert events(SCORES, 4, begins=[0, 5], window=3) == [Event(6, 9, 6), Event(1, 4, 2)]
    assert events(SCORES, 4, shortest=2) == [Event(1, 4, 2)]


def test_peaks_are_those_of_windows_and_of_each_series():
    assert peaks(SCORES, 4).tolist() == [5, 7, 9]
    assert peaks(SCORES, 4, begins=[0, 7]).tolist() == [0, 5, 7, 9]


def test_the_tail_of_exponential_peaks_is_found_and_anomalies_hardly_move_it():
    ordered = -np.log1p(-(np.arange(5000) + 0.5) / 5000)  # quantiles of an exponential law: 1 in 1,000 above log(1000)
    assert tail_threshold(ordered, 1 / 1000) == pytest.approx(np.log(1000), rel=0.01)
    polluted = np.append(ordered[:-100], np.full(100, 1e6))  # 2% of the windows
    assert tail_threshold(polluted, 1 / 1000) < 1.2 * np.log(1000)
    assert tail_threshold(np.ones(9)) == 1


def test_few_excesses_are_extrapolated_with_more_caution():
    few = np.append(np.zeros(9), np.arange(1, 10))  # nine excesses over the middle, 0.5, with the median 4.5
    growth = 9 * ((0.5 / 0.001) ** (1 / 9) - 1)
    assert tail_threshold(few, 1 / 1000) == pytest.approx(0.5 + 4.5 / np.log(2) * growth)


def test_two_anomalies_in_a_short_series_do_not_hide_themselves():
    ordered = np.append(np.linspace(0.4, 0.8, 54), [3.1, 3.4, 3.6, 3.7, 3.8, 4.1])
    assert 0.8 < tail_threshold(ordered) < 4.1


@pytest.mark.parametrize("windows", [20, 50, 400])
def test_the_next_peak_of_few_exceeds_the_threshold_hardly_more_often_than_of_many(windows):
    random, draws = np.random.default_rng(0), 4000
    peaks_of = np.sort(random.exponential(size=(draws, windows)), axis=1)
    tau = np.array([tail_threshold(ordered, 1 / 100) for ordered in peaks_of])
    # the chance of an exponential peak above each threshold; the median of ten excesses is a rough rate
    assert np.exp(-tau).mean() <= 1.7 / 100
    assert np.exp(-tau).mean() >= 1 / 400


@pytest.mark.parametrize("kind", ["normal", "exponential", "standard_t"])
def test_clean_steps_have_at_most_one_event_in_a_thousand_windows(kind):
    random = np.random.default_rng(0)
    draw = getattr(random, kind) if kind != "standard_t" else lambda size: random.standard_t(5, size)
    train, clean = (np.convolve(draw(size=windows * 16), np.ones(8) / 8, "same") for windows in (1000, 10_000))
    found = events(clean, tail_threshold(peaks(train, 16)), window=16)
    assert len(found) <= 10


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_a_budget_of_events(count):
    scores = np.convolve(np.random.default_rng(1).standard_normal(4000), np.ones(5), "same")
    found = events(scores, event_budget_threshold(scores, count, window=10), window=10)
    assert count - 2 <= len(found) <= count
    assert found[0].peak == scores.argmax()


def test_a_budget_of_more_events_than_there_can_be_is_no_single_event_of_all_steps():
    scores = np.convolve(np.random.default_rng(1).standard_normal(4000), np.ones(5), "same")
    found = events(scores, event_budget_threshold(scores, 300, window=10), window=10)
    most = max(len(events(scores, tau, window=10)) for tau in np.quantile(scores, np.linspace(0.2, 1, 200)))
    assert 0.9 * most <= len(found) <= 300


def test_events_against_labels():
    labels = np.zeros(100, int)
    labels[10:20] = labels[40:50] = labels[70:80] = 1
    labels[90:] = -1
    found = [Event(43, 60, 45), Event(25, 28, 26), Event(5, 12, 11), Event(92, 95, 93)]
    assert event_figures(found, labels) == {"labelled": 3, "found": 2, "false": 1, "delay": 1.5, "true_of_first": 2}
    assert event_figures([], labels)["delay"] is None
