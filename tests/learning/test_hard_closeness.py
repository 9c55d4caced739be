"""The few passes over the pairs of a full batch against all distances, one by one."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from addml.distances import count_of
from addml.learning import losses
from addml.learning.losses import Batch, InstanceCloseness


@pytest.mark.parametrize("size", [2, 3, 16, 65])
@pytest.mark.parametrize("ratio", [1 / 3, 0.01, 1.0])
def test_mean_gradient_and_cutoff_are_those_of_the_hard_pairs(size, ratio):
    z = np.tanh(np.random.default_rng(size).standard_normal((2, size, 5))) + 0.5
    k = count_of(ratio, size * (size - 1) // 2)
    value, grad, cutoff = losses.hard_closeness(z, k)
    for e in range(2):
        ordered = np.sort(pdist(z[e], "sqeuclidean"))[::-1]
        assert cutoff[e] == pytest.approx(ordered[k - 1])
        assert value[e] == pytest.approx(ordered[:k].mean())
        np.testing.assert_allclose(grad[e], _gradient(z[e], ordered[k - 1] - 1e-9), atol=1e-12)


def _gradient(z, cutoff):
    """Pair by pair."""
    grad, count = np.zeros_like(z), 0
    for i in range(len(z)):
        for j in range(i):
            if ((z[i] - z[j]) ** 2).sum() >= cutoff:
                grad[i], grad[j], count = grad[i] + 2 * (z[i] - z[j]), grad[j] - 2 * (z[i] - z[j]), count + 1
    return grad / count


def test_ties_at_the_cutoff_are_all_kept():
    z = np.zeros((1, 64, 4), np.float32)
    z[0, :32, 0] = 1.0  # 32 x 32 pairs at distance 1, the others at 0
    value, grad, cutoff = losses.hard_closeness(z, 100)
    assert (value[0], cutoff[0]) == (1, 1)
    np.testing.assert_allclose(grad[0, :, 0], np.where(np.arange(64) < 32, 2, -2) / 32, rtol=1e-6)
    assert losses.hard_closeness(z, 32 * 32 + 1)[2][0] == 0


def test_the_fast_path_is_as_the_general_one_of_tensors():
    z = np.tanh(np.random.default_rng(0).standard_normal((3, 40, 6)))
    batch = Batch(None, 40, [40] * 3, [0] * 3)
    fast = losses.instance_closeness(z, None, batch, InstanceCloseness())
    general = losses.instance_closeness(torch.as_tensor(z), None, batch, InstanceCloseness())
    for ours, theirs in zip(fast, general, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
