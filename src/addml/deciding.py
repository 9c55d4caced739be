"""How a fitted detector decides: by a threshold that may be chosen anew at any time, and how sure it is."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from addml import parameters
from addml.arrays import to_numpy
from addml.decisions.decision import BY_HAND, Decision, TrainingScores
from addml.decisions.thresholds import METHODS, WITH_SHARE
from addml.scoring.ladder import Ladder


class Decides(Ladder):
    """What follows from the scores of the training rows: the threshold, probabilities and confidence."""

    training_: TrainingScores
    decision_: Decision

    def set_threshold(self, *, method: Any = None, contamination: Any = None, tau: float | None = None) -> Self:
        """Decide anew, without refitting.

        Parameters
        ----------
        method : "quantile", the given share of the training rows; "mad", three deviations above the median score;
            "iqr", the whisker of a box plot; "tail", the score that a share `contamination` of ordinary rows would
            pass (0.01 if not given), by the law of their tail; "mixture", where the upper of two laws becomes the
            likelier one; "auto", see docs/decisions.md; or a thresholder of PyThresh.
        contamination : the share, or "auto" or a thresholder of PyThresh as for the constructor.
        tau : the score itself.
        """
        check_is_fitted(self, "anomaly_scores_")
        if tau is not None:
            if method is not None or contamination is not None:
                raise ValueError(f"tau={tau!r} is the threshold itself; give no method and no contamination with it")
            parameters.number("tau", tau, -np.inf, with_low=False)
            return self._set(Decision(float(tau), BY_HAND))
        if method is None and contamination is None:
            raise ValueError("give a method, contamination or tau: set_threshold(method='auto'), for example")
        return self._decide(contamination, method)

    def _decide(self, contamination: Any, method: Any = None) -> Self:
        asked = parameters.threshold_method(method, contamination, METHODS, WITH_SHARE)
        return self._set(self.training_.decide(*asked))

    def _set(self, decision: Decision) -> Self:
        self.decision_, self.threshold_, self.offset_ = decision, decision.tau, -decision.tau
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of normal and of anomaly, (n, 2); the second one rises with the score.

        Two columns as in scikit-learn and PyOD. Without labels they rest on how the training scores lie, see
        docs/decisions.md; labels given to `fit` bend them. The threshold has no part in them.
        """
        scores = to_numpy(self.anomaly_score(X))
        anomalous = self.training_.probability(scores)
        return np.column_stack([1 - anomalous, anomalous])

    def confidence(self, X: Any) -> np.ndarray:
        """How often each row's decision would be the same with other training rows of the same kind, 0 to 1."""
        return self._stability(to_numpy(self.anomaly_score(X)))

    def _stability(self, scores: np.ndarray) -> np.ndarray:
        return self.training_.stability(scores, self.threshold_)
