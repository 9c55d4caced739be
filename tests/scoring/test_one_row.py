"""One row combined in plain numbers is one of many, to the last bit."""

import numpy as np
import pytest

from addml.scoring.scale import MemberScale, ViewScale


@pytest.mark.parametrize("kind", [MemberScale, ViewScale])
@pytest.mark.parametrize("rows", [1, 4, 7, 16])
def test_one_row_is_combined_as_among_others(kind, rows):
    random = np.random.default_rng(0)
    scores = np.exp(3 * random.standard_normal((rows, 500)))
    scale = kind.fit(scores[:, :200])
    expected = scale.combine(scores)
    np.testing.assert_array_equal([scale.combine_one(row) for row in scores.T], expected)
