"""Other detectors, and how `addml compare` compares ADDML with them.

Rivals have ADDML's interface: `make("KNN").fit(X).anomaly_score(X_new)`. Each is a function that learns from
standardised rows Z (n, d); its keyword arguments are its settings.

The protocol is the paper's: three stratified folds and three seeds, so nine polluted and nine one-class fits of every
method. A polluted fit learns from all training rows and serves two settings: `seen` tests on the training rows,
`unseen` on the held-out fold. A one-class fit learns from the normal training rows and is tested on the held-out fold.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import combinations, product
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import parameters
from addml.compute import resolve_device
from addml.errors import AddmlError, DroppedColumnsWarning
from addml.inputs.disk import draw
from addml.inputs.table import Columns
from addml.pipeline.labels import UNKNOWN, read_label
from addml.pipeline.options import Options
from addml.pipeline.ranking import rank_correlation
from addml.pipeline.sources import choose, open_input
from addml.preprocessing.numbers import CellError
from addml.preprocessing.scaling import Features
from addml.text import counted

FOLDS = 3
SEEDS = (0, 1, 2)
SEEN, UNSEEN, ONE_CLASS = SETTINGS = ("seen", "unseen", "one-class")
PAPER, DEFAULT = OWN = ("ADDML.paper", "ADDML")
METHODS = (DEFAULT, "IsolationForest", "OCSVM", "KNN", "LOF")  # the default of `addml compare`
BATCH_ROWS = 65_536

Row = dict[str, Any]


class Learned(NamedTuple):
    """A fitted rival."""

    score: Callable[[np.ndarray], np.ndarray]
    training_scores: np.ndarray


def isolation_forest(Z: np.ndarray, seed: Any, *, n_estimators: int = 100, max_samples: int = 256) -> Learned:
    """Isolation Forest (Liu, Ting and Zhou 2008)."""
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=n_estimators, max_samples=min(max_samples, len(Z)), random_state=seed).fit(Z)
    return Learned(lambda rows: -forest.score_samples(rows), -forest.score_samples(Z))


def one_class_svm(Z: np.ndarray, seed: Any, *, nu: float = 0.5, gamma: str | float = "scale") -> Learned:
    """One-class SVM (Schölkopf et al. 2001) with a Gaussian kernel; quadratic in the rows."""
    from sklearn.svm import OneClassSVM

    machine = OneClassSVM(kernel="rbf", nu=nu, gamma=gamma)
    machine.random_state = 0  # unused; without it, scikit-learn would draw from NumPy's global generator
    machine.fit(Z)
    return Learned(lambda rows: -machine.score_samples(rows), -machine.score_samples(Z))


def local_outlier_factor(Z: np.ndarray, seed: Any, *, n_neighbors: int = 20) -> Learned:
    """Local outlier factor (Breunig et al. 2000); a training row is not its own neighbour."""
    from sklearn.neighbors import LocalOutlierFactor

    factor = LocalOutlierFactor(n_neighbors=min(n_neighbors, len(Z) - 1), novelty=True).fit(Z)
    return Learned(lambda rows: -factor.score_samples(rows), -factor.negative_outlier_factor_)


def nearest_neighbours(Z: np.ndarray, seed: Any, *, n_neighbors: int = 5, method: str = "largest") -> Learned:
    """Distance to the k-th nearest training row, or the mean of the k nearest; no row is its own neighbour."""
    from sklearn.neighbors import NearestNeighbors

    parameters.check_one_of("method", method, ["largest", "mean"])
    index = NearestNeighbors(n_neighbors=min(n_neighbors, len(Z) - 1)).fit(Z)

    def score(rows: np.ndarray | None) -> np.ndarray:
        distances = index.kneighbors(rows)[0]
        return np.asarray(distances[:, -1] if method == "largest" else distances.mean(axis=1))

    return Learned(score, score(None))


def from_pyod(module: str, name: str, Z: np.ndarray, seed: Any, **settings: Any) -> Learned:
    """A detector of PyOD. The scores of ECOD and COPOD depend on the batch, as they rank new rows with the old ones."""
    try:
        kind = getattr(import_module(f"pyod.models.{module}"), name)
    except ImportError as error:
        raise ImportError(f"{name} needs PyOD: pip install 'addml[pyod]'") from error
    number = int(parameters.generator_seed(seed).generate_state(1)[0])
    defaults = {"random_state": number, "verbose": 0, "n_features": Z.shape[1]}
    defaults = {name: value for name, value in defaults.items() if name in signature(kind).parameters}
    with _seeded(number):
        detector = kind(**defaults | settings)
        try:
            detector.fit(Z)
        except Exception as error:  # of any kind, such as UnboundLocalError with few rows
            raise ValueError(f"PyOD's {name} could not be fitted: {error}") from error
    return Learned(detector.decision_function, detector.decision_scores_)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's and torch's global generators, which PyOD uses, and restore them afterwards."""
    before, torch = np.random.get_state(), sys.modules.get("torch")
    np.random.seed(seed)
    try:
        with nullcontext() if torch is None else torch.random.fork_rng():
            if torch is not None:
                torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(before)


class Method(NamedTuple):
    learn: Callable[..., Learned]
    seeded: bool = False  # draws random numbers


SCIKIT_LEARN = {
    "IsolationForest": Method(isolation_forest, seeded=True),
    "OCSVM": Method(one_class_svm),
    "KNN": Method(nearest_neighbours),
    "LOF": Method(local_outlier_factor),
}
PYOD = {
    "HBOS": Method(partial(from_pyod, "hbos", "HBOS")),
    "PCA": Method(partial(from_pyod, "pca", "PCA")),
    "MCD": Method(partial(from_pyod, "mcd", "MCD"), seeded=True),
    "CBLOF": Method(partial(from_pyod, "cblof", "CBLOF"), seeded=True),
    "ECOD": Method(partial(from_pyod, "ecod", "ECOD")),
    "COPOD": Method(partial(from_pyod, "copod", "COPOD")),
    "DeepSVDD": Method(partial(from_pyod, "deep_svdd", "DeepSVDD"), seeded=True),
    "LUNAR": Method(partial(from_pyod, "lunar", "LUNAR"), seeded=True),
    "PyODAutoEncoder": Method(partial(from_pyod, "auto_encoder", "AutoEncoder"), seeded=True),
}
RIVALS: Mapping[str, Method] = SCIKIT_LEARN | PYOD


class Rival(BaseEstimator):
    """A rival on standardised rows; `fit` stores the training rows' scores in `anomaly_scores_`."""

    def __init__(self, name: str, method: Method, random_state: Any, settings: Mapping[str, Any]) -> None:
        self.name, self.method, self.random_state, self.settings = name, method, random_state, settings

    def fit(self, X: Any, y: Any = None) -> Self:
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=2)
        self.scaler_ = StandardScaler().fit(X)
        self.learned_ = self.method.learn(self.scaler_.transform(X), self.random_state, **self.settings)
        self.anomaly_scores_ = self._finite(self.learned_.training_scores)
        return self

    def anomaly_score(self, X: Any) -> np.ndarray:
        """Anomaly scores; higher is more anomalous."""
        check_is_fitted(self, "anomaly_scores_")
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._finite(self.learned_.score(self.scaler_.transform(X)))

    def _finite(self, scores: np.ndarray) -> np.ndarray:
        scores = np.asarray(scores, np.float64)
        wrong = int((~np.isfinite(scores)).sum())
        if wrong:
            problem = f"{self.name} returned non-finite scores for {wrong} of {len(scores)} rows"
            raise ValueError(f"{problem}; drop duplicate and constant columns, or use another detector")
        return scores


def make(name: str, random_state: Any = None, rivals: Mapping[str, Method] = RIVALS, **settings: Any) -> Rival:
    """Create a rival by name; `random_state` makes it reproducible."""
    parameters.check_one_of("rival", name, rivals)
    return Rival(name, rivals[name], random_state, settings)


@dataclass(frozen=True)
class LabelledTable:
    name: str
    table: pa.Table
    y: np.ndarray  # (n,), 1 for anomalies, else 0
    notes: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()  # (column, why)

    def rows(self, ids: np.ndarray) -> pa.Table:
        return self.table.take(ids)

    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The features of each part, imputed, encoded and scaled on the training rows as in `ADDML`."""
        table = self.table.take(train)
        columns = Columns.fit(table)
        features = columns.rescaled(Features.fit(columns.transform(table)))
        return [features.transform(columns.transform(self.table.take(part))).astype(float) for part in parts]


def read(options: Options, most: int) -> LabelledTable:
    """Read a labelled table of at most `most` rows; rows without a label are dropped and reported."""
    label, data = str(options.label), open_input(options)
    roles = choose(data.names, options, data.source)
    table, sampled, rows = draw(data.batches([*roles.features, label], BATCH_ROWS), most, 0)
    y = read_label(table[label], options.anomaly_value, label)
    labelled = np.flatnonzero(y != UNKNOWN)
    notes, share = list(data.notes), f"{len(sampled):,} of {rows:,} rows"
    if len(sampled) < rows:
        notes.append(f"compared on {share}, drawn at random (--sample sets the number)")
    if len(labelled) < len(y):
        notes.append(f"dropped {counted(len(y) - len(labelled), 'row')} without a label")
    check(y[labelled], f"{data.source}, label {label!r} of {share}")
    table = table.select(list(roles.features)).take(labelled)
    try:
        useless = Columns.fit(table).left_out
    except CellError as error:
        error.row = int(sampled[labelled][error.row - 1]) + 1  # row of the file
        raise AddmlError(f"{data.source}: {error}") from error
    return LabelledTable(data.source, table, y[labelled], tuple(notes), (*roles.left_out, *useless))


def check(y: np.ndarray, name: str) -> None:
    """Refuse labels with too few anomalies or normal rows for the folds."""
    anomalies, normal = int((y == 1).sum()), int((y == 0).sum())
    if min(anomalies, normal) < FOLDS:
        counts = f"{counted(anomalies, 'anomaly', 'anomalies')} and {counted(normal, 'normal row')}"
        raise AddmlError(f"{name}: has {counts}; {FOLDS} folds need at least {FOLDS} of each kind.")


def folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and held-out row indices of each fold."""
    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y))


class Machine(NamedTuple):
    """Where fits run."""

    device: str = "cpu"
    threads: int | None = None

    @classmethod
    def of(cls, device: str, jobs: int) -> Machine:
        return cls(resolve_device(device), 1 if jobs > 1 else None)


def new_detector(
    method: str, machine: Machine, *, one_class: bool, seed: int, rivals: Mapping[str, Method] = RIVALS, **settings: Any
) -> Any:
    """Create a detector; in one-class fits only ADDML.paper is told that all training rows are normal."""
    if method not in OWN:
        return make(method, seed, rivals, **settings)
    from addml.detector import ADDML

    start = ADDML.paper if method == PAPER else ADDML
    detector = start(random_state=seed, device=machine.device, n_jobs=machine.threads)
    clean = {"normal_ratio": 1.0} if one_class and method == PAPER else {}
    return detector.set_params(**{**clean, **settings})


def measure(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    return {"auc": float(roc_auc_score(y, scores)), "ap": float(average_precision_score(y, scores))}


@dataclass(frozen=True)
class MethodTask:
    title: str  # the method
    data: LabelledTable

    def run(self, machine: Machine) -> list[Row]:
        """One row of results per fit and setting."""
        y, results = self.data.y, list[Row]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedColumnsWarning)
            method = {"method": self.title, "stability": self.stability(machine)}
            for seed, fold, one_class in product(SEEDS, range(FOLDS), (False, True)):
                train, test = folds(y, seed)[fold]
                train = train[y[train] == 0] if one_class else train
                detector, rows, seconds = self._fit(train, test, machine, FOLDS * seed + fold, one_class)
                fit = {**method, "seed": seed, "fold": fold, "fit_seconds": seconds}
                if not one_class:  # the fit scored the training rows
                    measures = measure(y[train], detector.anomaly_scores_)
                    results.append({**fit, "setting": SEEN, **measures, "score_seconds": None})
                began = time.perf_counter()
                scores = detector.anomaly_score(rows)
                fit |= {"setting": ONE_CLASS if one_class else UNSEEN, "score_seconds": time.perf_counter() - began}
                results.append({**fit, **measure(y[test], scores)})
        return results

    def _fit(
        self, train: np.ndarray, test: np.ndarray, machine: Machine, seed: int, one_class: bool = False
    ) -> tuple[Any, Any, float]:
        """A fitted detector, the held-out rows in its format, and the seconds of the fit."""
        detector = new_detector(self.title, machine, one_class=one_class, seed=seed)
        if self.title in OWN:  # they have their own preprocessing
            rows, held_out = self.data.rows(train), self.data.rows(test)
        else:
            rows, held_out = self.data.standardised(train, train, test)
        began = time.perf_counter()
        detector.fit(rows)
        return detector, held_out, time.perf_counter() - began

    def stability(self, machine: Machine) -> float:
        """The mean rank correlation of the seeds' scores of the first fold."""
        if self.title in RIVALS and not RIVALS[self.title].seeded:
            return 1.0
        scores, (train, test) = [], folds(self.data.y, SEEDS[0])[0]
        for seed in SEEDS:
            detector, rows, _ = self._fit(train, test, machine, FOLDS * seed)
            scores.append(detector.anomaly_score(rows))
        return float(np.mean([rank_correlation(*pair) for pair in combinations(scores, 2)]))
