"""The charts as figures for a paper, drawn by matplotlib (extra `plots`)."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.findings import Findings
from addml.io.write import write_whole
from addml.report import charts
from addml.report.charts import MAX_EVENTS, envelope
from addml.text import number, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf", "eps")
NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
WIDTH, HEIGHT = 5.2, 3.2  # inches
NORMAL, ANOMALY, INK = "#5f7f9e", "#c2410c", "#1f2328"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": INK,
    "xtick.color": "#5b616b",
    "ytick.color": "#5b616b",
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "addml",  # same findings, same file
}


def write_figures(
    findings: Findings, folder: str | os.PathLike[str], formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure for each chart of the report; returns the files."""
    formats = [name.lower().lstrip(".") for name in ([formats] if isinstance(formats, str) else formats)]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise ValueError(f"formats={unknown!r} must be among {', '.join(FORMATS)}")
    drawn = _rendered(findings, formats)
    target = Path(os.path.expanduser(folder))
    target.mkdir(parents=True, exist_ok=True)
    files = [target / name for name in drawn]
    new = [file for file in files if not file.exists()]
    try:
        for file, content in zip(files, drawn.values(), strict=True):
            write_whole(file, content)
    except BaseException:  # all figures or none, even when interrupted
        for file in new:
            file.unlink(missing_ok=True)
        raise
    return files


def _rendered(findings: Findings, formats: Sequence[str]) -> dict[str, bytes]:
    """The files in memory, so that a failure writes none of them."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'addml[plots]'") from error
    files: dict[str, bytes] = {}
    with matplotlib.rc_context(STYLE):
        for name, draw in DRAWINGS.items():
            if (figure := draw(findings)) is None:
                continue
            for ending in formats:
                buffer = io.BytesIO()
                figure.savefig(buffer, format=ending, metadata=NO_DATE.get(ending))
                files[f"{name}.{ending}"] = buffer.getvalue()
    return files


def _figure(width: float = WIDTH, height: float = HEIGHT, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure that pyplot does not manage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns, sharex=rows > 1)))


# The figures ------------------------------------------------------------------------------------------------


def _scores(findings: Findings) -> Figure | None:
    if not np.isfinite(findings.scores).any():
        return None
    figure, (axes,) = _figure()
    draw_scores(axes, findings.scores, findings.threshold, findings.noun)
    return figure


def draw_scores(axes: Axes, scores: np.ndarray, threshold: float, noun: str) -> None:
    """The histogram of scores, some of which are finite, with the threshold."""
    found = charts.histogram(scores, threshold)
    assert found is not None
    colors, widths = [NORMAL] * found.first_anomalous + [ANOMALY] * len(found.counts), np.diff(found.edges)
    style: dict[str, Any] = {"color": colors[: len(widths)], "edgecolor": "white", "lw": 0.4}
    axes.bar(found.edges[:-1], found.counts, widths, align="edge", **style)
    if found.edges[0] <= threshold <= found.edges[-1]:
        axes.axvline(threshold, color=INK, lw=1, ls="--", label=f"threshold {number(threshold, 3)}")
        axes.legend()
    if found.log:
        axes.set_yscale("log")
    axes.set(xlabel="score", ylabel=f"{noun}s")


def _series(findings: Findings) -> Figure | None:
    """The scores and some channels of a series with its events shaded."""
    track = findings.track
    if track is None or len(track.scores) < 2:
        return None
    panels = [("score", track.scores), *track.channels]
    figure, every = _figure(1.7 * WIDTH, 1.1 * len(panels) + 0.4, rows=len(panels))
    for axes, (name, values) in zip(every, panels, strict=True):
        low, high = envelope(np.asarray(values, float))
        steps = np.linspace(0, len(values), len(low), endpoint=False)
        axes.fill_between(steps, low, high, color=NORMAL, lw=0.8)
        for start, stop in track.events[:MAX_EVENTS]:
            axes.axvspan(start, max(stop, start + len(values) / 500), color=ANOMALY, alpha=0.25, lw=0)
        axes.set_ylabel(one_line(name, 40), parse_math=False)  # dollars in a name are not a formula
    every[0].axhline(findings.threshold, color=INK, lw=1, ls="--")
    every[-1].set(xlabel=f"step, {track.times[0]} to {track.times[1]}" if track.times[0] else "step")
    return figure


def _training(findings: Findings) -> Figure | None:
    found = charts.training(findings)
    if found is None:
        return None
    count = len(found["panels"])
    figure, several = _figure(WIDTH * (1 if count == 1 else 0.62 * count), HEIGHT * 0.8, columns=count)
    for axes, panel in zip(several, found["panels"], strict=True):
        for line in panel["members"]:
            axes.plot(found["epochs"], np.array(line, float), color=NORMAL, lw=0.6, alpha=0.6)
        axes.plot(found["epochs"], np.array(panel["mean"], float), color=INK, lw=1.6)
        axes.set(xlabel="epoch", title=panel["title"])
        axes.set_ylim(bottom=0)
    return figure


def _space(findings: Findings) -> Figure | None:
    points = charts.space(findings)
    if points is None:
        return None
    figure, (axes,) = _figure(height=HEIGHT * 1.2)
    x, y, flags = np.array(points["x"]), np.array(points["y"]), np.array(points["anomaly"], bool)
    axes.scatter(x[~flags], y[~flags], s=6, color=NORMAL, alpha=0.45, lw=0, label="normal", rasterized=len(x) > 2000)
    axes.scatter(x[flags], y[flags], s=14, color=ANOMALY, lw=0, label="flagged")
    axes.plot(*(points["center"]), "+", color=INK, ms=10, mew=1.5, label="centre")
    for rank, at, flag in zip(points["rank"], zip(x, y, strict=True), flags, strict=True):
        if 0 < rank <= 10 and flag:
            axes.annotate(str(rank), at, (4, 3), textcoords="offset points", fontsize=7, color=INK)
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best")
    axes.set(xticks=[], yticks=[])
    return figure


def _distillation(findings: Findings) -> Figure | None:
    found = charts.dropped(findings)
    if found is None:
        return None
    cells = np.array(found["cells"], float) / 100
    figure, (axes,) = _figure(height=min(8.0, 1.2 + 0.12 * len(cells)))
    ends = (found["epochs"][0] - 0.5, found["epochs"][-1] + 0.5, len(cells) + 0.5, 0.5)
    image = axes.imshow(cells, aspect="auto", cmap="Oranges", vmin=0, vmax=1, extent=ends, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="share of members that left it out")
    axes.set(xlabel="epoch", ylabel="rank")
    return figure


def _curves(name: str, findings: Findings) -> Figure | None:
    curve = charts.curves(findings).get(name)
    if curve is None:
        return None
    figure, (axes,) = _figure()
    if name == "roc":
        axes.plot([0, 1], [0, 1], color="#b4b9c0", lw=1, ls="--")
    axes.plot(curve["x"], curve["y"], color=ANOMALY, lw=1.6)
    axes.set(xlabel=curve["x_label"], ylabel=curve["y_label"], xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
    return figure


DRAWINGS: dict[str, Callable[[Findings], Figure | None]] = {
    "series": _series,
    "scores": _scores,
    "map": _space,
    "training": _training,
    "distillation": _distillation,
    "roc": partial(_curves, "roc"),
    "precision_recall": partial(_curves, "pr"),
}
