"""A document as Markdown: the same content in words and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from addml.report import document as doc
from addml.report.document import Block, Document, RankedRow, Ranking
from addml.text import counted

SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w))|^(\s*\d+)(?=[.)](\s|$))|^\s*[-+=#](?=[-+=#\s]|$)")
MAX_DETAILS = 10  # ranked rows whose values are shown


def to_markdown(document: Document) -> str:
    """The whole report."""
    parts = [
        f"# {escaped(' '.join(document.headline))}",
        escaped(document.lead),
        table(("", "", ""), document.figures),
        escaped(document.caveat),
    ]
    if document.scores:
        parts += [f"## {document.scores.title}", escaped(document.scores.caption), *_table(document.scores.table)]
    for section in document.sections:
        parts += [f"## {section.title}", *_blocks(section.blocks)]
    return "\n\n".join(part for part in [*parts, escaped(document.footer)] if part) + "\n"


def escaped(value: Any) -> str:
    """Text without meaning in Markdown and in the HTML that Markdown allows."""
    line = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(lambda found: f"{found[0]}\\" if found[2] else f"\\{found[0].lstrip()}", line)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of escaped cells."""
    lines = [list(map(escaped, head)), ["---"] * len(head), *(map(escaped, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(one: doc.Table | None) -> list[str]:
    return [] if one is None else [table(one.head, one.rows)]


def _blocks(blocks: Iterable[Block]) -> list[str]:
    return [part for block in blocks for part in _block(block)]


def _block(block: Block) -> list[str]:
    match block:
        case doc.Paragraph(text):
            return [escaped(text)]
        case doc.Facts(pairs):
            return [table(("", ""), pairs)]
        case doc.Bullets(items):
            return ["\n".join(f"- {escaped(item)}" for item in items)]
        case doc.Table():
            return _table(block)
        case doc.Chart():
            title = [f"### {escaped(block.title)}"] if block.title and block.table else []
            return [*title, *_table(block.table)]
        case doc.Drawing():
            return []
        case doc.Gallery(images):
            return [table(("image", "score"), [(picture.name, score) for picture, score in images])]
        case doc.Part(blocks, title):
            return [f"### {escaped(title)}" if title else "", *_blocks(blocks)]
        case Ranking():
            return _ranking(block)


def _ranking(ranking: Ranking) -> list[str]:
    parts = []
    if ranking.groups:
        ranks = [", ".join(map(str, one.ranks[:12])) + (" …" if len(one.ranks) > 12 else "") for one in ranking.groups]
        groups = [(one.size, one.reason, some) for one, some in zip(ranking.groups, ranks, strict=True)]
        title = f"### Groups of similar {ranking.noun}s"
        parts = [title, table(("size", "reason", "ranks"), groups), ranking.ungrouped]
    ids = list(dict.fromkeys(name for row in ranking.rows for name, _ in row.ids))
    head = ("rank", ranking.name.lower(), *ids, "score", "flagged", "reasons (contribution)")
    parts.append(table(head, [_row(row, ids) for row in ranking.rows]))
    compared = [row for row in ranking.rows[:MAX_DETAILS] if row.comparisons]
    if compared:
        usual = "compared with usual values" if ranking.has_usual else "with their values"
        parts.append(f"### Top {ranking.noun}s {usual}")
    for row in compared:
        head = ("column", "value", "usual values", "position", "contribution")
        more = counted(row.more_columns, "more column is", "more columns are")
        parts += [f"#### {row.name}, rank {row.rank}", table(head, [one[: len(head)] for one in row.comparisons])]
        parts += [f"{more} not shown."] if row.more_columns else []
    return parts


def _row(row: RankedRow, ids: Sequence[str]) -> list[Any]:
    score = f"{row.score} ({row.rarity})" if row.rarity else row.score
    reasons = "; ".join(f"{words} ({contribution})" for words, contribution in row.reasons)
    own = dict(row.ids)
    return [row.rank, row.row, *(own.get(name, "") for name in ids), score, "yes" if row.is_flagged else "no", reasons]
