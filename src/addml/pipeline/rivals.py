"""Other detectors to compare with, used as ADDML is: `make("KNN").fit(X).anomaly_score(X_new)`.

A rival is a function that learns from standardised rows Z (n, d); its keyword arguments are its settings, by default
those of the paper. Higher scores are more anomalous.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import parameters
from addml.distances import count_of

EDGE = 1e-9  # of a histogram's bin: a value this close to an edge is on it, and belongs to the bin on its right
ZERO = 1e-10  # of the largest eigenvalue: a component below it is rounding error
PYOD_NEEDS = ("pyod", "torch")

Score = Callable[[np.ndarray], np.ndarray]


class Learned(NamedTuple):
    """A fitted rival: how it scores standardised rows, and the scores of its training rows."""

    score: Score
    training_scores: np.ndarray


# scikit-learn's ----------------------------------------------------------------------------------------------


def isolation_forest(Z: np.ndarray, seed: Any, *, n_estimators: int = 100, max_samples: int = 256) -> Learned:
    """Isolation Forest (Liu, Ting and Zhou 2008) of trees with min(256, n) rows each."""
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=n_estimators, max_samples=min(max_samples, len(Z)), random_state=seed).fit(Z)
    return scored(lambda rows: -forest.score_samples(rows), Z)


def one_class_svm(Z: np.ndarray, seed: Any, *, nu: float = 0.5, gamma: str | float = "scale") -> Learned:
    """One-class SVM (Schölkopf et al. 2001) with a Gaussian kernel; quadratic in the rows."""
    from sklearn.svm import OneClassSVM

    machine = OneClassSVM(kernel="rbf", nu=nu, gamma=gamma)
    machine.random_state = 0  # unused, but drawn from NumPy's global generator if missing
    machine.fit(Z)
    return scored(lambda rows: -machine.score_samples(rows), Z)


def local_outlier_factor(Z: np.ndarray, seed: Any, *, n_neighbors: int = 20) -> Learned:
    """How much sparser a row lies than its neighbours; a training row is not its own neighbour."""
    from sklearn.neighbors import LocalOutlierFactor

    factor = LocalOutlierFactor(n_neighbors=min(n_neighbors, len(Z) - 1), novelty=True).fit(Z)
    return Learned(lambda rows: -factor.score_samples(rows), -factor.negative_outlier_factor_)


def nearest_neighbours(Z: np.ndarray, seed: Any, *, n_neighbors: int = 5, method: str = "largest") -> Learned:
    """The distance to the k-th nearest training row, or the mean over the k nearest; no row is its own neighbour."""
    from sklearn.neighbors import NearestNeighbors

    parameters.check_one_of("method", method, ["largest", "mean"])
    index = NearestNeighbors(n_neighbors=min(n_neighbors, len(Z) - 1)).fit(Z)

    def score(rows: np.ndarray | None) -> np.ndarray:
        distances = index.kneighbors(rows)[0]
        return np.asarray(distances[:, -1] if method == "largest" else distances.mean(axis=1))

    return Learned(score, score(None))


# Histograms and principal components --------------------------------------------------------------------------


def histograms(Z: np.ndarray, seed: Any, *, bins: int = 5, smoothing: float = 0.1) -> Learned:
    """HBOS (Goldstein and Dengel 2012): the sum over columns of -log2(density + smoothing), in equally wide bins.

    A value up to half a bin outside the training range belongs to the outermost bin; one farther out has the
    density of the column's emptiest bin. Both, and the smoothing, are PyOD's, and agree with the paper's figures.
    """
    parameters.check_whole("bins", bins)
    parameters.check_number("smoothing", smoothing, 0, with_low=False)
    low, high = Z.min(axis=0), Z.max(axis=0)
    width = np.where(high > low, (high - low) / bins, 1.0)

    def bin_of(positions: np.ndarray) -> np.ndarray:
        return (positions + EDGE).clip(0, bins - 1).astype(np.int64)

    counts = np.stack([np.bincount(column, minlength=bins) for column in bin_of((Z - low) / width).T])
    surprise = -np.log2(counts / (len(Z) * width[:, None]) + smoothing)  # (d, bins)

    def score(rows: np.ndarray) -> np.ndarray:
        positions = (rows - low) / width  # in bins, from the left end
        inside = np.take_along_axis(surprise.T, bin_of(positions), axis=0)
        far = (positions < -0.5) | (positions > bins + 0.5)
        return np.asarray(np.where(far, surprise.max(axis=1), inside).sum(axis=1))

    return scored(score, Z)


class Components(NamedTuple):
    """Principal components of standardised rows, the largest first, without those of no variance."""

    mean: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    values: np.ndarray  # (c,), eigenvalues of the correlation matrix
    axes: np.ndarray  # (d, c)

    @classmethod
    def of(cls, Z: np.ndarray) -> Components:
        """The components of the correlation matrix of Z (n, d)."""
        mean, scale = Z.mean(axis=0), Z.std(axis=0)
        scale = np.where(scale > ZERO, scale, 1.0)
        W = (Z - mean) / scale
        values, axes = np.linalg.eigh(W.T @ W / len(W))
        real = np.flatnonzero(values > ZERO * max(values[-1], ZERO))[::-1]
        return cls(mean, scale, values[real], axes[:, real])

    def along(self, Z: np.ndarray) -> np.ndarray:
        """The coordinates (n, c) of rows along the components."""
        return np.asarray((Z - self.mean) / self.scale @ self.axes)

    def squares(self, Z: np.ndarray) -> np.ndarray:
        """Squared coordinates (n, c), each divided by its eigenvalue."""
        return np.asarray(self.along(Z) ** 2 / self.values)

    def major(self, share: float) -> int:
        """How many components, the largest first, explain at least this share of the variance."""
        explained = np.cumsum(self.values) / max(self.values.sum(), ZERO)
        return min(int(np.searchsorted(explained, share - 1e-12)) + 1, len(self.values))


def principal_classifier(
    Z: np.ndarray, seed: Any, *, trimmed: float = 0.005, major_share: float = 0.5, minor_below: float = 0.2
) -> Learned:
    """The classifier of Shyu et al. (2003): standardised squares summed over major and minor components.

    The components come from the rows without the `trimmed` share of largest Mahalanobis distance. Major ones explain
    `major_share` of the variance, minor ones have eigenvalues under `minor_below`; directions without variance do
    not count, so that repeated and constant columns do no harm.
    """
    parameters.check_number("trimmed", trimmed, 0, 1, with_low=True, with_high=False)
    parameters.check_number("major_share", major_share, 0, 1, with_low=False)
    parameters.check_number("minor_below", minor_below, 0, with_low=True)
    mahalanobis = Components.of(Z).squares(Z).sum(axis=1)
    keep = max(2, len(Z) - count_of(trimmed, len(Z), least=0))
    found = Components.of(Z[mahalanobis <= np.partition(mahalanobis, keep - 1)[keep - 1]])
    used = (np.arange(len(found.values)) < found.major(major_share)) | (found.values < minor_below)
    return scored(lambda rows: found.squares(rows)[:, used].sum(axis=1), Z)


def reconstruction(Z: np.ndarray, seed: Any, *, explained: float = 0.9) -> Learned:
    """PCA: the squared error of reconstructing a row from the components that explain most of the variance."""
    parameters.check_number("explained", explained, 0, 1, with_low=False, with_high=False)
    found = Components.of(Z)
    axes = found.axes[:, : found.major(explained)]
    return scored(lambda rows: ((rows - rows @ axes @ axes.T) ** 2).sum(axis=1), Z)


def scored(score: Score, Z: np.ndarray) -> Learned:
    """Training rows score as new ones do."""
    return Learned(score, score(Z))


# PyOD's ------------------------------------------------------------------------------------------------------


def from_pyod(module: str, name: str, Z: np.ndarray, seed: Any, **settings: Any) -> Learned:
    """PyOD's detector of this name.

    ECOD and COPOD rank new rows together with the training rows: there a score depends on the rows scored beside it.
    """
    number = int(parameters.generator_seed(seed).generate_state(1)[0])
    kind = getattr(import_module(f"pyod.models.{module}"), name)
    ours = {"random_state": number, "verbose": 0, "n_features": Z.shape[1]}
    taken = {argument: value for argument, value in ours.items() if argument in signature(kind).parameters}
    with _seeded(number):
        detector = kind(**taken | settings)
        try:
            detector.fit(Z)
        except Exception as error:  # of any kind, such as UnboundLocalError with few rows
            raise ValueError(f"PyOD's {name} could not be fitted: {error}") from error
    return Learned(detector.decision_function, detector.decision_scores_)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's and torch's global generators, which PyOD draws from, seeded inside and restored afterwards."""
    before, torch = np.random.get_state(), sys.modules.get("torch")
    np.random.seed(seed)
    try:
        with nullcontext() if torch is None else torch.random.fork_rng():
            if torch is not None:
                torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(before)


# By name -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """One rival by name: how it learns, what the paper calls it, and what it needs."""

    learn: Callable[..., Learned]
    title: str | None = None  # in the paper's Table II
    seeded: bool = False
    needs: tuple[str, ...] = ()  # modules of the extra `pyod`

    @property
    def available(self) -> bool:
        """Whether everything it needs is installed."""
        return all(find_spec(module) for module in self.needs)

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings by their defaults; those of PyOD's are PyOD's own."""
        arguments = signature(self.learn).parameters.values()
        return {one.name: one.default for one in arguments if one.kind is Parameter.KEYWORD_ONLY}


def _pyod(module: str, name: str, seeded: bool = True) -> Method:
    return Method(partial(from_pyod, module, name), seeded=seeded, needs=PYOD_NEEDS)


RIVALS: dict[str, Method] = {
    "IsolationForest": Method(isolation_forest, "IF", seeded=True),
    "PCC": Method(principal_classifier, "PCC"),
    "OCSVM": Method(one_class_svm, "OC-SVM"),
    "HBOS": Method(histograms, "HBOS"),
    "KNN": Method(nearest_neighbours),
    "LOF": Method(local_outlier_factor),
    "PCA": Method(reconstruction),
    "MCD": _pyod("mcd", "MCD"),
    "CBLOF": _pyod("cblof", "CBLOF"),
    "ECOD": _pyod("ecod", "ECOD", seeded=False),
    "COPOD": _pyod("copod", "COPOD", seeded=False),
    "DeepSVDD": _pyod("deep_svdd", "DeepSVDD"),
    "LUNAR": _pyod("lunar", "LUNAR"),
    "PyODAutoEncoder": _pyod("auto_encoder", "AutoEncoder"),
}


class Rival(BaseEstimator):
    """A rival that standardises rows and learns from them; fitted, it has `anomaly_scores_` of the training rows."""

    def __init__(self, name: str, method: Method, random_state: Any, settings: Mapping[str, Any]) -> None:
        self.name, self.method, self.random_state, self.settings = name, method, random_state, settings

    def fit(self, X: Any, y: Any = None) -> Self:
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=2)
        with np.errstate(over="ignore", invalid="ignore"):
            scaler = StandardScaler().fit(X)  # a constant column is divided by one
        if len(beyond := np.flatnonzero(~np.isfinite(scaler.scale_))):
            raise ValueError(f"column {beyond[0]} of X holds numbers too large to be standardised; divide or drop it")
        self.scaler_ = scaler
        self.learned_ = self.method.learn(scaler.transform(X), self.random_state, **self.settings)
        self.anomaly_scores_ = self._finite(self.learned_.training_scores)
        return self

    def anomaly_score(self, X: Any) -> np.ndarray:
        """How anomalous each row of X is: higher is more."""
        check_is_fitted(self, "anomaly_scores_")
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._finite(self.learned_.score(self.scaler_.transform(X)))

    def _finite(self, scores: np.ndarray) -> np.ndarray:
        scores = np.asarray(scores, np.float64)
        if bad := int((~np.isfinite(scores)).sum()):
            raise ValueError(
                f"{self.name} gave {bad} of {len(scores)} rows a score that is not finite; "
                "drop columns that repeat others or hold one value, or use another detector"
            )
        return scores


def make(name: str, random_state: Any = None, rivals: Mapping[str, Method] = RIVALS, **settings: Any) -> Rival:
    """The rival of this name with the paper's settings and the given changes; `random_state` fixes what it draws."""
    parameters.check_one_of("rival", name, rivals)
    method = rivals[name]
    if not method.available:
        raise ImportError(f"{name} needs PyOD: pip install 'addml[pyod]'")
    return Rival(name, method, random_state, settings)
