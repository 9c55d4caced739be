"""Data of the charts that the page's script draws, and SVG drawings of series; small for any number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.arrays import evenly_spaced_with_ends
from addml.findings import EventPicture, Findings, Track
from addml.report.html import Html, el, json_text
from addml.text import number, one_line

MAX_BINS = 60
MIN_BINS = 12
MAX_EPOCHS = 400
MAX_MEMBERS = 50
MAX_SERIES_POINTS = 800  # of one line; each is the minimum and maximum of a stretch of steps
MAX_EVENTS = 500  # shaded in a series, the highest ranked ones
LOG_RATIO = 40  # of the highest bar to the lower quartile: from here on the scale is logarithmic
TAIL = 12  # spreads from the median: scores farther away are counted in the outermost bar
PANELS = {"train_loss": "Training loss", "validation_loss": "Validation loss", "rows_kept": "{noun} kept"}
CURVES = {
    "roc": ("ROC curve", "fpr", "tpr", "Share of normal {noun} flagged", "Share of anomalies found"),
    "pr": ("Precision and recall", "recall", "precision", "Recall", "Precision"),
}
WIDTH, PANEL_HEIGHT, PANEL_GAP, AXIS_HEIGHT = 1000, 90, 26, 24  # of a drawn series
KNOTS = 64  # points of the time axis that the page interpolates when zooming

Span = tuple[int, int]  # first step and the one after the last
Panel = tuple[str, np.ndarray, np.ndarray | None]  # name, values (steps,), expected band (3, steps): low, median, high


def chart_data(findings: Findings) -> dict[str, Any]:
    """The data of all charts, for the page's script."""
    bars = histogram(findings.scores, findings.threshold)
    return {
        "threshold": finite(findings.threshold, 10),
        "noun": findings.noun,
        "scores": bars and bars._asdict() | {"edges": _numbers(bars.edges, 10), "counts": bars.counts.tolist()},
        "training": training(findings),
        "curves": curves(findings),
    }


class Histogram(NamedTuple):
    """Counts of scores in bins. The threshold is an edge, so that no bar mixes flagged and normal rows."""

    edges: np.ndarray  # (k + 1,)
    counts: np.ndarray  # (k,)
    first_anomalous: int  # the bin whose lower edge is the threshold; k if all bins are below it
    below: int  # rows below the first edge, counted in the first bar
    above: int  # rows above the last edge, counted in the last bar
    not_finite: int
    log: bool  # whether the bars need a logarithmic scale


def histogram(scores: np.ndarray, threshold: float) -> Histogram | None:
    """The histogram, with MIN_BINS to MAX_BINS bins by the Freedman-Diaconis rule; None without a finite score."""
    values = np.asarray(scores, float)[np.isfinite(scores)]
    if not len(values):
        return None
    low, high = _axis_range(values, threshold)
    anchor = threshold if low <= threshold <= high else low
    quarter, three_quarters = np.percentile(values, [25, 75])
    width = 2 * float(three_quarters - quarter) / len(values) ** (1 / 3)
    bins = (high - low) / width if width > 0 else MAX_BINS
    width = (high - low) / min(max(bins, MIN_BINS), MAX_BINS - 2)
    before, after = math.ceil((anchor - low) / width - 1e-9), max(1, math.ceil((high - anchor) / width - 1e-9))
    before = max(before, int((values <= anchor).any()))  # a score at the anchor belongs to the bin before it
    edges = anchor + width * np.arange(-before, after + 1)
    edges[before] = anchor
    index = np.searchsorted(edges, values, side="left") - 1  # intervals (low, high]: a score at the threshold is normal
    counts = np.bincount(np.clip(index, 0, len(edges) - 2), minlength=len(edges) - 1)
    first = before if anchor == threshold else (0 if threshold < low else len(counts))
    slack = 1e-6 * width  # rounding may put the outermost score beyond the edge
    below, above = int((values < edges[0] - slack).sum()), int((values > edges[-1] + slack).sum())
    log = bool(counts.max() >= LOG_RATIO * max(1.0, np.percentile(counts[counts > 0], 25)))
    return Histogram(edges, counts, first, below, above, len(scores) - len(values), log)


def _axis_range(values: np.ndarray, threshold: float) -> tuple[float, float]:
    """The ends of the axis: the scores without extreme tails, and the threshold unless it is far away."""
    low, high = float(values.min()), float(values.max())
    first, middle, last = np.percentile(values, [1, 50, 99])
    spread = max(middle - first, last - middle)
    if spread > 0:
        low, high = max(low, middle - TAIL * spread), min(high, middle + TAIL * spread)
    if math.isfinite(threshold) and abs(threshold - middle) <= 2 * TAIL * max(spread, (high - low) / TAIL):
        low, high = min(low, threshold), max(high, threshold)
    if high - low <= max(abs(low) * 1e-12, 1e-300):  # too narrow to divide into bins
        pad = max(abs(low), 1.0) * 0.05
        low, high = low - pad, high + pad
    return float(low), float(high)


def training(findings: Findings) -> dict[str, Any] | None:
    """A panel for each curve of training, with the mean over members and each member; None without a history."""
    history = [findings.history[i] for i in evenly_spaced_with_ends(np.arange(len(findings.history)), MAX_EPOCHS)]
    by_epoch = [{m.get("member", i): m for i, m in enumerate(entry.get("members", ()))} for entry in history]
    members = sorted({member for epoch in by_epoch for member in epoch})
    drawn = members[:MAX_MEMBERS] if len(members) > 1 else []
    panels = []
    for name, title in PANELS.items():
        mean = [finite(entry.get(name)) for entry in history]
        lines = [[finite(epoch.get(member, {}).get(name)) for epoch in by_epoch] for member in drawn]
        if any(name in entry for entry in history):
            title = title.format(noun=f"{findings.noun.capitalize()}s")
            panels.append({"name": name, "title": title, "mean": mean, "count": len(members), "members": lines})
    epochs = [int(entry.get("epoch", i + 1)) for i, entry in enumerate(history)]
    return {"epochs": epochs, "panels": panels} if panels else None


def finite(value: Any, digits: int = 5) -> float | None:
    """A rounded number for JSON; None unless finite."""
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        return None
    return float(f"{float(value):.{digits}g}")


def _numbers(values: Any, digits: int = 4) -> list[float | None]:
    return [finite(value, digits) for value in np.asarray(values).tolist()]


def curves(findings: Findings) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    evaluated = (findings.evaluation or {}).get("curves", {})
    for name, (title, x_key, y_key, x_label, y_label) in CURVES.items():
        points = np.array([evaluated.get(name, {}).get(key, ()) for key in (x_key, y_key)], float)
        points = points[:, np.isfinite(points).all(axis=0)]
        if points.shape[1] > 1:
            rising = points if points[0, 0] <= points[0, -1] else points[:, ::-1]
            x, y = rising[:, np.argsort(rising[0], kind="stable")]
            x_label = x_label.format(noun=f"{findings.noun}s")
            result[name] = {"title": title, "x": _numbers(x), "y": _numbers(y), "x_label": x_label, "y_label": y_label}
    return result


def envelope(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and maximum (points,) of each stretch of a series; NaN if a stretch has no finite value."""
    values = np.where(np.isfinite(values), values, np.nan)
    edges = np.linspace(0, len(values), min(len(values), MAX_SERIES_POINTS) + 1).astype(np.int64)[:-1]
    return np.fmin.reduceat(values, edges), np.fmax.reduceat(values, edges)


def series_plot(track: Track, threshold: float, label: str, entity: int = 0) -> Html:
    """A series, by default the first: panels for its scores and channels, with its events shaded."""
    name, start, stop = track.entities[entity] if track.entities else ("", 0, len(track.scores))
    lines = (("score", track.scores), *track.channels)
    panels: list[Panel] = [(title, values[start:stop], None) for title, values in lines]
    events = [(a - start, b - start) for a, b in track.events[:MAX_EVENTS] if start <= a < stop]
    label = f"{name}: {label}" if name else label
    return _drawing(panels, events, None if track.when is None else track.when[start:stop], label, threshold)


def event_plot(picture: EventPicture, label: str) -> Html:
    """The channels responsible for an event, with the steps around it and the expected band of each."""
    return _drawing(picture.channels, [picture.span], picture.when, label)


def _drawing(
    panels: Sequence[Panel], events: Sequence[Span], when: np.ndarray | None, label: str, threshold: float = math.nan
) -> Html:
    """Panels stacked vertically. Zooming stretches the shapes but not the texts; the page's script adds the times."""
    steps, height = len(panels[0][1]), len(panels) * (PANEL_HEIGHT + PANEL_GAP)
    shapes, texts = [], []
    for start, stop in events:
        x, width = WIDTH * start / steps, max(1.5, WIDTH * (stop - start) / steps)
        shapes.append(el("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=height, class_="event"))
    for i, panel in enumerate(panels):
        top = PANEL_GAP + i * (PANEL_HEIGHT + PANEL_GAP)
        panel_shapes, title = _panel(panel, top, math.nan if i else threshold)
        shapes += panel_shapes
        texts.append(el("text", title, x=2, y=top - 6))
    view = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH} {height}", "preserveAspectRatio": "none"}
    content = [el("svg", *shapes, class_="stretched", **view), *texts, el("g", class_="times")]
    frame: dict[str, Any] = {"viewBox": f"0 0 {WIDTH} {height + AXIS_HEIGHT}", "role": "img", "aria_label": label}
    if when is not None:  # positions from 0 to 1, their times in seconds or numbers, and whether they are times
        knots, is_time = np.unique(np.linspace(0, steps - 1, KNOTS).astype(np.int64)), when.dtype.kind == "M"
        values = when.astype("datetime64[ms]").astype(np.int64) / 1000 if is_time else when.astype(float)
        positions = ((knots + 0.5) / steps).round(6)
        frame["data_times"] = json_text([positions.tolist(), values[knots].tolist(), [float(is_time)]])
    return el("svg", *content, class_="track", tabindex="0", **frame)


def _panel(panel: Panel, top: int, threshold: float) -> tuple[list[Html], str]:
    """The shapes of a panel, and its title: the name and the range of the values."""
    name, values, band = panel
    low, high = envelope(np.asarray(values, float))
    extremes = np.concatenate([low, high])
    ends = _ends(extremes)
    least, most = _ends(np.concatenate([extremes, [threshold], [] if band is None else band.ravel()]))

    def y(value: Any) -> np.ndarray:
        return np.asarray(top + PANEL_HEIGHT * (1 - (np.asarray(value) - least) / ((most - least) or 1.0)))

    parts = []
    if band is not None:
        bottom, ceiling = y(envelope(band[0])[0]), y(envelope(band[2])[1])
        edge = _outline(ceiling, ceiling) + _outline(bottom, bottom, backwards=True) + "Z"
        parts = [el("path", d=edge, class_="band"), el("path", d=_outline(*map(y, envelope(band[1]))), class_="middle")]
    parts.append(el("path", d=_outline(y(low), y(high)), class_="line"))
    if math.isfinite(threshold):
        height = f"{float(y(threshold)):.1f}"
        parts.append(el("line", x1=0, x2=WIDTH, y1=height, y2=height, class_="threshold"))
    return parts, f"{one_line(name, 40)}: {number(ends[0])} to {number(ends[1])}"


def _ends(values: np.ndarray) -> tuple[float, float]:
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _outline(low: np.ndarray, high: np.ndarray, *, backwards: bool = False) -> str:
    """A path through the minimum and maximum of each point, with gaps at NaN."""
    pieces, command = [], "L" if backwards else "M"
    points = list(enumerate(zip(low.tolist(), high.tolist(), strict=True)))
    for i, (bottom, top) in reversed(points) if backwards else points:
        if math.isnan(bottom):
            command = "M"
            continue
        x = f"{(i + 0.5) * WIDTH / len(low):.1f}"
        pieces.append(f"{command}{x} {bottom:.1f}" + (f"V{top:.1f}" if bottom != top else ""))
        command = "L"
    return "".join(pieces)
