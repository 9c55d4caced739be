"""Range-aware quality of scores along a series: VUS-ROC and VUS-PR, with the values of the published implementations.

Nobody knows the edges of an anomaly to the step. So each labelled range gets a margin of half a width on either side,
in which a label falls from 1 to about 0.7. At each threshold, flagged steps in a margin count as found by their soft
label; margins that are not flagged do not count as missed. Recall is multiplied by the share of ranges, margins
included, with at least one flagged step. This gives an ROC curve and a precision-recall curve for each width; the
volumes are the mean areas over all widths. No score is adjusted: a range is not found as a whole because one of its
steps was.

The metrics are those of Paparrizos et al., "Volume Under the Surface" (VLDB 2022), as TSB-AD (Liu and Paparrizos,
NeurIPS 2024) reports them: 250 thresholds at evenly spaced ranks of the scores, trapezoids below the ROC curve and
steps below the precision-recall curve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WIDEST = 100  # steps: the default of TSB-AD's get_metrics; its leaderboard takes the period of the first channel
THRESHOLDS = 250  # as in TSB-AD


class Volumes(NamedTuple):
    roc: float
    pr: float


def volumes(labels: np.ndarray, scores: np.ndarray, widest: int = WIDEST) -> Volumes:
    """The mean areas under the ROC and the precision-recall curves for widths of 0 to `widest` steps.

    A width of w puts margins of w // 2 steps before and behind each range. For figures to set beside those of TSB-AD's
    leaderboard, `widest` is the length of the series' period.
    """
    marked = np.asarray(labels) != 0
    if marked.all() or not marked.any():
        raise ValueError("VUS needs steps of both kinds; the labels have one")
    ranges = ranges_of(marked)
    levels, count = _levels(np.asarray(scores))
    near, distances = _surroundings(marked, ranges, widest // 2)
    flagged, sure = _up_to(levels, count), _up_to(levels[marked], count)
    areas = []
    for width in range(widest + 1):
        margin = _up_to(levels[near], count, _soft_labels(distances, width))
        areas.append(_areas(flagged, sure, margin, _touched(levels, count, ranges, width // 2)))
    roc, pr = np.mean(areas, axis=0)
    return Volumes(float(roc), float(pr))


def ranges_of(labels: np.ndarray) -> np.ndarray:
    """The first and the last step of every range of ones, (ranges, 2)."""
    edges = np.diff(np.concatenate([[0], np.asarray(labels, np.int8) != 0, [0]]).astype(np.int8))
    return np.column_stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1])


def _levels(scores: np.ndarray) -> tuple[np.ndarray, int]:
    """The number of the first threshold, from the highest, that flags each step, and how many thresholds there are."""
    places = np.linspace(0, len(scores) - 1, THRESHOLDS).astype(int)
    thresholds = np.unique(np.sort(scores)[::-1][places])
    return len(thresholds) - np.searchsorted(thresholds, scores, side="right"), len(thresholds)


def _up_to(levels: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """How many of the steps each threshold flags, or their weights in sum, (thresholds,)."""
    return np.cumsum(np.bincount(levels, weights, count))


def _surroundings(marked: np.ndarray, ranges: np.ndarray, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """The steps in the widest margins, and how far the nearest and the second nearest range is, (2, steps)."""
    steps = np.flatnonzero(~marked)
    firsts, lasts = np.append(ranges[:, 0], [np.inf] * 2), np.append([-np.inf] * 2, ranges[:, 1])
    behind = np.searchsorted(ranges[:, 0], steps)  # how many ranges lie before the step
    away = [steps - lasts[behind], steps - lasts[behind + 1], firsts[behind] - steps, firsts[behind + 1] - steps]
    distances = np.sort(away, axis=0)[:2]
    near = distances[0] <= margin
    return steps[near], distances[:, near]


def _soft_labels(distances: np.ndarray, width: int) -> np.ndarray:
    """sqrt(1 - distance / width) up to half a width from a range; these add up to at most 1, which any two exceed."""
    nearest, second = distances
    fading = np.sqrt(np.maximum(1 - nearest / max(width, 1), 0))
    return np.where(second <= width // 2, 1.0, np.where(nearest <= width // 2, fading, 0.0))


def _touched(levels: np.ndarray, count: int, ranges: np.ndarray, margin: int) -> np.ndarray:
    """The share of ranges with a flagged step in them or in their margins; ranges whose margins overlap are one."""
    apart = ranges[1:, 0] - ranges[:-1, 1] > 2 * margin
    firsts, lasts = ranges[np.append(True, apart), 0] - margin, ranges[np.append(apart, True), 1] + margin
    bounds = np.column_stack([firsts, lasts + 1]).clip(0, len(levels)).ravel()
    earliest = np.minimum.reduceat(np.append(levels, count), bounds)[::2]
    return np.asarray(_up_to(earliest, count) / len(earliest))


def _areas(flagged: np.ndarray, sure: np.ndarray, margin: np.ndarray, touched: np.ndarray) -> tuple[float, float]:
    """The areas under both curves for one width, from what each threshold flags: steps, labels, soft labels, ranges."""
    hits = sure + margin
    positives = sure[-1] + margin / 2  # between the labels alone and the labels with the margins that are flagged
    recall = np.minimum(hits / positives, 1) * touched
    false = (flagged - hits) / (flagged[-1] - positives)
    roc = np.trapezoid(np.concatenate([[0], recall, [1]]), np.concatenate([[0], false, [1]]))
    return float(roc), float(np.dot(np.diff(recall, prepend=0), hits / flagged))
