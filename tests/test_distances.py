"""Distances, their gradients and exact cut-offs, on both kinds of array."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist, pdist, squareform

from addml import distances
from addml.arrays import to_numpy
from tests.grids import pairwise

DISTANCES = ["sqeuclidean", "euclidean", "cosine"]
KINDS = [np.asarray, torch.as_tensor]


@pytest.fixture
def z():
    return np.random.default_rng(0).standard_normal((2, 9, 4))


@pytest.mark.parametrize(
    ("ratio", "n", "least", "k"),
    [
        (2 / 3, 1440, 1, 960),
        (1 / 3, 8128, 1, 2710),
        (0.3, 10, 1, 3),
        (0.07, 100, 1, 7),  # 7.000000000000001
        (0.001, 50, 1, 1),  # never none: int(-n * ratio) would be 0 and keep all
        (0.001, 50, 2, 2),
        (1.0, 5, 1, 5),
        (0.5, 1, 2, 1),  # never more than there are
        (0.5, 0, 1, 0),
    ],
)
def test_count_of(ratio, n, least, k):
    assert distances.count_of(ratio, n, least) == k


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_pair_distances_are_scipy_s(z, kind, distance):
    ours, _ = distances.pair_distances(kind(z), distance)
    for e in range(2):
        np.testing.assert_allclose(to_numpy(ours)[e], squareform(pdist(z[e], distance)), atol=1e-7)
        once = np.sort(to_numpy(distances.unordered(ours))[e])
        np.testing.assert_allclose(once, np.sort(pdist(z[e], distance)), atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 33, 64])
def test_every_unordered_pair_is_taken_once(kind, size):
    places = np.arange(2 * size * size, dtype=float).reshape(2, size, size)
    pairs = np.minimum(places, places.transpose(0, 2, 1))
    row, column = np.triu_indices(size, 1)
    taken = to_numpy(distances.unordered(kind(pairs)))
    np.testing.assert_array_equal(np.sort(taken, axis=1), places[:, row, column])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_to_a_centre_and_to_references_are_scipy_s(z, kind, distance):
    center, others = z[:, 0] * 0.5 + 1, z[:, 2:7] + 0.3
    ours, _ = distances.center_distances(kind(z), kind(center), distance)
    cross = distances.cross_distances(kind(z), kind(others), distance)
    matched = distances.matched_distances(kind(z[:, 2:7]), kind(others), distance)
    for e in range(2):
        np.testing.assert_allclose(to_numpy(ours)[e], cdist(z[e], center[e : e + 1], distance)[:, 0], atol=1e-12)
        expected = cdist(z[e], others[e], distance)
        np.testing.assert_allclose(to_numpy(cross)[e], expected, atol=1e-7)
        np.testing.assert_allclose(to_numpy(matched)[e], np.diag(expected[2:7]), atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "dtype", "size"), pairwise(KINDS, [np.float32, np.float64], [2, 7, 64, 100, 128, 257])
)
def test_pair_distances_are_symmetric_to_the_last_bit(kind, dtype, size):
    # a pair at the cut-off must not be taken in one direction only
    z = np.random.default_rng(size).standard_normal((3, size, 64)).astype(dtype)
    for distance in DISTANCES:
        pairs, _ = distances.pair_distances(kind(z), distance)
        np.testing.assert_array_equal(to_numpy(pairs), to_numpy(pairs.mT))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_pair_gradient_is_autograd_s(z, kind, distance):
    weights = np.random.default_rng(1).random((2, 9, 9))
    weights = weights + weights.mT
    distances.fill_diagonal(weights, 0)
    _, back = distances.pair_distances(kind(z), distance)
    leaf = torch.tensor(z, requires_grad=True)
    total = 0.0
    for e in range(2):
        for i in range(9):
            for j in range(i):
                total = total + weights[e, i, j] * _torch_distance(leaf[e, i], leaf[e, j], distance)
    total.backward()
    np.testing.assert_allclose(to_numpy(back(kind(weights))), leaf.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_center_gradient_is_autograd_s_with_a_constant_centre(z, kind, distance):
    weights, center = np.random.default_rng(1).random((2, 9)), z.mean(1)
    _, back = distances.center_distances(kind(z), kind(center), distance)
    leaf = torch.tensor(z, requires_grad=True)
    mu = torch.tensor(center)
    total = sum(weights[e, i] * _torch_distance(leaf[e, i], mu[e], distance) for e in range(2) for i in range(9))
    total.backward()
    np.testing.assert_allclose(to_numpy(back(kind(weights))), leaf.grad.numpy(), atol=1e-10)


def _torch_distance(a, b, distance):
    if distance == "cosine":
        return 1 - torch.nn.functional.cosine_similarity(a, b, dim=0)
    squared = ((a - b) ** 2).sum()
    return squared if distance == "sqeuclidean" else squared.sqrt()


def test_coinciding_rows_give_no_nan(z):
    z[:, 3] = z[:, 5]
    z[:, 6] = 0
    for distance in DISTANCES:
        pairs, back = distances.pair_distances(z, distance)
        weights = np.ones_like(pairs)
        distances.fill_diagonal(weights, 0)
        assert np.isfinite(pairs).all()
        assert np.isfinite(back(weights)).all()
        near, back = distances.center_distances(z, z[:, 3], distance)
        assert np.isfinite(near).all()
        assert np.isfinite(back(np.ones_like(near))).all()


# Cut-offs -----------------------------------------------------------------------------------------------------------

values = arrays(np.float32, st.tuples(st.just(2), st.integers(1, 60)), elements=st.sampled_from([0, 0.5, 1, 1.5, 2, 7]))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(values, st.data())
def test_cutoffs_keep_ties(kind, values, data):
    n = values.shape[1]
    ks = [data.draw(st.integers(1, n)), data.draw(st.integers(1, n))]
    cutoff, count, mean = distances.hardest(kind(values), ks)
    low = to_numpy(distances.smallest(kind(values), ks))
    for e, k in enumerate(ks):
        ordered = np.sort(values[e])
        assert low[e] == ordered[k - 1]
        assert cutoff[e] == ordered[n - k]
        hard = values[e][values[e] >= ordered[n - k]]
        assert count[e] == len(hard) >= k
        assert float(mean[e]) == pytest.approx(hard.mean(), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_distances_no_hard_ones(kind):
    found = distances.hardest(kind(np.array([[1.0, 2.0], [3.0, 4.0]])), [0, 1])
    assert [to_numpy(part).tolist() for part in found] == [[math.inf, 4], [0, 1], [0, 4]]


@pytest.mark.parametrize("shape", ["normal", "heavy", "sorted", "few values", "constant", "one far"])
@pytest.mark.parametrize("ratio", [0.0001, 0.05, 1 / 3, 0.5, 0.999, 1.0])
def test_selection_by_a_sample_is_exact(shape, ratio):
    random = np.random.default_rng(3)
    n = 20_000  # above the size from which a sample brackets the value
    made = {
        "normal": random.standard_normal(n),
        "heavy": random.standard_cauchy(n),
        "sorted": np.arange(n, dtype=float),
        "few values": random.integers(0, 3, n).astype(float),
        "constant": np.zeros(n),
        "one far": np.concatenate([np.zeros(n - 1), [9.0]]),
    }
    values = made[shape].astype(np.float32)
    k = distances.count_of(ratio, n)
    assert distances.hardest(values[None], [k])[0][0] == np.sort(values)[n - k]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_of_no_values_none_is_hard(kind):
    cutoff, *others = distances.hardest(kind(np.empty((3, 0))), [0, 0, 0])  # the pairs of a mini-batch of one row
    assert np.isinf(np.asarray(cutoff)).all()
    np.testing.assert_array_equal(np.asarray(others), 0)
