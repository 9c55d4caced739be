"""Distances along columns in 16 bits against sums in double precision."""

import numpy as np
import pytest
import torch

from addml.scoring.references import LARGEST, MAX_LEVELS, MAX_STEP, ColumnReferences


def tables(d, seed=0, references=50, rows=70, spread=1.0):
    """References, rows of which some lie far outside, and the weight of each column."""
    random = np.random.default_rng(seed)
    weight = random.uniform(0.2, 3, d).astype(np.float32)
    known, x = (spread * random.standard_normal((count, d)).astype(np.float32) for count in (references, rows))
    x[::7] *= 20
    return known, x, weight


def by_hand(x, known, weight):
    x, known, weight = (array.astype(np.float64) for array in (x, known, weight))
    return np.array([[np.sum(np.abs(row - other) * weight) for other in known] for row in x])


def added(distances):
    inside, beyond = distances
    return inside + beyond[:, None]


@pytest.mark.parametrize("d", [1, 2, 7, 60, 150])
@pytest.mark.parametrize("seed", range(3))
def test_distances_are_exact_to_a_step_a_column(d, seed):
    known, x, weight = tables(d, seed)
    axes = ColumnReferences.of(known, weight)
    assert axes.columns.dtype == np.int16
    assert 0 < axes.step <= MAX_STEP
    found = added(axes.distances(x))
    assert found.dtype == np.float32
    error = np.abs(found - by_hand(x, known, weight))
    rounding = 1e-6 * np.abs(found)
    assert (error <= axes.step * d + rounding).all()
    assert error.mean() < axes.step * np.sqrt(d)  # they cancel out


@pytest.mark.parametrize("d", [1, 2, 7, 60, 500, 5000])
def test_no_sum_leaves_16_bits(d):
    """The farthest corners of the box are all steps apart."""
    known = np.repeat([[0.0], [3.0]], d, axis=1).astype(np.float32)
    axes = ColumnReferences.of(known, np.linspace(0.1, 1, d, dtype=np.float32) / d)
    assert axes.columns.dtype == np.int16
    np.testing.assert_allclose(
        added(axes.distances(known))[[0, 1], [1, 0]], by_hand(known, known, axes.weight)[0, 1], rtol=1e-2
    )
    whole = np.abs(axes.columns[:, 0].astype(np.int64) - axes.columns[:, 1]).sum()
    assert whole <= LARGEST


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_lies_beyond_the_references_is_exact(far, sign):
    known, x, weight = tables(5)
    x[:, 2] = sign * far
    found = added(ColumnReferences.of(known, weight).distances(x))
    np.testing.assert_allclose(found, by_hand(x, known, weight), rtol=1e-5)


def test_what_lies_within_is_not_lost_in_what_lies_beyond():
    known, x, weight = tables(5)
    ordinary = np.clip(x, known.min(0), known.max(0))
    far = ordinary.copy()
    far[:, 2] = 1e9
    axes = ColumnReferences.of(known, weight)
    nearby = ordinary.copy()
    nearby[:, 2] = known[:, 2].max()
    np.testing.assert_array_equal(axes.distances(far)[0], axes.distances(nearby)[0])
    np.testing.assert_allclose(axes.distances(far)[1], 1e9 * weight[2], rtol=1e-6)
    np.testing.assert_array_equal(axes.distances(ordinary)[1], 0)


@pytest.mark.parametrize(
    ("d", "spread"), [(3, 1e5), (3, 1e9), (1, 0.0), (4, 0.0), (LARGEST - 1, 0.01), (LARGEST, 0.01), (LARGEST + 9, 0.01)]
)
def test_steps_that_would_be_too_coarse_are_floats(d, spread):
    known, x, weight = tables(d, references=5, rows=6, spread=spread)
    axes = ColumnReferences.of(known, weight)
    assert axes.step == 0
    assert axes.columns.dtype == np.float32
    expected = by_hand(x, known, weight)
    np.testing.assert_allclose(added(axes.distances(x)), expected, rtol=1e-4, atol=1e-6)


def test_a_step_is_as_large_as_it_may_be():
    wide = (LARGEST - 1) * MAX_STEP
    for width, whole in ((wide * 0.999, True), (wide * 1.001, False)):
        axes = ColumnReferences.of(np.array([[0], [width]], np.float32), np.ones(1, np.float32))
        assert (axes.step > 0) == whole


@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_columns_that_never_vary_count_beyond_their_value(spread):
    known, x, weight = tables(4, spread=spread)
    known[:, 1] = 3.0
    np.testing.assert_allclose(
        added(ColumnReferences.of(known, weight).distances(x)), by_hand(x, known, weight), rtol=1e-3, atol=4 * MAX_STEP
    )


@pytest.mark.parametrize("spread", [1.0, 1e5])
def test_a_rows_distances_do_not_depend_on_the_rows_beside_it(spread):
    known, x, weight = tables(6, spread=spread)
    axes = ColumnReferences.of(known, weight)
    whole = added(axes.distances(x))
    for row in range(len(x)):
        np.testing.assert_array_equal(added(axes.distances(x[row : row + 1]))[0], whole[row])


@pytest.mark.parametrize("spread", [1.0, 1e5])
def test_torch_gives_the_same(spread):
    known, x, weight = tables(6, spread=spread)
    expected = ColumnReferences.of(known, weight)
    found = ColumnReferences.of(torch.tensor(known), torch.tensor(weight))
    assert found.step == pytest.approx(expected.step)
    assert found.columns.dtype == (torch.int16 if expected.step else torch.float32)
    there = added(found.distances(torch.tensor(x))).numpy()
    np.testing.assert_allclose(there, added(expected.distances(x)), rtol=1e-5, atol=2 * expected.step)


def test_rows_and_references_stay_as_they_are():
    arrays = tables(6)
    before = [array.copy() for array in arrays]
    known, x, weight = arrays
    ColumnReferences.of(known, weight).distances(x)
    for array, same in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_columns_of_few_values_are_what_the_differences_are():
    """Flags, categories and small counts, for rows with those values, others between them and some beyond."""
    random = np.random.default_rng(3)
    known, x, weight = tables(9, references=200, rows=300)
    for column, values in enumerate([1, 2, 2, MAX_LEVELS, MAX_LEVELS + 1]):
        levels = random.standard_normal(values).astype(np.float32)
        known[:, column] = random.choice(levels, len(known))
        x[:100, column] = random.choice(levels, 100)
    axes = ColumnReferences.of(known, weight)
    assert axes.levels.continuous.tolist() == [False] * 4 + [True] * 5
    whole = np.rint((np.clip(x * weight, axes.low, axes.high) - axes.low) / np.float32(axes.step)).astype(np.int64)
    differences = np.abs(whole[:, :, None] - axes.columns.astype(np.int64)).sum(1)
    np.testing.assert_array_equal(axes.distances(x)[0], differences.astype(np.float32) * np.float32(axes.step))


@pytest.mark.parametrize("values", [1, 2, 3])
def test_a_table_of_nothing_but_few_values(values):
    random = np.random.default_rng(0)
    known, x = (random.integers(0, values, (count, 6)).astype(np.float32) for count in (40, 30))
    known[0], known[1, 0] = 0, 1
    weight = random.uniform(0.2, 3, 6).astype(np.float32)
    np.testing.assert_allclose(
        added(ColumnReferences.of(known, weight).distances(x)), by_hand(x, known, weight), atol=1e-2
    )


def test_numpys_buffers_stay_as_they_are():
    before = np.getbufsize()
    known, x, weight = tables(3)
    ColumnReferences.of(known, weight).distances(x)
    assert np.getbufsize() == before
