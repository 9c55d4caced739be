"""Distances along columns in 16 bits against sums in double precision."""

import numpy as np
import pytest
import torch

from addml.scoring.references import LARGEST, MAX_LEVELS, MAX_STEP, ColumnReferences


def tables(d, seed=0, n_references=50, n_rows=70, spread=1.0):
    """References, rows of which some lie far outside, and the weight of each column."""
    random = np.random.default_rng(seed)
    weight = random.uniform(0.2, 3, d).astype(np.float32)
    references, x = (spread * random.standard_normal((count, d)).astype(np.float32) for count in (n_references, n_rows))
    x[::7] *= 20
    return references, x, weight


def by_hand(x, references, weight):
    x, references, weight = (array.astype(np.float64) for array in (x, references, weight))
    return np.array([[np.sum(np.abs(row - other) * weight) for other in references] for row in x])


def added(distances):
    inside, beyond = distances
    return inside + beyond[:, None]


@pytest.mark.parametrize("d", [1, 2, 7, 60, 150])
@pytest.mark.parametrize("seed", range(3))
def test_distances_are_exact_to_a_step_a_column(d, seed):
    references, x, weight = tables(d, seed)
    axes = ColumnReferences.of(references, weight)
    assert axes.columns.dtype == np.int16
    assert 0 < axes.step <= MAX_STEP
    result = added(axes.distances(x))
    assert result.dtype == np.float32
    error = np.abs(result - by_hand(x, references, weight))
    rounding = 1e-6 * np.abs(result)
    assert (error <= axes.step * d + rounding).all()
    assert error.mean() < axes.step * np.sqrt(d)  # they cancel out


@pytest.mark.parametrize("d", [1, 2, 7, 60, 500, 5000])
def test_no_sum_leaves_16_bits(d):
    """The farthest corners of the box are all steps apart."""
    references = np.repeat([[0.0], [3.0]], d, axis=1).astype(np.float32)
    axes = ColumnReferences.of(references, np.linspace(0.1, 1, d, dtype=np.float32) / d)
    assert axes.columns.dtype == np.int16
    np.testing.assert_allclose(
        added(axes.distances(references))[[0, 1], [1, 0]], by_hand(references, references, axes.weight)[0, 1], rtol=1e-2
    )
    whole = np.abs(axes.columns[:, 0].astype(np.int64) - axes.columns[:, 1]).sum()
    assert whole <= LARGEST


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_lies_beyond_the_references_is_exact(far, sign):
    references, x, weight = tables(5)
    x[:, 2] = sign * far
    result = added(ColumnReferences.of(references, weight).distances(x))
    np.testing.assert_allclose(result, by_hand(x, references, weight), rtol=1e-5)


def test_what_lies_within_is_not_lost_in_what_lies_beyond():
    references, x, weight = tables(5)
    ordinary = np.clip(x, references.min(0), references.max(0))
    far = ordinary.copy()
    far[:, 2] = 1e9
    axes = ColumnReferences.of(references, weight)
    nearby = ordinary.copy()
    nearby[:, 2] = references[:, 2].max()
    np.testing.assert_array_equal(axes.distances(far)[0], axes.distances(nearby)[0])
    np.testing.assert_allclose(axes.distances(far)[1], 1e9 * weight[2], rtol=1e-6)
    np.testing.assert_array_equal(axes.distances(ordinary)[1], 0)


@pytest.mark.parametrize(
    ("d", "spread"), [(3, 1e5), (3, 1e9), (1, 0.0), (4, 0.0), (LARGEST - 1, 0.01), (LARGEST, 0.01), (LARGEST + 9, 0.01)]
)
def test_steps_that_would_be_too_coarse_are_floats(d, spread):
    references, x, weight = tables(d, n_references=5, n_rows=6, spread=spread)
    axes = ColumnReferences.of(references, weight)
    assert axes.step == 0
    assert axes.columns.dtype == np.float32
    expected = by_hand(x, references, weight)
    np.testing.assert_allclose(added(axes.distances(x)), expected, rtol=1e-4, atol=1e-6)


def test_a_step_is_as_large_as_it_may_be():
    wide = (LARGEST - 1) * MAX_STEP
    for width, whole in ((wide * 0.999, True), (wide * 1.001, False)):
        axes = ColumnReferences.of(np.array([[0], [width]], np.float32), np.ones(1, np.float32))
        assert (axes.step > 0) == whole


@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_columns_that_never_vary_count_beyond_their_value(spread):
    references, x, weight = tables(4, spread=spread)
    references[:, 1] = 3.0
    np.testing.assert_allclose(
        added(ColumnReferences.of(references, weight).distances(x)),
        by_hand(x, references, weight),
        rtol=1e-3,
        atol=4 * MAX_STEP,
    )


@pytest.mark.parametrize("spread", [1.0, 1e5])
def test_a_rows_distances_do_not_depend_on_the_rows_beside_it(spread):
    references, x, weight = tables(6, spread=spread)
    axes = ColumnReferences.of(references, weight)
    whole = added(axes.distances(x))
    for row in range(len(x)):
        np.testing.assert_array_equal(added(axes.distances(x[row : row + 1]))[0], whole[row])


@pytest.mark.parametrize("spread", [1.0, 1e5])
def test_torch_gives_the_same(spread):
    references, x, weight = tables(6, spread=spread)
    expected = ColumnReferences.of(references, weight)
    result = ColumnReferences.of(torch.tensor(references), torch.tensor(weight))
    assert result.step == pytest.approx(expected.step)
    assert result.columns.dtype == (torch.int16 if expected.step else torch.float32)
    on_torch = added(result.distances(torch.tensor(x))).numpy()
    np.testing.assert_allclose(on_torch, added(expected.distances(x)), rtol=1e-5, atol=2 * expected.step)


def test_rows_and_references_stay_as_they_are():
    arrays = tables(6)
    before = [array.copy() for array in arrays]
    references, x, weight = arrays
    ColumnReferences.of(references, weight).distances(x)
    for array, same in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_columns_of_few_values_are_what_the_differences_are():
    """Flags, categories and small counts, for rows with those values, others between them and some beyond."""
    random = np.random.default_rng(3)
    references, x, weight = tables(9, n_references=200, n_rows=300)
    for column, values in enumerate([1, 2, 2, MAX_LEVELS, MAX_LEVELS + 1]):
        levels = random.standard_normal(values).astype(np.float32)
        references[:, column] = random.choice(levels, len(references))
        x[:100, column] = random.choice(levels, 100)
    axes = ColumnReferences.of(references, weight)
    assert axes.levels.continuous.tolist() == [False] * 4 + [True] * 5
    whole = np.rint((np.clip(x * weight, axes.low, axes.high) - axes.low) / np.float32(axes.step)).astype(np.int64)
    differences = np.abs(whole[:, :, None] - axes.columns.astype(np.int64)).sum(1)
    np.testing.assert_array_equal(axes.distances(x)[0], differences.astype(np.float32) * np.float32(axes.step))


@pytest.mark.parametrize("values", [1, 2, 3])
def test_a_table_of_nothing_but_few_values(values):
    random = np.random.default_rng(0)
    references, x = (random.integers(0, values, (count, 6)).astype(np.float32) for count in (40, 30))
    references[0], references[1, 0] = 0, 1
    weight = random.uniform(0.2, 3, 6).astype(np.float32)
    np.testing.assert_allclose(
        added(ColumnReferences.of(references, weight).distances(x)), by_hand(x, references, weight), atol=1e-2
    )


def test_numpys_buffers_stay_as_they_are():
    before = np.getbufsize()
    references, x, weight = tables(3)
    ColumnReferences.of(references, weight).distances(x)
    assert np.getbufsize() == before
