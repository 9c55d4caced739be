"""Tables from JSON, Excel workbooks and databases."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from addml.io.source import (
    DAMAGE,
    LARGEST_BLOCK,
    SAMPLE_BYTES,
    NoRowsError,
    Origin,
    ReadError,
    decoded,
    is_remote,
    library,
    no_such_file,
)
from addml.io.values import has_header, is_missing, numbered_names, table_from_rows, table_start
from addml.text import counted, did_you_mean, listed, without_password

Rows = list[dict[str, Any]]

BLOCK_BYTES = 1 << 20
ROW_NAMES = ("features", "data", "rows", "records", "results", "items", "values")  # likely keys of a list of rows
DEEPEST = 3  # levels of a document that are searched for rows


def read_json(origin: Origin, encoding: str | None) -> tuple[pa.Table, list[str]]:
    """The table of a JSON file: one object a line, or one document with a list of rows."""
    _, codec, label = decoded(origin.head(SAMPLE_BYTES), origin.name, encoding)
    codec = "utf-8-sig" if codec == "utf-8" else codec
    try:
        document = _document(origin, codec)
        table, notes = _table_of_lines(origin, codec) if document is None else _table_of(document, origin.name)
    except DAMAGE as error:
        raise origin.unreadable(error) from error
    return table, [f"encoding: {label}", *notes]


def as_json(value: Any) -> str:
    """The value as JSON; types that JSON lacks become text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _document(origin: Origin, encoding: str) -> Any:
    """The JSON value of the whole file; None if every line is an object of its own."""
    with origin.open_text(encoding) as stream:
        lines = (line for line in stream if line.strip())
        first, second = next(lines, ""), next(lines, "")
    if not first.lstrip().startswith(("{", "[")):
        return None
    if first.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            whole = json.loads(first)
            return None if second or not _rows_in(whole) else whole
    try:
        with origin.open_text(encoding) as stream:
            return json.load(stream)
    except json.JSONDecodeError as error:
        if first.startswith("{") and second.startswith("{"):  # one line is broken; _items names it
            return None
        raise ReadError(f"{origin.name}, line {error.lineno}: is not JSON: {error.msg}. Correct the line.") from error


def _table_of(document: Any, source: str) -> tuple[pa.Table, list[str]]:
    """The table in a document: a list of rows, an object with such a list, or an object of columns."""
    if document in ([], {}):
        raise NoRowsError(f"{source}: holds no rows, only {document!r}.")
    place, rows = _rows_in(document) or ("", None)
    if rows is None:
        raise ReadError(f"{source}: no rows found in this JSON. Write a list of objects {{...}}, alone or under a key.")
    notes = [f"format: one JSON document, its rows under {place!r}" if place else "format: one JSON list"]
    if place and (others := [key for key in document if key != place.partition(".")[0]]):
        notes.append(f"not read: {listed(others, 8)}")
    table, changed = _table(rows)
    return table, [*notes, *changed]


def _rows_in(document: Any) -> tuple[str, Rows] | None:
    """The place (key.key) and the rows of a document's best list: one with a likely name, else the longest."""
    found = list(_lists_in(document, (), DEEPEST))
    if found:
        path, rows = max(found, key=lambda one: (any(key in ROW_NAMES for key in one[0]), len(one[1])))
        return ".".join(path), rows
    return ("", columns) if isinstance(document, dict) and (columns := _from_columns(document)) else None


def _lists_in(node: Any, path: tuple[str, ...], deeper: int) -> Iterator[tuple[tuple[str, ...], Rows]]:
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield path, node
    elif isinstance(node, list) and len(node) > 1 and all(isinstance(item, list) for item in node):
        is_named = all(isinstance(cell, str) for cell in node[0]) and len(set(node[0])) == len(node[0])
        names = node[0] if is_named else numbered_names(len(node[0]))
        yield path, [dict(zip(names, row, strict=False)) for row in node[is_named:]]
    elif isinstance(node, dict) and deeper:
        for key, value in node.items():
            yield from _lists_in(value, (*path, key), deeper - 1)


def _from_columns(document: dict[str, Any]) -> Rows | None:
    """Rows from columns: lists of equal length, or objects with equal keys, as pandas writes them."""
    columns = [list(one.values()) if isinstance(one, dict) else one for one in document.values()]
    if not all(isinstance(column, list) for column in columns) or len({len(column) for column in columns}) != 1:
        return None
    keys = {tuple(one) for one in document.values() if isinstance(one, dict)}  # row numbers
    if len(keys) > 1 or not all(key.isdigit() for own in keys for key in own):
        return None
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _table(items: Sequence[dict[str, Any]]) -> tuple[pa.Table, list[str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    return table_from_rows(names, [[item.get(name) for name in names] for item in items])


def _table_of_lines(origin: Origin, encoding: str) -> tuple[pa.Table, list[str]]:
    """The table of one JSON object a line; keys with values of several types become text."""
    block, is_utf8 = BLOCK_BYTES, encoding == "utf-8-sig"
    while True:
        try:
            raw = origin.open()
            with raw if is_utf8 else pa.transcoding_input_stream(raw, encoding, "utf8") as stream:
                return arrow_json.read_json(stream, arrow_json.ReadOptions(block_size=block)), []
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if "straddling" not in str(error) or block >= LARGEST_BLOCK:
                return _table(list(_items(origin, encoding)))
            block *= 8


def _items(origin: Origin, encoding: str) -> Iterator[dict[str, Any]]:
    with origin.open_text(encoding) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            where, shown = f"{origin.name}, line {number}", f"{line.strip()!r:.60}"
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                problem = f"is not a whole JSON object: {error.msg}: {shown}. Write one object a line."
                raise ReadError(f"{where}: {problem}") from error
            if not isinstance(item, dict):
                raise ReadError(f"{where}: is not a JSON object {{...}}: {shown}.")
            yield item


HEADER_ROWS = 500
SHEET_ROWS = 1_048_576  # Excel's limit; a tiny malicious file can claim more


def read_excel(
    origin: Origin, sheet: str | None, header: bool | None, skip_rows: int | None
) -> tuple[pa.Table, list[str]]:
    """The table of one sheet (default: the first that is not empty), and notes."""
    name, rows, blank, others = _sheet_rows(origin, sheet, skip_rows or 0)
    elsewhere = f" Its other sheets: {', '.join(others)}." if others else ""
    if not rows:
        raise NoRowsError(f"{origin.name}: sheet {name!r} is empty.{elsewhere}")
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows[:HEADER_ROWS]]
    start = table_start(texts) if skip_rows is None else 0
    rows, texts = _trimmed(rows[start:]), texts[start:]
    named = has_header(texts) if header is None else header
    names = texts[0][: len(rows[0])] if named else numbered_names(len(rows[0]))
    body = rows[1:] if named else rows
    if not body:
        held = f"holds a header and no rows: {', '.join(names[:8])}"
        raise NoRowsError(f"{origin.name}: sheet {name!r} {held}.{elsewhere}")
    table, changed = table_from_rows(names, body)
    notes = [f"sheet: {name}" + (f" (not read: {', '.join(others)})" if others else "")]
    notes += [f"above the table: {counted(start, 'row')} not read (--skip-rows 0 reads them)"] if start else []
    notes.append(f"header: {'first row' if named else 'none found'}")
    notes += [f"left out: {counted(blank, 'blank row')} of the sheet"] if blank else []
    return table, [*notes, *changed]


def _sheet_rows(origin: Origin, sheet: str | None, skipped: int) -> tuple[str, list[list[Any]], int, list[str]]:
    """The sheet's name, its rows that are not blank, the number of blank rows among them, and other sheets."""
    openpyxl = library("openpyxl", "excel", f"{origin.name}: an Excel file")
    try:
        with warnings.catch_warnings(), origin.open_seekable() as stream:
            warnings.simplefilter("ignore")  # about styles and validation, not data
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            for chosen in _candidates(book, sheet, origin.name):
                cells = chosen.iter_rows(values_only=True, max_row=SHEET_ROWS + 1)
                rows = [[None if isinstance(one, str) and is_missing(one) else one for one in row] for row in cells]
                if len(rows) > SHEET_ROWS:
                    raise ReadError(f"{origin.name}: sheet {chosen.title!r} has more than {SHEET_ROWS:,} rows.")
                filled = [place for place, row in enumerate(rows[skipped:]) if _length(row)]
                if filled:
                    break
    except ReadError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise ReadError(f"{origin.name}: the workbook is damaged ({error}). Save or copy it again.") from error
    blank = filled[-1] - filled[0] + 1 - len(filled) if filled else 0
    others = [other for other in book.sheetnames if other != chosen.title]
    return chosen.title, _trimmed(rows[skipped:]), blank, others


def _candidates(book: Any, sheet: str | None, source: str) -> list[Any]:
    """The named sheet, or all sheets, visible ones first."""
    if sheet is None:
        return sorted(book.worksheets, key=lambda one: bool(one.sheet_state != "visible"))
    names = [one.title for one in book.worksheets]
    if sheet in names:
        return [book.worksheets[names.index(sheet)]]
    raise ReadError(f"{source}: has no sheet {sheet!r}.{did_you_mean(sheet, names)} It has: {', '.join(names)}.")


def _trimmed(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows that are not blank, padded to one length, without blank columns at the right."""
    width = max(map(_length, rows), default=0)
    return [row[:width] + [None] * (width - len(row)) for row in rows if _length(row)]


def _length(row: list[Any]) -> int:
    return max((position + 1 for position, cell in enumerate(row) if cell is not None), default=0)


ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://")
READING = re.compile(r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table|show|from)\b", re.DOTALL | re.IGNORECASE)
NOT_DATABASES = ("ftp", "file", "abfs", "hdfs")


def is_address(source: str) -> bool:
    """Whether the source is a database address such as sqlite:///shop.db."""
    return ADDRESS.match(source) is not None and not is_remote(source)


def read_sql(address: str, query: str | None) -> tuple[pa.Table, list[str]]:
    """The rows of a query; nothing is committed."""
    scheme, shown = address.partition("://")[0].lower(), without_password(address)
    if scheme in NOT_DATABASES:
        raise ReadError(f"{shown}: {scheme} addresses are not supported. Download the file and give its path.")
    if not query or not query.strip():
        raise ReadError(f"{shown}: a database needs a query, such as 'select * from orders'.")
    if not READING.match(query):
        raise ReadError(f"{shown}: the query {query!r} is refused: it must begin with select or with.")
    engine = database(address)
    shown = engine.url.render_as_string(hide_password=True)
    with disposed(engine, ReadError, f"{shown}: the query {query!r} failed"), engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # its driver commits `with ... delete` on its own
            connection.exec_driver_sql("pragma query_only = on")
        options = connection.execution_options(stream_results=True, no_parameters=True)
        result = options.exec_driver_sql(query)
        if not result.returns_rows:
            raise ReadError(f"{shown}: the query gives no rows: {query!r}. Write a select.")
        table, notes = table_from_rows(list(result.keys()), [tuple(row) for row in result])
    return table, [f"database: {shown}", f"query: {query}", *notes]


@contextmanager
def disposed(engine: Any, kind: type[Exception], what: str) -> Iterator[None]:
    """Release the connections at the end; database errors become `kind`, prefixed with `what`."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise kind(f"{what}: {getattr(error, 'orig', None) or error}.") from error
    finally:
        engine.dispose()


def database(address: str) -> Any:
    """The engine for an address; a missing SQLite file is an error."""
    shown = without_password(address)
    sqlalchemy = library("sqlalchemy", "sql", f"{shown}: a database")
    try:
        engine = sqlalchemy.create_engine(address)
    except ImportError as error:
        raise ReadError(f"{shown}: the driver of this database is not installed: {error}.") from error
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise ReadError(f"{shown}: is not a database address: {without_password(str(error))}.") from error
    name: Any = engine.url.database
    in_file = engine.dialect.name == "sqlite" and name and not name.startswith((":memory:", "file:"))
    if in_file and not Path(name).exists():  # SQLite would create it
        raise no_such_file(Path(name))
    return engine
