"""Findings to draw: of a real fit on a real table, and made up ones of any size."""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from addml import ADDML, __version__
from addml.findings import Finding, Findings, Group, Reason, Usual
from addml.pipeline.evaluation import _curve

LISTED = 26


@cache
def breast_cancer() -> Findings:
    """357 benign and 20 malignant rows of the breast-cancer table, through a real fit.

    Scores, training and evaluation are real; ids, what was left out, the notes and the reasons are stand-ins.
    """
    table = load_breast_cancer()
    keep = np.r_[np.flatnonzero(table.target == 1), np.flatnonzero(table.target == 0)[:20]]
    X, label, names = table.data[keep], 1 - table.target[keep], [str(name) for name in table.feature_names]
    detector = ADDML(contamination=20 / 377, random_state=0).fit(X)
    scores, threshold = detector.anomaly_scores_, detector.threshold_
    order = np.argsort(-scores, kind="stable")[:LISTED]
    usual = [_usual(names[j], X[scores <= threshold, j]) for j in range(X.shape[1])]
    ranked = tuple(
        Finding(
            row=int(i) + 1,
            rank=rank,
            score=float(scores[i]),
            is_anomaly=bool(scores[i] > threshold),
            ids={"patient": f"P-{84000 + 137 * int(i)}"},
            values=dict(zip(names, map(float, X[i]), strict=True)),
            reasons=_reasons(X[i], usual),
        )
        for rank, i in enumerate(order, 1)
    )
    return Findings(
        source="breast_cancer.csv",
        rows=len(X),
        columns=tuple(names),
        left_out=(("patient", "identifier: every row has its own"), ("clinic", "constant")),
        notes=(
            "Read as CSV: comma, UTF-8, 377 rows and 33 columns.",
            "Column 'worst concavity': 12 gaps, filled with the median and flagged.",
        ),
        scores=scores,
        threshold=threshold,
        ranked=ranked,
        groups=_groups(ranked),
        usual=tuple(usual),
        history=tuple(detector.history_),
        evaluation=_evaluation(label, scores),
        settings={**{k: v for k, v in detector.get_params().items() if k != "miner"}, "label": "diagnosis"},
        versions={"addml": __version__, "python": platform.python_version(), "numpy": np.__version__},
        trained_rows=len(X),
    )


def _usual(name: str, values: np.ndarray) -> Usual:
    low, middle, high = (float(value) for value in np.percentile(values, [5, 50, 95]))
    return Usual(name, "number", f"{middle:.3g}, mostly {low:.3g} to {high:.3g}", low, middle, high)


def _reasons(row: np.ndarray, usual: list[Usual]) -> tuple[Reason, ...]:
    """The columns farthest outside: good enough to draw, not how addml explains."""
    far = [abs(value - one.middle) / (one.high - one.low) for value, one in zip(row, usual, strict=True)]
    shares = np.square(far) / np.square(far).sum()
    best = np.argsort(-shares)[:3]
    return tuple(Reason(usual[j].column, float(shares[j]), _words(usual[j], row[j])) for j in best)


def _words(one: Usual, value: float) -> str:
    times = value / one.middle if one.middle else np.inf
    return (
        f"{one.column} {times:.1f}x the usual"
        if times >= 1.5
        else f"{one.column} {value:.3g}, usually {one.middle:.3g}"
    )


def _groups(ranked: tuple[Finding, ...]) -> tuple[Group, ...]:
    by_column: dict[str, list[int]] = {}
    for finding in ranked:
        if finding.is_anomaly and finding.reasons:
            by_column.setdefault(finding.reasons[0].column, []).append(finding.rank)
    several = sorted(by_column.items(), key=lambda item: -len(item[1]))
    return tuple(Group((column,), f"{column} far from the usual", tuple(ranks)) for column, ranks in several)


def _evaluation(label: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    fpr, tpr, _ = roc_curve(label, scores)
    precision, recall, _ = precision_recall_curve(label, scores)
    return {
        "roc_auc": float(roc_auc_score(label, scores)),
        "average_precision": float(average_precision_score(label, scores)),
        "anomalies": int(label.sum()),
        "precision_at": {k: float(label[np.argsort(-scores, kind="stable")[:k]].mean()) for k in (10, 20)},
        "curves": {"roc": {"fpr": fpr, "tpr": tpr}, "pr": {"recall": recall, "precision": precision}},
    }


DRIFT = (
    {"column": "mean radius", "psi": 0.04, "gaps_now": 0.0, "outside_count": 3, "words": "as in training"},
    {"column": "country", "psi": 0.41, "gaps_now": 0.002, "figures": "'DE' 7% -> 9%", "words": "unseen: 'Elbonia'"},
)


def shop(**changes: Any) -> Findings:
    """A small made-up table with columns of every kind, gaps, an id and drift."""
    usual = (
        Usual("amount", "number", "12.5, mostly 3 to 40", 3.0, 12.5, 40.0),
        Usual("country", "category", "mostly DE, FR, AT", common=(("DE", 0.71), ("FR", 0.18), ("AT", 0.02))),
        Usual("gift", "boolean", "mostly false", common=(("False", 0.93), ("True", 0.07))),
        Usual("when", "date", "2025-01-03 to 2026-06-30"),
        Usual("age", "number", "41, mostly 22 to 67", 22.0, 41.0, 67.0),
    )
    first = Finding(
        row=17,
        rank=1,
        score=9.25,
        is_anomaly=True,
        ids={"order": "A-100017"},
        values={"amount": 51234.75, "country": "Elbonia", "gift": True, "when": "2031-02-03 04:05:06", "age": None},
        reasons=(
            Reason("amount", 0.62, "amount 4,099x the usual"),
            Reason("country", 0.21, "country 'Elbonia' unseen"),
        ),
    )
    second = Finding(
        row=4,
        rank=2,
        score=1.25,
        is_anomaly=False,
        ids={"order": "A-100004"},
        values={"amount": 39.0, "country": "AT", "gift": False, "when": "2026-03-04 00:00:00", "age": 19},
        reasons=(Reason("age", 0.4, "age 19, usually 41"),),
    )
    whole = Findings(
        source="shop.csv",
        rows=40,
        columns=tuple(one.column for one in usual),
        left_out=(("order", "identifier"), ("remark", "free text such as 'ring twice, Elbonia'")),
        notes=("Decimal commas in amount.", "country: 1 unseen value, Elbonia"),
        scores=np.r_[np.linspace(-1, 1.2, 38), 1.25, 9.25],
        threshold=2.5,
        ranked=(first, second),
        groups=(Group(("amount", "country"), "amount high and country 'Elbonia'", (1,)),),
        usual=usual,
        drift=DRIFT,
        settings={"members": 5, "query": "select * where country <> 'Elbonia'", "one_sided": {"amount": "high"}},
        versions={"addml": __version__},
        trained_rows=40,
    )
    return replace(whole, **changes)


def million(rows: int = 1_000_000, columns: int = 30, share: float = 0.1) -> Findings:
    """As many rows as the report must bear: a tenth of them flagged, every one of those with values and reasons."""
    random = np.random.default_rng(3)
    scores = random.normal(size=rows) ** 2
    threshold = float(np.quantile(scores, 1 - share))
    order = np.argsort(-scores)[: int(rows * share)]
    names = tuple(f"a column with a rather long name {j}" for j in range(columns))
    words = "4.5x the usual, which is more than ever before"
    reasons = tuple(Reason(name, 0.2, f"{name} {words}") for name in names[:5])
    values = {name: 12345.678901 * (j + 1) for j, name in enumerate(names)}
    ranked = tuple(
        Finding(int(i) + 1, rank, float(scores[i]), True, {"id": f"{i:012d}", "when": "2026-01-01"}, values, reasons)
        for rank, i in enumerate(order.tolist(), 1)
    )
    members = [{"member": m, "train_loss": 1.5, "validation_loss": 2.5, "rows_kept": rows // 2} for m in range(20)]
    return Findings(
        source="large.parquet",
        rows=rows,
        columns=names,
        left_out=tuple((f"left {j}", "constant") for j in range(1000)),
        notes=tuple(f"note {j}" for j in range(1000)),
        scores=scores,
        threshold=threshold,
        ranked=ranked,
        groups=(Group((names[0],), names[0], tuple(range(1, len(ranked) + 1))),),
        usual=tuple(Usual(name, "number", "5, mostly 1 to 9", 1.0, 5.0, 9.0) for name in names),
        history=tuple(
            {"epoch": e, "train_loss": 1 / e, "validation_loss": 1 / e, "rows_kept": rows / 2, "members": members}
            for e in range(1, 2001)
        ),
        evaluation={
            "roc_auc": 0.9,
            "curves": {"roc": _curve(fpr=np.linspace(0, 1, rows), tpr=np.linspace(0, 1, rows) ** 0.2)},
        },
        settings={"members": 20},
        versions={"addml": __version__},
        trained_rows=100_000,
    )
