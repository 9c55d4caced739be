"""From one score to scikit-learn's methods: each step adds one thing, and the other sign lives here alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from addml.arrays import to_numpy


class Ladder(ABC):
    """What follows from `anomaly_score`, `threshold_` and `offset_`, for every detector alike."""

    threshold_: float
    offset_: float

    @abstractmethod
    def anomaly_score(self, X: Any) -> Any:
        """How anomalous each row of X is: higher is more."""

    def is_anomaly(self, X: Any) -> Any:
        """Whether each row of X scores above the threshold."""
        return self.anomaly_score(X) > self.threshold_

    def score_samples(self, X: Any) -> Any:
        """scikit-learn's sign: higher is more normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Any:
        """scikit-learn's sign, shifted: below zero is an anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for anomalies, +1 for normal rows."""
        return np.where(to_numpy(self.is_anomaly(X)), -1, 1)
