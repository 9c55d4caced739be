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

    `contamination` is a share in (0, 0.5] or a thresholder of PyThresh; the other settings are those of `addml.ADDML`.
    `decision_scores_`, `threshold_` and `labels_` are PyOD's; `detector_` is the fitted `addml.ADDML`, which has the
    rest (`explain`, `save`, ...).
    """

    def __init__(self, contamination: Any = 0.1, **settings: Any) -> None:
        super().__init__(contamination=contamination)
        self.detector = detector.ADDML(contamination=contamination, **settings)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of X; y is ignored."""
        if isinstance(self.contamination, str):
            raise ValueError(f"contamination={self.contamination!r}: PyOD takes a share or a thresholder of PyThresh")
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
        """All settings by name."""
        return {**self.detector.get_params(deep), "contamination": self.contamination}

    def set_params(self, **changes: Any) -> Self:
        """Change settings by name."""
        self.detector.set_params(**changes)
        self.contamination = self.detector.contamination
        return self
