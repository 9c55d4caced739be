"""Windows are views, one a step, and never reach from one series into another."""

import numpy as np
import pytest

from addml.inputs.series import Windows, over_windows, smoothed


def by_hand(series, window):
    """Every window copied out step by step."""
    backs = list(reversed(range(window)))
    return np.array([[one[max(0, end - back)] for back in backs] for one in series for end in range(len(one))])


def random_series(*lengths, channels=2):
    return [np.random.default_rng(n).standard_normal((n, channels)) for n in lengths]


@pytest.mark.parametrize("lengths", [(7,), (7, 3, 1), (2, 9)])
def test_every_step_has_the_window_of_its_past(lengths):
    series = random_series(*lengths)
    windows = Windows.of(series, 4)
    expected = by_hand(series, 4)
    np.testing.assert_array_equal(windows[:], expected)
    np.testing.assert_array_equal(windows[np.array([0, len(windows) - 1])], expected[[0, -1]])
    np.testing.assert_array_equal(windows[1:4], expected[1:4])
    np.testing.assert_array_equal(windows.steps, np.concatenate(series))
    assert windows.shape == (sum(lengths), 4, 2)


def test_the_windows_of_one_series_share_its_memory():
    windows = Windows.of(random_series(1000), 50)
    assert np.shares_memory(windows[10:900], windows.values)
    assert windows.values.nbytes < 1.1 * 1000 * 2 * 8


def test_whole_windows_are_those_without_filling():
    windows = Windows.of(random_series(6, 2, 9), 4)
    assert windows.whole(1).tolist() == [3, 4, 5, *range(11, 17)]
    assert windows.whole(2).tolist() == [3, 5, 11, 13, 15]
    assert np.flatnonzero(windows.is_whole).tolist() == windows.whole(1).tolist()


def test_steps_that_were_not_given_are_in_windows_and_have_none():
    series = [np.arange(5.0)[:, None]]
    windows = Windows.of(series, 3, [np.array([True, False, True, True, False])])
    assert windows[:][..., 0].tolist() == [[0, 0, 0], [0, 1, 2], [1, 2, 3]]


def over(row, steps, which, step, window):
    """The mean of the scores of a step's windows: those that begin in the series, or all where none of them does."""
    ends = [k for k, (series, end) in enumerate(steps) if series == which and 0 <= end - step < window]
    complete = [k for k in ends if steps[k][1] - window + 1 >= 0]
    return np.mean([row[k] for k in complete or ends])


@pytest.mark.parametrize("original", [None, [0, 1, 3, 4, 8, 9], [0, 1, 2, 8, 9]])
@pytest.mark.parametrize("second", [6, 4, 3, 1])
def test_a_step_takes_the_mean_of_the_whole_windows_it_lies_in(original, second):
    series, window = random_series(10, second), 4
    masks = [np.ones(10, bool), np.ones(second, bool)]
    if original is not None:
        masks[0] = np.isin(np.arange(10), original)
    windows = Windows.of(series, window, masks)
    scores = np.random.default_rng(0).standard_normal((2, len(windows)))
    steps = [(0, end) for end in np.flatnonzero(masks[0])] + [(1, end) for end in range(second)]
    expected = [[over(row, steps, which, step, window) for which, step in steps] for row in scores]
    np.testing.assert_allclose(over_windows(scores, windows), expected, rtol=1e-12)


def test_the_first_steps_take_the_first_whole_window_and_what_is_filled_up_counts_nowhere():
    windows = Windows.of([np.arange(5.0)[:, None]], 3)
    scores = np.array([[1000.0, 100, 3, 5, 10]])
    np.testing.assert_allclose(over_windows(scores, windows), [[3, 4, 6, 7.5, 10]])
    short = Windows.of([np.arange(2.0)[:, None]], 3)
    np.testing.assert_allclose(over_windows(np.array([[1000.0, 100]]), short), [[550, 100]])


@pytest.mark.parametrize(("window", "steps", "half"), [(4, 5, 2), (4, 4, 2), (2, 5, 1), (1, 5, 0), (4, 1, 0)])
def test_smoothed_scores_are_centred_means_within_a_series(window, steps, half):
    series = random_series(7, 3, 1)
    windows = Windows.of(series, window)
    scores, expected = np.random.default_rng(1).standard_normal(11), []
    for part in np.split(scores, [7, 10]):
        expected += [part[max(0, step - half) : step + half + 1].mean() for step in range(len(part))]
    np.testing.assert_allclose(smoothed(scores, windows, steps), expected)
    around = [scores[windows.around(step, steps)].mean() for step in range(11)]
    np.testing.assert_allclose(around, expected)


def test_steps_that_were_filled_in_are_not_averaged():
    mask = np.array([True, True, False, False, True, True])
    windows = Windows.of(random_series(6), 4, [mask])
    np.testing.assert_allclose(smoothed(np.array([0.0, 2, 4, 6]), windows, 5), [1, 1, 5, 5])
