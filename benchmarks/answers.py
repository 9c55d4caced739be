"""What reviewing the first rows of a list and labelling them is worth."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from addml import ADDML
from benchmarks.timing import markdown

LOOKED_AT = (10, 20, 50)
NONE = "none"


def answers_of(y: np.ndarray, scores: np.ndarray, count: int, *, normal_only: bool = False) -> np.ndarray:
    """The labels that a reviewer of the highest-scoring rows would give."""
    first, labels = np.argsort(-scores)[:count], np.full(len(y), -1)
    labels[first] = y[first]
    if normal_only:
        labels[labels == 1] = -1
    return labels


def of_table(divided: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], seed: int) -> dict[str, list[float]]:
    """AUC and average precision on the unseen fold, and the share of rows labelled normal that stay on the list.

    All in percent: without answers, with 10, 20 and 50, and with only the answers "normal".
    """
    X, y, unseen, true = divided
    plain = ADDML(random_state=seed, device="cpu").fit(X)
    ways = {f"{count}": (count, False) for count in LOOKED_AT} | {"20, only those that are normal": (20, True)}
    found = {NONE: [*_measured(plain, unseen, true), 100.0]}
    for name, (count, normal_only) in ways.items():
        labels = answers_of(y, plain.anomaly_scores_, count, normal_only=normal_only)
        taught = ADDML(random_state=seed, device="cpu").fit(X, labels=labels) if (labels >= 0).any() else plain
        first = np.argsort(-taught.anomaly_scores_)[:count]
        again = 100 * (labels[first] == 0).sum() / max(1, (labels == 0).sum())
        found[name] = [*_measured(taught, unseen, true), float(again)]
    return found


def _measured(detector: ADDML, unseen: np.ndarray, true: np.ndarray) -> list[float]:
    scores = detector.anomaly_score(unseen)
    return [100 * float(roc_auc_score(true, scores)), 100 * float(average_precision_score(true, scores))]


def table(found: list[dict[str, list[float]]]) -> str:
    """Means over tables and seeds."""
    heads = ["highest-scoring rows labelled", "AUC, unseen fold", "average precision", "labelled normal, still on top"]
    lines = []
    for name in found[0]:
        auc, precision, again = np.mean([one[name] for one in found], axis=0)
        lines.append([name, f"{auc:.2f}", f"{precision:.2f}", "" if name == NONE else f"{again:.0f} %"])
    return markdown(heads, lines)
