"""One score a row from several: the mean of what members say, or the strangest of several views."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, namespace

ROUNDING = 1e-12  # a deviation of logarithms that equal scores may have
LEAST = 1e-12  # of the median score, under which no logarithm is taken
FLAT = 1e-6  # of a view's median: a unit that is smaller is rounding
HIGH = 0.9  # share of the training rows: how far their scores lie above the median there is a view's unit
STRONGEST = 88.0  # e to the power of more is beyond float32, and of no use to a distance of 0
LARGEST = float(np.finfo(np.float32).max) / 4  # whose sums are finite
NOT_FINITE = (
    "scores are not finite: the model, or the encoder of your own, holds numbers that are too large or too small, "
    "as no fit leaves them; fit and save it again"
)


class Scale(ABC):
    """How scores (E, n) of training rows lie, and so what those of other rows mean."""

    def combine(self, scores: Array) -> Array:
        """One score a row (n,) from scores (E, n)."""
        combined = self._combined(scores)
        if not bool(namespace(combined).isfinite(combined).all()):
            raise ValueError(NOT_FINITE)
        return combined

    def combine_one(self, scores: np.ndarray) -> float:
        """The same of one row (E,), to the last bit: quicker where rows come one by one."""
        combined = self._combined_one(scores)
        if not math.isfinite(combined):
            raise ValueError(NOT_FINITE)
        return combined

    @abstractmethod
    def _combined(self, scores: Array) -> Array:
        """One score a row (n,), finite or not."""

    @abstractmethod
    def _combined_one(self, scores: np.ndarray) -> float:
        """The score of one row, finite or not."""

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: nothing that can be worked out again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class MemberScale(Scale):
    """The mean over members of their standardised log scores; a single member's score stays untouched."""

    floor: np.ndarray  # (E, 1)
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray) -> MemberScale:
        """Learn it from training scores (E, n)."""
        middle = np.median(scores, axis=1, keepdims=True)
        middle = np.where(middle > 0, middle, scores.mean(axis=1, keepdims=True))
        lowest = np.maximum(LEAST * middle, np.finfo(float).tiny)
        logs = np.log(np.maximum(scores, lowest))
        deviation = logs.std(axis=1, keepdims=True)
        return cls(lowest, logs.mean(axis=1, keepdims=True), np.where(deviation > ROUNDING, deviation, 1.0))

    @property
    def neutral(self) -> np.ndarray:
        """The score (E, 1) of each member that makes a row neither stranger nor more ordinary."""
        return np.asarray(np.exp(self.mean))

    def raised(self, scores: Array, by: Array) -> Array:
        """The scores (E, n) of rows whose combined one is higher by so much (n,); a single member's logarithm."""
        xp, deviation = namespace(scores), as_like(self.deviation, scores) if len(scores) > 1 else 1.0
        with np.errstate(over="ignore"):
            return (scores.clip(0) * xp.exp((deviation * by).clip(-STRONGEST, STRONGEST))).clip(0, LARGEST)

    def _combined(self, scores: Array) -> Array:
        if len(scores) == 1:
            return scores[0]
        xp = namespace(scores)
        logs = xp.log(xp.maximum(scores, as_like(self.floor, scores)))
        logs -= as_like(self.mean, scores)
        logs /= as_like(self.deviation, scores)
        return sum(logs) / len(logs)  # in order: a mean may add a lone row's in another

    def _combined_one(self, scores: np.ndarray) -> float:
        if len(scores) == 1:
            return float(scores[0])
        floor, mean, deviation = self._flat
        logs = np.maximum(scores, floor)
        np.log(logs, out=logs)
        logs -= mean
        logs /= deviation
        total = 0.0
        for value in logs.tolist():
            total += value  # not `sum`, which rounds otherwise from Python 3.12 on
        return total / len(scores)

    @cached_property
    def _flat(self) -> tuple[np.ndarray, ...]:
        return self.floor[:, 0].copy(), self.mean[:, 0].copy(), self.deviation[:, 0].copy()


@dataclass(frozen=True)
class ViewScale(Scale):
    """The strangest view, each measured from the median of its training scores, in units of (0.9 quantile - median).

    What is ordinary in every view but one is still strange. The result is compressed, sign(z) log(1 + |z|).
    """

    median: np.ndarray  # (V, 1)
    unit: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray) -> ViewScale:
        """Learn it from training scores (V, n)."""
        median = np.median(scores, axis=1, keepdims=True)
        unit = np.array([[_unit(own, middle)] for own, middle in zip(scores, median[:, 0], strict=True)])
        return cls(median, unit)

    @property
    def neutral(self) -> np.ndarray:
        """The score (V, 1) of each view that makes a row neither stranger nor more ordinary."""
        return self.median

    def raised(self, scores: Array, by: Array) -> Array:
        """The scores (V, n) of rows whose combined score is higher by so much (n,)."""
        xp = namespace(scores)
        higher = (_compressed(self.measured(scores)) + by).clip(-STRONGEST, STRONGEST)
        with np.errstate(over="ignore"):
            away = as_like(self.unit, scores) * xp.copysign(xp.expm1(abs(higher)), higher)
        return as_like(self.median, scores) + away.clip(-LARGEST, LARGEST)

    def measured(self, scores: Array) -> Array:
        """The scores (V, n) from their medians in their units."""
        return (scores - as_like(self.median, scores)) / as_like(self.unit, scores)

    def _combined(self, scores: Array) -> Array:
        return _compressed(namespace(scores).amax(self.measured(scores), 0))

    def _combined_one(self, scores: np.ndarray) -> float:
        median, unit = self._flat
        return float(_compressed(np.max((scores - median) / unit, keepdims=True))[0])

    @cached_property
    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        return self.median[:, 0].copy(), self.unit[:, 0].copy()


def _compressed(x: Array) -> Array:
    """The compressed x, sign(x) log(1 + |x|)."""
    xp = namespace(x)
    return xp.copysign(xp.log1p(abs(x)), x)


def _unit(scores: np.ndarray, median: float) -> float:
    """How far scores (n,) lie above their median at the 0.9 quantile.

    Where nine in ten are equal, as when most rows have twins, that is 0, and those above the median tell it. Where none
    is above it, every row beyond it is new: its score counts as it is.
    """
    least = max(FLAT * abs(median), np.finfo(float).tiny)
    unit = float(np.quantile(scores, HIGH)) - median
    if unit <= least:
        above = scores[scores > median + least]
        unit = float(np.quantile(above, HIGH)) - median if len(above) else 1.0
    return unit
