"""HTML elements with escaped content, and the small SVG drawings of a report; these need no script."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from addml.findings import Track
from addml.report.charts import MAX_EVENTS, envelope
from addml.text import number, one_line

BAR_WIDTH = 160
BAND = (60, 100)  # the usual range on a bar
BAR_EDGE = 6  # the closest that a mark comes to the ends
PLOT_WIDTH, PANEL_HEIGHT, PANEL_GAP = 1000, 90, 26  # of a series


class Html(str):
    """Text that is already markup; everything else is escaped."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """Any value as the text of an element or of an attribute."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` is `class`, `aria_label` is `aria-label`, None and False attributes are omitted."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{given}>" if name == "img" else f"<{name}{given}>{joined(children)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Several pieces as one."""
    return Html(between.join(map(escaped, parts)))


def json_text(value: Any) -> Html:
    """JSON that neither ends the script element around it nor starts another."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


# Bars -------------------------------------------------------------------------------------------------------


def range_bar(offset: float, label: str) -> Html:
    """A band for the usual range and a mark for the value."""
    line = el("line", x1=BAR_EDGE, x2=BAR_WIDTH - BAR_EDGE, y1=8, y2=8, class_="axis")
    band = el("rect", x=BAND[0], width=BAND[1] - BAND[0], y=4, height=8, rx=2, class_="band")
    middle = el("line", x1=BAR_WIDTH / 2, x2=BAR_WIDTH / 2, y1=4, y2=12, class_="middle")
    mark = el("circle", cx=f"{mark_position(offset):.1f}", cy=8, r=4.5, class_="out" if abs(offset) > 1 else "in")
    return _bar(label, line, band, middle, mark)


def mark_position(offset: float) -> float:
    """The x of a mark: linear within the usual range, ever more compressed outside."""
    middle, half = BAR_WIDTH / 2, (BAND[1] - BAND[0]) / 2
    if abs(offset) <= 1:
        return middle + half * offset
    room = middle - half - BAR_EDGE
    beyond = 1 - 1 / (1 + (abs(offset) - 1) / 4) if math.isfinite(offset) else 1.0
    return middle + math.copysign(half + room * beyond, offset)


def share_bar(share: float, label: str) -> Html:
    """The share of the usual rows with a category; a mark at the start if there are none."""
    size = {"x": BAR_EDGE, "y": 5, "height": 6, "rx": 3}
    full = BAR_WIDTH - 2 * BAR_EDGE
    fill = el("rect", **size, width=f"{max(0.0, min(1.0, share)) * full:.1f}", class_="fill")
    none = el("circle", cx=BAR_EDGE + 4, cy=8, r=4.5, class_="out")
    return _bar(label, el("rect", **size, width=full, class_="track"), fill if share else none)


def score_bar(score: float, threshold: float) -> Html:
    """A score between the lowest (0) and the highest (1), with a tick at the threshold."""
    track = el("rect", x=0, width=100, y=2, height=4, rx=2, class_="track")
    style = "fill out" if score > threshold else "fill"
    fill = el("rect", x=0, width=f"{100 * score:.1f}", y=2, height=4, rx=2, class_=style)
    tick = el("rect", x=f"{100 * threshold - 0.75:.1f}", width="1.5", y=0, height=8, class_="tick")
    return el("svg", track, fill, tick, viewBox="0 0 100 8", class_="score-bar", aria_hidden="true")


def _bar(label: str, *shapes: Html) -> Html:
    return el("svg", *shapes, viewBox=f"0 0 {BAR_WIDTH} 16", class_="bar", role="img", aria_label=label)


# Series -----------------------------------------------------------------------------------------------------


def series_plot(track: Track, threshold: float, label: str) -> Html:
    """One panel each for the scores and the channels, with the events shaded."""
    panels = [("score", track.scores, threshold), *((name, values, None) for name, values in track.channels)]
    height, steps = len(panels) * (PANEL_HEIGHT + PANEL_GAP) + PANEL_GAP, len(track.scores)
    parts = []
    for start, stop in track.events[:MAX_EVENTS]:
        x, width = PLOT_WIDTH * start / steps, max(1.5, PLOT_WIDTH * (stop - start) / steps)
        parts.append(el("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=height, class_="event"))
    for place, (name, values, line) in enumerate(panels):
        parts.append(_panel(name, np.asarray(values, float), line, PANEL_GAP + place * (PANEL_HEIGHT + PANEL_GAP)))
    return el("svg", *parts, viewBox=f"0 0 {PLOT_WIDTH} {height}", role="img", aria_label=label, class_="track")


def _panel(name: str, values: np.ndarray, threshold: float | None, top: int) -> Html:
    low, high = envelope(values)
    known = np.concatenate([low, high, [] if threshold is None else [threshold]])
    known = known[~np.isnan(known)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)

    def y(value: Any) -> np.ndarray:
        return np.asarray(top + PANEL_HEIGHT * (1 - (np.asarray(value) - least) / ((most - least) or 1.0)))

    parts = [el("path", d=_outline(y(low), y(high)), class_="line")]
    if threshold is not None:
        at = f"{float(y(threshold)):.1f}"
        parts.append(el("line", x1=0, x2=PLOT_WIDTH, y1=at, y2=at, class_="threshold"))
    title = f"{one_line(name, 40)}: {number(least)} to {number(most)}"
    return el("g", *parts, el("text", title, x=2, y=top - 6))


def _outline(low: np.ndarray, high: np.ndarray) -> str:
    """A path through the minimum and maximum of each point, interrupted where nothing is known."""
    pieces, command = [], "M"
    for place, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if math.isnan(bottom):
            command = "M"
            continue
        x = f"{(place + 0.5) * PLOT_WIDTH / len(low):.1f}"
        pieces.append(f"{command}{x} {bottom:.1f}" + (f"V{top:.1f}" if bottom != top else ""))
        command = "L"
    return "".join(pieces)
