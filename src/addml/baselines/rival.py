"""What all rivals share: checked and standardised rows in, scores and decisions out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import parameters
from addml.decisions.thresholds import quantile_threshold
from addml.scoring.ladder import Ladder


class Rival(Ladder, OutlierMixin, BaseEstimator):
    """A detector that learns from standardised rows; a subclass has `_fit(Z)` and `_score(Z)`, higher = more anomalous.

    Fitted: `anomaly_scores_` of the training rows, `threshold_`, `offset_` (minus the threshold), `n_features_in_`.
    """

    contamination: float

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of X; y is ignored."""
        parameters.number("contamination", self.contamination, 0, 0.5, with_low=False)
        self._check_parameters()
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=2)
        with np.errstate(over="ignore", invalid="ignore"):
            self.scaler_ = StandardScaler().fit(X)  # a constant column is divided by one
        if len(beyond := np.flatnonzero(~np.isfinite(self.scaler_.scale_))):
            raise ValueError(
                f"column {beyond[0]} of X holds numbers too large to be standardised; divide or leave it out"
            )
        Z = self.scaler_.transform(X)
        self._fit(Z)
        self.anomaly_scores_ = self._finite(self._training_scores(Z))
        self.threshold_ = quantile_threshold(self.anomaly_scores_, self.contamination)
        self.offset_ = -self.threshold_
        return self

    def fit_predict(self, X: Any, y: Any = None, **_: Any) -> np.ndarray:
        """Learn from the rows of X and decide on each by its training score."""
        return np.where(self.fit(X).anomaly_scores_ > self.threshold_, -1, 1)

    def anomaly_score(self, X: Any) -> np.ndarray:
        """How anomalous each row of X is: higher is more."""
        check_is_fitted(self, "threshold_")
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._finite(self._score(self.scaler_.transform(X)))

    def _check_parameters(self) -> None:
        """Raise where a parameter is out of its range."""

    @abstractmethod
    def _fit(self, Z: np.ndarray) -> None:
        """Learn from standardised rows."""

    @abstractmethod
    def _score(self, Z: np.ndarray) -> np.ndarray:
        """Score standardised rows: higher is more anomalous."""

    def _training_scores(self, Z: np.ndarray) -> np.ndarray:
        """Scores of the training rows; other than `_score` where a row must not meet itself."""
        return self._score(Z)

    def _finite(self, scores: np.ndarray) -> np.ndarray:
        scores = np.asarray(scores, np.float64)
        bad = int((~np.isfinite(scores)).sum())
        if bad:
            raise ValueError(
                f"{self._name()} gave {bad} of {len(scores)} rows a score that is not finite; "
                "leave out columns that repeat others or hold one value, or use another detector"
            )
        return scores

    def _name(self) -> str:
        return type(self).__name__
