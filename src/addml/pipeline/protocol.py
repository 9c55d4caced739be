"""The paper's evaluation: which rows each fit learns from, which it is tested on, and how that is measured.

Three folds with equal shares of anomalies, three seeds: nine polluted fits and nine one-class fits of every method.
A polluted fit learns from the training part as it is and serves two settings: `seen` tests the training rows,
`unseen` the held-out fold. A one-class fit learns from the normal rows of the training part and is tested on the fold.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from addml.compute import resolve_device
from addml.errors import USAGE, DroppedColumnsWarning, UserError
from addml.inputs.census import draw
from addml.pipeline.labels import UNKNOWN, read_label
from addml.pipeline.options import Options
from addml.pipeline.rivals import RIVALS, Method, make
from addml.pipeline.sources import choose, open_input
from addml.pipeline.workers import Ended, run_tasks
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

FOLDS = 3
SEEDS = (0, 1, 2)
SEEN, UNSEEN, ONE_CLASS = SETTINGS = ("seen", "unseen", "one-class")
PAPER, DEFAULT = OWN = ("ADDML.paper", "ADDML")
METHODS = (DEFAULT, "IsolationForest", "PCC", "OCSVM", "HBOS", "KNN", "LOF")  # that `addml compare` takes by default
BATCH_ROWS = 65_536

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
            raise UserError(f"{part!r} is not a known method (--methods).{hint} Methods: {', '.join(names)}.", USAGE)
    if given and not found:
        raise UserError(f"--methods names none. Methods: {', '.join(names)}.", USAGE)
    return list(dict.fromkeys(by_name[part.lower()] for part in found))


def new_detector(case: Case, machine: Machine, *, one_class: bool, seed: int, rivals: Rivals = RIVALS) -> Any:
    """A new detector; the paper's settings take all rows as normal where they are, the default is not told."""
    if case.method not in OWN:
        return make(case.method, random_state=seed, rivals=rivals, **case.settings)
    from addml.detector import ADDML

    is_paper = case.method == PAPER
    changes = ({"normal_ratio": 1.0} if one_class and is_paper else {}) | dict(case.settings)
    start = ADDML.paper if is_paper else ADDML
    detector = start(random_state=seed, device=machine.device, n_jobs=machine.threads)
    return detector.set_params(**changes)


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


# The user's table --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """A user's table, notes on it, and the columns dropped from it."""

    data: LabelledTable
    notes: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]  # (column, why)


def read(options: Options, most: int, seed: int = 0) -> Labelled:
    """The table of a file with its label apart; rows without a label are dropped and counted."""
    label = str(options.label)
    data = open_input(options)
    chosen = choose(data.names, options, data.source)
    table, places, rows = draw(data.batches([*chosen.features, label], BATCH_ROWS), most, seed)
    marks = read_label(table[label], options.anomaly_value, label)
    known = np.flatnonzero(marks != UNKNOWN)
    notes, drawn = list(data.notes), ""
    if len(places) < rows:
        drawn = f" of {len(places):,} of {rows:,} rows (--sample takes more)"
        notes.append(f"compared on {len(places):,} of {rows:,} rows, drawn at random (--sample takes more)")
    if len(known) < len(marks):
        notes.append(f"dropped, without a label: {counted(len(marks) - len(known), 'row')}")
    labelled = LabelledTable(data.source, table.select(list(chosen.features)).take(known), marks[known])
    check(labelled.y, f"{data.source}, label {label!r}{drawn}")
    return Labelled(labelled, tuple(notes), (*chosen.left_out, *_dropped(labelled, places[known])))


def _dropped(data: LabelledTable, places: np.ndarray) -> list[tuple[str, str]]:
    """The columns that no method can learn from, and why; an error names the row of the file."""
    from addml.inputs.table import CellError, Columns

    try:
        return Columns.fit(data.table).left_out
    except CellError as error:
        error.row = int(places[error.row - 1]) + 1
        raise UserError(f"{data.name}: {error}") from error


@dataclass(frozen=True)
class MethodTask:
    """One method on the user's table."""

    method: str
    data: LabelledTable

    @property
    def title(self) -> str:
        """The method."""
        return self.method

    def run(self, machine: Machine) -> list[Row]:
        """The results of the protocol, and the method's stability; dropped columns were reported before."""
        case = Case(self.method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedColumnsWarning)
            same = {"method": self.method, "stability": stability(case, self.data, machine)}
            return [{**same, **row} for row in run_case(case, self.data, machine)]


def compare(
    data: LabelledTable,
    methods: Iterable[str],
    machine: Machine,
    jobs: int,
    on_end: Callable[[Ended], None] = lambda ended: None,
    run: Callable[..., Iterator[tuple[Ended, list[Row]]]] = run_tasks,
) -> list[Row]:
    """The runs of every method that does not fail; `run` says where."""
    found = []
    for ended, rows in run([MethodTask(method, data) for method in methods], machine, jobs):
        on_end(ended)
        found += rows
    return found


@dataclass(frozen=True)
class Result:
    """A method's means over nine runs in one setting."""

    method: str
    setting: str
    auc: float
    auc_spread: float
    ap: float
    ap_spread: float
    fit_seconds: float
    score_seconds: float | None  # none for training rows, which the fit itself scored
    stability: float  # how alike seeds rank held-out rows: the same in all settings


def summary(rows: Sequence[Row], by: str = UNSEEN) -> list[Result]:
    """Means of each method and setting; the best in the setting `by` first, equals by name."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(one, setting): _result(one, setting, rows) for one in methods for setting in SETTINGS}
    order = sorted(methods, key=lambda one: (-found[one, by].auc, one))
    return [found[one, setting] for one in order for setting in SETTINGS]


def _result(method: str, setting: str, rows: Sequence[Row]) -> Result:
    own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
    auc, ap = (np.array([row[name] for row in own]) for name in ("auc", "ap"))
    return Result(
        method=method,
        setting=setting,
        auc=float(auc.mean()),
        auc_spread=float(auc.std(ddof=1)),
        ap=float(ap.mean()),
        ap_spread=float(ap.std(ddof=1)),
        fit_seconds=float(np.mean([row["fit_seconds"] for row in own])),
        score_seconds=None if setting == SEEN else float(np.mean([row["score_seconds"] for row in own])),
        stability=own[0]["stability"],
    )


def machine_for(device: str, jobs: int) -> Machine:
    """The device, and one thread for each of several processes."""
    return Machine(resolve_device(device), 1 if jobs > 1 else None)
