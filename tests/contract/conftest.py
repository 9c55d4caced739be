"""A small table and quick detectors."""

import numpy as np
import pytest

from addml import ADDML, MLP


@pytest.fixture(scope="session", name="X")
def table():
    """60 rows of 4 correlated columns, the last 6 of them far out."""
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 4)) @ random.standard_normal((4, 4))
    X[54:] += 8
    X.setflags(write=False)
    return X


@pytest.fixture(scope="session")
def quick():
    """Makes a detector that fits in milliseconds; settings change it."""

    def make(**settings):
        small = {
            "epochs": 2,
            "members": 2,
            "encoder": MLP((8,), 4),
            "random_state": 0,
            "device": "cpu",
        }
        return ADDML(**small).set_params(**settings)

    return make


@pytest.fixture(scope="session")
def fitted(quick, X):
    """One fitted detector that no test may change."""
    return quick().fit(X)
