"""HTML elements with escaped content, and the SVG drawings of a report: bars, and series with an axis of times."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.findings import EventPicture, Track
from addml.report.charts import MAX_EVENTS, envelope
from addml.text import number, one_line

BAR_WIDTH = 160
BAND = (60, 100)  # the usual range on a bar
BAR_EDGE = 6  # the closest that a mark comes to the ends
WIDTH, PANEL_HEIGHT, PANEL_GAP, AXIS_HEIGHT = 1000, 90, 26, 24
KNOTS = 64  # points of the axis that zooming goes by
MAX_TICKS = 7
SECOND, DAY = 10**9, 86_400  # of a datetime64, and in seconds
TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200]  # seconds
TICKS += [DAY * days for days in (1, 2, 7, 14, 28, 91, 182, 365, 730, 1826, 3652)]


class Html(str):
    """Text that is already markup; everything else is escaped."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """Any value as the text of an element or of an attribute."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` is `class`, `aria_label` is `aria-label`, None and False attributes are omitted."""
    given = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            given += " " + key.rstrip("_").replace("_", "-") + ("" if value is True else f'="{escaped(value)}"')
    return Html(f"<{name}{given}>" if name == "img" else f"<{name}{given}>{joined(children)}</{name}>")


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


def series_plot(track: Track, threshold: float, label: str, entity: int = 0) -> Html:
    """One panel each for the scores and the channels of a series, with its events shaded; the page's script zooms."""
    name, start, stop = track.entities[entity] if track.entities else ("", 0, len(track.scores))
    own = slice(start, stop)
    scores = _Panel("score", track.scores[own], threshold=threshold)
    panels = [scores, *(_Panel(name, values[own]) for name, values in track.channels)]
    events = [(a - start, b - start) for a, b in track.events[:MAX_EVENTS] if start <= a < stop]
    when = None if track.when is None else track.when[own]
    return _drawing(panels, events, stop - start, when, f"{name}: {label}" if name else label, zooms=True)


def event_plot(picture: EventPicture, label: str) -> Html:
    """The channels responsible for an event and around it, with the band that was expected of each."""
    panels = [_Panel(name, values, band) for name, values, band in picture.channels]
    return _drawing(panels, [picture.span], len(picture.when), picture.when, label, zooms=False)


class _Panel(NamedTuple):
    name: str
    values: np.ndarray
    band: np.ndarray | None = None  # (3, steps)
    threshold: float | None = None


def _drawing(
    panels: Sequence[_Panel],
    events: Sequence[tuple[int, int]],
    steps: int,
    when: np.ndarray | None,
    label: str,
    *,
    zooms: bool,
) -> Html:
    """Shapes that may be stretched along the axis, and texts that may not."""
    height, marks = len(panels) * (PANEL_HEIGHT + PANEL_GAP), [] if when is None else time_ticks(when)
    places = [f"{place * WIDTH:.1f}" for place, _ in marks]
    shapes = [el("line", x1=at, x2=at, y1=0, y2=height, class_="grid") for at in reversed(places)]
    for start, stop in events:
        x, width = WIDTH * start / steps, max(1.5, WIDTH * (stop - start) / steps)
        shapes.append(el("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=height, class_="event"))
    texts = []
    for place, panel in enumerate(panels):
        top = PANEL_GAP + place * (PANEL_HEIGHT + PANEL_GAP)
        drawn, words = _drawn(panel, top)
        shapes += drawn
        texts.append(el("text", words, x=2, y=top - 6))
    ends = {"text-anchor": "middle"}
    names = [el("text", words, x=at, y=height + 17, **ends) for at, (_, words) in zip(places, marks, strict=True)]
    view = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH} {height}", "preserveAspectRatio": "none"}
    knots = {"data_times": json_text(_knots(when))} if zooms and when is not None else {}
    content = [el("svg", *shapes, class_="stretched", **view), *texts, el("g", *names, class_="times")]
    box = f"0 0 {WIDTH} {height + AXIS_HEIGHT}"
    return el("svg", *content, viewBox=box, role="img", aria_label=label, class_="track", tabindex="0", **knots)


def _drawn(panel: _Panel, top: int) -> tuple[list[Html], str]:
    """The shapes of a panel, and its name with the range of its values."""
    (low, high), band, threshold = envelope(np.asarray(panel.values, float)), panel.band, panel.threshold
    known = np.concatenate([low, high, [] if threshold is None else [threshold], [] if band is None else band.ravel()])
    known = known[~np.isnan(known)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)

    def y(value: Any) -> np.ndarray:
        return np.asarray(top + PANEL_HEIGHT * (1 - (np.asarray(value) - least) / ((most - least) or 1.0)))

    parts = []
    if band is not None:
        bottom, ceiling = y(envelope(band[0])[0]), y(envelope(band[2])[1])
        edge = _outline(ceiling, ceiling) + _outline(bottom, bottom, backwards=True) + "Z"
        parts = [el("path", d=edge, class_="band"), el("path", d=_outline(*map(y, envelope(band[1]))), class_="middle")]
    parts.append(el("path", d=_outline(y(low), y(high)), class_="line"))
    if threshold is not None and math.isfinite(threshold):
        at = f"{float(y(threshold)):.1f}"
        parts.append(el("line", x1=0, x2=WIDTH, y1=at, y2=at, class_="threshold"))
    return parts, f"{one_line(panel.name, 40)}: {number(least)} to {number(most)}"


def _outline(low: np.ndarray, high: np.ndarray, *, backwards: bool = False) -> str:
    """A path through the minimum and maximum of each point, interrupted where nothing is known."""
    pieces, command = [], "L" if backwards else "M"
    points = list(enumerate(zip(low.tolist(), high.tolist(), strict=True)))
    for place, (bottom, top) in reversed(points) if backwards else points:
        if math.isnan(bottom):
            command = "M"
            continue
        x = f"{(place + 0.5) * WIDTH / len(low):.1f}"
        pieces.append(f"{command}{x} {bottom:.1f}" + (f"V{top:.1f}" if bottom != top else ""))
        command = "L"
    return "".join(pieces)


def time_ticks(when: np.ndarray) -> list[tuple[float, str]]:
    """Round times within ascending ones, as shares of the steps before them, in words."""
    if len(when) < 2 or when[0] == when[-1]:
        return []
    is_time = when.dtype.kind == "M"
    values = when.astype("datetime64[ns]").astype(np.int64) / SECOND if is_time else when.astype(np.float64)
    span = float(values[-1] - values[0])
    if is_time and span >= 1:
        unit = float(next((one for one in TICKS if span / one <= MAX_TICKS), TICKS[-1]))
    else:
        power = 10.0 ** math.floor(math.log10(span / MAX_TICKS))
        unit = next(one * power for one in (1, 2, 5, 10) if span / (one * power) <= MAX_TICKS)
    marks = np.arange(math.ceil(values[0] / unit), math.floor(values[-1] / unit) + 1) * unit
    places = (np.searchsorted(values, marks) + 0.5) / len(when)
    words = [number(mark) for mark in marks.tolist()]
    if is_time:  # to the day, the minute, the second or a part of it
        shown = slice(10) if unit >= DAY else slice(5, 16) if unit >= 60 else slice(11, 19 if unit >= 1 else 23)
        words = [str(np.datetime64(round(mark * SECOND), "ns")).replace("T", " ")[shown] for mark in marks.tolist()]
    return [(place, text) for place, text in zip(places.tolist(), words, strict=True) if 0.04 < place < 0.96]


def _knots(when: np.ndarray) -> list[list[float]]:
    """Places along the axis, from 0 to 1, with their times in seconds, or their numbers; the last says which."""
    places = np.unique(np.linspace(0, len(when) - 1, KNOTS).astype(np.int64))
    is_time = when.dtype.kind == "M"
    values = when[places].astype("datetime64[ms]").astype(np.int64) / 1000 if is_time else when[places].astype(float)
    at = (places + 0.5) / len(when)
    return [at.round(6).tolist(), values.tolist(), [float(is_time)]]
