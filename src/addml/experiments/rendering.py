"""A table as Markdown, LaTeX, CSV or HTML: the best in bold, the paper's figure in brackets."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence

from addml.experiments.tables import Cell, Grid

LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "^": r"\^{}", "–": "--"}


def markdown(grid: Grid) -> str:
    """A table of GitHub's Markdown with its notes."""
    lines = [_row(grid.heads), _row(_rules(grid))]
    spread = "±" if grid.spreads else ""
    lines += [_row([words(cell, "**{}**".format, spread) for cell in line]) for line in grid.lines]
    notes = [line for note in grid.notes for line in ("", _marked(note))]
    return "\n".join([*lines, *notes]) + "\n"


def _marked(note: str) -> str:
    return note.replace("*", r"\*")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _rules(grid: Grid) -> list[str]:
    return ["--:" if is_number else "---" for is_number in numeric(grid)]


def numeric(grid: Grid) -> list[bool]:
    """Which columns hold figures."""
    return [any(cell.value is not None for cell in column) for column in _columns(grid)]


def words(cell: Cell, bold: Callable[[str], str] = str, spread: str = "") -> str:
    """A cell in words: the figure, bold where best, its spread where a sign is given, the paper's in brackets."""
    if cell.value is None:
        text = cell.text
    else:
        text = f"{cell.value:.{cell.digits}f}"
        text = bold(text) if cell.best else text
        if spread and cell.spread is not None:
            text += f" {spread} {cell.spread:.{cell.digits}f}"
    return text if cell.paper is None else f"{text} ({cell.paper:.{cell.digits}f})"


def latex(grid: Grid) -> str:
    """A table for the package booktabs."""
    kinds = "".join("r" if is_number else "l" for is_number in numeric(grid))
    lines = [r"\begin{table}", rf"\caption{{{_tex(grid.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, grid.heads)) + r" \\ \midrule"]
    spread = r"$\pm$" if grid.spreads else ""
    for place, line in enumerate(grid.lines):
        if place and place in grid.rules:
            lines.append(r"\midrule")
        lines.append(" & ".join(words(_tex_cell(cell), r"\textbf{{{}}}".format, spread) for cell in line) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [*(rf"\par\footnotesize {_tex(note)}" for note in grid.notes), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def _tex_cell(cell: Cell) -> Cell:
    return Cell(**{**vars(cell), "text": _tex(cell.text)})


def comma_separated(grid: Grid) -> str:
    """Figures in full: a column of the mean, and beside it the spread and the paper's figure where there are any."""
    columns: list[list[str]] = []  # each with its head
    for head, cells in zip(grid.heads, _columns(grid), strict=True):
        columns.append([head, *(_full(cell.value) if cell.value is not None else cell.text for cell in cells)])
        for what in ("spread", "paper"):
            values = [getattr(cell, what) for cell in cells]
            if any(value is not None for value in values):
                columns.append([f"{head} {what}", *map(_full, values)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(_repeated(columns[0]), *columns[1:], strict=True))
    return text.getvalue()


def _columns(grid: Grid) -> list[tuple[Cell, ...]]:
    return list(zip(*grid.lines, strict=True)) if grid.lines else [()] * len(grid.heads)


def _full(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _repeated(names: Sequence[str]) -> list[str]:
    """The names of sets, which stand on the first of their lines, on all of them."""
    found: list[str] = []
    for text in names:
        found.append(text or (found[-1] if found else ""))
    return found


def html_table(grid: Grid) -> str:
    """A table element with its caption and notes."""
    kinds = numeric(grid)
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in grid.heads)
    body = "\n".join(f"<tr>{''.join(map(_td, line, kinds))}</tr>" for line in grid.lines)
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in grid.notes)
    caption = html.escape(grid.caption)
    table = f"<caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f"<table>\n{table}\n</table>\n{notes}"


def _td(cell: Cell, is_number: bool) -> str:
    escaped = Cell(**{**vars(cell), "text": html.escape(cell.text)})
    side = ' style="text-align:right"' if is_number else ""
    return f"<td{side}>{words(escaped, '<strong>{}</strong>'.format, '±')}</td>"


def html_page(title: str, grids: Sequence[Grid]) -> str:
    """A page of tables by themselves."""
    style = "body{font:14px sans-serif;margin:2em}td,th{padding:2px 8px}caption{font-weight:bold;padding:8px}"
    tables = "\n".join(map(html_table, grids))
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{tables}</body></html>\n'


FORMATS: dict[str, Callable[[Grid], str]] = {"md": markdown, "tex": latex, "csv": comma_separated}
