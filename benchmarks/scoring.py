"""Speed of scoring, against the bare matrix products and tanh that it consists of."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import addml
from addml.compute import blas_threads, max_threads
from benchmarks.tables import table
from benchmarks.timing import seconds


def detector() -> tuple[addml.ADDML, np.ndarray]:
    """The paper's detector, fitted to Letter."""
    X, _ = table("letter")
    return addml.ADDML.paper(epochs=5, random_state=0, device="cpu").fit(X), X


def bare(X: np.ndarray, first: np.ndarray, second: np.ndarray, threads: int, block: int = 4096) -> None:
    """Two matrix products and two tanh, nothing else, in the fastest block size."""

    def work(start: int) -> None:
        h = X[start : start + block] @ first
        np.tanh(h, out=h)
        h = h @ second
        np.tanh(h, out=h)

    with blas_threads(1), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(0, len(X), block)))


def million() -> dict[str, float]:
    """Million rows per second of scoring and of the bare products, on one thread and on all."""
    model, _ = detector()
    random = np.random.default_rng(0)
    X = random.standard_normal((1_000_000, 32)).astype(np.float32)
    first, second = (random.standard_normal((a, 64)).astype(np.float32) * 0.1 for a in (32, 64))
    result = {}
    for threads in sorted({1, max_threads(None)}):
        model.set_params(n_jobs=threads)
        ways = {"scoring": lambda: model.anomaly_score(X), "bare": lambda t=threads: bare(X, first, second, t)}
        took = seconds(ways, rounds=5)
        for name, time_taken in took.items():
            result[f"{name}, threads {threads}"] = 1 / time_taken
        result[f"ratio, threads {threads}"] = took["bare"] / took["scoring"]
    return result


def extra_memory() -> float:
    """Peak megabytes of scoring a million rows, in addition to the rows themselves."""
    model, _ = detector()
    X = np.random.default_rng(0).standard_normal((1_000_000, 32)).astype(np.float32)
    model.anomaly_score(X[:100])
    tracemalloc.start()
    model.anomaly_score(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def one_row() -> float:
    """Microseconds of anomaly_score for one row, the median of many."""
    model, X = detector()
    row, taken = np.ascontiguousarray(X[:1]), []
    for _ in range(2000):
        began = time.perf_counter()
        model.anomaly_score(row)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken) * 1e6)
