"""Same seed, same data: the same scores. Global random state is neither read nor changed."""

import hashlib
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from addml import ADDML

SETTINGS = [
    {},
    {"members": 1},
    {"scorer": "knn"},
    {"loss": "center", "loss__distance": "cosine"},
    {"loss__distance": "euclidean", "scorer": "dissimilarity"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_same_seed_gives_the_same_bits(quick, X, settings):
    first, second = quick(**settings).fit(X), quick(**settings).fit(X)
    np.testing.assert_array_equal(first.anomaly_scores_, second.anomaly_scores_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert first.threshold_ == second.threshold_
    third = quick(**settings, random_state=1).fit(X)
    assert not np.array_equal(first.transform(X), third.transform(X))


def test_fitting_again_starts_anew(quick, fitted, X):
    again = quick().fit(X[:40]).fit(X)
    np.testing.assert_array_equal(again.anomaly_scores_, fitted.anomaly_scores_)


@pytest.mark.parametrize("seed", [np.int64(0), np.uint8(0)], ids=repr)
def test_a_numpy_number_is_a_seed(quick, fitted, X, seed):
    np.testing.assert_array_equal(quick(random_state=seed).fit(X).anomaly_scores_, fitted.anomaly_scores_)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_is_a_seed_that_moves_on(quick, X, make):
    shared = make(3)
    first, second = (quick(random_state=shared).fit(X).anomaly_scores_ for _ in range(2))
    again = quick(random_state=make(3)).fit(X).anomaly_scores_
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("seed", [0, None])
def test_global_random_state_is_not_changed(quick, X, seed):
    numpys, pythons = np.random.get_state(), random.getstate()
    quick(random_state=seed, scorer="knn").fit(X, labels=np.arange(60) > 53).predict(X)
    assert random.getstate() == pythons
    after = np.random.get_state()
    assert all(np.array_equal(one, other) for one, other in zip(numpys, after, strict=True))


def test_global_random_state_is_not_read(quick, fitted, X):
    saved = np.random.get_state(), random.getstate()
    try:
        embedded = []
        for seed in (1, 1, 2):
            np.random.seed(seed)
            random.seed(seed)
            np.testing.assert_array_equal(quick(random_state=0).fit(X).anomaly_scores_, fitted.anomaly_scores_)
            np.random.seed(seed)
            random.seed(seed)
            embedded.append(quick(random_state=None).fit(X).transform(X))
        assert not np.array_equal(embedded[0], embedded[1])  # without a seed, entropy comes from the system
    finally:
        np.random.set_state(saved[0])
        random.setstate(saved[1])


PROGRAM = """
import hashlib, sys
import numpy as np
from addml import ADDML
X = np.random.default_rng(0).standard_normal((200, 6))
detector = ADDML(epochs=3, random_state=0, device="cpu").fit(X)
print(hashlib.sha256(detector.anomaly_score(X).tobytes()).hexdigest(), "torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def printed():
    """What a process prints that has a hash seed and a number of threads of its own."""
    threads = "2" if os.environ.get("OMP_NUM_THREADS") == "1" else "1"
    environment = {"PYTHONHASHSEED": "1", "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_two_processes_give_the_same_bits(printed):
    X = np.random.default_rng(0).standard_normal((200, 6))
    here = ADDML(epochs=3, random_state=0, device="cpu").fit(X).anomaly_score(X)
    assert printed[0] == hashlib.sha256(here.tobytes()).hexdigest()


def test_the_cpu_needs_no_torch(printed):
    assert printed[1] == "False"
