"""One-class support vector machine (Schölkopf et al. 2001): how far a row lies outside the learned region."""

from __future__ import annotations

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival


class OCSVM(Rival):
    """scikit-learn's, with the paper's Gaussian kernel and nu = 0.5; quadratic in the rows, all of which it uses."""

    def __init__(self, *, nu: float = 0.5, gamma: str | float = "scale", contamination: float = 0.1) -> None:
        self.nu = nu
        self.gamma = gamma
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.number("nu", self.nu, 0, 1, with_low=False)

    def _fit(self, Z: np.ndarray) -> None:
        from sklearn.svm import OneClassSVM

        machine = OneClassSVM(kernel="rbf", nu=self.nu, gamma=self.gamma)
        machine.random_state = 0  # it draws a seed that it has no use for, from NumPy's global generator otherwise
        self.machine_ = machine.fit(Z)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return -np.asarray(self.machine_.score_samples(Z))
