"""Series and their events as SVG drawings with an axis of times; the page's script zooms into those of whole series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from addml.findings import EventPicture, Track
from addml.report.charts import MAX_EVENTS, envelope
from addml.report.elements import Html, el, json_text
from addml.text import number, one_line

WIDTH, PANEL_HEIGHT, PANEL_GAP, AXIS_HEIGHT = 1000, 90, 26, 24
KNOTS = 64  # points of the axis that zooming goes by
MAX_TICKS = 7
SECOND = 10**9  # of a datetime64
TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200]  # seconds
TICKS += [86_400 * days for days in (1, 2, 7, 14, 28, 91, 182, 365, 730, 1826, 3652)]


def series_plot(track: Track, threshold: float, label: str, entity: int = 0) -> Html:
    """One panel each for the scores and the channels of a series, with its events shaded."""
    name, start, stop = track.entities[entity] if track.entities else ("", 0, len(track.scores))
    own, steps = slice(start, stop), stop - start
    panels = [("score", track.scores[own], threshold), *((one, values[own], None) for one, values in track.channels)]
    height = len(panels) * (PANEL_HEIGHT + PANEL_GAP)
    within = [(a - start, b - start) for a, b in track.events[:MAX_EVENTS] if start <= a < stop]
    drawn, texts = [_shaded(a, b, steps, height) for a, b in within], []
    for place, (title, values, line) in enumerate(panels):
        top = PANEL_GAP + place * (PANEL_HEIGHT + PANEL_GAP)
        shapes, words = _panel(one_line(title, 40), np.asarray(values, float), line, top)
        drawn += shapes
        texts.append(el("text", words, x=2, y=top - 6))
    when = None if track.when is None else track.when[own]
    return _drawing(drawn, texts, when, height, label if not name else f"{name}: {label}", zooms=True)


def event_plot(picture: EventPicture, label: str) -> Html:
    """The channels responsible for an event and around it, with the band that was expected of each."""
    height, steps = len(picture.channels) * (PANEL_HEIGHT + PANEL_GAP), len(picture.when)
    drawn, texts = [_shaded(*picture.span, steps, height)], []
    for place, (title, values, band) in enumerate(picture.channels):
        top = PANEL_GAP + place * (PANEL_HEIGHT + PANEL_GAP)
        shapes, words = _panel(one_line(title, 40), np.asarray(values, float), None, top, band)
        drawn += shapes
        texts.append(el("text", words, x=2, y=top - 6))
    return _drawing(drawn, texts, picture.when, height, label, zooms=False)


def _drawing(
    shapes: list[Html], texts: list[Html], when: np.ndarray | None, height: int, label: str, *, zooms: bool
) -> Html:
    """Shapes that may be stretched along the axis, and texts that may not."""
    marks = [] if when is None else time_ticks(when)
    for place, _ in marks:
        at = f"{place * WIDTH:.1f}"
        shapes.insert(0, el("line", x1=at, x2=at, y1=0, y2=height, class_="grid"))
    ends = {"text-anchor": "middle"}
    names = [el("text", words, x=f"{place * WIDTH:.1f}", y=height + 17, **ends) for place, words in marks]
    view = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH} {height}", "preserveAspectRatio": "none"}
    knots = {"data_times": json_text(_knots(when))} if zooms and when is not None else {}
    content = [el("svg", *shapes, class_="stretched", **view), *texts, el("g", *names, class_="times")]
    box = f"0 0 {WIDTH} {height + AXIS_HEIGHT}"
    return el("svg", *content, viewBox=box, role="img", aria_label=label, class_="track", tabindex="0", **knots)


def _shaded(start: int, stop: int, steps: int, height: int) -> Html:
    x, width = WIDTH * start / steps, max(1.5, WIDTH * (stop - start) / steps)
    return el("rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=height, class_="event")


def _panel(
    name: str, values: np.ndarray, threshold: float | None, top: int, band: np.ndarray | None = None
) -> tuple[list[Html], str]:
    low, high = envelope(values)
    known = np.concatenate([low, high, [] if threshold is None else [threshold], [] if band is None else band.ravel()])
    known = known[~np.isnan(known)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)

    def y(value: Any) -> np.ndarray:
        return np.asarray(top + PANEL_HEIGHT * (1 - (np.asarray(value) - least) / ((most - least) or 1.0)))

    parts = []
    if band is not None:
        ends = [envelope(one)[place] for place, one in ((0, band[0]), (1, band[2]))]
        edge = _outline(y(ends[1]), y(ends[1])) + _outline(y(ends[0]), y(ends[0]), backwards=True) + "Z"
        parts = [el("path", d=edge, class_="band"), el("path", d=_outline(*map(y, envelope(band[1]))), class_="middle")]
    parts.append(el("path", d=_outline(y(low), y(high)), class_="line"))
    if threshold is not None and math.isfinite(threshold):
        at = f"{float(y(threshold)):.1f}"
        parts.append(el("line", x1=0, x2=WIDTH, y1=at, y2=at, class_="threshold"))
    return parts, f"{name}: {number(least)} to {number(most)}"


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


# The axis of times ------------------------------------------------------------------------------------------


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
    words = [_time_words(mark, unit) if is_time else number(mark) for mark in marks.tolist()]
    return [(place, text) for place, text in zip(places.tolist(), words, strict=True) if 0.04 < place < 0.96]


def _time_words(seconds: float, unit: float) -> str:
    """A time to the day, the minute or the second, as its unit asks for."""
    text = str(np.datetime64(round(seconds * SECOND), "ns")).replace("T", " ")
    return text[:10] if unit >= TICKS[17] else text[5:16] if unit >= 60 else text[11:19] if unit >= 1 else text[11:23]


def _knots(when: np.ndarray) -> list[list[float]]:
    """Places along the axis, from 0 to 1, with their times in seconds, or their numbers; the last says which."""
    places = np.unique(np.linspace(0, len(when) - 1, KNOTS).astype(np.int64))
    is_time = when.dtype.kind == "M"
    values = when[places].astype("datetime64[ms]").astype(np.int64) / 1000 if is_time else when[places].astype(float)
    at = (places + 0.5) / len(when)
    return [at.round(6).tolist(), values.tolist(), [float(is_time)]]
