"""ADDML under PyOD's contract: anomalies are 1, higher scores are stranger, for its ensembles."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from addml import detector

try:
    from pyod.models.base import BaseDetector
except ImportError as error:
    raise ImportError(f"addml.pyod is for PyOD: pip install 'addml[pyod]' ({error})") from error


class ADDML(BaseDetector):
    """A detector of PyOD that learns and scores as `addml.ADDML` does.

    One class cannot keep both contracts, since `predict` and `decision_function` mean other things in scikit-learn.
    What PyOD has no name for (`explain`, `save`, ...) is asked of `detector_`.

    Parameters
    ----------
    contamination : share of the training rows that the threshold calls anomalies, in (0, 0.5], or a thresholder of
        PyThresh.
    settings : those of `addml.ADDML`.

    Attributes
    ----------
    detector_ : the fitted `addml.ADDML`.
    decision_scores_ : scores of the training rows.
    threshold_ : a row scoring above it is an anomaly.
    labels_ : 1 for training rows that are anomalies, 0 for the others.
    """

    def __init__(self, contamination: Any = 0.1, **settings: Any) -> None:
        super().__init__(contamination=contamination)
        self.detector = detector.ADDML(contamination=contamination, **settings)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of X; y is ignored."""
        if isinstance(self.contamination, str):
            raise ValueError(
                f"contamination={self.contamination!r}: PyOD takes a share in (0, 0.5] or a thresholder of PyThresh; "
                "addml.ADDML takes this one"
            )
        self._set_n_classes(y)
        self.detector_ = clone(self.detector).fit(X)
        self.decision_scores_ = self.detector_.anomaly_scores_
        self._process_decision_scores()  # threshold_ and labels_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """How anomalous each row of X is: higher is more."""
        check_is_fitted(self, "detector_")
        return np.asarray(self.detector_.anomaly_score(X))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings by name, as scikit-learn's `clone` and searches ask for them."""
        return {**self.detector.get_params(deep), "contamination": self.contamination}

    def set_params(self, **changes: Any) -> Self:
        """Change settings by name."""
        self.detector.set_params(**changes)
        self.contamination = self.detector.contamination
        return self
