"""The threshold by hand."""

import numpy as np
import pytest

from addml.scoring.thresholds import quantile_threshold


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
