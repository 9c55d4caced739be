"""Several members' scores as one, by hand."""

import math

import numpy as np
import pytest

from addml.scoring.members import MemberScale

E = math.e


def test_two_members_by_hand():
    training = np.array([[1, E, E**2], [E, E**5, E**3]])  # logarithms 0 1 2 and 1 5 3
    scale = MemberScale.fit(training)
    np.testing.assert_allclose(scale.mean, [[1], [3]])
    np.testing.assert_allclose(scale.deviation, [[math.sqrt(2 / 3)], [math.sqrt(8 / 3)]])
    np.testing.assert_allclose(scale.floor, [[1e-12 * E], [1e-12 * E**3]])
    # (0 - 1) / sqrt(2/3) and (1 - 3) / sqrt(8/3) are both -sqrt(3/2), and so on
    root = math.sqrt(3 / 2)
    np.testing.assert_allclose(scale.combine(training), [-root, root / 2, root / 2], atol=1e-12)
    np.testing.assert_allclose(scale.combine(np.array([[E**3], [E**3]])), [root])


def test_a_single_members_score_stays_untouched():
    scores = np.array([[3.0, 0.0, 7.5]])
    np.testing.assert_array_equal(MemberScale.fit(scores).combine(scores), scores[0])


def test_a_score_of_zero_counts_as_a_millionth_of_a_millionth_of_the_median():
    training = np.array([[0.0, 2.0, 2.0, 2.0], [1.0, 2.0, 4.0, 8.0]])
    scale = MemberScale.fit(training)
    assert scale.floor[0, 0] == pytest.approx(2e-12)
    logs = np.log([2e-12, 2, 2, 2])
    assert scale.mean[0, 0] == pytest.approx(logs.mean())
    assert scale.deviation[0, 0] == pytest.approx(logs.std())
    np.testing.assert_array_equal(scale.combine(np.array([[0.0], [1.0]])), scale.combine(np.array([[1e-30], [1.0]])))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 1e-300, 1e30])
@pytest.mark.parametrize("rows", [2, 3, 7, 30, 1000])
def test_equal_scores_of_a_member_count_for_nothing(value, rows):
    """Not even their rounding: the mean of equal logarithms may differ from them in the last place."""
    varied = np.linspace(1, 2, rows)
    scale = MemberScale.fit(np.stack([np.full(rows, value), varied]))
    assert scale.deviation[0, 0] == 1
    logs = np.log(varied)
    expected = (logs - logs.mean()) / logs.std() / 2
    np.testing.assert_allclose(scale.combine(np.stack([np.full(rows, value), varied])), expected, atol=1e-9)


@pytest.mark.parametrize("members", [2, 5, 8, 9, 17, 40])
def test_a_row_alone_has_the_bits_it_has_among_others(members):
    scores = np.random.default_rng(0).lognormal(size=(members, 200))
    scale = MemberScale.fit(scores)
    whole = scale.combine(scores)
    for row in range(200):
        assert scale.combine(scores[:, row : row + 1])[0] == whole[row]
    np.testing.assert_array_equal(scale.combine(scores[:, 3:12]), whole[3:12])


def test_the_given_scores_are_not_changed():
    scores = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]])
    scores.setflags(write=False)
    MemberScale.fit(scores).combine(scores)
