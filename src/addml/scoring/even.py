"""Some of many, at even steps: each stands for as many around it."""

from __future__ import annotations

import numpy as np


def even_steps(rows: int, count: int) -> np.ndarray:
    """The places of `count` of so many rows, in the middle of as many equal parts."""
    return np.floor((np.arange(count) + 0.5) * rows / count).astype(np.int64)


def evenly(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the ids, at even steps."""
    return ids if len(ids) <= most else np.asarray(ids[even_steps(len(ids), most)])


def spread_out(norms: np.ndarray, count: int) -> np.ndarray:
    """Places of `count` rows at even steps through all rows in the order of their norms, shuffled, always alike."""
    n, count = len(norms), min(count, len(norms))
    steps = np.random.default_rng(0).permutation(even_steps(n, count))
    return np.asarray(np.argsort(norms, kind="stable")[steps])


def end_to_end(ids: np.ndarray, most: int) -> np.ndarray:
    """The same, with the first and the last."""
    places = np.linspace(0, len(ids) - 1, min(len(ids), most)).round().astype(np.int64)
    return np.asarray(ids[places])
