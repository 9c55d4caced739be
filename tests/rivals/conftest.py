"""A small table with planted outliers."""

import numpy as np
import pytest


@pytest.fixture(scope="session", name="X")
def table():
    """200 rows of 5 correlated columns, the last 10 of them far out, each in a direction of its own."""
    random = np.random.default_rng(0)
    X = random.standard_normal((200, 5)) @ random.standard_normal((5, 5))
    X[190:] += 10 * random.standard_normal((10, 5))
    X.setflags(write=False)
    return X


@pytest.fixture(scope="session")
def fresh():
    """60 rows that nobody was fitted to."""
    return np.random.default_rng(1).standard_normal((60, 5)) * 3
