"""One score from several members: the mean of their standardised log scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FLOOR = 1e-12  # of the median training score; below it a logarithm would say more than the score knows
ROUNDING = 1e-12  # a deviation of logarithms that equal scores may have


@dataclass(frozen=True)
class MemberScale:
    """The floor, and the mean and deviation of the log scores, of every member on its training rows: (E, 1)."""

    floor: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray) -> MemberScale:
        """Learn the scales from training scores (E, n)."""
        floor = np.maximum(FLOOR * np.median(scores, axis=1, keepdims=True), np.finfo(float).tiny)
        logs = np.log(np.maximum(scores, floor))
        deviation = logs.std(axis=1, keepdims=True)
        return cls(floor, logs.mean(axis=1, keepdims=True), np.where(deviation > ROUNDING, deviation, 1.0))

    def combine(self, scores: np.ndarray) -> np.ndarray:
        """One score a row (n,) from scores (E, n); a single member's score stays untouched."""
        if len(scores) == 1:
            return np.asarray(scores[0])
        logs = np.log(np.maximum(scores, self.floor))
        logs -= self.mean
        logs /= self.deviation
        return np.asarray(sum(logs) / len(logs))  # one after another: numpy's mean adds a lone row's in another order
