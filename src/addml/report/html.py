"""A document as one HTML file with its own styles, scripts and numbers; it loads nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any

from addml.report import document as doc
from addml.report.document import Block, Chart, Comparison, Document, RankedRow, Ranking, Section, Table
from addml.report.elements import Html, el, escaped, joined, json_text, range_bar, score_bar, share_bar
from addml.text import MISSING, counted, one_line

SCRIPTS = ("words.js", "lines.js", "map.js", "tracks.js", "strip.js", "rows.js", "page.js")
MAX_ID = 40  # characters of an id on the first screen
SHOWN_COLUMNS = 8  # of a row's details; the others unfold


# Page -------------------------------------------------------------------------------------------------------


def to_html(document: Document) -> str:
    """The whole page."""
    styles = {"library_style": static("uPlot.min.css"), "style": static("report.css")}
    library = f"/*!\n{static('uPlot.LICENSE.txt').strip()}\n*/\n{static('uPlot.iife.min.js').strip()}\n"
    script = "\n".join(['"use strict";', "(function () {", *map(static, SCRIPTS), "})();"])  # names stay private
    scripts = {"start": static("start.js"), "library": library, "script": script}
    links = [("summary", "Summary"), *((section.name, section.link) for section in document.sections)]
    body = joined(map(_section, document.sections), "\n")
    licence = " This file loads nothing from the network. Charts by uPlot (MIT licence, in this file)."
    return Template(static("page.html", "templates")).substitute(
        policy=_policy(styles.values(), scripts.values(), has_images="<img " in body),
        title=escaped(f"{' '.join(document.headline)} – {one_line(document.source, 60)}"),
        contents=joined(el("a", title, href=f"#{name}") for name, title in links),
        summary=_summary(document),
        sections=body,
        footer=el("p", document.footer, licence),
        numbers=json_text(document.data | {"ranked": list(map(_ranked_data, document.ranking.rows))}),
        **styles,
        **scripts,
    )


def _policy(styles: Iterable[str], scripts: Iterable[str], has_images: bool) -> str:
    """Nothing may be loaded, and only these very styles and scripts apply; images are part of the page."""

    def hashes(parts: Iterable[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    images = " img-src data:;" if has_images else ""
    rules = f"style-src {hashes(styles)}; script-src {hashes(scripts)}; base-uri 'none'; form-action 'none'"
    return f"default-src 'none';{images} {rules}"


def static(name: str, folder: str = "static") -> str:
    """A file of the package."""
    return (resources.files("addml.report") / folder / name).read_bytes().decode()


def _ranked_data(row: RankedRow) -> dict[str, Any]:
    reasons = [one_line(words, 90) for words, _ in row.reasons[:3]]
    return {"row": row.row, "rank": row.rank, "score": row.score, "anomaly": row.is_flagged, "why": reasons}


def _section(section: Section) -> Html:
    title = el("h2", section.title, id=f"{section.name}-title")
    content = joined(map(_block, section.blocks))
    return el("section", title, content, id=section.name, aria_labelledby=f"{section.name}-title")


def _summary(document: Document) -> Html:
    count, rest = document.headline
    figures = [el("div", el("dt", name), el("dd", value, el("small", note))) for name, value, note in document.figures]
    scores = _chart(document.scores, "h2") if document.scores else ""
    return joined(
        [
            el("p", "Anomaly report", el("span", document.source, class_="source"), class_="eyebrow"),
            el("h1", el("span", count, class_="count some" if count[0].isdigit() else "count"), " ", rest),
            el("p", document.lead, class_="lead") if document.lead else "",
            el("dl", *figures, class_="numbers"),
            el("p", el("a", document.caveat, href="#data"), class_="caveat") if document.caveat else "",
            el("div", el("div", _top_rows(document.ranking)), scores, class_="split"),
        ]
    )


# Blocks -----------------------------------------------------------------------------------------------------


def _block(block: Block) -> Html:
    match block:
        case doc.Paragraph(text, style, hint):
            return el("p", f"{text} {hint}".strip(), class_=style) if text else Html("")
        case doc.Facts(pairs):
            return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs), class_="facts")
        case doc.Bullets(items):
            return el("ul", *(el("li", item) for item in items), class_="notes")
        case doc.Gallery(images):
            return el("ul", *(_card(picture, score) for picture, score in images), class_="pictures")
        case Table():
            return _table(block)
        case Chart():
            return _chart(block)
        case doc.Drawing(svg):
            return el("figure", svg)
        case Ranking():
            return _ranking(block)
        case doc.Part(blocks, title, style, is_open):
            content = joined(map(_block, blocks))
            if is_open is not None:
                return el("details", el("summary", title), content, open=is_open)
            if title:
                return el("div", el("h3", title), content)
            return el("div", content, class_=style) if content else content


def _table(table: Table) -> Html:
    head = el("tr", *(el("th", name, scope="col") for name in table.head))
    body = [el("tr", el("th", first, scope="row"), *(el("td", cell) for cell in rest)) for first, *rest in table.rows]
    caption = el("caption", table.title, class_="unseen")
    content = el("table", caption, el("thead", head), el("tbody", *body), class_=table.style or None)
    return el("div", content, class_="scroll", tabindex="0", role="region", aria_label=table.title)


def _chart(chart: Chart, heading: str = "h3") -> Html:
    label = f"{chart.label} Arrow keys move through it."
    place = el("div", id=chart.name, class_=f"chart {chart.style}".strip(), role="img", tabindex="0", aria_label=label)
    title = el(heading, chart.title) if chart.title else ""
    if chart.name == "scores":
        title = el("div", title, _button("log", "Log scale", aria_pressed="false"), class_="head")
    if chart.name == "space":
        signs = (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("⤢", "all", "Show the whole map"))
        zoom = [el("button", sign, type="button", data_zoom=to, aria_label=why, title=why) for sign, to, why in signs]
        place = el("div", place, el("div", *zoom, class_="zoom"), class_="frame")
    marks = [el("li", el("i", class_=mark), meaning) for mark, meaning in chart.legend]
    legend = el("ul", *marks, class_="legend") if marks else ""
    return el("figure", title, place, legend, el("figcaption", chart.caption) if chart.caption else "")


def _button(name: str, label: str, **attributes: Any) -> Html:
    return el("button", label, type="button", id=name, class_="choice", **attributes)


def _card(picture: Any, score: str) -> Html:
    name = one_line(picture.name, 60)
    images = [(picture.image, name), (picture.heat, f"{name}: where its score comes from")]
    pair = el("span", *(_image(content, words) for content, words in images if content is not None), class_="pair")
    linked = pair if picture.file is None else el("a", pair, href=picture.file, title="open the original")
    return el("li", linked, el("b", name), el("small", f"score {score}"))


def _image(content: bytes, words: str) -> Html:
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return el("img", src=source, alt=words, class_=kind)


# Ranked rows ------------------------------------------------------------------------------------------------


def _top_rows(ranking: Ranking) -> Html:
    top = ranking.examples
    if not top:
        return el("p", f"No {ranking.noun} is ranked.", class_="muted")
    title = f"Top {ranking.noun}s" if top[0].is_flagged else "Highest scores"
    title += ", one of each group" if ranking.groups else ""
    return joined([el("h2", title), el("ol", *map(_top_row, top), class_="top")])


def _top_row(row: RankedRow) -> Html:
    reasons = joined([el("span", words) for words, _ in row.reasons[:2]], Html("<i>; </i>"))
    ids = sorted((value for _, value in row.ids), key=lambda value: -sum(map(str.isalpha, value)))[:1]
    name = [el("a", row.name, href=f"#rank-{row.rank}", class_="row-link")]
    name += [el("span", one_line(value, MAX_ID), class_="id") for value in ids]
    why = el("span", reasons or "no reasons requested", class_="why")
    about = el("span", el("b", *name), why, el("small", row.similar, class_="muted") if row.similar else "")
    score, style = el("span", _score(row), class_="score"), None if row.is_flagged else "below"
    return el("li", el("span", row.rank, class_="rank"), about, score, class_=style)


def _score(row: RankedRow) -> Html:
    bar = score_bar(*row.bar) if row.bar else ""
    return joined([row.score, bar, el("small", row.rarity) if row.rarity else ""])


def _ranking(ranking: Ranking) -> Html:
    """The groups as filters, then every listed row; a button opens the details of the first ones."""
    parts = []
    if ranking.groups:
        cards = [el("li", _group(group)) for group in ranking.groups]
        parts = [el("h3", f"Groups of similar {ranking.noun}s"), el("ul", *cards, class_="groups")]
    if ranking.ungrouped:
        parts.append(el("p", ranking.ungrouped, class_="muted"))
    opener = _button("all-details", "Open all details", aria_pressed="false")
    tools = el("div", opener, _button("all-rows", "Show all", hidden=True), class_="tools")
    return joined([*parts, tools, _ranked_table(ranking)])


def _group(group: doc.RowGroup) -> Html:
    content = [el("b", group.size), el("span", group.reason, class_="words")]
    content += [el("small", group.rows)] if group.rows else []
    ranks = " ".join(map(str, group.ranks))
    return el("button", *content, type="button", data_ranks=ranks, aria_pressed="false")


def _ranked_table(ranking: Ranking) -> Html:
    """Roles are explicit because narrow screens lay the rows out as blocks."""
    body: list[Html] = []
    first = {row.rank for row in ranking.examples}
    for place, row in enumerate(ranking.rows):
        if place and ranking.rows[place - 1].is_flagged and not row.is_flagged:
            body.append(el("tr", el("td", ranking.divider, colspan=5, role="cell"), class_="divider", role="row"))
        body.append(_ranked_row(row))
        if row.comparisons:
            body.append(_detail(row, ranking.has_usual, is_printed=row.rank in first))
    titles = ("Rank", ranking.name, "Score", "Reasons", el("span", "Details", class_="unseen"))
    head = [el("th", title, scope="col", role="columnheader") for title in titles]
    caption = el("caption", f"Ranked {ranking.noun}s with their reasons", class_="unseen")
    parts = [el("thead", el("tr", *head, role="row"), role="rowgroup"), el("tbody", *body, role="rowgroup")]
    return el("table", caption, *parts, class_="ranked", role="table")


def _ranked_row(row: RankedRow) -> Html:
    ids = [el("span", el("small", name), " ", value, class_="id") for name, value in row.ids]
    reasons = [el("li", el("span", words), " ", el("small", part)) for words, part in row.reasons]
    label = el("span", f"Details of {row.name}", class_="unseen")
    opener = el("button", label, type="button", aria_expanded="false", aria_controls=f"detail-{row.rank}")
    cells = [
        el("td", row.rank, class_="rank", role="cell"),
        el("th", el("span", row.name, class_="row-name"), *ids, scope="row", class_="name", role="rowheader"),
        el("td", _score(row), class_="score", role="cell"),
        el("td", el("ul", *reasons) if reasons else el("span", "–", class_="muted"), class_="reasons", role="cell"),
        el("td", opener if row.comparisons else "", class_="opener", role="cell"),
    ]
    style = "finding" if row.is_flagged else "finding below"
    return el("tr", *cells, id=f"rank-{row.rank}", class_=style, data_rank=row.rank, tabindex="-1", role="row")


def _detail(row: RankedRow, has_usual: bool, is_printed: bool) -> Html:
    title = f"{row.name} compared with usual values" if has_usual else row.name
    shown, folded = row.comparisons[:SHOWN_COLUMNS], row.comparisons[SHOWN_COLUMNS:]
    content = [el("h4", title, aria_hidden="true"), _compared(title, shown, has_usual)]
    if folded:
        more = counted(len(folded), "more column") + (", less unusual" if has_usual else "")
        content.append(el("details", el("summary", more), _compared(f"{title}, {more}", folded, has_usual)))
    if row.more_columns:
        left = counted(row.more_columns, "more column is", "more columns are")
        content.append(el("p", f"{left} not shown.", class_="muted"))
    style = "detail printed" if is_printed else "detail"
    cell = el("td", *content, colspan=5, role="cell")
    return el("tr", cell, id=f"detail-{row.rank}", class_=style, data_rank=row.rank, role="row")


def _compared(title: str, some: Sequence[Comparison], has_usual: bool) -> Html:
    """Values with the usual ones if those are known; a redacted value is its position."""
    if not any(one.usual or one.position for one in some):
        rows = [(one.column, one.value, one.contribution) for one in some]
        head = ("Column", "Position" if has_usual else "Value", "Contribution")
        return _table(Table(title, head, rows, "compare short"))
    titles = ("Column", "Value", "Usual values", "Position", "Contribution")
    return _table(Table(title, titles, list(map(_comparison, some)), "compare"))


def _comparison(one: Comparison) -> list[Html | str]:
    value = el("span", one.value, class_="gap" if one.value == MISSING else "value")
    bar: Html | str = ""
    if one.offset is not None:
        bar = range_bar(one.offset, one.position)
    elif one.frequency is not None:
        bar = share_bar(one.frequency, one.position)
    position = joined([bar, el("small", one.position)])
    return [one.column, value, el("span", one.usual, class_="muted"), position, one.contribution]
