"""Features of rows that lie on a device: the same as in main memory, here with tensors of the CPU."""

import numpy as np
import pytest
import torch

from addml.preprocessing.scaling import Features
from addml.scoring.base import EnsembleScale, ViewScale


@pytest.fixture(name="X")
def table():
    X = np.random.default_rng(0).standard_normal((200, 5)) * [1, 100, 1e-3, 1, 1e6] + [0, 1e4, 0, 5, 0]
    X[3, 0] = 1e12
    X[:, 3] = 5
    return X


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("sides", [[0, 0, 0, 0, 0], [1, -1, 0, 0, 0]])
def test_features_on_a_device_are_those_in_main_memory(X, robust, gaps, sides):
    if gaps:
        X[5, 1] = X[9, 2] = np.nan
    features = Features.fit(X, np.array(sides), robust=robust)
    ours = features.transform_resident(torch.from_numpy(X), whole=not gaps).numpy()
    np.testing.assert_allclose(ours, features.transform(X), rtol=1e-6, atol=1e-6)
    assert ours.dtype == np.float32


def test_whole_numbers(X):
    bytes_ = np.random.default_rng(0).integers(0, 256, (50, 3)).astype(np.uint8)
    features = Features.fit(bytes_)
    ours = features.transform_resident(torch.from_numpy(bytes_), whole=True).numpy()
    np.testing.assert_array_equal(ours, features.transform(bytes_))


@pytest.mark.parametrize("kind", [EnsembleScale, ViewScale])
def test_members_and_views_are_combined_alike(kind):
    scores = np.random.default_rng(0).gamma(2, size=(3, 400))
    scale = kind.fit(scores)
    np.testing.assert_allclose(scale.combine(torch.from_numpy(scores)).numpy(), scale.combine(scores), rtol=1e-12)
