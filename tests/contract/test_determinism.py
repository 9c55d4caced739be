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
    {"loss": "center", "distance": "cosine"},
    {"distance": "euclidean", "scorer": "dissimilarity"},
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
def processes():
    """What two processes print, which differ in their hash seed and their number of threads."""
    differences = [("1", "1"), ("2", "2")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, threads in differences
    ]
    return [process.communicate(timeout=120)[0].split() for process in running]


def test_two_processes_give_the_same_bits(processes):
    X = np.random.default_rng(0).standard_normal((200, 6))
    here = ADDML(epochs=3, random_state=0, device="cpu").fit(X).anomaly_score(X)
    digest = hashlib.sha256(here.tobytes()).hexdigest()
    assert [printed[0] for printed in processes] == [digest, digest]


def test_the_cpu_needs_no_torch(processes):
    assert [printed[1] for printed in processes] == ["False", "False"]
