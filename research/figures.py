"""The figures as SVG and PNG in memory, drawn by matplotlib (extra `plots`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.pipeline.rivals import SETTINGS, Row, measure
from research import experiment
from research.datasets import LabelledArray
from research.plans import Plan, method_title
from research.statistics import Ranking
from research.tables import percents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
NEXT_TO_NOTHING = 1e-30  # a learning rate that leaves the network as it was drawn
SEED = 0
COLOURS = ("#5f7f9e", "#3f7d58", "#c2410c", "#7c5295", "#a68a1f", "#8a8f98", "#2a9d9d", "#1f2328", "#d1495b")
NORMAL, ANOMALY, INK = "#5f7f9e", "#c2410c", "#1f2328"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 130,
    "svg.fonttype": "none",
    "svg.hashsalt": "addml",  # the same runs give the same file
}


def rendered(name: str, draw: Callable[[], Figure]) -> dict[str, bytes]:
    """The figure in every format, by file name."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'addml[plots]'") from error
    with matplotlib.rc_context(STYLE):
        figure, files = draw(), {}
        for ending in FORMATS:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata={"Date": None} if ending == "svg" else None)
            files[f"{name}.{ending}"] = buffer.getvalue()
    return files


def _new(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, np.ndarray]:
    """A new figure, its size in inches, and its axes (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


# Sweeps -----------------------------------------------------------------------------------------------------


def sweep(plan: Plan, rows: Sequence[Row]) -> Figure:
    """ROC-AUC against one setting of ADDML: the mean of nine runs, and a band of one deviation."""
    figure, axes = _new(5.2, 3.2)
    runs, setting = percents(rows), plan.more["sweep"]["setting"]
    for name, colour in zip(SETTINGS, (NORMAL, "#3f7d58", ANOMALY), strict=True):
        by_value = {case.settings[setting]: runs.get((plan.sets[0], name, case.variant)) for case in plan.cases}
        if points := [(value, aucs) for value, aucs in by_value.items() if aucs is not None]:
            _band(axes[0, 0], points, name, colour)
    axes[0, 0].set(xlabel=plan.more["sweep"]["label"], ylabel="ROC-AUC, %", xlim=(0, 1.02))
    axes[0, 0].legend(loc="lower right")
    return figure


def _band(axes: Axes, points: Iterable[tuple[float, np.ndarray]], label: str, colour: str) -> None:
    x, runs = zip(*points, strict=True)
    mean, spread = np.array([aucs.mean() for aucs in runs]), np.array([aucs.std(ddof=1) for aucs in runs])
    axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, label=label, marker="o", markersize=3)


# Ranks ------------------------------------------------------------------------------------------------------


def critical_differences(rankings: Mapping[str, Ranking]) -> Figure:
    """Mean ranks on a line per setting, best on the left; a bar joins methods that do not differ significantly."""
    figure, axes = _new(7.0, 2.3 * len(rankings), len(rankings))
    for row_axes, (setting, ranking) in zip(axes[:, 0], rankings.items(), strict=True):
        _ranks(row_axes, setting, ranking)
    return figure


def _ranks(axes: Axes, setting: str, ranking: Ranking) -> None:
    k = len(ranking.methods)
    order = np.argsort(ranking.mean_ranks, kind="stable")
    groups, half = ranking.groups(), (k + 1) // 2
    depth = -0.35 * (len(groups) + 1)
    axes.plot([1, k], [0, 0], color=INK, linewidth=1)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.15], color=INK, linewidth=1)
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    for position, index in enumerate(order):
        rank, left = ranking.mean_ranks[index], position < half
        level = depth - 0.5 * (position if left else k - 1 - position)
        end = 0.8 if left else k + 0.2
        axes.plot([rank, rank, end], [0, level, level], color=INK, linewidth=0.8)
        name = f"{method_title(ranking.methods[index])} ({rank:.2f})"
        axes.text(end + (-0.05 if left else 0.05), level, name, ha="right" if left else "left", va="center", fontsize=8)
    for level, group in enumerate(groups):
        ranks = [ranking.mean_ranks[ranking.methods.index(name)] for name in group]
        axes.plot([min(ranks) - 0.05, max(ranks) + 0.05], [-0.35 * (level + 1)] * 2, color=ANOMALY, linewidth=3)
    axes.plot([1, 1 + ranking.critical_difference], [0.95, 0.95], color=ANOMALY, linewidth=3)
    axes.text(1, 1.1, f"critical difference {ranking.critical_difference:.2f}", fontsize=8, va="bottom")
    axes.set_title(setting, loc="right", fontsize=9)
    axes.set_xlim(-1.6, k + 2.6)
    axes.axis("off")


# Running time -----------------------------------------------------------------------------------------------


def runtime(plan: Plan, rows: Sequence[Row]) -> Figure:
    """Seconds to fit and to score against rows and columns, on logarithmic axes."""
    figure, axes = _new(8.4, 6.0, 2, 2, sharex="col")
    methods = [case.method for case in plan.cases]
    for column, dimension in enumerate((experiment.BY_ROWS, experiment.BY_COLUMNS)):
        for line, seconds in enumerate(("fit_seconds", "score_seconds")):
            for method, colour in zip(methods, COLOURS, strict=False):
                _times(axes[line, column], rows, method, dimension, seconds, colour)
            axes[line, column].set(xscale="log", yscale="log")
        axes[1, column].set_xlabel({"rows": "training rows", "columns": "columns"}[dimension])
    axes[0, 0].set_ylabel("seconds to fit")
    axes[1, 0].set_ylabel(f"seconds to score {experiment.SCORED:,} rows")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _times(axes: Axes, rows: Sequence[Row], method: str, dimension: str, seconds: str, colour: str) -> None:
    times: dict[int, list[float]] = {}
    for row in rows:
        if row["method"] == method and row["variant"] == dimension:
            times.setdefault(row[dimension], []).append(row[seconds])
    sizes = sorted(times)
    width = 2.2 if method.startswith("ADDML") else 1.1
    fastest = [min(times[size]) for size in sizes]
    axes.plot(sizes, fastest, color=colour, label=method, linewidth=width, marker="o", markersize=3)


# The metric space -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """Rows of the metric space in two dimensions, with the centre at zero, before and after training."""

    before: np.ndarray  # (n, 2)
    after: np.ndarray
    y: np.ndarray
    auc: tuple[float, float]  # of the distance to the centre in all dimensions


def metric_space(data: LabelledArray, device: str = "cpu") -> Space:
    """The embeddings of all rows by the untrained and by the trained network."""
    from addml.detector import ADDML

    untrained = ADDML.paper(epochs=1, learning_rate=NEXT_TO_NOTHING, random_state=SEED, device=device).fit(data.X)
    trained = ADDML.paper(random_state=SEED, device=device).fit(data.X)
    before, after = (projected(detector.embed(data.X), detector.center_[0]) for detector in (untrained, trained))
    aucs = [measure(data.y, detector.anomaly_scores_)["auc"] for detector in (untrained, trained)]
    return Space(before, after, data.y, (aucs[0], aucs[1]))


def projected(embeddings: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Embeddings (n, w) on their two leading principal directions around the centre, with reproducible signs."""
    centred = embeddings.astype(float) - center
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    return np.asarray(centred @ (directions * signs[:, None]).T)


def space(embedded: Space) -> Figure:
    """Both pictures of the metric space, each with its own scale, stated in the title."""
    figure, axes = _new(8.0, 3.8, 1, 2)
    stages = {"before training": embedded.before, "after training": embedded.after}
    for panel, (stage, points), auc in zip(axes[0], stages.items(), embedded.auc, strict=True):
        for label, name, colour, size in ((0, "normal", NORMAL, 5), (1, "anomaly", ANOMALY, 14)):
            panel.scatter(*points[embedded.y == label].T, s=size, color=colour, label=name, linewidths=0, alpha=0.8)
        panel.plot(0, 0, "+", color=INK, markersize=10, label="centre")
        spread = float((points**2).sum(axis=1).mean() ** 0.5)
        panel.set_title(f"{stage}: ROC-AUC {100 * auc:.1f}%, spread {spread:.2g}", fontsize=9)
        panel.set_aspect("equal", adjustable="datalim")
    axes[0, 0].legend(loc="best", fontsize=8)
    return figure
