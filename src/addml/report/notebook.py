"""For Python users: reasons, report, charts and summary of a fitted detector, and figures of findings by matplotlib."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from addml.arrays import to_numpy
from addml.decisions.check import Checked, Fitted, check
from addml.explain import Reasons, columns_of, reason_texts, reasons
from addml.findings import Findings, Track
from addml.inputs import Rows
from addml.inputs.frame import as_table
from addml.io.write import write_whole
from addml.model import Model
from addml.pipeline.batches import reasons_for
from addml.pipeline.ranking import LISTED, Candidate, highest, ranked_findings
from addml.preprocessing.profile import ColumnProfile
from addml.report import charts, write_report
from addml.report.html import el
from addml.text import TABLE, counted, number, one_in, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from addml.detector import ADDML

REASONS = 3  # of a row
TOP = 5  # training rows in the summary
BARS = 10  # columns in the chart of a row
WIDTH, HEIGHT = 5.2, 3.2  # inches
NORMAL, ANOMALY, INK = "#5f7f9e", "#c2410c", "#1f2328"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "addml",  # the same findings give the same file
}


def sentences(model: Model, rows: Rows) -> list[str]:
    """Why each row is unusual, one line each."""
    row_reasons, _ = _reasons(model, rows, np.arange(len(rows)))
    return list(reason_texts(row_reasons).to_pylist())


def _reasons(model: Model, rows: Rows, indices: np.ndarray) -> tuple[Reasons, pa.RecordBatch]:
    if model.kind != TABLE:
        raise ValueError("reasons, report and plot_row need the columns of a table; use explain(X) for other rows")
    features, values = rows.take(indices), rows.values
    if model.columns is not None:
        table = values.take(pa.array(indices)).combine_chunks()
        batch = table.to_batches()[0] if len(indices) else pa.RecordBatch.from_pylist([], table.schema)
        return reasons_for(model, batch, features, REASONS), batch
    names = _columns(model)
    batch = pa.record_batch(list(np.asarray(values[indices], np.float64).T), names=names)
    profiles = model.profiles or [ColumnProfile(name, "number") for name in names]
    profiles = [replace(profile, column=name) for profile, name in zip(profiles, names, strict=True)]
    numbers = {name: batch[name].to_numpy() for name in names}
    return reasons(model, features, model.baseline, columns_of(model), profiles, numbers, most=REASONS), batch


def _columns(model: Model) -> list[str]:
    names = model.vectorizer.labels
    return names if model.vectorizer.names is not None else [f"column {name}" for name in names]


def report(model: Model, rows: Rows, scores: np.ndarray, path: str | os.PathLike[str], top: int, redact: bool) -> Path:
    """Write a report of rows with these scores, which may be the training rows or new ones."""
    indices = highest(scores, min(max(int((scores > model.threshold).sum()), top), max(LISTED, top)))
    row_reasons, batch = _reasons(model, rows, indices)
    listed = [
        Candidate(row, float(scores[row]), values, why)
        for row, values, why in zip(indices.tolist(), batch.to_pylist(), row_reasons, strict=True)
    ]
    is_new = not np.array_equal(scores, model.training.values)
    findings = ranked_findings(model, listed, scores, [], top, "X", [], are_new=is_new)
    columns, trained = tuple(model.used or _columns(model)), 0 if is_new else len(scores)
    findings = replace(findings, columns=columns, settings=model.settings, trained_rows=trained)
    return write_report(findings, path, redact=redact)


def checked(detector: ADDML, X: Any) -> tuple[Checked, ...]:
    """Plant faults in rows of X (numbers or a table) and report which a detector with the same parameters finds."""
    from sklearn.base import clone

    model = detector.model_
    if model.kind != TABLE:
        raise ValueError("check(X) plants faults in the columns of a table; it does not support images or series")
    is_array = model.columns is None
    table = pa.table(list(X.T), names=model.vectorizer.labels) if is_array else as_table(X)

    def rows(table: pa.Table) -> Any:
        return np.column_stack([column.to_numpy() for column in table.columns]) if is_array else table

    def fit(table: pa.Table) -> Fitted:
        other = clone(detector).fit(rows(table))
        return lambda new: to_numpy(other.anomaly_score(rows(new))), other.anomaly_scores_, other.threshold_

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check(table if is_array else table.select([*model.used, *model.by]), fit)


def to_html(detector: ADDML) -> str:
    """A summary of the fitted detector: its threshold, its training, and the training rows with the highest scores."""
    model = detector.model_
    scores, noun = model.training.values, model.vectorizer.noun
    flagged = f"{(scores > model.threshold).sum():,} of {counted(len(scores), f'training {noun}')} flagged"
    rule = f"{model.decision.words_for(noun)} (score above {number(model.threshold)})"
    parts = [el("p", el("b", "ADDML"), f": {flagged}: {rule}")]
    losses = [entry["train_loss"] for entry in model.history if "train_loss" in entry]
    if losses:
        epochs = counted(len(model.history), "epoch")
        parts.append(el("p", f"Training: {epochs}, loss {number(losses[0], 3)} to {number(losses[-1], 3)}"))
    top = highest(scores, min(TOP, len(scores)))
    p_values, _ = model.training.rarity(scores[top])
    head = el("tr", *(el("th", name) for name in (noun, "score", "rarity")))
    body = [
        el("tr", el("td", row + 1), el("td", f"{scores[row]:.4g}"), el("td", one_in(p_value)))
        for row, p_value in zip(top.tolist(), p_values, strict=True)
    ]
    return el("div", *parts, el("table", el("thead", head), el("tbody", *body)))


def plot_scores(detector: ADDML, X: Any, ax: Axes | None) -> Axes:
    """A histogram of the scores of X, default: of the training rows, with the threshold."""
    scores = detector.anomaly_scores_ if X is None else to_numpy(detector.anomaly_score(X))
    axes = _axes(ax)
    _draw_scores(axes, scores, detector.threshold_, detector.model_.vectorizer.noun)
    return axes


def plot_row(model: Model, rows: Rows, row: int, contributions: np.ndarray, ax: Axes | None) -> Axes:
    """What the columns of one row add to its score, the largest contribution at the top."""
    columns, (_, batch) = _columns(model), _reasons(model, rows, np.array([row]))
    shares = dict(zip(columns, contributions, strict=True))
    names = sorted(model.used or columns, key=lambda name: -abs(shares[name]))[:BARS][::-1]
    labels = [one_line(f"{name} = {batch[name][0].as_py()}", 40) for name in names]
    widths, axes = [shares[name] for name in names], _axes(ax)
    axes.barh(range(len(names)), widths, color=[ANOMALY if width > 0 else NORMAL for width in widths])
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    axes.set(xlabel="contribution to the score", title=f"row {row}, score {sum(shares.values()):.3g}")
    return axes


def _axes(ax: Axes | None) -> Axes:
    return _matplotlib("matplotlib.pyplot").subplots(layout="constrained")[1] if ax is None else ax


def _matplotlib(module: str) -> Any:
    """A module of an optional package; pyplot is only imported for charts that it shows."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError("charts need matplotlib: pip install 'addml[plots]'") from error


def _draw_scores(axes: Axes, scores: np.ndarray, threshold: float, noun: str) -> None:
    histogram = charts.histogram(scores, threshold)
    if histogram is None:  # no score is finite
        return
    edges, counts = histogram.edges, histogram.counts
    colors = [ANOMALY if i >= histogram.first_anomalous else NORMAL for i in range(len(counts))]
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colors, edgecolor="white", lw=0.4)
    if edges[0] <= threshold <= edges[-1]:
        axes.axvline(threshold, color=INK, lw=1, ls="--", label=f"threshold {number(threshold, 3)}")
        axes.legend()
    if histogram.log:
        axes.set_yscale("log")
    axes.set(xlabel="score", ylabel=f"{noun}s")


def write_figures(findings: Findings, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each chart of the report as PNG and SVG and return the files; a failure leaves none."""
    target, files = Path(os.path.expanduser(folder)), dict[str, bytes]()
    with _matplotlib("matplotlib").rc_context(STYLE):
        for name, figure in _figures(findings):
            for ending, metadata in (("png", None), ("svg", {"Date": None})):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=ending, metadata=metadata)
                files[f"{name}.{ending}"] = buffer.getvalue()
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(target / name, content)
    return [target / name for name in files]


def _figures(findings: Findings) -> Iterator[tuple[str, Figure]]:
    data = charts.chart_data(findings)
    if findings.track is not None and len(findings.track.scores) > 1:
        yield "series", _series(findings.track, findings.threshold)
    if data["scores"]:
        figure, (axes,) = _figure()
        _draw_scores(axes, findings.scores, findings.threshold, findings.noun)
        yield "scores", figure
    if data["training"]:
        yield "training", _training(data["training"])
    for key, curve in data["curves"].items():
        yield {"pr": "precision_recall"}.get(key, key), _curve(curve)


def _figure(width: float = WIDTH, height: float = HEIGHT, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns, sharex=rows > 1)))


def _series(track: Track, threshold: float) -> Figure:
    panels, last = [("score", track.scores), *track.channels], len(track.scores) - 1
    has_entities = len(track.entities) > 1
    x = np.arange(last + 1) if has_entities or track.when is None else track.when
    figure, all_axes = _figure(1.7 * WIDTH, 1.1 * len(panels) + 0.4, rows=len(panels))
    for axes, (name, values) in zip(all_axes, panels, strict=True):
        low, high = charts.envelope(np.asarray(values, float))
        axes.fill_between(x[np.linspace(0, last, len(low)).astype(int)], low, high, color=NORMAL, lw=0.8)
        for start, stop in track.events[: charts.MAX_EVENTS]:
            axes.axvspan(x[start], x[min(max(stop, start + last // 500), last)], color=ANOMALY, alpha=0.25, lw=0)
        for _, start, _ in track.entities[1 : charts.MAX_EVENTS]:
            axes.axvline(start, color=INK, lw=0.3)
        axes.set_ylabel(one_line(name, 40), parse_math=False)  # dollars in a name are not a formula
    all_axes[0].axhline(threshold, color=INK, lw=1, ls="--")
    label = f"step of {len(track.entities):,} series, one after another" if has_entities else "step"
    all_axes[-1].set(xlabel="" if x is track.when else label)
    return figure


def _training(data: dict[str, Any]) -> Figure:
    count = len(data["panels"])
    figure, all_axes = _figure(WIDTH * (1 if count == 1 else 0.62 * count), HEIGHT * 0.8, columns=count)
    for axes, panel in zip(all_axes, data["panels"], strict=True):
        for line in panel["members"]:
            axes.plot(data["epochs"], np.array(line, float), color=NORMAL, lw=0.6, alpha=0.6)
        axes.plot(data["epochs"], np.array(panel["mean"], float), color=INK, lw=1.6)
        axes.set(xlabel="epoch", title=panel["title"])
        axes.set_ylim(bottom=0)
    return figure


def _curve(curve: dict[str, Any]) -> Figure:
    figure, (axes,) = _figure()
    if curve["title"].startswith("ROC"):
        axes.plot([0, 1], [0, 1], color="#b4b9c0", lw=1, ls="--")
    axes.plot(curve["x"], curve["y"], color=ANOMALY, lw=1.6)
    axes.set(xlabel=curve["x_label"], ylabel=curve["y_label"], xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
    return figure
