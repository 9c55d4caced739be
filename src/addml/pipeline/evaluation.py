"""How well scores agree with a label column."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml.errors import AddmlError
from addml.pipeline.labels import UNKNOWN
from addml.pipeline.vus import volumes
from addml.text import counted

CURVE_POINTS = 500
FIRST_ROWS = (10, 50, 100, 500, 1000)  # k of precision at k


def evaluate(
    scores: np.ndarray, labels: np.ndarray, threshold: float, name: str, *, steps: bool = False
) -> dict[str, Any]:
    """ROC-AUC, average precision, precision at k, the decision's figures and the curves; VUS for steps of a series.

    Rows without a label do not count: a margin around labelled steps is measured in steps that have one.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = labels != UNKNOWN
    marked, own = labels[known], scores[known]
    anomalies = int(marked.sum())
    if anomalies in (0, len(marked)):
        which = "no anomaly" if not anomalies else "no normal row"
        raise AddmlError(
            f"the label column {name!r} marks {which} among {counted(len(marked), 'row')}: nothing to evaluate."
        )
    return {
        "label": name,
        "rows": len(marked),
        "anomalies": anomalies,
        "unlabelled": int((~known).sum()),
        "roc_auc": float(roc_auc_score(marked, own)),
        "average_precision": float(average_precision_score(marked, own)),
        **(_volumes(own, marked) if steps else {}),
        "precision_at": _precision_at(own, marked, anomalies),
        **_decision(own > threshold, marked == 1),
        "curves": _curves(own, marked),
    }


def _volumes(scores: np.ndarray, marked: np.ndarray) -> dict[str, float]:
    found = volumes(marked, scores)
    return {"vus_pr": found.pr, "vus_roc": found.roc}


def _precision_at(scores: np.ndarray, marked: np.ndarray, anomalies: int) -> dict[int, float]:
    """The share of anomalies among the k highest scores, for round k and for k = the number of anomalies."""
    hits = np.cumsum(marked[np.argsort(-scores, kind="stable")])
    wanted = sorted({k for k in (*FIRST_ROWS, anomalies) if k <= len(scores)})
    return {k: float(hits[k - 1] / k) for k in wanted}


def _decision(flagged: np.ndarray, true: np.ndarray) -> dict[str, float]:
    hits, precision = int((flagged & true).sum()), 0.0
    if flagged.any():
        precision = hits / int(flagged.sum())
    recall = hits / int(true.sum())
    return {"precision": precision, "recall": recall, "f1": 2 * hits / (int(flagged.sum()) + int(true.sum()))}


def _curves(scores: np.ndarray, marked: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import precision_recall_curve, roc_curve

    false_rate, true_rate, _ = roc_curve(marked, scores)
    precision, recall, _ = precision_recall_curve(marked, scores)
    return {
        "roc": dict(zip(("fpr", "tpr"), _thinned(false_rate, true_rate), strict=True)),
        "pr": dict(zip(("recall", "precision"), _thinned(recall, precision), strict=True)),
    }


def _thinned(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """At most CURVE_POINTS points, at even steps along the curve, so that a steep beginning keeps its shape."""
    if len(x) > CURVE_POINTS:
        length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
        places = np.unique(np.searchsorted(length, np.linspace(0, length[-1], CURVE_POINTS)).clip(0, len(x) - 1))
        x, y = x[places], y[places]
    return [[round(float(value), 6) for value in values] for values in (x, y)]
