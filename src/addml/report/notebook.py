"""What a fitted detector shows in Python: reasons as sentences, a report, charts, and its summary in a notebook."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from addml.arrays import to_numpy
from addml.decisions.check import Checked, Fitted, check
from addml.explain import Reasons, columns_of, reason_texts, reasons
from addml.findings import Findings
from addml.pipeline.batches import reasons_for
from addml.pipeline.ranking import LISTED, MAPPED, Candidate, Sample, highest, left_out_epochs, ranked_findings
from addml.preprocessing.profile import ColumnProfile
from addml.report import write_report
from addml.report.html import el
from addml.report.plots import ANOMALY, NORMAL, draw_scores
from addml.text import counted, number, one_in, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from addml.detector import ADDML
    from addml.inputs import Rows
    from addml.model import Model

REASONS = 3  # of a row
TOP = 5  # training rows that a notebook shows
BARS = 10  # columns in the chart of a row


def sentences(detector: ADDML, X: Any) -> list[str]:
    """Why each row of X is unusual, in one line each."""
    rows = detector._read(X)
    found: list[str] = reason_texts(_reasons(detector.model_, rows, np.arange(len(rows)))[0]).to_pylist()
    return found


def _reasons(model: Model, rows: Rows, places: np.ndarray) -> tuple[Reasons, pa.RecordBatch, np.ndarray]:
    """The reasons of the rows of a table at these places, their values and their features."""
    if model.form is not None:
        raise ValueError("reasons are sentences about the columns of a table; explain takes images and series")
    features, values = rows.take(places), rows.values
    if model.columns is not None:
        table = values.take(pa.array(places)).combine_chunks()
        batch = table.to_batches()[0] if len(places) else pa.RecordBatch.from_pylist([], table.schema)
        return reasons_for(model, batch, features, REASONS), batch, features
    names = _columns(model)
    batch = pa.record_batch(list(np.asarray(values[places], np.float64).T), names=names)
    known = model.profiles or [ColumnProfile(name, "number") for name in names]
    profiles = [replace(one, column=name) for one, name in zip(known, names, strict=True)]
    numbers = {name: batch[name].to_numpy() for name in names}
    found = reasons(model, features, model.baseline, columns_of(model), profiles, numbers, most=REASONS)
    return found, batch, features


def _columns(model: Model) -> list[str]:
    """The names of all columns of X."""
    names = model.vectorizer.labels
    return names if model.vectorizer.names is not None else [f"column {name}" for name in names]


def findings_of(detector: ADDML, X: Any, top: int, source: str = "X") -> Findings:
    """What there is to say of the rows of X, those trained on or new ones."""
    model, rows = detector.model_, detector._read(X)
    scores, random = to_numpy(detector.anomaly_score(X)), np.random.default_rng(0)
    places = highest(scores, min(max(int((scores > model.threshold).sum()), top), max(LISTED, top)))
    found, batch, features = _reasons(model, rows, places)
    listed = [
        Candidate(int(place), float(scores[place]), values, own, why)
        for place, values, own, why in zip(places, batch.to_pylist(), features, found, strict=True)
    ]
    some = np.sort(random.permutation(len(scores))[:MAPPED])
    sample = Sample(random.random(len(some)), some, rows.take(some))
    is_new = not np.array_equal(scores, model.training.values)
    findings = ranked_findings(model, listed, sample, scores, [], top, source, [], are_new=is_new)
    findings = replace(findings, columns=tuple(model.used or _columns(model)), settings=model.settings)
    if is_new:
        return findings
    dropped = left_out_epochs(model, None, findings.ranked)
    return replace(findings, dropped=dropped, trained_rows=len(scores))


def report(detector: ADDML, X: Any, path: str | os.PathLike[str], top: int, redact: bool) -> Path:
    """Write the report of the rows of X."""
    return write_report(findings_of(detector, X, top), path, redact=redact)


def checked(detector: ADDML, X: Any) -> tuple[Checked, ...]:
    """Which kinds of faults, planted in rows of X, a detector with the same parameters finds."""
    from sklearn.base import clone

    from addml.inputs.frame import as_table

    model = detector.model_
    if model.form is not None:
        raise ValueError("check plants faults in tables; X is of another kind")
    is_array = model.columns is None
    values = detector._read(X).values if is_array else as_table(X)
    table = pa.table(list(values.T), names=model.vectorizer.labels) if is_array else values

    def rows(table: pa.Table) -> Any:
        return np.column_stack([column.to_numpy() for column in table.columns]) if is_array else table

    def fit(table: pa.Table) -> Fitted:
        own = clone(detector).fit(rows(table))
        return lambda some: to_numpy(own.anomaly_score(rows(some))), own.anomaly_scores_, own.threshold_

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check(table if is_array else table.select([*model.used, *model.by]), fit)


# Charts -----------------------------------------------------------------------------------------------------


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("charts need matplotlib: pip install 'addml[plots]'") from error
    return pyplot.subplots(layout="constrained")[1]


def plot_scores(detector: ADDML, X: Any, ax: Axes | None) -> Axes:
    """The histogram of the scores of X, or of the training rows, with the threshold."""
    scores, axes = detector.anomaly_scores_ if X is None else to_numpy(detector.anomaly_score(X)), _axes(ax)
    draw_scores(axes, scores, detector.threshold_, detector.model_.vectorizer.noun)
    return axes


def plot_row(detector: ADDML, X: Any, row: int, ax: Axes | None) -> Axes:
    """What the columns of one row of X add to its score, the largest at the top."""
    columns, read = _columns(detector.model_), detector._read(X)
    _, batch, _ = _reasons(detector.model_, read, np.array([row]))
    added = dict(zip(columns, np.asarray(detector.explain(X, rows=[row]))[0], strict=True))
    order, axes = sorted(detector.model_.used or columns, key=lambda name: -abs(added[name]))[:BARS][::-1], _axes(ax)
    labels = [one_line(f"{name} = {batch[name][0].as_py()}", 40) for name in order]
    heights = [added[name] for name in order]
    axes.barh(range(len(order)), heights, color=[ANOMALY if height > 0 else NORMAL for height in heights])
    axes.set_yticks(range(len(order)), labels, parse_math=False)
    axes.set(xlabel="contribution to the score", title=f"row {row}, score {sum(added.values()):.3g}")
    return axes


# Notebook ---------------------------------------------------------------------------------------------------


def to_html(detector: ADDML) -> str:
    """The fitted detector: how it decides, how training went, and the training rows with the highest scores."""
    model = detector.model_
    scores, noun = model.training.values, model.vectorizer.noun
    flagged = f"{(scores > model.threshold).sum():,} of {counted(len(scores), f'training {noun}')} flagged"
    rule = f"{flagged}: {model.decision.words} (score above {number(model.threshold)})"
    first = highest(scores, min(TOP, len(scores)))
    p_values = model.training.rarity(scores[first])[0]
    rows = [[place + 1, f"{scores[place]:.4g}", one_in(p)] for place, p in zip(first.tolist(), p_values, strict=True)]
    parts = [el("p", el("b", "ADDML"), ": ", rule)]
    losses = [entry["train_loss"] for entry in model.history if "train_loss" in entry]
    if losses:
        epochs = counted(len(model.history), "epoch")
        parts.append(el("p", f"Training: {epochs}, loss {number(losses[0], 3)} to {number(losses[-1], 3)}"))
    head = el("tr", *(el("th", name) for name in (noun, "score", "rarity")))
    lines = [el("tr", *(el("td", cell) for cell in row)) for row in rows]
    return el("div", *parts, el("table", el("thead", head), el("tbody", *lines)))
