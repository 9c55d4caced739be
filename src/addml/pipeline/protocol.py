"""The paper's evaluation: which rows each fit learns from, which it is tested on, and how that is measured.

Three folds with equal shares of anomalies, three seeds: nine polluted fits and nine one-class fits of every method.
A polluted fit learns from the training part as it is and serves two settings: `seen` tests the training rows,
`unseen` the held-out fold. A one-class fit learns from the normal rows of the training part and is tested on the fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from addml.errors import UserError
from addml.pipeline.rivals import RIVALS, Method, make
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

FOLDS = 3
SEEDS = (0, 1, 2)
SEEN, UNSEEN, ONE_CLASS = SETTINGS = ("seen", "unseen", "one-class")
PAPER, DEFAULT = OWN = ("ADDML.paper", "ADDML")

Row = dict[str, Any]
Rivals = Mapping[str, Method]


# Labelled rows -----------------------------------------------------------------------------------------------


class Data(Protocol):
    """Labelled rows: as they are, and as numbers standardised by the training rows."""

    @property
    def name(self) -> str: ...
    @property
    def y(self) -> np.ndarray: ...  # 1 for anomalies, 0 for normal rows
    @property
    def shape(self) -> tuple[int, int]: ...
    def rows(self, ids: np.ndarray) -> Any: ...
    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]: ...


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """Numbers X (n, d), and whether each row is an anomaly, y (n,): 1 if so, 0 if not."""

    name: str
    X: np.ndarray
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """These rows, for a detector with its own preprocessing."""
        return np.asarray(self.X[ids])

    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The rows of each part, scaled by mean and deviation of the training rows; constant columns only centred."""
        mean, deviation = self.X[train].mean(axis=0), self.X[train].std(axis=0)
        constant = self.X[train].min(axis=0) == self.X[train].max(axis=0)
        scale = np.where(constant | (deviation == 0), 1.0, deviation)
        return [(self.X[part] - mean) / scale for part in parts]


@dataclass(frozen=True)
class LabelledTable:
    """A table of any columns, and whether each row is an anomaly."""

    name: str
    table: pa.Table
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.table.num_rows, self.table.num_columns

    def rows(self, ids: np.ndarray) -> pa.Table:
        """These rows, for a detector with its own preprocessing."""
        return self.table.take(ids)

    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The rows of each part as features, imputed, encoded and scaled by the training rows as in `ADDML`."""
        from addml.inputs.table import Columns
        from addml.preprocessing.scaling import Features

        own = self.table.take(train)
        columns = Columns.fit(own)
        features = columns.rescaled(Features.fit(columns.transform(own)))
        return [features.transform(columns.transform(self.table.take(part))).astype(float) for part in parts]


# Folds, seeds and measures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """One fit: its training rows and the fold that was held out."""

    seed: int
    fold: int
    one_class: bool
    train: np.ndarray
    test: np.ndarray

    @property
    def random_state(self) -> int:
        """The detector's own seed, different for each of the nine runs."""
        return FOLDS * self.seed + self.fold

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that this fit serves."""
        return (ONE_CLASS,) if self.one_class else (SEEN, UNSEEN)


def fits(y: np.ndarray) -> list[Fit]:
    """The eighteen fits of a set with labels y (1 anomaly, 0 normal)."""
    from sklearn.model_selection import StratifiedKFold

    found = []
    for seed in SEEDS:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y)
        for fold, (train, test) in enumerate(folds):
            found += [Fit(seed, fold, False, train, test), Fit(seed, fold, True, train[y[train] == 0], test)]
    return found


def check(y: np.ndarray, name: str) -> None:
    """Raise if labels cannot be divided into folds with both kinds of rows."""
    anomalies, normal = int((y == 1).sum()), int((y == 0).sum())
    for what, count in (("anomaly", anomalies), ("normal row", normal)):
        if count == 0:
            raise UserError(f"{name}: has no {what} among {counted(len(y), 'row')}; a comparison needs both kinds.")
    if min(anomalies, normal) < FOLDS:
        kinds = ("anomaly", "anomalies") if anomalies < FOLDS else ("normal row", "normal rows")
        what = counted(min(anomalies, normal), *kinds)
        raise UserError(f"{name}: has {what}, fewer than the {FOLDS} folds; label at least {FOLDS} of each kind.")


def measure(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """ROC-AUC and average precision of scores."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {"auc": float(roc_auc_score(y, scores)), "ap": float(average_precision_score(y, scores))}


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation of two scores of the same rows; if either is constant, 1 if both are, else 0."""
    from scipy.stats import spearmanr

    constant = np.ptp(one) == 0, np.ptp(other) == 0
    return float(all(constant)) if any(constant) else float(spearmanr(one, other).statistic)


# Methods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A method with changes of its settings, and the name by which tables and figures show it."""

    method: str
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its variant, or the method's own name."""
        return self.variant or self.method


@dataclass(frozen=True)
class Machine:
    """The device to compute on, and at most how many threads."""

    device: str = "cpu"
    threads: int | None = None


def known_methods(given: Sequence[str], rivals: Rivals = RIVALS) -> list[str]:
    """The named methods, in any case and separated by commas; an unknown one is an error that lists them all."""
    names = [*OWN, *rivals]
    by_name = {name.lower(): name for name in names}
    found = [part for text in given for part in map(str.strip, text.split(",")) if part]
    for part in found:
        if part.lower() not in by_name:
            hint = did_you_mean(part, names)
            raise UserError(f"{part!r} is not a known method (--methods).{hint} Methods: {', '.join(names)}.")
    if given and not found:
        raise UserError(f"--methods names none. Methods: {', '.join(names)}.")
    return list(dict.fromkeys(by_name[part.lower()] for part in found))


def new_detector(case: Case, machine: Machine, *, one_class: bool, seed: int, rivals: Rivals = RIVALS) -> Any:
    """A new detector; the paper's settings take all rows as normal where they are, the default is not told."""
    if case.method not in OWN:
        return make(case.method, random_state=seed, rivals=rivals, **case.settings)
    from addml.detector import ADDML

    is_paper = case.method == PAPER
    changes = ({"normal_ratio": 1.0} if one_class and is_paper else {}) | _with_scorer(case.settings)
    start = ADDML.paper if is_paper else ADDML
    return start(**changes, random_state=seed, device=machine.device, n_jobs=machine.threads)


def _with_scorer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with a scorer built from its own settings where those are given."""
    from addml.scoring import SCORERS

    scorer = settings.get("scorer")
    if not isinstance(scorer, Mapping):
        return dict(settings)
    own = dict(scorer)
    return {**settings, "scorer": SCORERS[own.pop("name")](**own)}


# Running the protocol ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A fitted detector and the seconds of its fit; `together` fits shared one training call."""

    detector: Any  # with anomaly_scores_ and anomaly_score(X)
    seconds: float
    together: int = 1


FitAll = Callable[[Case, Data, Sequence[Fit], Machine, Rivals], Iterator[Fitted]]


def fit_one_by_one(
    case: Case, data: Data, fits: Sequence[Fit], machine: Machine, rivals: Rivals = RIVALS
) -> Iterator[Fitted]:
    """Each fit by itself, when it is asked for."""
    for fit in fits:
        detector = new_detector(case, machine, one_class=fit.one_class, seed=fit.random_state, rivals=rivals)
        rows = _rows(case, data, fit, fit.train)
        began = time.perf_counter()
        detector.fit(rows)
        yield Fitted(detector, time.perf_counter() - began)


def run_case(
    case: Case, data: Data, machine: Machine, rivals: Rivals = RIVALS, fit_all: FitAll = fit_one_by_one
) -> list[Row]:
    """Fit and test by the whole protocol: one row of results for each fit and setting."""
    check(data.y, data.name)
    planned = fits(data.y)
    return [
        {"seed": fit.seed, "fold": fit.fold, "setting": setting, **result}
        for fit, fitted in zip(planned, fit_all(case, data, planned, machine, rivals), strict=True)
        for setting, result in _tested(case, data, fit, fitted).items()
    ]


def stability(case: Case, data: Data, machine: Machine, rivals: Rivals = RIVALS) -> float:
    """How alike seeds rank the first fold, having learned from the others: the mean rank correlation of pairs."""
    if case.method not in OWN and not rivals[case.method].seeded:
        return 1.0
    first = fits(data.y)[0]
    planned = [replace(first, seed=seed) for seed in SEEDS]
    rows = _rows(case, data, first, first.test)
    scores = [one.detector.anomaly_score(rows) for one in fit_one_by_one(case, data, planned, machine, rivals)]
    return float(np.mean([rank_correlation(*pair) for pair in combinations(scores, 2)]))


def _rows(case: Case, data: Data, fit: Fit, part: np.ndarray) -> Any:
    """Rows as the method takes them: ADDML has its own preprocessing, the others get them standardised."""
    return data.rows(part) if case.method in OWN else data.standardised(fit.train, part)[0]


def _tested(case: Case, data: Data, fit: Fit, fitted: Fitted) -> dict[str, Row]:
    """The measures of each setting that the fit serves; the training rows were scored by the fit itself."""
    results = {}
    rows = _rows(case, data, fit, fit.test)
    for setting in fit.settings:
        began = time.perf_counter()
        scores = fitted.detector.anomaly_scores_ if setting == SEEN else fitted.detector.anomaly_score(rows)
        seconds = None if setting == SEEN else time.perf_counter() - began
        measures = measure(data.y[fit.train if setting == SEEN else fit.test], scores)
        taken = {"fit_seconds": fitted.seconds, "together": fitted.together, "score_seconds": seconds}
        results[setting] = {**measures, **taken}
    return results
