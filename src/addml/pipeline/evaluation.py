"""How well scores agree with a label column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from addml.errors import UserError
from addml.pipeline.vus import volumes
from addml.text import counted, listed

if TYPE_CHECKING:
    import pyarrow as pa

ANOMALOUS = {"1", "1.0", "true", "t", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier", "fraud", "attack"}
NORMAL = {"0", "0.0", "false", "f", "no", "n", "normal", "inlier", "ok", "benign", "regular"}
UNKNOWN = -1
CURVE_POINTS = 500
FIRST_ROWS = (10, 50, 100, 500, 1000)  # k of precision at k


def read_label(column: pa.ChunkedArray, anomalous: str | None, name: str) -> np.ndarray:
    """1 for anomalies, 0 for normal rows, -1 where the label is missing: a gap, NaN or an empty text."""
    codes, values = _coded(column)
    meanings = np.array([*_meanings(values, anomalous, name), UNKNOWN])  # the last is that of code -1
    return np.asarray(meanings[codes])


def is_labelled(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Whether each row has a label, whatever it says."""
    codes, values = _coded(column)
    return np.asarray(np.array([*map(bool, values), False])[codes])


def _coded(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """The number of each row's label, -1 for a gap, and what the labels are."""
    import pyarrow as pa

    whole = column if isinstance(column, pa.Array) else column.combine_chunks()
    encoded = pa.chunked_array([whole]).dictionary_encode().combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, [_word(value) for value in encoded.dictionary.to_pylist()]


def _word(value: Any) -> str:
    """The value as it is named on the command line; nothing for NaN."""
    if isinstance(value, float) and (value.is_integer() or value != value):
        return "" if value != value else str(int(value))
    return str(value).strip()


def _meanings(values: list[str], anomalous: str | None, name: str) -> list[int]:
    if anomalous is not None:
        if anomalous not in values:
            raise UserError(f"no row has {anomalous!r} (--anomalous) in the label column {name!r}; {_shown(values)}")
        return [int(value == anomalous) if value else UNKNOWN for value in values]
    words = [value.lower() for value in values]
    if not {*words} <= ANOMALOUS | NORMAL | {""}:
        raise UserError(
            f"say which value of the label column {name!r} marks an anomaly: --anomalous VALUE; {_shown(values)}"
        )
    return [int(word in ANOMALOUS) if word else UNKNOWN for word in words]


def _shown(values: list[str]) -> str:
    return f"it holds {listed([repr(value) for value in values if value])}."


def evaluate(
    scores: np.ndarray, labels: np.ndarray, threshold: float, name: str, *, steps: bool = False
) -> dict[str, Any]:
    """ROC-AUC, average precision, precision at k, the decision's figures and the curves; volumes for steps of a series.

    What has no label is left out: a margin around labelled steps is counted in steps that have one.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = labels != UNKNOWN
    marked, own = labels[known], scores[known]
    anomalies = int(marked.sum())
    if anomalies in (0, len(marked)):
        which = "no anomaly" if not anomalies else "no normal row"
        raise UserError(
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
