"""Range-aware quality of scores along a series: VUS-ROC and VUS-PR (Paparrizos et al., VLDB 2022).

A range of anomalous steps gets a margin on either side in which labels fall off from 1, since nobody knows its edges to
the step. For each width of the margin there is a curve over all thresholds, whose recall counts only as far as whole
ranges were touched at all; the volume under the curves of all widths is their mean area. No score is adjusted after
the fact: a range is not found as a whole because one of its steps was.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WIDEST = 100  # steps, the width of the margin up to which areas are averaged, as in TSB-AD where no period is known


class Volumes(NamedTuple):
    """Volumes under the curves."""

    roc: float
    pr: float


def volumes(labels: np.ndarray, scores: np.ndarray, widest: int = WIDEST) -> Volumes:
    """The volumes under the ROC and the precision-recall curves for margins of 0 to `widest` steps."""
    ranges = ranges_of(labels)
    if not len(ranges) or labels.all():
        raise ValueError("VUS needs steps of both kinds; the labels have one")
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.diff(scores[order], append=-np.inf))  # the last step at each threshold
    areas = [_areas(labels, scores, ranges, width, order, ends) for width in range(widest + 1)]
    roc, pr = np.mean(areas, axis=0)
    return Volumes(float(roc), float(pr))


def ranges_of(labels: np.ndarray) -> np.ndarray:
    """The first and the last step of every range of ones, (ranges, 2)."""
    edges = np.diff(np.concatenate([[0], np.asarray(labels, np.int8) != 0, [0]]).astype(np.int8))
    return np.column_stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1])


def soft_labels(labels: np.ndarray, ranges: np.ndarray, width: int) -> np.ndarray:
    """Labels that fall off as sqrt(1 - distance / width) over half a width before and behind each range."""
    soft, half = (np.asarray(labels) != 0).astype(float), width // 2
    for first, last in ranges:
        behind = np.arange(last + 1, min(last + half + 1, len(soft)))
        before = np.arange(max(first - half, 0), first)
        soft[behind] += np.sqrt(1 - (behind - last) / max(width, 1))
        soft[before] += np.sqrt(1 - (first - before) / max(width, 1))
    return np.asarray(np.minimum(soft, 1))


def widened(ranges: np.ndarray, width: int, steps: int) -> list[tuple[int, int]]:
    """The ranges with half a width on either side, those that meet as one."""
    half, result = width // 2, list[tuple[int, int]]()
    for first, last in ranges.tolist():
        start, end = max(first - half, 0), min(last + half, steps - 1)
        if result and start <= result[-1][1] + 1:
            start = result.pop()[0]
        result.append((start, end))
    return result


def _areas(
    labels: np.ndarray, scores: np.ndarray, ranges: np.ndarray, width: int, order: np.ndarray, ends: np.ndarray
) -> tuple[float, float]:
    """The areas under both curves for one width of the margin."""
    soft, positives = soft_labels(labels, ranges, width), float(np.count_nonzero(labels))
    flagged = ends + 1.0
    hits = np.cumsum(soft[order])[ends]
    weight = (positives + soft.sum()) / 2  # between the labels as they are and as they are widened
    peaks = np.sort([scores[first : last + 1].max() for first, last in widened(ranges, width, len(scores))])
    found = 1 - np.searchsorted(peaks, scores[order][ends], side="left") / len(peaks)
    recall = np.minimum(hits / weight, 1) * found
    false = (flagged - hits) / (len(scores) - weight)
    roc = np.trapezoid(np.concatenate([[0], recall, [1]]), np.concatenate([[0], false, [1]]))
    return float(roc), float(np.dot(np.diff(recall, prepend=0), hits / flagged))
