"""A table of results as Markdown, LaTeX or CSV: the best in bold, the paper's figure in brackets."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "^": r"\^{}", "–": "--"}


@dataclass(frozen=True)
class Cell:
    """Text, or a figure with its spread, the paper's figure, and whether it is the best in its line."""

    text: str = ""
    value: float | None = None
    spread: float | None = None
    paper: float | None = None
    best: bool = False
    digits: int = 2


NONE = "–"  # a cell without a figure


@dataclass(frozen=True)
class Grid:
    """A table: a caption, column heads, lines of cells, and notes below; `rules` are lines with a rule above."""

    caption: str
    heads: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    rules: frozenset[int] = frozenset()
    spreads: bool = False  # whether to show them

    @property
    def columns(self) -> list[tuple[Cell, ...]]:
        """The cells by column."""
        return list(zip(*self.lines, strict=True)) if self.lines else [()] * len(self.heads)

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold figures."""
        return [any(cell.value is not None for cell in column) for column in self.columns]


def with_best(cells: Sequence[Cell], lowest: bool = False) -> list[Cell]:
    """The cells with the best figure marked, and all that round to it."""
    figures = [round(cell.value, cell.digits) for cell in cells if cell.value is not None]
    if len(figures) < 2:
        return list(cells)
    top = min(figures) if lowest else max(figures)
    return [replace(cell, best=cell.value is not None and round(cell.value, cell.digits) == top) for cell in cells]


def cell_text(cell: Cell, bold: Callable[[str], str] = str, spread: str = "") -> str:
    """The figure, bold if best, with its spread after the sign `spread` (if given) and the paper's in brackets."""
    if cell.value is None:
        text = cell.text
    else:
        text = f"{cell.value:.{cell.digits}f}"
        text = bold(text) if cell.best else text
        if spread and cell.spread is not None:
            text += f" {spread} {cell.spread:.{cell.digits}f}"
    return text if cell.paper is None else f"{text} ({cell.paper:.{cell.digits}f})"


def markdown(grid: Grid) -> str:
    """A table of GitHub's Markdown with its notes."""

    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    spread = "±" if grid.spreads else ""
    lines = [row(grid.heads), row(["--:" if is_number else "---" for is_number in grid.numeric])]
    lines += [row([cell_text(cell, "**{}**".format, spread) for cell in line]) for line in grid.lines]
    notes = [line for note in grid.notes for line in ("", note.replace("*", r"\*"))]
    return "\n".join([*lines, *notes]) + "\n"


def latex(grid: Grid) -> str:
    """A table for the package booktabs."""
    kinds = "".join("r" if is_number else "l" for is_number in grid.numeric)
    lines = [r"\begin{table}", rf"\caption{{{_tex(grid.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, grid.heads)) + r" \\ \midrule"]
    spread = r"$\pm$" if grid.spreads else ""
    for index, line in enumerate(grid.lines):
        if index and index in grid.rules:
            lines.append(r"\midrule")
        cells = (replace(cell, text=_tex(cell.text)) for cell in line)
        lines.append(" & ".join(cell_text(cell, r"\textbf{{{}}}".format, spread) for cell in cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [*(rf"\par\footnotesize {_tex(note)}" for note in grid.notes), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def comma_separated(grid: Grid) -> str:
    """Unrounded figures: a column of means, followed by spread and paper's figure if there are any."""
    columns: list[list[str]] = []  # each with its head
    for head, cells in zip(grid.heads, grid.columns, strict=True):
        columns.append([head, *(_full(cell.value) if cell.value is not None else cell.text for cell in cells)])
        for name in ("spread", "paper"):
            values = [getattr(cell, name) for cell in cells]
            if any(value is not None for value in values):
                columns.append([f"{head} {name}", *map(_full, values)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(_repeated(columns[0]), *columns[1:], strict=True))
    return text.getvalue()


def _full(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _repeated(names: Sequence[str]) -> list[str]:
    """The lines with the name of the set, shown only on its first line, repeated on all."""
    repeated: list[str] = []
    for name in names:
        repeated.append(name or (repeated[-1] if repeated else ""))
    return repeated


FORMATS: dict[str, Callable[[Grid], str]] = {"md": markdown, "tex": latex, "csv": comma_separated}
