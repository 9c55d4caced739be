"""A row's score and embedding: bit for bit the same alone, in any batch, in any order, at any number of threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from addml import ADDML, compute
from addml.compute import blas_threads
from tests.grids import pairwise

ROWS = 600  # two full blocks of a product and a part of a third


def fit(width, **settings):
    table = np.random.default_rng(width).standard_normal((ROWS, width))
    return ADDML().set_params(epochs=1, random_state=0, device="cpu", **settings).fit(table), table


def assert_rows_stand_alone(function, table):
    """Every way to ask for some of the rows gives the bits that asking for all of them gives."""
    whole = function(table)
    order = np.random.default_rng(0).permutation(ROWS)
    np.testing.assert_array_equal(function(table[order]), whole[order])
    np.testing.assert_array_equal(function(np.asfortranarray(table)), whole)
    np.testing.assert_array_equal(function(table[::-3]), whole[::-3])
    np.testing.assert_array_equal(function(np.repeat(table[7:9], 300, axis=0)), np.repeat(whole[7:9], 300, axis=0))
    for row in (0, 1, 127, 128, 255, 256, 599):
        np.testing.assert_array_equal(function(table[row : row + 1]), whole[row : row + 1])
    for size in (2, 3, 17, 127, 128, 129, 255, 256, 257):
        np.testing.assert_array_equal(function(table[5 : 5 + size]), whole[5 : 5 + size])


@pytest.mark.parametrize(
    ("scorer", "distance", "members", "width"),
    pairwise(
        ["views", "center", "dissimilarity", "knn"],
        ["sqeuclidean", "euclidean", "cosine"],
        [1, 3, 10],
        [1, 7, 32, 500],
    ),
)
def test_a_score_does_not_depend_on_the_rows_beside_it(scorer, distance, members, width):
    detector, table = fit(width, scorer=scorer, loss__distance=distance, members=members)
    assert_rows_stand_alone(detector.anomaly_score, table)


@pytest.mark.filterwarnings("ignore:member . collapsed")  # one relu may be dead
@pytest.mark.parametrize(
    ("hidden", "metric_dim", "activation"),
    pairwise([(), (13, 5)], [1, 5, 64], ["tanh", "sigmoid", "relu", "linear"]),
)
def test_an_embedding_does_not_depend_on_the_rows_beside_it(activation, hidden, metric_dim):
    settings = {"encoder__hidden": hidden, "encoder__metric_dim": metric_dim, "members": 3}
    detector, table = fit(7, encoder__activation=activation, encoder__output_activation=activation, **settings)
    assert_rows_stand_alone(detector.transform, table)
    assert_rows_stand_alone(detector.anomaly_score, table)


def test_rows_with_gaps_stand_alone_too():
    table = np.random.default_rng(0).standard_normal((ROWS, 7))
    table[::11, 3] = table[::17, 5] = np.nan
    detector = ADDML(epochs=1, members=3, random_state=0, device="cpu").fit(table)
    assert_rows_stand_alone(detector.anomaly_score, table)


def test_float32_scores_as_the_float64_it_is(fitted, X):
    single = X.astype(np.float32)
    np.testing.assert_array_equal(fitted.anomaly_score(single), fitted.anomaly_score(single.astype(np.float64)))


def test_float32_rows_stand_alone_too():
    table = np.random.default_rng(0).standard_normal((ROWS, 7)).astype(np.float32) * 100 + 1e4
    detector = ADDML(epochs=1, members=3, random_state=0, device="cpu").fit(table)
    assert_rows_stand_alone(detector.anomaly_score, table)
    assert_rows_stand_alone(detector.transform, table)


# Threads ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long():
    """A table of three chunks, which threads share, and a detector."""
    table = np.random.default_rng(0).standard_normal((20_000, 7))
    return ADDML(epochs=1, members=3, random_state=0, device="cpu").fit(table[:ROWS]), table


def test_scores_are_the_same_with_any_n_jobs(long):
    detector, table = long
    expected = np.concatenate([detector.anomaly_score(part) for part in np.split(table, 40)])
    for n_jobs in (None, 1, 2, 5, -2):
        detector.set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(detector.anomaly_score(table), expected)
        np.testing.assert_array_equal(detector.transform(table)[::999], detector.transform(table[::999]))
    detector.set_params(n_jobs=None)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_scores_are_the_same_with_any_number_of_blas_threads(long, threads):
    detector, table = long
    expected = detector.anomaly_score(table[:500])
    with threadpool_limits(threads, user_api="blas"):
        np.testing.assert_array_equal(detector.anomaly_score(table[:500]), expected)


@pytest.mark.parametrize(("settings", "threads"), [({"n_jobs": 1}, 4), ({"n_jobs": 4}, 1), ({}, 4)], ids=str)
def test_training_gives_the_same_with_any_number_of_threads(quick, fitted, X, settings, threads):
    with threadpool_limits(threads, user_api="blas"):
        np.testing.assert_array_equal(quick(**settings).fit(X).anomaly_scores_, fitted.anomaly_scores_)


def blas_settings():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_python_threads_score_alike_and_leave_the_blas_threads_as_they_were(long):
    detector, table = long
    parts = [table[start : start + 150] for start in range(0, 3000, 150)] * 2
    expected = [detector.anomaly_score(part) for part in parts]
    with threadpool_limits(3, user_api="blas"):
        before = blas_settings()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(detector.anomaly_score, parts))
        assert blas_settings() == before
    for scores, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(scores, same)


@pytest.mark.parametrize("rows", [100, 20_000])
def test_products_run_on_one_thread_whoever_asks(long, rows, monkeypatch):
    """threadpoolctl lets one Python thread alone set OpenBLAS, here the main one, which fitted before."""
    detector, table = long
    seen, score = set(), type(detector.model_.scorer).score

    def watched(*args):
        seen.update(blas_settings())
        return score(*args)

    monkeypatch.setattr(type(detector.model_.scorer), "score", watched)
    with threadpool_limits(3, user_api="blas"), ThreadPoolExecutor(2) as pool:
        detector.anomaly_score(table[:10])
        list(pool.map(detector.anomaly_score, [table[:rows]] * 2))
    assert seen == {1}


class OwnSetting:
    """A library, like MKL, in which every Python thread has a setting of its own."""

    def __init__(self):
        self.local = threading.local()

    @property
    def num_threads(self):
        return getattr(self.local, "count", 8)

    def set_num_threads(self, count):
        self.local.count = count


def test_a_setting_of_each_threads_own_is_set_in_each(monkeypatch):
    library, seen = OwnSetting(), []
    monkeypatch.setattr(compute, "_blas_libraries", lambda shared: [] if shared else [library])
    compute.in_threads(lambda part: seen.append(library.num_threads), 20, 3)
    assert seen == [1] * 20
    assert library.num_threads == 8
    with blas_threads(4):
        compute.in_threads(lambda part: None, 1, 1)
        assert library.num_threads == 4
    assert library.num_threads == 8


def test_the_fewest_blas_threads_asked_for_hold():
    with threadpool_limits(4, user_api="blas"):
        before, first, second = blas_settings(), blas_threads(3), blas_threads(1)
        first.__enter__()
        assert set(blas_settings()) <= {3}
        second.__enter__()
        assert set(blas_settings()) <= {1}
        first.__exit__(None, None, None)  # left in the order they came, as Python threads may
        assert set(blas_settings()) <= {1}
        second.__exit__(None, None, None)
        assert blas_settings() == before


def test_an_error_leaves_the_blas_threads_as_they_were(fitted, X, monkeypatch):
    def fail(*args):
        raise RuntimeError("no")

    monkeypatch.setattr(type(fitted.model_.scorer), "score", fail)
    with threadpool_limits(3, user_api="blas"):
        before = blas_settings()
        with pytest.raises(RuntimeError, match="no"):
            fitted.anomaly_score(X)
        assert blas_settings() == before
