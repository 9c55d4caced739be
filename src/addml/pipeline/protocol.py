"""The paper's evaluation: which rows each fit learns from, which it is tested on, and how that is measured.

Three folds with equal shares of anomalies, three seeds: nine polluted fits and nine one-class fits of every method.
A polluted fit learns from the training part as it is and serves two settings: `seen` tests the training rows,
`unseen` the held-out fold. A one-class fit learns from the normal rows of the training part and is tested on the fold.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.compute import resolve_device
from addml.errors import USAGE, AddmlError, DroppedColumnsWarning
from addml.inputs.census import draw
from addml.pipeline.labels import UNKNOWN, read_label
from addml.pipeline.options import Options
from addml.pipeline.ranking import rank_correlation
from addml.pipeline.rivals import RIVALS, Method, make
from addml.pipeline.sources import choose, open_input
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
Data = Any  # a LabelledTable, or what else has its name, y, shape, rows() and standardised()
Fitted = tuple[Any, float]  # a detector with anomaly_scores_ and anomaly_score(X), and the seconds of its fit
FitAll = Callable[["Case", Data, Sequence["Fit"], "Machine", Rivals], Iterator[Fitted]]


# Labelled rows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledTable:
    """A table of any columns, and whether each row is an anomaly; notes on it, and the columns dropped from it."""

    name: str
    table: pa.Table
    y: np.ndarray  # 1 for anomalies, 0 for normal rows
    notes: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()  # (column, why)

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.num_rows, self.table.num_columns

    def rows(self, ids: np.ndarray) -> pa.Table:
        return self.table.take(ids)

    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The rows of each part as features, imputed, encoded and scaled by the training rows as in `ADDML`."""
        from addml.inputs.table import Columns
        from addml.preprocessing.scaling import Features

        own = self.table.take(train)
        columns = Columns.fit(own)
        features = columns.rescaled(Features.fit(columns.transform(own)))
        return [features.transform(columns.transform(self.table.take(part))).astype(float) for part in parts]


def read(options: Options, most: int, seed: int = 0) -> LabelledTable:
    """The table of a file with its label apart; rows without a label are dropped and counted."""
    from addml.inputs.table import Columns
    from addml.preprocessing.numbers import CellError

    label, data = str(options.label), open_input(options)
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
    check(marks[known], f"{data.source}, label {label!r}{drawn}")
    table = table.select(list(chosen.features)).take(known)
    try:
        useless = Columns.fit(table).left_out
    except CellError as error:
        error.row = int(places[known][error.row - 1]) + 1  # of the file
        raise AddmlError(f"{data.source}: {error}") from error
    return LabelledTable(data.source, table, marks[known], tuple(notes), (*chosen.left_out, *useless))


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
        """The detector's seed, different for each of the nine runs."""
        return FOLDS * self.seed + self.fold

    @property
    def settings(self) -> tuple[str, ...]:
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
            raise AddmlError(f"{name}: has no {what} among {counted(len(y), 'row')}; a comparison needs both kinds.")
    if min(anomalies, normal) < FOLDS:
        kinds = ("anomaly", "anomalies") if anomalies < FOLDS else ("normal row", "normal rows")
        what = counted(min(anomalies, normal), *kinds)
        raise AddmlError(f"{name}: has {what}, fewer than the {FOLDS} folds; label at least {FOLDS} of each kind.")


def measure(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {"auc": float(roc_auc_score(y, scores)), "ap": float(average_precision_score(y, scores))}


# Methods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A method with changes of its settings, and the name by which tables and figures show it."""

    method: str
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.variant or self.method


@dataclass(frozen=True)
class Machine:
    device: str = "cpu"
    threads: int | None = None

    @classmethod
    def of(cls, device: str, jobs: int) -> Machine:
        """The device, and one thread for each of several processes."""
        return cls(resolve_device(device), 1 if jobs > 1 else None)


def known_methods(given: Sequence[str], rivals: Rivals = RIVALS) -> list[str]:
    """The named methods, in any case and separated by commas; an unknown one is an error that lists them all."""
    names = [*OWN, *rivals]
    by_name = {name.lower(): name for name in names}
    found = [part for text in given for part in map(str.strip, text.split(",")) if part]
    for part in found:
        if part.lower() not in by_name:
            hint = did_you_mean(part, names)
            raise AddmlError(f"{part!r} is not a known method (--methods).{hint} Methods: {', '.join(names)}.", USAGE)
    if given and not found:
        raise AddmlError(f"--methods names none. Methods: {', '.join(names)}.", USAGE)
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


def fit_one_by_one(
    case: Case, data: Data, fits: Sequence[Fit], machine: Machine, rivals: Rivals = RIVALS
) -> Iterator[Fitted]:
    """Each fit by itself, when it is asked for."""
    for fit in fits:
        detector = new_detector(case, machine, one_class=fit.one_class, seed=fit.random_state, rivals=rivals)
        rows = _rows(case, data, fit, fit.train)
        began = time.perf_counter()
        detector.fit(rows)
        yield detector, time.perf_counter() - began


def run_case(
    case: Case, data: Data, machine: Machine, rivals: Rivals = RIVALS, fit_all: FitAll = fit_one_by_one
) -> list[Row]:
    """Fit and test by the whole protocol: one row of results for each fit and setting."""
    check(data.y, data.name)
    planned, found = fits(data.y), []
    for fit, (detector, fit_seconds) in zip(planned, fit_all(case, data, planned, machine, rivals), strict=True):
        rows = _rows(case, data, fit, fit.test)
        for setting in fit.settings:
            began = time.perf_counter()
            if setting == SEEN:  # the training rows, which were scored by the fit itself
                tested, scores, seconds = fit.train, detector.anomaly_scores_, None
            else:
                tested, scores = fit.test, detector.anomaly_score(rows)
                seconds = time.perf_counter() - began
            own = {"seed": fit.seed, "fold": fit.fold, "setting": setting, **measure(data.y[tested], scores)}
            found.append({**own, "fit_seconds": fit_seconds, "score_seconds": seconds})
    return found


def stability(case: Case, data: Data, machine: Machine) -> float:
    """How alike seeds rank the first fold, having learned from the others: the mean rank correlation of pairs."""
    if case.method not in OWN and not RIVALS[case.method].seeded:
        return 1.0
    first = fits(data.y)[0]
    planned = [replace(first, seed=seed) for seed in SEEDS]
    rows = _rows(case, data, first, first.test)
    scores = [detector.anomaly_score(rows) for detector, _ in fit_one_by_one(case, data, planned, machine)]
    return float(np.mean([rank_correlation(*pair) for pair in combinations(scores, 2)]))


def _rows(case: Case, data: Data, fit: Fit, part: np.ndarray) -> Any:
    """Rows as the method takes them: ADDML has its own preprocessing, the others get them standardised."""
    return data.rows(part) if case.method in OWN else data.standardised(fit.train, part)[0]


@dataclass(frozen=True)
class MethodTask:
    """One method on the user's table."""

    title: str  # the method
    data: LabelledTable

    def run(self, machine: Machine) -> list[Row]:
        """The results of the protocol, and the method's stability; dropped columns were reported before."""
        case = Case(self.title)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedColumnsWarning)
            same = {"method": self.title, "stability": stability(case, self.data, machine)}
            return [{**same, **row} for row in run_case(case, self.data, machine)]


def summary(rows: Sequence[Row], by: str = UNSEEN) -> list[Row]:
    """Means and deviations of each method and setting; the best in the setting `by` first, equals by name."""
    methods = dict.fromkeys(row["method"] for row in rows)
    found = {(one, setting): _means(one, setting, rows) for one in methods for setting in SETTINGS}
    order = sorted(methods, key=lambda one: (-found[one, by]["auc"], one))
    return [found[one, setting] for one in order for setting in SETTINGS]


def _means(method: str, setting: str, rows: Sequence[Row]) -> Row:
    own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
    auc, ap = (np.array([row[name] for row in own]) for name in ("auc", "ap"))
    return {
        "method": method,
        "setting": setting,
        "auc": float(auc.mean()),
        "auc_spread": float(auc.std(ddof=1)),
        "ap": float(ap.mean()),
        "ap_spread": float(ap.std(ddof=1)),
        "fit_seconds": float(np.mean([row["fit_seconds"] for row in own])),
        "score_seconds": None if setting == SEEN else float(np.mean([row["score_seconds"] for row in own])),
        "stability": own[0]["stability"],  # how alike seeds rank held-out rows: the same in all settings
    }
