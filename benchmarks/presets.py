"""Three detectors against Isolation Forest: seconds to fit and score a table, and the AUC of the ranking."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

import addml
from benchmarks.tables import labelled
from benchmarks.timing import markdown, seconds


def presets() -> str:
    """Fit and score relative to the forest, with AUCs; and rows per second of the default."""
    lines = []
    for name in ("letter", "mnist", "shuttle"):
        X, y, _ = labelled(name)
        ways: dict[str, Callable[[], np.ndarray]] = {
            "forest": lambda X=X: -IsolationForest(random_state=0).fit(X).score_samples(X),
            "fast": lambda X=X: _scored(addml.ADDML.fast(random_state=0, device="cpu"), X),
            "paper": lambda X=X: _scored(addml.ADDML.paper(random_state=0, device="cpu"), X),
            "default": lambda X=X: _scored(addml.ADDML(random_state=0, device="cpu"), X),
        }
        took = seconds(ways)
        cells = [f"{took[way] / took['forest']:.2f}x, {100 * roc_auc_score(y, ways[way]()):.1f}" for way in ways]
        lines.append([name, f"{took['forest']:.2f} s, {cells[0].split()[1]}", *cells[1:]])
    heads = ["fit and score, ROC-AUC", "IsolationForest(100)", "ADDML.fast()", "ADDML.paper()", "ADDML()"]
    return f"{markdown(heads, lines)}\nThe default scores {rows_a_second():,.0f} rows of 32 columns a second.\n"


def _scored(detector: addml.ADDML, X: np.ndarray) -> np.ndarray:
    return detector.fit(X).anomaly_score(X)


def rows_a_second() -> float:
    """Rows per second of the default detector on all cores."""
    X = np.random.default_rng(0).standard_normal((100_000, 32))
    detector = addml.ADDML(random_state=0, device="cpu").fit(X[:5000])
    started = time.perf_counter()
    detector.anomaly_score(X)
    return len(X) / (time.perf_counter() - started)
