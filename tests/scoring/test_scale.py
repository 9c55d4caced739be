"""Scores of several members or views as one, by hand."""

import math

import numpy as np
import pytest

from addml.scoring.scorer import EnsembleScale, ViewScale

E = math.e


def test_two_members_by_hand():
    training = np.array([[1, E, E**2], [E, E**5, E**3]])  # logarithms 0 1 2 and 1 5 3
    scale = EnsembleScale.fit(training)
    np.testing.assert_allclose(scale.mean, [[1], [3]])
    np.testing.assert_allclose(scale.deviation, [[math.sqrt(2 / 3)], [math.sqrt(8 / 3)]])
    np.testing.assert_allclose(scale.floor, [[1e-12 * E], [1e-12 * E**3]])
    # (0 - 1) / sqrt(2/3) and (1 - 3) / sqrt(8/3) are both -sqrt(3/2), and so on
    root = math.sqrt(3 / 2)
    np.testing.assert_allclose(scale.combine(training), [-root, root / 2, root / 2], atol=1e-12)
    np.testing.assert_allclose(scale.combine(np.array([[E**3], [E**3]])), [root])


def test_what_is_usual_is_neither_high_nor_low():
    scale = EnsembleScale.fit(np.array([[1, E, E**2], [E, E**5, E**3]]))
    np.testing.assert_allclose(scale.neutral, [[E], [E**3]])
    np.testing.assert_allclose(scale.combine(scale.neutral), [0], atol=1e-12)


def test_a_single_members_score_stays_untouched():
    scores = np.array([[3.0, 0.0, 7.5]])
    np.testing.assert_array_equal(EnsembleScale.fit(scores).combine(scores), scores[0])


def test_a_score_of_zero_counts_as_a_millionth_of_a_millionth_of_the_median():
    training = np.array([[0.0, 2.0, 2.0, 2.0], [1.0, 2.0, 4.0, 8.0]])
    scale = EnsembleScale.fit(training)
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
    scale = EnsembleScale.fit(np.stack([np.full(rows, value), varied]))
    assert scale.deviation[0, 0] == 1
    logs = np.log(varied)
    expected = (logs - logs.mean()) / logs.std() / 2
    np.testing.assert_allclose(scale.combine(np.stack([np.full(rows, value), varied])), expected, atol=1e-9)


@pytest.mark.parametrize("members", [2, 5, 8, 9, 17, 40])
def test_a_row_alone_has_the_bits_it_has_among_others(members):
    scores = np.random.default_rng(0).lognormal(size=(members, 200))
    scale = EnsembleScale.fit(scores)
    whole = scale.combine(scores)
    for row in range(200):
        assert scale.combine(scores[:, row : row + 1])[0] == whole[row]
    np.testing.assert_array_equal(scale.combine(scores[:, 3:12]), whole[3:12])


def test_the_given_scores_are_not_changed():
    scores = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]])
    scores.setflags(write=False)
    EnsembleScale.fit(scores).combine(scores)


# Views ------------------------------------------------------------------------------------------------------


def test_three_views_by_hand():
    powers = np.arange(11.0)  # median 5, 0.9 quantile 9
    scale = ViewScale.fit(np.stack([powers, 100 - 10 * powers, powers**2]))
    np.testing.assert_array_equal(scale.median, [[5], [50], [25]])
    np.testing.assert_allclose(scale.unit, [[4], [40], [56]])
    np.testing.assert_array_equal(scale.combine(scale.median), 0)
    np.testing.assert_allclose(scale.combine(np.array([[9.0], [10.0], [0.0]])), math.log(2))
    np.testing.assert_allclose(scale.combine(np.array([[1.0], [70.0], [25.0]])), math.log(1.5))
    np.testing.assert_allclose(scale.combine(np.array([[5.0], [50.0], [25 + 30 * 56.0]])), math.log(31))
    np.testing.assert_allclose(scale.combine(np.array([[1.0], [10.0], [-3.0]])), -math.log(1.5))  # ordinary in all


def by_hand(training, scores):
    """The largest of all views, from the median in units of (0.9 quantile - median), compressed."""
    largest = []
    for row in scores.T:
        measured = []
        for train, score in zip(training, row, strict=True):
            middle = np.median(train)
            measured.append((score - middle) / (np.quantile(train, 0.9) - middle))
        largest.append(math.copysign(math.log1p(abs(max(measured))), max(measured)))
    return np.array(largest)


@pytest.mark.parametrize("views", [1, 2, 4])
@pytest.mark.parametrize("rows", [2, 3, 10, 500])
def test_the_view_that_finds_a_row_strangest_counts(views, rows):
    random = np.random.default_rng(rows)
    training, scores = random.lognormal(size=(views, rows)), random.lognormal(size=(views, 100))
    np.testing.assert_allclose(ViewScale.fit(training).combine(scores), by_hand(training, scores), atol=1e-12)


def test_every_view_calls_a_tenth_of_the_training_rows_strange():
    """Whatever its unit and shape: nobody's upper tenth is heard over the others'."""
    random = np.random.default_rng(0)
    training = np.stack([random.lognormal(0, 3, 1000), 5 + random.random(1000), 1e9 * random.gamma(0.3, size=1000)])
    scale = ViewScale.fit(training)
    for view in range(3):
        ordinary = scale.median.repeat(1000, axis=1)
        ordinary[view] = training[view]
        assert (scale.combine(ordinary) > math.log(2)).sum() == 100


def test_the_score_grows_with_every_view_and_keeps_the_order():
    scale = ViewScale.fit(np.random.default_rng(0).lognormal(size=(1, 100)))
    rising = np.linspace(-3, 40, 200)
    assert (np.diff(scale.combine(rising[None])) > 0).all()


@pytest.mark.parametrize("share", [0.91, 0.95, 0.999])
def test_where_most_scores_are_equal_those_above_tell_the_unit(share):
    random = np.random.default_rng(0)
    scores = np.where(np.arange(1000) < 1000 * share, 2.0, 3 + random.random(1000))
    scale = ViewScale.fit(scores[None])
    np.testing.assert_allclose(scale.unit, np.quantile(scores[scores > 2], 0.9) - 2)
    np.testing.assert_allclose(scale.combine(scores[None])[:10], 0, atol=1e-12)
    assert (scale.combine(scores[None])[scores > 2] > 0).all()


@pytest.mark.parametrize("value", [0.0, 1e-30, 0.3, 1e30])
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_a_view_of_equal_scores_finds_no_training_row_strange(value, rows):
    varied = np.linspace(1, 2, rows)
    training = np.stack([np.full(rows, value), varied])
    scale = ViewScale.fit(training)
    assert scale.unit[0, 0] == 1  # what lies beyond counts as it is
    alone = ViewScale.fit(varied[None]).combine(varied[None])
    np.testing.assert_allclose(scale.combine(training), np.maximum(alone, 0), atol=1e-12)


def test_rounding_is_no_unit():
    """Scores that are equal but for their last bits."""
    scores = 5 + 1e-9 * np.arange(100.0)
    assert ViewScale.fit(scores[None]).unit[0, 0] == 1


@pytest.mark.parametrize("views", [1, 4, 9])
def test_a_row_alone_has_the_bits_it_has_among_others_from_every_view(views):
    scores = np.random.default_rng(0).lognormal(size=(views, 200))
    scale = ViewScale.fit(scores)
    whole = scale.combine(scores)
    for row in range(200):
        assert scale.combine(scores[:, row : row + 1])[0] == whole[row]


@pytest.mark.parametrize(("kind", "rows"), [(EnsembleScale, 3), (ViewScale, 1), (ViewScale, 4)])
def test_raised_scores_combine_to_so_much_more(kind, rows):
    random = np.random.default_rng(0)
    scores, by = random.lognormal(size=(rows, 200)), random.standard_normal(200)
    scale = kind.fit(scores)
    np.testing.assert_allclose(scale.combine(scale.raised(scores, by)), scale.combine(scores) + by, atol=1e-9)


def test_a_single_members_raised_score_is_so_many_times_as_large():
    scores = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_allclose(EnsembleScale.fit(scores).raised(scores, np.log([2.0, 1, 0.5])), [[2, 2, 1.5]])


@pytest.mark.parametrize("kind", [EnsembleScale, ViewScale])
@pytest.mark.parametrize("by", [1e4, -1e4])
def test_scores_stay_finite_however_far_they_are_raised(kind, by):
    scores = np.random.default_rng(0).lognormal(size=(3, 50)).astype(np.float32)
    scale = kind.fit(scores.astype(np.float64))
    raised = scale.raised(scores, np.full(50, by, np.float32))
    assert np.isfinite(raised).all()
    assert np.isfinite(scale.combine(raised.astype(np.float64))).all()


@pytest.mark.parametrize("kind", [EnsembleScale, ViewScale])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(kind, rows, strange):
    scores = np.arange(1.0, 4.0) * np.ones((rows, 1))
    scale = kind.fit(scores)
    scores[-1, 1] = strange
    with pytest.raises(ValueError, match="scores are not finite"):
        scale.combine(scores)
