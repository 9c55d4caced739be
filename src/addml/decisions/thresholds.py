"""Two heaps of scores: a mixture of two normal laws, fitted by expectation and maximisation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from addml.arrays import evenly_spaced

ROUNDS = 200
MOST_ROWS = 4096  # more are stood for by so many of them, at even steps through all in order
LEAST_ROWS = 10  # fewer tell no two laws apart
NARROWEST = 0.05  # deviation of a law, at the least, in deviations of all scores: no law may sit on tied scores
SEPARATE = 2.0  # deviations between the means from which the density of two equal laws has two tops
BETTER = 10.0  # how much the Bayesian information criterion must fall for two laws to be believed
CLOSE = 1e-8


@dataclass(frozen=True)
class TwoNormals:
    """The lower and the upper law: their weights, means and deviations, (2,) each."""

    weight: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, most: float = 1.0) -> TwoNormals | None:
        """The two laws of some scores, or None where one normal law describes them as well.

        The upper law has a share `most` of them at most: the likeliest pair may be a heap of copies and all the rest.
        """
        if len(scores) > MOST_ROWS:
            scores = evenly_spaced(np.sort(scores), MOST_ROWS)
        middle, spread = float(scores.mean()), float(scores.std())
        if len(scores) < LEAST_ROWS or not spread > 0 or not np.isfinite(spread):
            return None
        z = (scores - middle) / spread
        starts = [cls._start(z, share) for share in (0.5, 0.2, 0.05)]
        found = [pair for pair in (one._improved(z) for one in starts) if pair[1].weight[1] <= most]
        likelihood, best = max(found, key=lambda pair: pair[0], default=(-np.inf, starts[0]))
        alone = -0.5 * len(z) * (1 + np.log(2 * np.pi))
        if 2 * (likelihood - alone) < 3 * np.log(len(z)) + BETTER:
            return None
        return cls(best.weight, middle + spread * best.mean, spread * best.deviation)

    @classmethod
    def _start(cls, z: np.ndarray, share: float) -> TwoNormals:
        upper = z > np.quantile(z, 1 - share)
        parts = (z[~upper], z[upper] if upper.any() else z)
        mean, deviation = (np.array([getattr(part, name)() for part in parts]) for name in ("mean", "std"))
        return cls(np.array([1 - share, share]), mean, np.maximum(deviation, NARROWEST))

    def _improved(self, z: np.ndarray) -> tuple[float, TwoNormals]:
        """The log likelihood and the laws after expectation and maximisation."""
        before, laws = -np.inf, self
        for _ in range(ROUNDS):
            joint = laws.log_joint(z)
            total = np.logaddexp(*joint)
            if total.sum() - before < CLOSE * len(z):
                break
            before = float(total.sum())
            laws = _maximised(z, np.exp(joint - total))
        if laws.mean[0] > laws.mean[1]:
            laws = TwoNormals(*(part[::-1] for part in (laws.weight, laws.mean, laws.deviation)))
        return before, laws

    def log_joint(self, scores: np.ndarray) -> np.ndarray:
        """The logarithm of weight times density of both laws, (2, n)."""
        z = (scores - self.mean[:, None]) / self.deviation[:, None]
        return np.asarray(np.log(self.weight / self.deviation)[:, None] - 0.5 * (z * z + np.log(2 * np.pi)))

    @property
    def apart(self) -> bool:
        """Whether the scores lie in two heaps, not in one with a long tail (Ashman's criterion)."""
        distance = float(self.mean[1] - self.mean[0])
        return distance > SEPARATE * float(np.sqrt((self.deviation**2).mean()))

    @property
    def crossing(self) -> float:
        """The score, at or above the lower mean, from which the upper law is the likelier one."""
        (w0, w1), (m0, m1), (s0, s1) = self.weight, self.mean, self.deviation
        a = 1 / s0**2 - 1 / s1**2
        b = -2 * (m0 / s0**2 - m1 / s1**2)
        c = m0**2 / s0**2 - m1**2 / s1**2 + 2 * np.log(s0 / w0) - 2 * np.log(s1 / w1)
        roots = [-c / b] if abs(a) < 1e-12 / s0**2 and b else _real_roots(a, b, c)
        above = [root for root in roots if root > m0 and _upper_is_likelier(self, root)]
        return float(min(above)) if above else float(m1)


def _maximised(z: np.ndarray, shares: np.ndarray) -> TwoNormals:
    """The laws of rows that belong to them by these shares (2, n)."""
    total = np.maximum(shares.sum(axis=1), 1e-300)
    mean = shares @ z / total
    variance = (shares * (z - mean[:, None]) ** 2).sum(axis=1) / total
    weight = np.clip(total / len(z), 1e-12, 1)
    return TwoNormals(weight / weight.sum(), mean, np.maximum(np.sqrt(variance), NARROWEST))


def _real_roots(a: float, b: float, c: float) -> list[float]:
    inside = b * b - 4 * a * c
    if inside < 0 or a == 0:
        return []
    return [(-b - np.sqrt(inside)) / (2 * a), (-b + np.sqrt(inside)) / (2 * a)]


def _upper_is_likelier(laws: TwoNormals, score: float) -> bool:
    """Just above this score."""
    lower, upper = laws.log_joint(np.array([score + 1e-6 * float(laws.deviation.min())]))
    return bool(upper[0] >= lower[0])


# Where a score becomes a decision: an anomaly is a row whose score is above the threshold.


logger = logging.getLogger("addml")

NORMAL_QUARTILE = 0.6744897501960817  # of a normal law, in deviations
DEVIATIONS = 3.0  # from the middle, of a row that is strange by the median absolute deviation
WHISKER = 1.5  # quartile distances above the upper quartile, as in a box plot
TAIL = 0.1  # share of the rows that a tail is fitted to
FALSE_ALARMS = 0.01  # what `tail` allows if nothing is said
LEAST_IN_TAIL = 8  # rows; a tail of fewer says nothing
ORDINARY = 0.5  # of the rows, at the least: a heap that holds more is not that of the anomalies
AUTO_SHARE = 0.2  # what `auto` says of scores that do not fall into two heaps: see docs/decisions.md


def quantile_threshold(scores: np.ndarray, contamination: float) -> float:
    """tau, above which the given share of the scores lies (exactly, unless scores tie at it)."""
    return float(np.quantile(scores, 1 - contamination))


def mad_threshold(scores: np.ndarray, share: float | None = None) -> float:
    """Three deviations above the median, by the median distance of the rows above it: the lower side may be skewed."""
    middle = float(np.median(scores))
    above = scores[scores > middle] - middle
    if not len(above):
        return middle
    return middle + DEVIATIONS * float(np.median(above)) / NORMAL_QUARTILE


def iqr_threshold(scores: np.ndarray, share: float | None = None) -> float:
    """The upper whisker of a box plot."""
    low, high = np.quantile(scores, [0.25, 0.75])
    return float(high + WHISKER * (high - low))


def tail_threshold(scores: np.ndarray, share: float | None = None) -> float:
    """Peaks over threshold: the score that the given share of ordinary rows would pass, by the law of their tail.

    The law is a generalised Pareto of the tail's lower half; the upper half, where anomalies would be, counts only as
    being there. A share larger than the tail itself is a plain quantile.
    """
    alarms = FALSE_ALARMS if share is None else share
    start = float(np.quantile(scores, 1 - TAIL))
    peaks = np.sort(scores[scores > start] - start)
    if alarms >= TAIL or len(peaks) < LEAST_IN_TAIL:
        return quantile_threshold(scores, alarms)
    shape, scale = pareto_tail(peaks)
    passed = alarms * len(scores) / len(peaks)  # of the tail
    return start + scale * _stretch(shape, passed)


def pareto_tail(peaks: np.ndarray) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto law with the median and the lower quartile of sorted peaks.

    Two quantiles (Pickands' way) rather than all peaks: the largest of them may be the anomalies.
    """
    quarter, half = np.quantile(peaks, [0.25, 0.5])
    if quarter <= 0 or half <= quarter:
        return 0.0, float(max(half, peaks.mean())) / np.log(2)
    low, high = -0.5, 1.0  # of the shape: lighter than a triangle's tail, heavier than one without a mean
    wanted = half / quarter
    for _ in range(60):
        shape = (low + high) / 2
        ratio = _stretch(shape, 0.5) / _stretch(shape, 0.75)
        low, high = (shape, high) if ratio < wanted else (low, shape)
    shape = (low + high) / 2
    return shape, float(half / _stretch(shape, 0.5))


def _stretch(shape: float, beyond: float) -> float:
    """The quantile of a generalised Pareto law of scale 1 that the share `beyond` lies above."""
    return float(-np.log(beyond) if abs(shape) < 1e-9 else np.expm1(-shape * np.log(beyond)) / shape)


def mixture_threshold(scores: np.ndarray, share: float | None = None) -> float:
    """Where the upper of two normal laws becomes the likelier one, or the median; of one law the highest score."""
    found = TwoNormals.fit(scores)
    return float(scores.max()) if found is None else max(found.crossing, quantile_threshold(scores, ORDINARY))


def auto_threshold(scores: np.ndarray, share: float | None = None) -> float:
    """The split between two heaps of scores where there are two, and else a share, the one that did best elsewhere."""
    heaps = two_heaps(scores)
    return quantile_threshold(scores, AUTO_SHARE if share is None else share) if heaps is None else heaps.crossing


def two_heaps(scores: np.ndarray) -> TwoNormals | None:
    """The two laws of scores that lie in two heaps, the upper one the smaller; None where they do not."""
    found = TwoNormals.fit(scores, most=ORDINARY)
    return found if found is not None and found.apart else None


METHODS: dict[str, Callable[[np.ndarray, Any], float]] = {
    "quantile": quantile_threshold,
    "mad": mad_threshold,
    "iqr": iqr_threshold,
    "tail": tail_threshold,
    "mixture": mixture_threshold,
    "auto": auto_threshold,
}
WITH_SHARE = ("quantile", "tail")  # methods that a share means something to


def foreign_threshold(scores: np.ndarray, thresholder: Any) -> float:
    """tau of a PyThresh object: between the highest row that it calls ordinary and the lowest that it does not.

    Where its marks do not follow the scores, as many rows lie above tau as it marked. One that fails, as some do where
    scores are all alike, marks none, and that is logged.
    """
    try:
        marked = np.asarray(thresholder.eval(scores.copy())).ravel() == 1
        if len(marked) != len(scores):
            raise ValueError(f"{len(marked)} marks for {len(scores)} scores")
    except Exception as error:  # whatever a foreign object raises: a fitted model always decides
        logger.warning("%s failed (%r): it marks no training row", type(thresholder).__name__, error)
        marked = np.zeros(len(scores), bool)
    if not marked.any():
        return float(scores.max())
    if marked.all():
        return float(np.nextafter(scores.min(), -np.inf))
    ordinary, strange = scores[~marked].max(), scores[marked].min()
    if strange > ordinary:
        return float(ordinary + (strange - ordinary) / 2)
    return quantile_threshold(scores, float(marked.mean()))
