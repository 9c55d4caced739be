"""One task: a case on a set by the protocol, or timed on generated tables with distillation and mining on or off."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from addml.pipeline import rivals
from addml.pipeline.rivals import FOLDS, ONE_CLASS, OWN, PAPER, RIVALS, SEEDS, SEEN, UNSEEN, Machine, Method, Row
from research import datasets
from research.autoencoder import AUTOENCODERS
from research.classic_rivals import CLASSIC_RIVALS
from research.datasets import LabelledArray

Data = Any  # a LabelledArray, or what else has name, y, rows() and standardised()
Fitted = tuple[Any, float]  # a detector with anomaly_scores_ and anomaly_score(X), and the seconds of its fit

METHODS: Mapping[str, Method] = {**AUTOENCODERS, **RIVALS, **CLASSIC_RIVALS}  # HBOS and PCA are ours, not PyOD's
DRAWN = "drawn-"  # prefix of the names of generated tables
REPEATS = 5  # the fastest counts, as other processes disturb it least
SCORED = 2000  # rows, for any number of training rows
SHARE = 0.05  # of anomalies in a generated table
BY_ROWS, BY_COLUMNS, SAVED = "rows", "columns", "saved"
# The components that save time according to the paper, one by one, without early stopping: 50 epochs each.
SAVINGS: Mapping[str, Mapping[str, Any]] = {
    "neither": {"normal_ratio": 1.0, "loss__hard_ratio": 1.0, "patience": 50},
    "distillation": {"loss__hard_ratio": 1.0, "patience": 50},
    "mining": {"normal_ratio": 1.0, "patience": 50},
    "both": {"patience": 50},
}

load = lru_cache(maxsize=2)(datasets.load)


@dataclass(frozen=True)
class Fit:
    """One fit: its training rows and the held-out fold."""

    seed: int
    fold: int
    one_class: bool
    train: np.ndarray
    test: np.ndarray

    @property
    def random_state(self) -> int:
        """The detector's seed, different for each of the nine runs."""
        return FOLDS * self.seed + self.fold

    @property
    def settings(self) -> tuple[str, ...]:
        return (ONE_CLASS,) if self.one_class else (SEEN, UNSEEN)


def fits(y: np.ndarray) -> list[Fit]:
    """The eighteen fits of a set with labels y (1 anomaly, 0 normal)."""
    all_fits = []
    for seed in SEEDS:
        for fold, (train, test) in enumerate(rivals.folds(y, seed)):
            all_fits += [Fit(seed, fold, False, train, test), Fit(seed, fold, True, train[y[train] == 0], test)]
    return all_fits


@dataclass(frozen=True)
class Case:
    """A method with changed settings, and its name in tables and figures."""

    method: str
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.variant or self.method


def new_detector(case: Case, machine: Machine, *, one_class: bool, seed: int) -> Any:
    """A new detector of any method of the experiments."""
    return rivals.new_detector(case.method, machine, one_class=one_class, seed=seed, rivals=METHODS, **case.settings)


def rows_for(method: str, data: Data, fit: Fit, part: np.ndarray) -> Any:
    """Rows as the method takes them: ADDML has its own preprocessing, other methods get standardised rows."""
    return data.rows(part) if method in OWN else data.standardised(fit.train, part)[0]


def fit_each(method: str, data: Data, planned: Sequence[Fit], detectors: Iterable[Any]) -> Iterator[Fitted]:
    """The detectors, each fitted when it is requested."""
    for fit, detector in zip(planned, detectors, strict=True):
        rows = rows_for(method, data, fit, fit.train)
        start = time.perf_counter()
        detector.fit(rows)
        yield detector, time.perf_counter() - start


def results(method: str, data: Data, planned: Sequence[Fit], fitted: Iterable[Fitted]) -> list[Row]:
    """One row of results for each fit and setting."""
    measured = []
    for fit, (detector, fit_seconds) in zip(planned, fitted, strict=True):
        rows = rows_for(method, data, fit, fit.test)
        for setting in fit.settings:
            start = time.perf_counter()
            if setting == SEEN:  # the training rows, which were scored by the fit itself
                tested, scores, seconds = fit.train, detector.anomaly_scores_, None
            else:
                tested, scores = fit.test, detector.anomaly_score(rows)
                seconds = time.perf_counter() - start
            run = {"seed": fit.seed, "fold": fit.fold, "setting": setting, **rivals.measure(data.y[tested], scores)}
            measured.append({**run, "fit_seconds": fit_seconds, "score_seconds": seconds})
    return measured


def run_case(case: Case, data: Data, machine: Machine) -> list[Row]:
    """Fit and test by the whole protocol; ADDML's eighteen fits share one training call if possible."""
    rivals.check(data.y, data.name)
    planned, together = fits(data.y), trains_together(case, data)
    detectors = (new_detector(case, machine, one_class=fit.one_class, seed=fit.random_state) for fit in planned)
    if together:
        fitted = fit_together(data, planned, list(detectors))
    else:
        fitted = fit_each(case.method, data, planned, detectors)
    rows = results(case.method, data, planned, fitted)
    return [{**row, "together": len(planned) if together else 1} for row in rows]


def trains_together(case: Case, data: Data) -> bool:
    """Whether the fits can share one training call: ADDML's, on numbers without missing values."""
    return case.method in OWN and isinstance(data, LabelledArray) and not np.isnan(data.X).any()


def fit_together(data: Data, planned: Sequence[Fit], detectors: Sequence[Any]) -> Iterator[Fitted]:
    """All fits in one training call, each with an equal share of its seconds."""
    from research import together

    tables = [data.rows(fit.train) for fit in planned]
    start = time.perf_counter()
    fitted = together.fit_together(detectors, tables)
    seconds = (time.perf_counter() - start) / len(planned)
    return ((detector, seconds) for detector in fitted)


# Running time ------------------------------------------------------------------------------------------------


def timed_cases(methods: Sequence[str], sets: Sequence[str], runtime: Mapping[str, Any]) -> list[tuple[str, Case]]:
    """Every table with the case to time on it."""
    by_rows = [(drawn_name(rows, runtime["usual_columns"]), BY_ROWS) for rows in runtime["rows"]]
    by_columns = [(drawn_name(runtime["usual_rows"], columns), BY_COLUMNS) for columns in runtime["columns"]]
    by_size = [(name, Case(method, dimension)) for name, dimension in by_rows + by_columns for method in methods]
    saved = [Case(PAPER, f"{SAVED}: {saving}", settings) for saving, settings in SAVINGS.items()]
    return by_size + [(name, case) for name in sets for case in saved]


def drawn_name(rows: int, columns: int) -> str:
    """The name of a generated table of this size."""
    return f"{DRAWN}{rows}x{columns}"


def timed_size(name: str) -> tuple[int, int]:
    """Rows and columns of a generated table, or of a set."""
    match = re.fullmatch(rf"{DRAWN}(\d+)x(\d+)", name)
    return datasets.size(name) if match is None else (int(match[1]), int(match[2]))


def timed_data(name: str) -> LabelledArray:
    """A generated table with SCORED additional rows for scoring; or a set."""
    if not name.startswith(DRAWN):
        return load(name)
    rows, columns = timed_size(name)
    return drawn_table(rows + SCORED, columns)


def drawn_table(rows: int, columns: int) -> LabelledArray:
    """Rows near a subspace with a quarter of the dimensions, and a few anywhere."""
    random = np.random.default_rng([rows, columns])
    inner = max(1, columns // 4)
    X = random.normal(size=(rows, inner)) @ random.normal(size=(inner, columns)) / inner**0.5
    X += random.normal(0, 0.3, X.shape)
    y = (random.random(rows) < SHARE).astype(int)
    X[y == 1] = random.normal(0, 1.2, (int(y.sum()), columns))
    return LabelledArray(drawn_name(rows, columns), X, y)


def time_case(case: Case, data: LabelledArray, machine: Machine) -> list[Row]:
    """Fit to all but the last SCORED rows and score those, REPEATS times, on one thread."""
    from threadpoolctl import threadpool_limits

    test = np.arange(len(data.y) - min(SCORED, len(data.y) // 3), len(data.y))
    train = np.arange(test[0])
    Z_train, Z_test = data.standardised(train, train, test)
    one_thread = Machine(machine.device, 1)
    with threadpool_limits(1):
        return [_repeat(case, Z_train, Z_test, data.y[test], one_thread, repeat) for repeat in range(REPEATS)]


def _repeat(case: Case, Z_train: np.ndarray, Z_test: np.ndarray, y: np.ndarray, machine: Machine, repeat: int) -> Row:
    detector = new_detector(case, machine, one_class=False, seed=repeat)
    start = time.perf_counter()
    detector.fit(Z_train)
    fitted = time.perf_counter()
    scores = detector.anomaly_score(Z_test)
    end = time.perf_counter()
    measures = rivals.measure(y, scores) if 0 < y.sum() < len(y) else {"auc": None, "ap": None}
    seconds = {"fit_seconds": fitted - start, "score_seconds": end - fitted, "together": 1}
    return {"seed": repeat, "fold": 0, "setting": "time", **measures, **seconds}
