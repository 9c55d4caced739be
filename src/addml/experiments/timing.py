"""How long methods take: against rows and columns of drawn tables, and with distillation and mining on or off."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from addml.experiments import protocol, sets
from addml.experiments.fitting import Case, Machine
from addml.experiments.methods import PAPER, make
from addml.experiments.protocol import Numbers

DRAWN = "drawn-"
REPEATS = 5  # of which the fastest counts, the least disturbed by what else the machine does
SCORED = 2000  # rows, whatever the training rows were
SHARE = 0.05  # of anomalies in a drawn table
BY_ROWS, BY_COLUMNS, SAVED = "rows", "columns", "saved"
WHOLE = 1.0
# What the paper claims to save time, one by one, without early stopping: 50 epochs each.
SAVINGS: Mapping[str, Mapping[str, Any]] = {
    "neither": {"normal_ratio": WHOLE, "hard_ratio": WHOLE, "patience": 50},
    "distillation": {"hard_ratio": WHOLE, "patience": 50},
    "mining": {"normal_ratio": WHOLE, "patience": 50},
    "both": {"patience": 50},
}


def cases(methods: list[str], own_sets: list[str], runtime: Mapping[str, Any]) -> list[tuple[str, Case]]:
    """Every table with the case to time on it."""
    usual_rows, usual_columns = runtime["usual_rows"], runtime["usual_columns"]
    by_rows = [(name_of(rows, usual_columns), BY_ROWS) for rows in runtime["rows"]]
    by_columns = [(name_of(usual_rows, columns), BY_COLUMNS) for columns in runtime["columns"]]
    timed = [(name, Case(method, what)) for name, what in by_rows + by_columns for method in methods]
    saved = [(f"{SAVED}: {what}", settings) for what, settings in SAVINGS.items()]
    return timed + [(name, Case(PAPER, what, settings)) for name in own_sets for what, settings in saved]


def name_of(rows: int, columns: int) -> str:
    """A drawn table by its size."""
    return f"{DRAWN}{rows}x{columns}"


def size(name: str) -> tuple[int, int]:
    """Rows and columns of a drawn table, or of a set."""
    found = re.fullmatch(rf"{DRAWN}(\d+)x(\d+)", name)
    return sets.size(name) if found is None else (int(found[1]), int(found[2]))


def load(name: str) -> Numbers:
    """A drawn table with SCORED rows more than its name says, which are not learned from; or a set."""
    if not name.startswith(DRAWN):
        return sets.load(name)
    rows, columns = size(name)
    return drawn(rows + SCORED, columns)


def drawn(rows: int, columns: int) -> Numbers:
    """Rows around a subspace of a quarter of the columns, a few of them anywhere."""
    random = np.random.default_rng([rows, columns])
    inner = max(1, columns // 4)
    X = random.normal(size=(rows, inner)) @ random.normal(size=(inner, columns)) / inner**0.5
    X += random.normal(0, 0.3, X.shape)
    y = (random.random(rows) < SHARE).astype(int)
    X[y == 1] = random.normal(0, 1.2, (int(y.sum()), columns))
    return Numbers(name_of(rows, columns), X, y)


def run_case(case: Case, data: Numbers, machine: Machine) -> list[dict[str, Any]]:
    """Fit to all but the last SCORED rows and score those, REPEATS times, on one thread."""
    from threadpoolctl import threadpool_limits

    test = np.arange(len(data.y) - min(SCORED, len(data.y) // 3), len(data.y))
    train = np.arange(test[0])
    learned, asked = data.prepared(train, train, test)
    with threadpool_limits(1):
        return [_repeat(case, learned, asked, data.y[test], machine, repeat) for repeat in range(REPEATS)]


def _repeat(
    case: Case, learned: np.ndarray, asked: np.ndarray, y: np.ndarray, machine: Machine, repeat: int
) -> dict[str, Any]:
    detector = make(case.method, case.settings, one_class=False, seed=repeat, device=machine.device, jobs=1)
    began = time.perf_counter()
    detector.fit(learned)
    fitted = time.perf_counter()
    scores = detector.anomaly_score(asked)
    ended = time.perf_counter()
    measures = protocol.measure(y, scores) if 0 < y.sum() < len(y) else {"auc": None, "ap": None}
    taken = {"fit_seconds": fitted - began, "score_seconds": ended - fitted, "together": 1}
    return {"seed": repeat, "fold": 0, "setting": "time", **measures, **taken}
