"""Small drawings that stand beside a number, as SVG: they need no script, follow the theme and print sharply."""

from __future__ import annotations

import math

from addml.report.markup import Html, el

WIDTH = 160
BAND = (60, 100)  # where the usual range lies
EDGE = 6  # the farthest that a mark goes towards the ends


def range_bar(offset: float, words: str) -> Html:
    """Where a number lies: a band for the usual range, a mark for the value, squeezed the farther it is outside."""
    x = mark_position(offset)
    outside = "out" if abs(offset) > 1 else "in"
    line = el("line", x1=EDGE, x2=WIDTH - EDGE, y1=8, y2=8, class_="axis")
    band = el("rect", x=BAND[0], width=BAND[1] - BAND[0], y=4, height=8, rx=2, class_="band")
    middle = el("line", x1=WIDTH / 2, x2=WIDTH / 2, y1=4, y2=12, class_="middle")
    return _svg(words, line, band, middle, el("circle", cx=f"{x:.1f}", cy=8, r=4.5, class_=outside))


def mark_position(offset: float) -> float:
    """From half usual ranges to a place on the bar: even within the band, ever slower outside."""
    middle, half = WIDTH / 2, (BAND[1] - BAND[0]) / 2
    if abs(offset) <= 1:
        return middle + half * offset
    room = middle - half - EDGE
    beyond = 1 - 1 / (1 + (abs(offset) - 1) / 4) if math.isfinite(offset) else 1.0
    return middle + math.copysign(half + room * beyond, offset)


def share_bar(part: float, words: str) -> Html:
    """How many usual rows have a category."""
    track = el("rect", x=EDGE, width=WIDTH - 2 * EDGE, y=5, height=6, rx=3, class_="track")
    filled = max(0.0, min(1.0, part)) * (WIDTH - 2 * EDGE)
    fill = el("rect", x=EDGE, width=f"{filled:.1f}", y=5, height=6, rx=3, class_="fill") if filled else ""
    return _svg(words, track, fill if part else el("circle", cx=EDGE + 4, cy=8, r=4.5, class_="out"))


def score_bar(score: float, low: float, threshold: float, high: float) -> Html:
    """A score on the way from the lowest to the highest, with a tick at the threshold."""
    if not (math.isfinite(score) and high > low):
        return Html("")

    def at(value: float) -> float:
        return 100 * max(0.0, min(1.0, (value - low) / (high - low)))

    track = el("rect", x=0, width=100, y=2, height=4, rx=2, class_="track")
    kind = "fill out" if score > threshold else "fill"
    fill = el("rect", x=0, width=f"{at(score):.1f}", y=2, height=4, rx=2, class_=kind)
    tick = el("rect", x=f"{at(threshold) - 0.75:.1f}", width="1.5", y=0, height=8, class_="tick")
    return el("svg", track, fill, tick, viewBox="0 0 100 8", class_="score-bar", aria_hidden="true")


def _svg(words: str, *shapes: Html | str) -> Html:
    return el("svg", *shapes, viewBox=f"0 0 {WIDTH} 16", class_="bar", role="img", aria_label=words)
