"""Columns as standardised features, against scikit-learn's imputer and scaler."""

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from addml.data.features import FARTHEST, Features


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
