"""Isolation Forest (Liu, Ting and Zhou 2008): rows that few random splits cut off."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival


class IsolationForest(Rival):
    """scikit-learn's forest with the paper's 100 trees of min(256, n) rows."""

    def __init__(
        self, *, trees: int = 100, samples: int = 256, contamination: float = 0.1, random_state: Any = None
    ) -> None:
        self.trees = trees
        self.samples = samples
        self.contamination = contamination
        self.random_state = random_state

    def _check_parameters(self) -> None:
        parameters.whole("trees", self.trees)
        parameters.whole("samples", self.samples)

    def _fit(self, Z: np.ndarray) -> None:
        from sklearn import ensemble

        samples = min(self.samples, len(Z))
        forest = ensemble.IsolationForest(n_estimators=self.trees, max_samples=samples, random_state=self.random_state)
        self.forest_ = forest.fit(Z)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return -np.asarray(self.forest_.score_samples(Z))
