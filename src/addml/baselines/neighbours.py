"""Rivals by nearest neighbours. A training row is never its own neighbour; a new row equal to one may have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival


class KNN(Rival):
    """The distance to the k-th nearest training row, or the mean over the k nearest."""

    def __init__(self, *, neighbours: int = 5, method: str = "largest", contamination: float = 0.1) -> None:
        self.neighbours = neighbours
        self.method = method
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.whole("neighbours", self.neighbours)
        parameters.one_of("method", self.method, ["largest", "mean"])

    def _fit(self, Z: np.ndarray) -> None:
        from sklearn.neighbors import NearestNeighbors

        self.index_ = NearestNeighbors(n_neighbors=min(self.neighbours, len(Z) - 1)).fit(Z)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return self._of(self.index_.kneighbors(Z)[0])

    def _training_scores(self, Z: np.ndarray) -> np.ndarray:
        return self._of(self.index_.kneighbors()[0])

    def _of(self, distances: np.ndarray) -> np.ndarray:
        return np.asarray(distances[:, -1] if self.method == "largest" else distances.mean(axis=1))


class LOF(Rival):
    """scikit-learn's local outlier factor: how much sparser a row lies than its neighbours."""

    def __init__(self, *, neighbours: int = 20, contamination: float = 0.1) -> None:
        self.neighbours = neighbours
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.whole("neighbours", self.neighbours)

    def _fit(self, Z: np.ndarray) -> None:
        from sklearn.neighbors import LocalOutlierFactor

        neighbours = min(self.neighbours, len(Z) - 1)
        self.factor_: Any = LocalOutlierFactor(n_neighbors=neighbours, novelty=True).fit(Z)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return -np.asarray(self.factor_.score_samples(Z))

    def _training_scores(self, Z: np.ndarray) -> np.ndarray:
        return -np.asarray(self.factor_.negative_outlier_factor_)
