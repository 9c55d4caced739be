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


def test_what_is_usual_is_neither_high_nor_low():
    scale = MemberScale.fit(np.array([[1, E, E**2], [E, E**5, E**3]]))
    np.testing.assert_allclose(scale.usual, [[E], [E**3]])
    np.testing.assert_allclose(scale.combine(scale.usual), [0], atol=1e-12)


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


# Views ------------------------------------------------------------------------------------------------------

VIEW = np.array([0, 1, 0, 1, 2])  # two members with two views each, and one view of the rows themselves


def doubt_by_hand(standardised):
    """Four times 1 / reliability - 1 of the mean of k members, by Spearman and Brown from what their pairs share."""
    k = len(standardised)
    pairs = [np.mean(standardised[a] * standardised[b]) for a in range(k) for b in range(a)]
    if not pairs:
        return 0.0
    correlation = max(np.mean(pairs), 0)
    return 4 * (1 / max(k * correlation / (1 + (k - 1) * correlation), 0.02) - 1)


def views_by_hand(training, scores, view, floor=1e-12):
    """Each view's mean of standardised logarithms, from its median in 1.28ths of its upper tenth, and its doubt."""
    seen, doubts = [], []
    for one in sorted(set(view.tolist())):
        members = np.flatnonzero(view == one)
        lowest = [floor * np.median(training[row]) for row in members]
        learnt = [np.log(np.maximum(training[row], low)) for row, low in zip(members, lowest, strict=True)]
        met = [np.log(np.maximum(scores[row], low)) for row, low in zip(members, lowest, strict=True)]
        known = [(logs - logs.mean()) / logs.std() for logs in learnt]
        new = sum((logs - own.mean()) / own.std() for logs, own in zip(met, learnt, strict=True)) / len(members)
        doubts.append(doubt_by_hand(known))
        middle, upper = np.median(sum(known) / len(known)), np.quantile(sum(known) / len(known), 0.9)
        seen.append((new - middle) / ((upper - middle) / 1.2815515655446004))
    return np.array(seen), np.array(doubts)


def lognormal(random, rows, agreement, noise=VIEW * 0 + 1.0):
    """Scores (5, rows) whose logarithms share so much."""
    common, own = random.standard_normal(rows), random.standard_normal((5, rows))
    return np.exp(agreement * common + noise[:, None] * own)


@pytest.mark.parametrize("floor", [1e-12, 1e-3, 0.9])
@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("agreement", [0, 1, 3])
def test_of_several_views_the_one_that_finds_a_row_strangest_counts(floor, rows, agreement):
    random = np.random.default_rng(0)
    training, scores = lognormal(random, 200, agreement), lognormal(random, rows, agreement)
    scale = MemberScale.fit(training, VIEW, floor)
    seen, doubts = views_by_hand(training, scores, VIEW, floor)
    np.testing.assert_allclose(scale.combine(scores), (seen - (doubts - doubts.min())[:, None]).max(axis=0))
    assert scale.middle.shape == scale.reach.shape == (3, 1)
    np.testing.assert_array_equal(scale.view, VIEW)


def test_a_view_whose_members_contradict_each_other_is_hardly_heard():
    random = np.random.default_rng(0)
    noise = np.where(VIEW == 1, 9.0, 0.1)
    training = lognormal(random, 500, 1, noise)
    _, doubts = views_by_hand(training, training, VIEW)
    assert doubts[0] < 0.08
    assert doubts[1] > 36
    assert doubts[2] == 0  # nobody contradicts one alone
    heard = MemberScale.fit(training[[0, 2, 4]], np.array([0, 0, 1])).combine(training[[0, 2, 4]])
    every = MemberScale.fit(training, VIEW).combine(training)
    np.testing.assert_allclose(every, heard)


def test_views_doubted_alike_are_heard_alike():
    """What counts is how much more one is doubted than the least doubted one."""
    random = np.random.default_rng(0)
    training, view = np.exp(random.standard_normal((4, 300)) + random.standard_normal(300)), np.array([0, 0, 1, 1])
    seen, doubts = views_by_hand(training, training, view)
    assert doubts.min() > 0.8
    np.testing.assert_allclose(
        MemberScale.fit(training, view).combine(training), (seen - (doubts - doubts.min())[:, None]).max(axis=0)
    )


def test_three_views_by_hand():
    powers = np.arange(11.0)  # logarithms with mean 5, median 5 and 90 % quantile 9
    scale = MemberScale.fit(np.exp([powers, 10 - powers, 2 * powers]), np.arange(3))
    deviation = powers.std()
    np.testing.assert_allclose(scale.middle, 0, atol=1e-12)
    np.testing.assert_allclose(scale.reach, 4 / deviation / 1.2815515655446004)
    unit = 4 / 1.2815515655446004
    np.testing.assert_allclose(scale.combine(np.exp([[5.0], [5.0], [10.0]])), 0, atol=1e-9)
    np.testing.assert_allclose(scale.combine(np.exp([[9.0], [1.0], [0.0]])), 4 / unit)
    np.testing.assert_allclose(scale.combine(np.exp([[-5.0], [7.0], [4.0]])), 2 / unit)
    np.testing.assert_allclose(scale.combine(np.exp([[5.0], [5.0], [40.0]])), 15 / unit)  # 30 above, in steps of 2


def test_members_of_one_view_are_averaged_as_ever():
    scores = np.random.default_rng(0).lognormal(size=(4, 50))
    np.testing.assert_array_equal(
        MemberScale.fit(scores).combine(scores), MemberScale.fit(scores, np.zeros(4, np.int64)).combine(scores)
    )


def test_every_view_calls_a_tenth_of_the_training_rows_strange():
    """Whatever its scale and shape: nobody's upper tenth is heard over the others'."""
    random = np.random.default_rng(0)
    training = np.stack([random.lognormal(0, 3, 1000), 5 + random.random(1000), 1e9 * random.gamma(0.3, size=1000)])
    for one in range(3):
        scale = MemberScale.fit(training, np.arange(3))
        ordinary = np.median(training, axis=1, keepdims=True).repeat(1000, axis=1)
        ordinary[one] = training[one]
        assert (scale.combine(ordinary) > 1.2815515655446004).sum() == 100


@pytest.mark.parametrize("ties", [0.5, 0.95, 0.999])
def test_a_view_whose_upper_tenth_is_its_median_is_measured_by_its_deviation(ties):
    random = np.random.default_rng(0)
    few = np.where(np.arange(1000) < 1000 * ties, 1.0, 1 + random.random(1000))
    scale = MemberScale.fit(np.stack([random.lognormal(size=1000), few]), np.arange(2))
    logs = np.log(few)
    seen = (logs - logs.mean()) / logs.std()
    tied = np.quantile(seen, 0.9) - np.median(seen) < 1e-9
    assert tied == (ties >= 0.9)
    if tied:
        np.testing.assert_allclose(scale.reach[1], 1)
        np.testing.assert_allclose(scale.combine(np.array([[1e-9], [few.max()]])), seen.max() - np.median(seen))


@pytest.mark.parametrize("value", [0.0, 1e-300, 0.3, 1e30])
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_a_view_of_equal_scores_finds_no_training_row_strange(value, rows):
    varied = np.linspace(1, 2, rows)
    training = np.stack([np.full(rows, value), varied])
    scale = MemberScale.fit(training, np.arange(2))
    assert scale.reach[0, 0] == 1
    alone = MemberScale.fit(np.stack([varied, varied]), np.arange(2)).combine(np.stack([varied, varied]))
    np.testing.assert_allclose(scale.combine(training), np.maximum(alone, 0), atol=1e-9)


def test_scores_of_zero_are_a_thousandth_of_the_median_where_the_floor_says_so():
    training = np.stack([[0.0, 2.0, 2.0, 2.0, 9.0], [1.0, 2.0, 4.0, 8.0, 9.0]])
    scale = MemberScale.fit(training, np.arange(2), 1e-3)
    np.testing.assert_allclose(scale.floor, [[2e-3], [4e-3]])
    np.testing.assert_array_equal(scale.combine(np.zeros((2, 1))), scale.combine(np.full((2, 1), 1e-3)))


def test_where_most_scores_are_zero_the_mean_stands_for_the_median():
    training = np.stack([np.repeat([0.0, 1.0], [8, 2]), np.linspace(1, 2, 10)])
    scale = MemberScale.fit(training, np.arange(2), 1e-3)
    np.testing.assert_allclose(scale.floor[0], 1e-3 * 0.2)
    assert np.isfinite(scale.combine(training)).all()


@pytest.mark.parametrize("members", [1, 5, 8])
def test_a_row_alone_has_the_bits_it_has_among_others_from_every_view(members):
    view = np.concatenate([np.tile(np.arange(4), members), 4 + np.arange(4)])
    scores = np.random.default_rng(0).lognormal(size=(len(view), 200))
    scale = MemberScale.fit(scores, view, 1e-3)
    whole = scale.combine(scores)
    for row in range(200):
        assert scale.combine(scores[:, row : row + 1])[0] == whole[row]


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(members, strange):
    scores = np.arange(1.0, 4.0) * np.ones((members, 1))
    scale = MemberScale.fit(scores)
    scores[-1, 1] = strange
    with pytest.raises(ValueError, match="scores are not finite"):
        scale.combine(scores)
    with pytest.raises(ValueError, match="scores are not finite"):
        scale.combine_one(scores[:, 1])
