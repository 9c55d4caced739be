"""A series drawn as SVG, a bounded number of lines however long it is: scores, channels, and shaded events."""

from __future__ import annotations

import numpy as np

from addml.findings import Findings
from addml.report.markup import Html, el, joined
from addml.text import counted, number, text

WIDTH, HEIGHT, GAP = 1000, 90, 26  # of one panel, in units of the drawing
MOST_POINTS = 800  # of one line, each the least and the most of the steps that it stands for
MOST_EVENTS = 500  # shaded, those that rank first


def track(findings: Findings) -> Html:
    """The scores and the channels that events name most, one panel each, with the events shaded."""
    if findings.track is None or len(findings.scores) < 2:
        return Html("")
    drawn = findings.track
    panels = [("score", drawn.scores, findings.threshold), *((name, values, None) for name, values in drawn.channels)]
    height = len(panels) * (HEIGHT + GAP) + GAP
    parts = [_shade(start, stop, len(drawn.scores), height) for start, stop in drawn.events[:MOST_EVENTS]]
    for place, (name, values, threshold) in enumerate(panels):
        parts.append(_panel(name, np.asarray(values, float), threshold, GAP + place * (HEIGHT + GAP)))
    when = f", from {drawn.times[0]} to {drawn.times[1]}" if drawn.times[0] else ""
    words = f"{counted(len(drawn.events), 'event')} in {len(drawn.scores):,} steps{when}."
    about = (
        f"{words} Shaded: the steps that score above the threshold (dashed). Each line spans the least and the most."
    )
    picture = el("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=words, class_="track")
    return joined([el("p", about, class_="about"), el("figure", picture)])


def _shade(start: int, stop: int, steps: int, height: int) -> Html:
    left, width = WIDTH * start / steps, max(1.5, WIDTH * (stop - start) / steps)
    return el("rect", x=f"{left:.1f}", y=0, width=f"{width:.1f}", height=height, class_="event")


def _panel(name: str, values: np.ndarray, threshold: float | None, top: int) -> Html:
    """One line with its name and its range."""
    low, high = envelope(values)
    known = np.concatenate([low, high, [threshold] if threshold is not None else []])
    least, most = (float(np.nanmin(known)), float(np.nanmax(known))) if not np.isnan(known).all() else (0.0, 1.0)
    span = most - least if most > least else 1.0

    def down(value: np.ndarray | float) -> np.ndarray:
        return np.asarray(top + HEIGHT * (1 - (np.asarray(value) - least) / span))

    parts = [el("path", d=_outline(down(low), down(high)), class_="line")]
    if threshold is not None:
        y = f"{float(down(threshold)):.1f}"
        parts.append(el("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="threshold"))
    said = f"{text(name, 40)}: {number(least)} to {number(most)}"
    return el("g", *parts, el("text", said, x=2, y=top - 6))


def envelope(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most of steps, (points,) each: as many points as steps, or fewer that stand for several."""
    edges = np.linspace(0, len(values), min(len(values), MOST_POINTS) + 1).astype(np.int64)[:-1]
    low = np.minimum.reduceat(np.where(np.isnan(values), np.inf, values), edges)
    high = np.maximum.reduceat(np.where(np.isnan(values), -np.inf, values), edges)
    return np.where(np.isinf(low), np.nan, low), np.where(np.isinf(high), np.nan, high)


def _outline(low: np.ndarray, high: np.ndarray) -> str:
    """A path down and up through the least and the most of each point; it breaks where nothing is known."""
    steps, pieces, down = WIDTH / len(low), [], False
    for place, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if np.isnan(bottom):
            down = False
            continue
        x = f"{(place + 0.5) * steps:.1f}"
        pieces.append(
            f"{'L' if down else 'M'}{x} {bottom:.1f}V{top:.1f}"
            if bottom != top
            else f"{'L' if down else 'M'}{x} {top:.1f}"
        )
        down = True
    return "".join(pieces)
