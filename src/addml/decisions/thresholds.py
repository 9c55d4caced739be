"""Where a score becomes a decision: an anomaly is a row whose score is above the threshold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from addml.decisions.mixture import TwoNormals

logger = logging.getLogger("addml")

NORMAL_QUARTILE = 0.6744897501960817  # of a normal law, in deviations
DEVIATIONS = 3.0  # from the middle, of a row that is strange by the median absolute deviation
WHISKER = 1.5  # quartile distances above the upper quartile, as in a box plot
TAIL = 0.1  # share of the rows that a tail is fitted to
FALSE_ALARMS = 0.01  # of `tail`, unless given
LEAST_IN_TAIL = 8  # rows; a tail of fewer says nothing
ORDINARY = 0.5  # of the rows, at the least: a heap that holds more is not that of the anomalies
AUTO_SHARE = 0.2  # of `auto`, where scores do not fall into two heaps: see docs/decisions.md


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
