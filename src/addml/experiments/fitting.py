"""The eighteen fits of one method on one set, each measured: one row of results a fit and setting."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from addml.experiments import methods, protocol
from addml.experiments.methods import Fitted
from addml.experiments.protocol import SEEDS, SEEN, Data, Fit, Numbers
from addml.experiments.statistics import rank_correlation


@dataclass(frozen=True)
class Case:
    """A method with changes of its settings, and the name under which it stands in a table or a figure."""

    method: str
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its variant, or the method's own name."""
        return self.variant or self.method


@dataclass(frozen=True)
class Machine:
    """Where to compute, and on how many threads at the most."""

    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class Done:
    """A fitted detector and what fitting took; `together` fits shared one call and its seconds."""

    detector: Fitted
    seconds: float
    together: int = 1


def run_case(case: Case, data: Data, machine: Machine) -> list[dict[str, Any]]:
    """Fit and test by the whole protocol."""
    protocol.check(data.y, data.name)
    fits = protocol.fits(data.y)
    done = _all_together if trains_together(case, data) else _one_by_one
    return [
        {"seed": fit.seed, "fold": fit.fold, "setting": setting, **result}
        for fit, one in zip(fits, done(case, data, fits, machine), strict=True)
        for setting, result in _tested(case, data, fit, one).items()
    ]


def stability(case: Case, data: Data, machine: Machine) -> float:
    """How alike seeds rank the rows of the first fold, having learned from the others: the mean rank correlation."""
    if not methods.seeded(case.method):
        return 1.0
    first = protocol.fits(data.y)[0]
    fits = [replace(first, seed=seed) for seed in SEEDS]
    (rows,) = _rows(case, data, first, first.test)
    scores = [done.detector.anomaly_score(rows) for done in _one_by_one(case, data, fits, machine)]
    return float(np.mean([rank_correlation(*pair) for pair in combinations(scores, 2)]))


def trains_together(case: Case, data: Data) -> bool:
    """Whether the fits share one training call: ADDML's, where all have the same columns."""
    return case.method in methods.OWN and isinstance(data, Numbers) and not np.isnan(data.X).any()


def _new(case: Case, fit: Fit, machine: Machine) -> Any:
    return methods.make(
        case.method,
        case.settings,
        one_class=fit.one_class,
        seed=fit.random_state,
        device=machine.device,
        jobs=machine.threads,
    )


def _all_together(case: Case, data: Data, fits: Sequence[Fit], machine: Machine) -> Iterator[Done]:
    from addml.experiments.together import fit_together

    detectors, tables = [_new(case, fit, machine) for fit in fits], [data.rows(fit.train) for fit in fits]
    began = time.perf_counter()
    fitted = fit_together(detectors, tables)
    seconds = (time.perf_counter() - began) / len(fits)
    return (Done(detector, seconds, len(fits)) for detector in fitted)


def _one_by_one(case: Case, data: Data, fits: Sequence[Fit], machine: Machine) -> Iterator[Done]:
    for fit in fits:
        detector, (rows,) = _new(case, fit, machine), _rows(case, data, fit, fit.train)
        began = time.perf_counter()
        detector.fit(rows)
        yield Done(detector, time.perf_counter() - began)


def _rows(case: Case, data: Data, fit: Fit, *parts: np.ndarray) -> list[Any]:
    """The rows of each part as the method takes them: ADDML prepares them itself, others get them standardised."""
    if case.method in methods.OWN:
        return [data.rows(part) for part in parts]
    return list(data.prepared(fit.train, *parts))


def _tested(case: Case, data: Data, fit: Fit, done: Done) -> dict[str, dict[str, Any]]:
    """The measures of each setting that the fit serves; the rows learned from were scored by the fit itself."""
    results = {}
    (rows,) = _rows(case, data, fit, fit.test)
    for setting in fit.settings:
        began = time.perf_counter()
        scores = done.detector.anomaly_scores_ if setting == SEEN else done.detector.anomaly_score(rows)
        seconds = None if setting == SEEN else time.perf_counter() - began
        measures = protocol.measure(data.y[fit.train if setting == SEEN else fit.test], scores)
        taken = {"fit_seconds": done.seconds, "together": done.together, "score_seconds": seconds}
        results[setting] = {**measures, **taken}
    return results
