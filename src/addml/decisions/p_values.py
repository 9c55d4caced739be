"""How rare a score is: conformal p-values of new rows, a tail estimate within one file, and false discovery rates.

New rows are compared with calibration rows, which a new row of the same kind is as likely to rank anywhere among: of
rows like them, at most a share p has a p-value of p or less. Rows that were trained on have no such promise. For them
the bulk of the scores, from the median to the 0.9 quantile, says how an ordinary tail goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from addml.arrays import evenly_spaced_with_ends

BULK = (0.5, 0.9)  # quantiles between which scores are taken to be those of ordinary rows
POWER = 0.75  # of uncompressed scores: 1 flagged up to a tenth of ordinary drawn rows, 0.5 missed gross errors
KNOTS = 1024  # points of a probability curve within the training scores
LARGEST = 900.0  # compressed scores, whose exponentials are finite
LEAST_Q = 1e-6  # where the curve ends
EXACT = 4096  # calibration scores that a table of p-values holds one by one, the highest first


def p_values(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Conformal p-values: the share of ascending calibration scores and the row itself that are at least as high."""
    return (1 + at_least(scores, calibration)) / (1 + len(calibration))


def at_least(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """How many of ascending calibration scores are at least as high as each score."""
    return np.asarray(len(calibration) - np.searchsorted(calibration, scores, side="left"))


def ranked_p_values(scores: np.ndarray, file: np.ndarray) -> np.ndarray:
    """The share of the rows of a file, with these ascending scores, that score at least as high."""
    return np.asarray(at_least(scores, file).clip(1) / len(file))


def adjusted_levels(batch: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg's q of a batch's rows, (n + 1,): by how many calibration scores are at least as high.

    Of all rows with q <= a, at most a share a is like the calibration rows, on average.
    """
    n = len(calibration)
    rows = np.cumsum(np.bincount(at_least(batch, calibration), minlength=n + 1))  # of the batch, at least as rare
    p = (1 + np.arange(n + 1)) / (1 + n)
    q = np.where(rows > 0, p * len(batch) / np.maximum(rows, 1), 1.0)
    return np.minimum.accumulate(np.minimum(q, 1.0)[::-1])[::-1]


def adjusted(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """The same for each row of the batch."""
    return np.asarray(adjusted_levels(scores, calibration)[at_least(scores, calibration)])


def alarm_threshold(calibration: np.ndarray, rate: float) -> float:
    """The score above which p-values by these ascending scores are at most `rate`; infinity where none can be."""
    allowed = int(np.floor(rate * (len(calibration) + 1) + 1e-9)) - 1  # calibration rows that may score as high
    return float(calibration[-1 - allowed]) if 0 <= allowed < len(calibration) else np.inf


def discovery_threshold(scores: np.ndarray, calibration: np.ndarray, rate: float) -> float:
    """The score above which the rows of a batch have q <= `rate`; the highest score where none has."""
    flagged = adjusted(scores, calibration) <= rate
    ordinary = scores[~flagged]
    if not flagged.any():
        return float(max(scores.max(initial=-np.inf), alarm_threshold(calibration, rate / max(1, len(scores)))))
    return float(ordinary.max()) if len(ordinary) else float(np.nextafter(scores.min(), -np.inf))


def p_value_table(calibration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending scores (k,) and p-values (k + 1,): that of a score is at the number of scores below it.

    Of many calibration rows some stand for all, and p-values between them are rounded up.
    """
    n = len(calibration)
    some = evenly_spaced_with_ends(np.arange(max(0, n - EXACT)), EXACT) if n > EXACT else np.arange(0)
    knots = np.unique(calibration[np.concatenate([some, np.arange(max(0, n - EXACT), n)])])
    higher = n - np.searchsorted(calibration, knots, side="right")
    return knots, np.concatenate([[1.0], (1 + higher) / (1 + n)])


@dataclass(frozen=True)
class Tail:
    """The tail of ordinary scores, exponential in a power of the scores, fitted to their bulk."""

    middle: float  # the median, transformed
    unit: float  # the distance over which an ordinary tail falls to 1/e
    compressed: bool  # whether scores are sign(z) log(1 + |z|)

    @classmethod
    def fit(cls, ordered: np.ndarray, compressed: bool) -> Tail:
        """The tail of ascending scores."""
        middle, high = _power(np.quantile(ordered, BULK), compressed)
        unit = (high - middle) / np.log((1 - BULK[0]) / (1 - BULK[1]))
        if unit <= 0:  # four in ten rows score alike: the distinct scores above them tell
            above = _power(np.unique(ordered[ordered > ordered[len(ordered) // 2]]), compressed)
            unit = float(np.median(above) - middle) / np.log(2) if len(above) else 1.0
        return cls(float(middle), float(unit), compressed)

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """The share of ordinary rows expected at or above these scores; 1 in the lower half."""
        away = (_power(scores, self.compressed) - self.middle) / self.unit
        return np.where(away > 0, (1 - BULK[0]) * np.exp(-away.clip(0)), 1.0)

    def score(self, p: float) -> float:
        """The score at which so many ordinary rows are expected, above the median."""
        y = self.middle + self.unit * np.log((1 - BULK[0]) / p)
        if not self.compressed:
            return float(y)
        return float(np.copysign(np.log1p(POWER * abs(y)) / POWER, y))


def _power(scores: np.ndarray, compressed: bool) -> np.ndarray:
    """The power of uncompressed scores, ((1 + |z|)^0.75 - 1) / 0.75 with their sign; other scores stay."""
    if not compressed:
        return scores
    return np.asarray(np.copysign(np.expm1(POWER * abs(scores).clip(0, LARGEST)) / POWER, scores))


@dataclass(frozen=True)
class Curve:
    """A curve that never falls: probabilities at ascending scores, straight between them, level beyond."""

    scores: np.ndarray  # (k,)
    values: np.ndarray  # (k,)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """The probability of each score."""
        return np.asarray(np.interp(scores, self.scores, self.values))


def probability_curve(ordered: np.ndarray, compressed: bool) -> Curve:
    """1 - q by score within one file of ascending scores, q being the tail estimate adjusted for all its rows."""
    tail, n = Tail.fit(ordered, compressed), len(ordered)
    at, first = np.unique(ordered, return_index=True)
    q = np.minimum.accumulate(np.minimum(tail.p_values(at) * n / (n - first), 1.0))  # rows from `first` on are as high
    far = max(tail.score(LEAST_Q / n), np.nextafter(at[-1], np.inf))
    beyond = np.linspace(at[-1], far, 65)[1:]
    chosen = evenly_spaced_with_ends(np.arange(len(at)), KNOTS)
    scores = np.concatenate([at[chosen], beyond[np.diff(beyond, prepend=at[-1]) > 0]])
    behind = np.minimum(q[-1], tail.p_values(scores[len(chosen) :]) * n)
    return Curve(scores, 1 - np.concatenate([q[chosen], behind]))
