"""HTML elements with escaped content, the page made of them, and the same page as Markdown."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from importlib import resources
from string import Template
from typing import Any, NamedTuple

SCRIPTS = ("words.js", "lines.js", "tracks.js", "rows.js", "page.js")
LICENCE = " This file loads nothing from the network. Charts by uPlot (MIT licence, in this file)."
NOT_IN_MARKDOWN = {"svg", "unseen", "eyebrow", "hint", "choice", "opener"}  # elements and classes
PREFIXES = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "summary": "#### ", "p": "", "figcaption": ""}
SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w))|^(\s*\d+)(?=[.)](\s|$))|^\s*[-+=#](?=[-+=#\s]|$)")


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """Any value as the content of an element or an attribute."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[Any], between: str = "") -> Html:
    return Html(between.join(map(escaped, parts)))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` is `class`, `aria_label` is `aria-label`, attributes that are None or False are left out."""
    start = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            start += " " + key.rstrip("_").replace("_", "-") + ("" if value is True else f'="{escaped(value)}"')
    return Html(f"<{start}>" if name == "img" else f"<{start}>{joined(children)}</{name}>")


def json_text(value: Any) -> Html:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def paragraph(text: str, hint: str = "", style: str = "about") -> Html:
    """A paragraph with a hint that only makes sense on the page; nothing without a text."""
    more = el("span", " ", hint, class_="hint") if hint else ""
    return el("p", text, more, class_=style) if text else Html("")


def facts(pairs: Iterable[tuple[str, Any]], style: str = "facts") -> Html:
    """A list of names and values."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs), class_=style)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]], style: str = "") -> Html:
    """A table whose first column names the rows; the title is for screen readers."""
    names = el("tr", *(el("th", name, scope="col") for name in head))
    body = [el("tr", el("th", first, scope="row"), *(el("td", cell) for cell in rest)) for first, *rest in rows]
    caption = el("caption", title, class_="unseen")
    content = el("table", caption, el("thead", names), el("tbody", *body), class_=style or None)
    return el("div", content, class_="scroll", tabindex="0", role="region", aria_label=title)


def folded(title: Any, *content: Any, is_open: bool = False) -> Html:
    return el("details", el("summary", title), *content, open=is_open)


def button(name: str, label: str, **attributes: Any) -> Html:
    """A button that the page's script handles."""
    return el("button", label, type="button", id=name, class_="choice", **attributes)


def chart(
    name: str, label: str, title: Html | str = "", style: str = "", caption: str = "", numbers: Html | str = ""
) -> Html:
    """The element in which the page's script draws a chart, a label for screen readers and a table of its numbers."""
    label = f"{label} Arrow keys move through it."
    canvas = el("div", id=name, class_=f"chart {style}".strip(), role="img", tabindex="0", aria_label=label)
    below = el("figcaption", caption) if caption else ""
    return el("figure", title, canvas, below, folded(el("span", "Numbers", class_="hint"), numbers) if numbers else "")


class Section(NamedTuple):
    """A section of the report; `link` is its name in the contents."""

    name: str
    link: str
    title: str
    content: Html


class Document(NamedTuple):
    title: str
    summary: Html
    sections: Sequence[Section]
    footer: str
    data: dict[str, Any]  # for the charts of the page

    @property
    def body(self) -> Html:
        parts = []
        for name, _, title, content in self.sections:
            heading = el("h2", title, id=f"{name}-title")
            parts.append(el("section", heading, content, id=name, aria_labelledby=f"{name}-title"))
        return joined(parts, "\n")


def to_html(document: Document) -> str:
    """One file with its styles, scripts and numbers; it loads nothing."""
    styles = {"library_style": static("uPlot.min.css"), "style": static("report.css")}
    library = f"/*!\n{static('uPlot.LICENSE.txt').strip()}\n*/\n{static('uPlot.iife.min.js').strip()}\n"
    script = "\n".join(['"use strict";', "(function () {", *map(static, SCRIPTS), "})();"])  # names stay private
    scripts = {"start": static("start.js"), "library": library, "script": script}
    links = [("summary", "Summary"), *((section.name, section.link) for section in document.sections)]
    # The policy forbids loading anything and running other scripts; images are part of the page.
    images = " img-src data:;" if "<img " in document.body else ""
    rules = f"style-src {_hashes(styles.values())}; script-src {_hashes(scripts.values())}"
    return Template(static("page.html", "templates")).substitute(
        policy=f"default-src 'none';{images} {rules}; base-uri 'none'; form-action 'none'",
        title=escaped(document.title),
        contents=joined(el("a", title, href=f"#{name}") for name, title in links),
        summary=document.summary,
        sections=document.body,
        footer=el("p", document.footer, LICENCE),
        numbers=json_text(document.data),
        **styles,
        **scripts,
    )


def static(name: str, folder: str = "static") -> str:
    """The text of a file of this package."""
    return (resources.files("addml.report") / folder / name).read_bytes().decode()


def _hashes(parts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def to_markdown(document: Document) -> str:
    writer = _Markdown()
    writer.feed(joined([document.summary, document.body, el("p", document.footer)]))
    return "\n\n".join(writer.blocks) + "\n"


def plain(value: Any) -> str:
    """Text escaped for Markdown, and for the HTML that Markdown allows."""
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(lambda match: f"{match[0]}\\" if match[2] else f"\\{match[0].lstrip()}", line)


class _Markdown(HTMLParser):
    """Turns a report's HTML into blocks of Markdown; a table within a table becomes the block after it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self.items: list[str] = []  # of the current list
        self.tables: list[tuple[int, list[list[str]]]] = []  # open ones: the index among the blocks, and the rows
        self.text = self.before = ""  # of the current block, and its part before a note
        self.skipped = 0  # how many skipped elements are open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        classes = (dict(attributes).get("class") or "").split()
        if self.skipped or tag in NOT_IN_MARKDOWN or NOT_IN_MARKDOWN.intersection(classes):
            self.skipped += tag != "img"
            return
        if tag in ("table", "dl"):
            self.tables.append((len(self.blocks), [["", ""]] if tag == "dl" else []))
        elif tag in ("tr", "dt"):
            self.tables[-1][1].append([])
        if tag in (*PREFIXES, "th", "td", "dt", "dd"):
            self.text = ""
        elif tag == "li" and self.text:
            self.text += "; "  # in the cell of a table
        elif tag in ("span", "a", "b"):
            self.text += " "
        elif tag == "small":
            self.before, self.text = self.text, ""

    def handle_data(self, data: str) -> None:
        self.text += "" if self.skipped else data

    def handle_endtag(self, tag: str) -> None:
        if self.skipped:
            self.skipped -= 1
        elif tag == "b":
            self.text += ":"
        elif tag == "small":
            self.text = f"{self.before} ({self.text})" if self.before.strip() and self.text else self.before + self.text
        elif tag in ("th", "td", "dt", "dd"):
            self.tables[-1][1][-1].append(plain(self.text))
        elif tag in ("table", "dl"):
            index, rows = self.tables.pop()
            lines = [row + [""] * (len(rows[0]) - len(row)) for row in rows if any(row) or row is rows[0]]
            lines.insert(1, ["---"] * len(rows[0]))
            self.blocks.insert(index, "\n".join(f"| {' | '.join(line)} |" for line in lines))
        elif tag == "li" and not self.tables:
            self.items.append(f"- {plain(self.text)}")
            self.text = ""
        elif tag in ("ul", "ol") and not self.tables:
            self.blocks.append("\n".join(self.items))
            self.items = []
        elif tag in PREFIXES:
            self.blocks += [PREFIXES[tag] + plain(self.text)] if self.text else []
            self.text = ""
