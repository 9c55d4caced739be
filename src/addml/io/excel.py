"""Excel workbooks, through openpyxl."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa

from addml.io.source import NoRowsError, Origin, ReadError, library
from addml.io.values import grouped_names, has_header, is_missing, numbered_names, table_from_rows, table_start
from addml.text import counted, did_you_mean

HEADER_ROWS = 500
SHEET_ROWS = 1_048_576  # that Excel allows; a few bytes can claim any number
Rows = list[list[Any]]


def read_excel(
    origin: Origin, sheet: str | None, header: bool | None, skip_rows: int | None
) -> tuple[pa.Table, list[str]]:
    """The table of one sheet, the first that holds something unless named, and what was found out."""
    name, whole, others = _sheet_rows(origin, sheet, skip_rows or 0)
    rows = _trimmed(whole)
    elsewhere = f" Its other sheets: {', '.join(others)}." if others else ""
    if not rows:
        raise NoRowsError(f"{origin.name}: sheet {name!r} is empty.{elsewhere}")
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows[:HEADER_ROWS]]
    start = table_start(texts) if skip_rows is None else 0
    above = texts[start - 1] if start else []
    rows, texts = _trimmed(rows[start:]), texts[start:]
    named = has_header(texts) if header is None else header
    names = texts[0][: len(rows[0])] if named else numbered_names(len(rows[0]))
    names = (grouped_names(above, names) if named else None) or names
    body = rows[1:] if named else rows
    if not body:
        held = f"holds a header and no rows: {', '.join(names[:8])}"
        raise NoRowsError(f"{origin.name}: sheet {name!r} {held}.{elsewhere}")
    table, changed = table_from_rows(names, body)
    notes = [f"sheet: {name}" + (f" (not read: {', '.join(others)})" if others else "")]
    notes += [f"above the table: {counted(start, 'row')} not read (--skip-rows 0 reads them)"] if start else []
    notes.append(f"header: {'first row' if named else 'none found'}")
    blank = len(whole) - len(rows) - start  # rows are counted without them, which who looks one up must know
    notes += [f"left out: {counted(blank, 'blank row')} of the sheet"] if blank else []
    return table, [*notes, *changed]


def _sheet_rows(origin: Origin, sheet: str | None, skipped: int) -> tuple[str, Rows, list[str]]:
    """The name and the rows of the sheet, from the first that holds something to the last, and the other names."""
    openpyxl = library("openpyxl", "excel", f"{origin.name}: an Excel file")
    try:
        with warnings.catch_warnings(), origin.open_seekable() as stream:
            warnings.simplefilter("ignore")  # about styles and validation, which are not data
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            for chosen in _candidates(book, sheet, origin.name):
                cells = chosen.iter_rows(values_only=True, max_row=SHEET_ROWS + 1)
                rows = [[None if isinstance(one, str) and is_missing(one) else one for one in row] for row in cells]
                if len(rows) > SHEET_ROWS:
                    raise ReadError(f"{origin.name}: sheet {chosen.title!r} has more than {SHEET_ROWS:,} rows.")
                rows = rows[skipped:]
                filled = [place for place, row in enumerate(rows) if _length(row)]
                if filled:
                    break
    except ReadError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise ReadError(f"{origin.name}: the workbook is damaged ({error}). Save or copy it again.") from error
    filled = filled or [len(rows)]
    return chosen.title, rows[filled[0] : filled[-1] + 1], [other for other in book.sheetnames if other != chosen.title]


def _candidates(book: Any, sheet: str | None, source: str) -> list[Any]:
    """The sheet that is named, or all, those that are visible first."""
    if sheet is None:
        return sorted(book.worksheets, key=lambda one: bool(one.sheet_state != "visible"))
    names = [one.title for one in book.worksheets]
    if sheet in names:
        return [book.worksheets[names.index(sheet)]]
    raise ReadError(f"{source}: has no sheet {sheet!r}.{did_you_mean(sheet, names)} It has: {', '.join(names)}.")


def _trimmed(rows: Rows) -> Rows:
    """The rows without blank ones and without blank columns at the right, all equally long."""
    width = max(map(_length, rows), default=0)
    return [row[:width] + [None] * (width - len(row)) for row in rows if _length(row)]


def _length(row: list[Any]) -> int:
    return max((position + 1 for position, cell in enumerate(row) if cell is not None), default=0)
