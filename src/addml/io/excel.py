"""Excel workbooks, through openpyxl."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from addml.io.csv_dialect import has_header, is_missing
from addml.io.source import Origin, ReadError, missing_extra
from addml.io.values import numbered_names, table_from_rows
from addml.text import counted, did_you_mean

HEADER_ROWS = 500


def read_excel(origin: Origin, sheet: str | None, header: bool | None) -> tuple[pa.Table, list[str]]:
    """The table of one sheet, the first unless named, and what was found out."""
    name, whole, others = _sheet_rows(origin, sheet)
    rows = _trimmed(whole)
    elsewhere = f" Its other sheets: {', '.join(others)}." if others else ""
    if not rows:
        raise ReadError(f"{origin.name}: sheet {name!r} is empty.{elsewhere}")
    named = has_header([_texts(row) for row in rows[:HEADER_ROWS]]) if header is None else header
    names = _texts(rows[0]) if named else numbered_names(len(rows[0]))
    body = rows[1:] if named else rows
    if not body:
        raise ReadError(f"{origin.name}: sheet {name!r} holds a header and no rows: {', '.join(names[:8])}.{elsewhere}")
    table, changed = table_from_rows(names, body)
    read = f"sheet: {name}" + (f" (not read: {', '.join(others)})" if others else "")
    return table, [read, f"header: {'first row' if named else 'none found'}", *_blank_note(whole, rows), *changed]


def _sheet_rows(origin: Origin, sheet: str | None) -> tuple[str, list[list[Any]], list[str]]:
    """The name and the rows of the sheet, from the first that holds something to the last, and the other names."""
    try:
        import openpyxl
    except ImportError as error:
        raise missing_extra(f"{origin.name}: an Excel file", "excel") from error
    try:
        with warnings.catch_warnings(), origin.open_python() as stream:
            warnings.simplefilter("ignore")  # about styles and validation, which are not data
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            chosen = _choose(book, sheet, origin.name)
            rows = [[_value(cell) for cell in row] for row in chosen.iter_rows(values_only=True)]
    except ReadError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise ReadError(f"{origin.name}: the workbook is damaged ({error}). Save or copy it again.") from error
    filled = [place for place, row in enumerate(rows) if _length(row)] or [len(rows)]
    return chosen.title, rows[filled[0] : filled[-1] + 1], [other for other in book.sheetnames if other != chosen.title]


def _choose(book: Any, sheet: str | None, source: str) -> Any:
    if sheet is None:
        return next((one for one in book.worksheets if one.sheet_state == "visible"), book.worksheets[0])
    for one in book.worksheets:
        if one.title == sheet:
            return one
    names = [one.title for one in book.worksheets]
    raise ReadError(f"{source}: has no sheet {sheet!r}.{did_you_mean(sheet, names)} It has: {', '.join(names)}.")


def _trimmed(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows without blank ones and without blank columns at the right, all equally long."""
    width = max(map(_length, rows), default=0)
    return [row[:width] + [None] * (width - len(row)) for row in rows if _length(row)]


def _blank_note(whole: list[list[Any]], rows: list[list[Any]]) -> list[str]:
    """Rows are counted without blank ones: who looks one up in the sheet must know of them."""
    blank = len(whole) - len(rows)
    return [f"left out: {counted(blank, 'blank row')} of the sheet"] if blank else []


def _length(row: list[Any]) -> int:
    return max((position + 1 for position, cell in enumerate(row) if cell is not None), default=0)


def _value(cell: Any) -> Any:
    return None if isinstance(cell, str) and is_missing(cell) else cell


def _texts(row: Sequence[Any]) -> list[str]:
    return ["" if cell is None else str(cell) for cell in row]
