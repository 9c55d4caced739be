"""ADDML as a PyOD detector, for example for PyOD's ensembles: anomalies are 1, higher scores are more anomalous."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from addml import detector

try:
    from pyod.models.base import BaseDetector
except ImportError as error:
    raise ImportError(f"addml.pyod needs PyOD: pip install 'addml[pyod]' ({error})") from error


class ADDML(BaseDetector):
    """A PyOD detector with the scores of `addml.ADDML`.

    `contamination` is a share in (0, 0.5] or a PyThresh thresholder; `settings` are those of `addml.ADDML`. Sets PyOD's
    `decision_scores_`, `threshold_` and `labels_`. The fitted `addml.ADDML` (`explain`, `save`, ...) is `detector_`.
    """

    def __init__(self, contamination: Any = 0.1, **settings: Any) -> None:
        super().__init__(contamination=contamination)
        self.detector = detector.ADDML(contamination=contamination, **settings)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of X; y is ignored."""
        if isinstance(self.contamination, str):
            raise ValueError(f"contamination={self.contamination!r}: PyOD takes a share or a PyThresh thresholder")
        self._set_n_classes(y)
        self.detector_ = clone(self.detector).fit(X)
        self.decision_scores_ = self.detector_.anomaly_scores_
        self._process_decision_scores()  # threshold_ and labels_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The anomaly score of each row; higher is more anomalous."""
        check_is_fitted(self, "detector_")
        return np.asarray(self.detector_.anomaly_score(X))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of `addml.ADDML`, and `contamination`."""
        return {**self.detector.get_params(deep), "contamination": self.contamination}

    def set_params(self, **changes: Any) -> Self:
        """Set parameters of `addml.ADDML`, or `contamination`."""
        self.detector.set_params(**changes)
        self.contamination = self.detector.contamination
        return self
