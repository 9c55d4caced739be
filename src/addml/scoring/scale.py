"""One score from several members and views: the mean of standardised log scores, and the strangest view of all."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, index_like, namespace

ROUNDING = 1e-12  # a deviation of logarithms that equal scores may have
LEAST_RELIABLE = 0.02
DOUBT = 4.0  # upper deviations that a view must find a row stranger by, for each that its members leave open
NOT_FINITE = (
    "scores are not finite: the model, or the encoder of your own, holds numbers that are too large or too small, "
    "as no fit leaves them; fit and save it again"
)
UPPER = 0.9, 1.2815515655446004  # a share of the training rows, and how many deviations of a normal law that is


@dataclass(frozen=True)
class MemberScale:
    """How the scores of the training rows lie: those of every member (E, 1), and of every view of them (V, 1).

    Members of one view are averaged. Of several views the one that finds a row strangest counts, each measured by
    how far its upper training scores reach: what is ordinary in every view but one is still strange. A view whose
    members contradict each other has seen noise, and must find a row the stranger the more they do.
    """

    floor: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    middle: np.ndarray
    reach: np.ndarray
    view: np.ndarray  # (E,) the view that each member belongs to

    @classmethod
    def fit(cls, scores: np.ndarray, view: np.ndarray | None = None, floor: float = 1e-12) -> MemberScale:
        """Learn the scales from training scores (E, n); `floor` is a share of the median score."""
        view = np.zeros(len(scores), np.int64) if view is None else view
        middle = np.median(scores, axis=1, keepdims=True)
        middle = np.where(middle > 0, middle, scores.mean(axis=1, keepdims=True))
        lowest = np.maximum(floor * middle, np.finfo(float).tiny)
        logs = np.log(np.maximum(scores, lowest))
        mean, deviation = logs.mean(axis=1, keepdims=True), _positive(logs.std(axis=1, keepdims=True))
        nothing = np.zeros((view.max() + 1, 1))
        scale = cls(lowest, mean, deviation, nothing, nothing + 1, view)
        if len(nothing) == 1:
            return scale  # one view is measured against no other
        seen = scale._views(scores)
        middle, upper = np.median(seen, axis=1, keepdims=True), np.quantile(seen, UPPER[0], axis=1, keepdims=True)
        reach = np.where(upper - middle > ROUNDING, (upper - middle) / UPPER[1], seen.std(axis=1, keepdims=True))
        standardised = (logs - mean) / deviation
        doubts = np.array([[_doubt(standardised[view == one])] for one in range(len(seen))])
        middle += DOUBT * (doubts - doubts.min()) * _positive(reach)
        return cls(lowest, mean, deviation, middle, _positive(reach), view)

    @property
    def usual(self) -> np.ndarray:
        """The score (E, 1) of each member that makes a row neither stranger nor more ordinary: 0 when standardised."""
        return np.asarray(np.exp(self.mean))

    def combine(self, scores: Array) -> Array:
        """One score a row (n,) from scores (E, n); a single member's score stays untouched."""
        combined = self._combined(scores)
        if not bool(namespace(combined).isfinite(combined).all()):
            raise ValueError(NOT_FINITE)
        return combined

    def _combined(self, scores: Array) -> Array:
        if len(scores) == 1:
            return scores[0]
        seen = self._views(scores)
        if len(seen) == 1:
            return seen[0]
        return namespace(seen).amax((seen - as_like(self.middle, seen)) / as_like(self.reach, seen), 0)

    def combine_one(self, scores: np.ndarray) -> float:
        """The same of one row (E,), to the last bit, in plain numbers: quicker where rows come one by one."""
        combined = self._combined_one(scores)
        if not math.isfinite(combined):
            raise ValueError(NOT_FINITE)
        return combined

    def _combined_one(self, scores: np.ndarray) -> float:
        if len(scores) == 1:
            return float(scores[0])
        floor, mean, deviation, views, places = self._plain
        logs = np.maximum(scores, floor)
        np.log(logs, out=logs)
        logs -= mean
        logs /= deviation
        totals = [0.0] * len(places)
        for view, value in zip(views, logs.tolist(), strict=True):
            totals[view] += value  # not `sum`, which rounds otherwise from Python 3.12 on
        if len(totals) == 1:
            return float(totals[0] / len(views))
        pairs = zip(totals, places, strict=True)
        return float(max((total / count - middle) / reach for total, (count, middle, reach) in pairs))

    @cached_property
    def _plain(self) -> tuple[Any, ...]:
        """For `combine_one`: scales (E,), the view of each member, and members, middle and reach of each view."""
        counts = np.bincount(self.view, minlength=len(self.middle)).tolist()
        places = list(zip(counts, self.middle[:, 0].tolist(), self.reach[:, 0].tolist(), strict=True))
        return self.floor[:, 0].copy(), self.mean[:, 0].copy(), self.deviation[:, 0].copy(), self.view.tolist(), places

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: nothing that can be worked out again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _views(self, scores: Array) -> Array:
        """The mean of the standardised log scores of each view's members, (V, n)."""
        xp = namespace(scores)
        logs = xp.log(xp.maximum(scores, as_like(self.floor, scores)))
        logs -= as_like(self.mean, scores)
        logs /= as_like(self.deviation, scores)
        seen = [logs[index_like(self.view == view, logs)] for view in range(len(self.middle))]
        return xp.stack([sum(rows) / len(rows) for rows in seen])  # in order: a mean may add a lone row's in another


def _doubt(scores: np.ndarray) -> float:
    """How little the mean of several members' standardised scores (k, n) tells, 0 where they agree in everything.

    It is 1 / reliability - 1, the reliability that of a mean of k measurements with this correlation between them.
    """
    k = len(scores)
    if k == 1:
        return 0.0
    correlation = ((scores.sum(axis=0) ** 2).mean() - (scores**2).mean(axis=1).sum()) / (k * (k - 1))
    reliability = k * correlation / (1 + (k - 1) * correlation) if correlation > 0 else 0.0
    return float(1 / max(reliability, LEAST_RELIABLE) - 1)


def _positive(deviation: np.ndarray) -> np.ndarray:
    return np.where(deviation > ROUNDING, deviation, 1.0)
