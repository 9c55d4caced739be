"""HTML in which everything is escaped unless it was made here."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

VOID = ("meta", "link", "br", "input", "img")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """Any value as the text of an element or of an attribute."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` is `class`, `aria_label` is `aria-label`, None and False attributes are left out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{''.join(map(escaped, children))}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Several pieces as one."""
    return Html(between.join(map(escaped, parts)))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], class_: str | None = None) -> Html:
    """A table whose first cell of each row is its heading."""
    header = el("tr", *(el("th", name, scope="col") for name in head))
    body = [el("tr", el("th", first, scope="row"), *(el("td", cell) for cell in rest)) for first, *rest in rows]
    return el(
        "div",
        el("table", el("caption", caption, class_="unseen"), el("thead", header), el("tbody", *body), class_=class_),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def definitions(pairs: Iterable[tuple[str, Any]], class_: str | None = None) -> Html:
    """Names with their values."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs), class_=class_)


def json_text(value: Any) -> Html:
    """JSON that can stand within a script element: nothing in it ends the element or begins another."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
