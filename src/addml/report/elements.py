"""HTML elements with escaped content, and the small SVG drawings of a report; these need no script."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from typing import Any

BAR_WIDTH = 160
BAND = (60, 100)  # the usual range on a bar
BAR_EDGE = 6  # the closest that a mark comes to the ends


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
