"""One row combined in plain numbers is one of many, to the last bit."""

import numpy as np
import pytest

from addml.scoring.members import MemberScale


@pytest.mark.parametrize("view", [np.zeros(1, int), np.zeros(7, int), np.array([0, 1, 2, 0, 1, 2, 3, 4, 5])])
def test_one_row_is_combined_as_among_others(view):
    random = np.random.default_rng(0)
    scores = np.exp(3 * random.standard_normal((len(view), 500)))
    scale = MemberScale.fit(scores[:, :200], view)
    expected = scale.combine(scores)
    np.testing.assert_array_equal([scale.combine_one(row) for row in scores.T], expected)
