"""The numbers behind the charts, small enough for a page whatever the number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from addml.findings import Findings
from addml.report.digest import MOST_ROWS

MOST_BINS = 60
FEWEST_BINS = 12
MOST_NORMAL_POINTS = 5000
MOST_ANOMALY_POINTS = 2000  # beside the listed ones
MOST_EPOCHS = 400
MOST_MEMBERS = 50
MOST_CURVE_POINTS = 400
LOG_FROM = 40  # times the median bar: then short bars need a logarithmic scale to be seen
TAIL = 12  # spreads of the middle rows; scores beyond are counted in the last bar


# Scores -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Histogram:
    """Counts of scores in bins, of which one edge is the threshold: no bar is half normal."""

    edges: np.ndarray  # (k + 1,)
    counts: np.ndarray  # (k,)
    first_anomalous: int  # the bin whose lower edge is the threshold; k where no bin lies above
    below: int  # rows under the first edge, counted in the first bar
    above: int  # rows over the last edge, counted in the last bar
    left_out: int  # scores that are not finite

    @property
    def log(self) -> bool:
        """Whether the bars differ so much that counts are best shown logarithmically."""
        filled = self.counts[self.counts > 0]
        return bool(len(filled)) and float(filled.max()) >= LOG_FROM * max(1.0, float(np.percentile(filled, 25)))


def histogram(scores: np.ndarray, threshold: float) -> Histogram | None:
    """Bins that a person can read; None without a finite score."""
    known = np.asarray(scores, float)[np.isfinite(scores)]
    if not len(known):
        return None
    low, high = _reach(known, threshold)
    anchor = threshold if low <= threshold <= high else low
    width = _bin_width(known, low, high)
    before, after = math.ceil((anchor - low) / width - 1e-9), max(1, math.ceil((high - anchor) / width - 1e-9))
    before = max(before, int((known <= anchor).any()))  # bins are open below: a score at the anchor needs one before
    edges = anchor + width * np.arange(-before, after + 1)
    edges[before] = anchor
    place = np.searchsorted(edges, known, side="left") - 1  # a score at the threshold is normal: (low, high]
    counts = np.bincount(np.clip(place, 0, len(edges) - 2), minlength=len(edges) - 1)
    first = before if anchor == threshold else (0 if threshold < low else len(counts))
    slack = 1e-6 * width  # what rounding of the edges may leave outside
    below, above = int((known < edges[0] - slack).sum()), int((known > edges[-1] + slack).sum())
    return Histogram(edges, counts, first, below, above, len(scores) - len(known))


def _reach(known: np.ndarray, threshold: float) -> tuple[float, float]:
    """The ends of the axis: the rows, the threshold where it is near, and no tail that would squeeze all others."""
    low, high = float(known.min()), float(known.max())
    first, middle, last = np.percentile(known, [1, 50, 99])
    spread = max(middle - first, last - middle)
    if spread > 0:
        low, high = max(low, middle - TAIL * spread), min(high, middle + TAIL * spread)
    if math.isfinite(threshold) and abs(threshold - middle) <= 2 * TAIL * max(spread, (high - low) / TAIL):
        low, high = min(low, threshold), max(high, threshold)
    if high - low <= abs(low) * 1e-12:
        pad = max(abs(low), 1.0) * 0.05
        low, high = low - pad, high + pad
    return float(low), float(high)


def _bin_width(known: np.ndarray, low: float, high: float) -> float:
    """Freedman and Diaconis' rule, within what a page can show."""
    quarter, three_quarters = np.percentile(known, [25, 75])
    width = 2 * float(three_quarters - quarter) / len(known) ** (1 / 3)
    bins = (high - low) / width if width > 0 else MOST_BINS
    return (high - low) / min(max(bins, FEWEST_BINS), MOST_BINS - 2)


# Training ---------------------------------------------------------------------------------------------------

PANELS = (("train_loss", "Training loss"), ("validation_loss", "Validation loss"), ("rows_kept", "Rows kept"))


def training(findings: Findings) -> dict[str, Any] | None:
    """One panel a curve: the mean over members, and each of them; None without a history."""
    history = [findings.history[i] for i in thinned(len(findings.history), MOST_EPOCHS)]
    panels = [_panel(name, title, history) for name, title in PANELS if any(name in entry for entry in history)]
    if not panels:
        return None
    return {"epochs": [int(entry.get("epoch", i + 1)) for i, entry in enumerate(history)], "panels": panels}


def _panel(name: str, title: str, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_epoch = [{one.get("member", m): one for m, one in enumerate(entry.get("members", ()))} for entry in history]
    members = sorted({member for epoch in by_epoch for member in epoch})
    lines = [[finite(epoch.get(member, {}).get(name)) for epoch in by_epoch] for member in members[:MOST_MEMBERS]]
    mean = [finite(entry.get(name)) for entry in history]
    return {
        "name": name,
        "title": title,
        "mean": mean,
        "count": len(members),
        "members": lines if len(members) > 1 else [],
    }


def thinned(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, evenly, with the first and the last."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist())) if count else []


def finite(value: Any, digits: int = 5) -> float | None:
    """A number for JSON; None for what is not finite."""
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        return None
    return float(f"{float(value):.{digits}g}")


# The metric space -------------------------------------------------------------------------------------------


def space(findings: Findings) -> dict[str, Any] | None:
    """The map: the listed rows, a sample of the other anomalies and of the normal rows; None without one."""
    whole = findings.space
    if whole is None or not len(whole.x):
        return None
    ranks = {finding.row: finding.rank for finding in findings.ranked[:MOST_ROWS]}
    good = np.isfinite(whole.x) & np.isfinite(whole.y)
    rank = np.array([ranks.get(int(row), 0) for row in whole.rows])
    anomalous = np.asarray(whole.scores) > findings.threshold
    shown = np.concatenate(
        [
            _sample(np.flatnonzero(good & ~anomalous & (rank == 0)), MOST_NORMAL_POINTS),
            _sample(np.flatnonzero(good & anomalous & (rank == 0)), MOST_ANOMALY_POINTS),
            np.flatnonzero(good & (rank > 0)),
        ]
    )
    return {
        "x": _numbers(whole.x[shown]),
        "y": _numbers(whole.y[shown]),
        "row": [int(row) for row in whole.rows[shown]],
        "score": _numbers(whole.scores[shown]),
        "anomaly": [int(flag) for flag in anomalous[shown]],
        "rank": rank[shown].tolist(),
        "center": [finite(whole.center[0]), finite(whole.center[1])],
    }


def _sample(ids: np.ndarray, most: int) -> np.ndarray:
    """Evenly spaced, hence the same each time."""
    return ids[thinned(len(ids), most)] if len(ids) > most else ids


def _numbers(values: Any, digits: int = 4) -> list[float | None]:
    return [finite(value, digits) for value in np.asarray(values).tolist()]


# Distillation -----------------------------------------------------------------------------------------------


def dropped(findings: Findings) -> dict[str, Any] | None:
    """For every listed row, the share of members that dropped it in each epoch, in per cent; None where unknown."""
    matrix = findings.dropped
    if matrix is None or not matrix.size:
        return None
    epochs = thinned(len(matrix), MOST_EPOCHS // 2)
    cells = np.asarray(matrix, float)[epochs, :MOST_ROWS].T
    percent = [[None if math.isnan(cell) else round(100 * cell) for cell in row] for row in cells.tolist()]
    return {"epochs": [epoch + 1 for epoch in epochs], "cells": percent}


# Evaluation -------------------------------------------------------------------------------------------------

CURVES = {
    "roc": ("ROC curve", "fpr", "tpr", "Share of normal rows flagged", "Share of anomalies found"),
    "pr": ("Precision and recall", "recall", "precision", "Recall", "Precision"),
}


def curves(findings: Findings) -> dict[str, dict[str, Any]]:
    """The curves of an evaluation, by name, thinned; empty without one."""
    found: dict[str, dict[str, Any]] = {}
    given = (findings.evaluation or {}).get("curves", {})
    for name, (title, x_key, y_key, x_label, y_label) in CURVES.items():
        points = np.array([given.get(name, {}).get(key, ()) for key in (x_key, y_key)], float)
        points = points[:, np.isfinite(points).all(axis=0)]
        if points.shape[1] > 1:
            rising = points if points[0, 0] <= points[0, -1] else points[:, ::-1]
            x, y = _along(rising[:, np.argsort(rising[0], kind="stable")])
            found[name] = {"title": title, "x": _numbers(x), "y": _numbers(y), "x_label": x_label, "y_label": y_label}
    return found


def _along(points: np.ndarray) -> np.ndarray:
    """Points of a curve at even steps along it, so that a steep beginning keeps its shape."""
    if points.shape[1] <= MOST_CURVE_POINTS:
        return points
    length = np.concatenate([[0.0], np.abs(np.diff(points)).sum(axis=0).cumsum()])
    steps = np.linspace(0, length[-1], MOST_CURVE_POINTS)
    return points[:, np.unique(np.searchsorted(length, steps).clip(0, points.shape[1] - 1))]


def evaluation_numbers(findings: Findings) -> dict[str, Any]:
    """What an evaluation says besides its curves."""
    return {key: value for key, value in (findings.evaluation or {}).items() if key != "curves"}
