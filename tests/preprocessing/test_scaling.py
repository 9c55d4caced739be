"""Columns as features: standardised, against scikit-learn's imputer and scaler; robust, by hand."""

import numpy as np
import pytest
from scipy import stats
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from addml.preprocessing import scaling as features_module
from addml.preprocessing.scaling import FARTHEST, KNEE, Features


def reference():
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler())


def table(rows=50, columns=5, gaps=(), seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, columns)) * random.uniform(0.1, 1e3, columns) + random.uniform(-1e3, 1e3, columns)
    for column in gaps:
        X[random.random(rows) < 0.2, column] = np.nan
    return X


@pytest.mark.parametrize("gaps", [(), (0,), (1, 4), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("rows", [2, 7, 50, 51])
def test_features_are_those_of_scikit_learn(gaps, rows):
    X = table(rows, gaps=gaps)
    features, expected = Features.fit(X), reference().fit(X)
    np.testing.assert_allclose(features.transform(X), expected.transform(X), rtol=1e-6, atol=1e-6)
    assert features.width == expected.transform(X).shape[1]


def test_rows_of_another_day_are_measured_by_those_of_training():
    X, later = table(gaps=(1, 3)), table(gaps=(0, 1, 4), seed=1)
    features, expected = Features.fit(X), reference().fit(X)
    np.testing.assert_allclose(features.transform(later), expected.transform(later), rtol=1e-6, atol=1e-6)
    assert features.new_gaps(later).tolist() == [0, 4]
    assert features.new_gaps(X).tolist() == []
    np.testing.assert_allclose(features.median, np.nanmedian(X, axis=0))


def test_constant_columns_and_columns_of_gaps():
    X = np.c_[table(gaps=(1,)), np.full(50, 0.1), np.full(50, np.nan), np.full(50, 1e300)]
    features, expected = Features.fit(X), reference().fit(X[:, :7])
    np.testing.assert_allclose(np.delete(features.transform(X), 7, axis=1), expected.transform(X[:, :7]), atol=1e-6)
    assert (features.transform(X)[:, [5, 6, 7]] == 0).all()
    assert features.empty.tolist() == [6]
    assert features.gaps.tolist() == [1, 6]


def test_columns_are_the_same_however_many_there_are():
    X = table(30, 150, gaps=(0, 63, 64, 149))
    np.testing.assert_allclose(Features.fit(X).transform(X), reference().fit_transform(X), rtol=1e-6, atol=1e-6)


def test_by_hand():
    features = Features.fit(np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0], [8.0, 5.0]]))
    assert features.median.tolist() == [3, 5]
    assert features.gaps.tolist() == [0]
    np.testing.assert_allclose(features.mean, [(1 + 3 + 3 + 8) / 4, 5, 1 / 4])
    variance = (2.75**2 + 0.75**2 + 0.75**2 + 4.25**2) / 4
    np.testing.assert_allclose(features.scale, [variance**0.5, 1, (1 / 4 * 3 / 4) ** 0.5])
    found = features.transform(np.array([[np.nan, 6.0]]))
    np.testing.assert_allclose(found, [[-0.75 / variance**0.5, 1, 3**0.5]], rtol=1e-6)


@pytest.mark.parametrize("far", [0, 1e6, 1e30])
@pytest.mark.parametrize("gaps", [(), (1, 4)])
def test_float32_loses_nothing_that_it_has(gaps, far):
    X = (table(gaps=gaps) + far).astype(np.float32)
    X[0, 0] = 2 * X[0, 0]
    features = Features.fit(X)
    np.testing.assert_allclose(features.transform(X), features.transform(X.astype(np.float64)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gaps", [(), (1, 4)])
def test_a_row_does_not_depend_on_the_rows_beside_it(gaps, dtype):
    X = table(gaps=gaps).astype(dtype)
    features = Features.fit(X)
    whole = features.transform(X)
    for row in range(len(X)):
        np.testing.assert_array_equal(features.transform(X[row : row + 1])[0], whole[row])
    np.testing.assert_array_equal(features.transform(np.asfortranarray(X)), whole)


@pytest.mark.parametrize("rows", [9, 1000, 4099])
def test_order_in_memory_does_not_matter(rows):
    X = table(rows, 3)
    one, other = Features.fit(X), Features.fit(np.asfortranarray(X))
    for name in ("median", "mean", "scale"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float16])
def test_numbers_of_any_type(dtype):
    X = np.arange(40).reshape(10, 4).astype(dtype)
    found = Features.fit(X).transform(X)
    assert found.dtype == np.float32
    expected = Features.fit(X.astype(np.float64)).transform(X.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("power", [1000, -1000])
def test_the_unit_does_not_matter_bit_for_bit(power):
    X = table(gaps=(1,)) / 2**12
    np.testing.assert_array_equal(Features.fit(X * 2.0**power).transform(X * 2.0**power), Features.fit(X).transform(X))


def test_differences_beyond_double_precision():
    largest = np.finfo(float).max
    X = np.array([[largest, np.nan]] + [[-largest, 1.0]] * 8 + [[0.0, 3.0]])
    np.testing.assert_allclose(
        Features.fit(X).transform(X), Features.fit(X / [2.0**900, 1]).transform(X / [2.0**900, 1]), rtol=1e-6
    )


def test_the_median_of_the_largest_numbers_is_finite():
    X = np.array([[1.7e308], [1.7e308], [np.nan], [1.6e308], [1.7e308]])
    assert Features.fit(X).median.tolist() == [1.7e308]


def test_what_is_too_far_counts_as_a_billion_deviations():
    features = Features.fit(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    found = features.transform(np.array([[2e9, -1e300], [0.5e9, 3.0]]))
    np.testing.assert_array_equal(found, np.array([[FARTHEST, -FARTHEST], [0.5e9, 3]], np.float32))


def test_the_table_is_not_changed():
    X = table(gaps=(1,))
    X.setflags(write=False)
    Features.fit(X).transform(X)


# Robust -----------------------------------------------------------------------------------------------------


def bent(features):
    return np.sign(features) * KNEE * np.log1p(np.abs(features) / KNEE)


def robust_by_hand(X, later=None):
    """Features (n, d) of columns without gaps, and the deviation of each after it was bent."""
    later, columns, scales = X if later is None else later, [], []
    for x, new in zip(X.T, later.T, strict=True):
        quartiles = stats.iqr(x) / (2 * stats.norm.ppf(0.75))
        scale = quartiles or x.std() or 1.0
        learnt = bent((x - np.median(x)) / scale)
        varies = x.min() < x.max()
        bent_mean, bent_scale = (learnt.mean(), learnt.std()) if varies else (0, 1)
        columns.append((bent((new - np.median(x)) / scale) - bent_mean) / bent_scale)
        scales.append(bent_scale)
    return np.stack(columns, axis=1), np.array(scales)


@pytest.mark.parametrize("rows", [2, 3, 7, 50, 51, 1000])
def test_robust_features_by_hand(rows):
    X, later = table(rows), table(20, seed=1)
    features = Features.fit(X, robust=True)
    expected, scale = robust_by_hand(X)
    np.testing.assert_allclose(features.transform(X), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features.transform(later), robust_by_hand(X, later)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features.bent_scale, scale, rtol=1e-5)
    np.testing.assert_allclose(features.mean, np.median(X, axis=0))
    np.testing.assert_allclose(features.transform(X).mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(features.transform(X).std(axis=0), 1, atol=1e-5)


def test_a_robust_column_worked_out():
    x = np.array([0.0, 1, 2, 3, 104])  # quartiles 1 and 3
    features = Features.fit(x[:, None], robust=True)
    unit = 2 / 1.3489795003921634
    np.testing.assert_allclose([features.mean[0], features.scale[0]], [2, unit])
    far = 5 * np.log(1 + 102 / unit / 5)
    places = np.array(
        [-5 * np.log(1 + 2 / unit / 5), -5 * np.log(1 + 1 / unit / 5), 0, 5 * np.log(1 + 1 / unit / 5), far]
    )
    np.testing.assert_allclose(
        [features.bent_mean[0], features.bent_scale[0]], [places.mean(), places.std()], rtol=1e-6
    )
    np.testing.assert_allclose(features.transform(x[:, None])[:, 0], (places - places.mean()) / places.std(), rtol=1e-5)


@pytest.mark.parametrize("share", [0.5, 0.76, 0.9, 0.998])
def test_where_the_quartiles_meet_the_deviation_counts(share):
    random = np.random.default_rng(0)
    x = np.where(np.arange(1000) < 1000 * share, 4.0, 10 * random.random(1000))
    features = Features.fit(x[:, None], robust=True)
    if share > 0.75:
        np.testing.assert_allclose(features.scale, x.std())
    np.testing.assert_allclose(features.transform(x[:, None]), robust_by_hand(x[:, None])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.0, 1e300])
def test_constant_columns_are_zero_and_others_than_their_value_are_far(value):
    features = Features.fit(np.full((30, 1), value), robust=True)
    assert (features.transform(np.full((4, 1), value)) == 0).all()
    assert (features.bent_mean[0], features.bent_scale[0], features.scale[0]) == (0, 1, 1)
    found = features.transform(np.array([[value + 1.0], [-1e308], [1e308]]))[:, 0]
    far = 5 * np.log1p(1e9 / 5)
    np.testing.assert_allclose(found, [0 if value == 1e300 else bent(1.0), -far, far], rtol=1e-5)


@pytest.mark.parametrize("df", [0.5, 1, 2])
def test_heavy_tails_do_not_flatten_the_rest(df):
    """Half of the values of a column keep at least a tenth of the room that they have in a column without tails."""
    X = stats.t.rvs(df, size=(5000, 1), random_state=0)
    robust, standard = (Features.fit(X, robust=way).transform(X)[:, 0] for way in (True, False))
    room = stats.iqr(stats.norm.rvs(size=5000, random_state=0))
    assert stats.iqr(robust) > 0.1 * room
    assert stats.iqr(robust) > (2 if df < 2 else 1) * stats.iqr(standard)
    assert np.abs(robust).max() < 30
    np.testing.assert_array_equal(
        np.argsort(robust, kind="stable"), np.argsort(X[:, 0].astype(np.float64), kind="stable")
    )


@pytest.mark.parametrize("far", [1e6, 1e8, 1e12, 1e30, 1e200, 1e307])
@pytest.mark.parametrize("rows", [40, 1000])
def test_one_value_however_far_does_not_stretch_a_column(far, rows):
    X = np.random.default_rng(0).standard_normal((rows, 1))
    alone = Features.fit(X[1:], robust=True)
    X[0] = far
    features = Features.fit(X, robust=True)
    np.testing.assert_allclose(features.scale, alone.scale, rtol=0.2)
    found = features.transform(X)[:, 0]
    assert np.isfinite(found).all()
    assert found[0] == found.max()
    assert found[0] > 3 * found[1:].max()
    assert len(np.unique(found)) == rows


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e200, 1e300])
def test_robust_features_do_not_depend_on_the_unit(scale):
    X = table(60)[:, :3] / 1e3
    expected = Features.fit(X, robust=True).transform(X)
    np.testing.assert_allclose(
        Features.fit(X * scale, robust=True).transform(X * scale), expected, rtol=1e-4, atol=1e-5
    )


def test_quartiles_beyond_double_precision():
    largest = np.finfo(float).max
    X = np.repeat([-largest, largest, 0.0], [8, 8, 1])[:, None]
    found = Features.fit(X, robust=True).transform(X)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, Features.fit(X / 2.0**900, robust=True).transform(X / 2.0**900), rtol=0.2)


def test_what_is_left_of_rounding_is_no_distance_of_quartiles():
    x = np.where(np.arange(1000) % 3 == 0, 0.1 + 0.2 - 0.3, 0.0) + np.where(np.arange(1000) < 150, 1.0, 0.0)
    features = Features.fit(x[:, None], robust=True)
    np.testing.assert_allclose(features.scale, x.std())
    assert features.transform(x[:, None]).std() == pytest.approx(1, rel=1e-4)
    assert np.unique(features.transform(x[:, None]).round(5)).size == 2


def test_gaps_of_robust_columns_take_the_median_and_keep_their_flag():
    X = table(200, gaps=(1, 3))
    features = Features.fit(X, robust=True)
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    found = features.transform(X)
    np.testing.assert_allclose(found[:, :5], robust_by_hand(filled)[0], rtol=1e-5, atol=1e-5)
    share = np.isnan(X[:, [1, 3]]).mean(axis=0)
    flags = (np.isnan(X[:, [1, 3]]) - share) / np.sqrt(share * (1 - share))
    np.testing.assert_allclose(found[:, 5:], bent(flags), rtol=1e-5)
    np.testing.assert_array_equal(features.bent_scale[5:], 1)
    np.testing.assert_array_equal(features.bent_mean[5:], 0)
    empty = Features.fit(np.c_[X, np.full(200, np.nan)], robust=True)
    assert (empty.transform(np.c_[X, np.full(200, np.nan)])[:, [5, 8]] == 0).all()


def test_robust_columns_of_which_one_side_matters():
    X = table(201)  # an odd number: the median is one of them, and stays it
    high, low = X.copy(), X.copy()
    high[:, 1] = np.maximum(X[:, 1], np.median(X[:, 1]))
    low[:, 2] = np.minimum(X[:, 2], np.median(X[:, 2]))
    features = Features.fit(X, np.array([0, 1, -1, 0, 0]), robust=True)
    by_hand = robust_by_hand(np.c_[X[:, 0], high[:, 1], low[:, 2], X[:, 3:]])
    np.testing.assert_allclose(features.transform(X), by_hand[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features.bent_scale, by_hand[1], rtol=1e-5)


@pytest.mark.parametrize("rows", [9, 1000, 4099])
def test_order_in_memory_does_not_matter_to_robust_columns(rows):
    X = table(rows, 3, gaps=(1,))
    one, other = Features.fit(X, robust=True), Features.fit(np.asfortranarray(X), robust=True)
    for name in ("median", "mean", "scale", "bent_mean", "bent_scale"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.transform(X), other.transform(np.asfortranarray(X)))
    for row in range(0, rows, 7):
        np.testing.assert_array_equal(one.transform(X[row : row + 1])[0], one.transform(X)[row])


def test_the_order_of_the_rows_does_not_matter_to_robust_columns():
    X = table(3000, 3)
    one, other = Features.fit(X, robust=True), Features.fit(X[::-1], robust=True)
    for name in ("median", "mean", "scale"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("bent_mean", "bent_scale"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12)


def test_rows_are_added_up_in_parts(monkeypatch):
    X = table(1000, 3)
    whole = Features.fit(X, robust=True)
    monkeypatch.setattr(features_module, "ROWS_AT_ONCE", 7)
    parts = Features.fit(X, robust=True)
    np.testing.assert_allclose(parts.bent_mean, whole.bent_mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.bent_scale, whole.bent_scale, rtol=1e-9)


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("columns", [[], [0], [1, 3], [0, 1, 2, 3, 4]])
def test_some_columns_have_the_features_that_they_have_among_all(robust, columns):
    X, columns = table(60, gaps=(1, 4)), np.array(columns, int)
    features = Features.fit(X, robust=robust)
    own, places = features.select(columns)
    np.testing.assert_array_equal(own.transform(X[:, columns]), features.transform(X)[:, places])


@pytest.mark.parametrize("robust", [True, False])
def test_chosen_scales_are_not_standardised_again(robust):
    X = table(60)
    features = Features.fit(X, robust=robust)
    chosen = features.with_scales(np.array([np.nan, 2.0, np.nan, 4.0, np.nan]), np.array([0, 1, 0, 1, 0], bool))
    expected, found = features.transform(X), chosen.transform(X)
    np.testing.assert_array_equal(found[:, [0, 2, 4]], expected[:, [0, 2, 4]])
    scaled = (X[:, [1, 3]] - features.mean[[1, 3]]) / [2, 4]
    np.testing.assert_allclose(found[:, [1, 3]], bent(scaled) if robust else scaled, rtol=1e-5)
    np.testing.assert_array_equal(chosen.bent_scale[[1, 3]], 1)
