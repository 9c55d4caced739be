"""JSON, Excel workbooks and databases, whose rows come as Python values."""

from __future__ import annotations

import io
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
    NoRowsError,
    Origin,
    ReadError,
    decode_start,
    encoding_of,
    is_remote,
    library,
    no_such_file,
)
from addml.io.values import has_header, is_missing, numbered_names, table_from_rows, table_start
from addml.text import counted, did_you_mean, listed, without_password

Rows = list[dict[str, Any]]

BLOCK_BYTES = 1 << 20
LARGEST_BLOCK = 1 << 30
SAMPLE_BYTES = 1 << 18
ROW_NAMES = ("features", "data", "rows", "records", "results", "items", "values")  # what lists of rows are called
DEEPEST = 3  # levels at which the rows of a document are looked for


def read_json(origin: Origin, encoding: str | None) -> tuple[pa.Table, list[str]]:
    """The table of a JSON file: one object a line, or a document with the rows in a list, perhaps a level down."""
    found, name = _encoding(origin, encoding)
    try:
        document = _document(origin, found)
        table, notes = _table_of_lines(origin, found) if document is None else _table_of(document, origin.name)
    except OSError as error:
        raise origin.unreadable(error) from error
    return table, [f"encoding: {name}", *notes]


def as_json(value: Any) -> str:
    """The value as JSON; what JSON does not know is written as text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _encoding(origin: Origin, encoding: str | None) -> tuple[str, str]:
    head = origin.head(SAMPLE_BYTES)
    if encoding is None:
        return encoding_of(head, origin.name)
    decode_start(head, encoding, origin.name)  # an error where it does not fit
    return encoding, f"{encoding}, as given"


def _text(origin: Origin, encoding: str) -> io.TextIOWrapper:
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(io.BufferedReader(origin.open()), encoding=codec, errors="replace")


def _document(origin: Origin, encoding: str) -> Any:
    """What the file holds if it is one JSON value that holds rows; None where every line is an object."""
    with _text(origin, encoding) as stream:
        lines = (line for line in stream if line.strip())
        first, second = next(lines, ""), next(lines, "")
    if not first.lstrip().startswith(("{", "[")):
        return None
    if first.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            whole = json.loads(first)
            return None if second or not _rows_in(whole) else whole
    try:
        with _text(origin, encoding) as stream:
            return json.load(stream)
    except json.JSONDecodeError as error:
        if first.startswith("{") and second.startswith("{"):  # a broken line among others, which reading by lines names
            return None
        raise ReadError(f"{origin.name}, line {error.lineno}: is not JSON: {error.msg}. Correct the line.") from error


def _table_of(document: Any, source: str) -> tuple[pa.Table, list[str]]:
    """The table in a document: a list of rows, an object that holds one, or an object of columns."""
    if document in ([], {}):
        raise NoRowsError(f"{source}: holds no rows, only {document!r}.")
    place, rows = _rows_in(document) or ("", None)
    if rows is None:
        raise ReadError(
            f"{source}: no rows were found in this JSON. Write a list of objects {{...}}, alone or under one key."
        )
    notes = [f"format: one JSON document, its rows under {place!r}" if place else "format: one JSON list"]
    if place and (others := [key for key in document if key != place.partition(".")[0]]):
        notes.append(f"not read: {listed(others, 8)}")
    table, changed = _table(rows)
    return table, [*notes, *changed]


def _rows_in(document: Any) -> tuple[str, Rows] | None:
    """Where the rows of a document lie, as key.key, and the rows; the longest list, or one that is named like rows."""
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
    """Rows from columns: lists of one length, or objects of the same keys, as pandas writes them."""
    columns = [list(one.values()) if isinstance(one, dict) else one for one in document.values()]
    if not all(isinstance(column, list) for column in columns) or len({len(column) for column in columns}) != 1:
        return None
    keys = {tuple(one) for one in document.values() if isinstance(one, dict)}  # numbers of rows
    if len(keys) > 1 or not all(key.isdigit() for own in keys for key in own):
        return None
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _table(items: Sequence[dict[str, Any]]) -> tuple[pa.Table, list[str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    return table_from_rows(names, [[item.get(name) for name in names] for item in items])


def _table_of_lines(origin: Origin, encoding: str) -> tuple[pa.Table, list[str]]:
    """The table of one JSON object a line; values of several kinds under one key become text."""
    block, is_utf8 = BLOCK_BYTES, encoding.startswith("utf-8")
    while True:
        try:
            raw = origin.open()
            with raw if is_utf8 else pa.transcoding_input_stream(raw, encoding, "utf8") as stream:
                return arrow_json.read_json(stream, arrow_json.ReadOptions(block_size=block)), []
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if "straddling" not in str(error) or block >= LARGEST_BLOCK:
                return _table([item for _, item in _items(origin, encoding)])
            block *= 8


def _items(origin: Origin, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's number and object."""
    with _text(origin, encoding) as stream:
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
            yield number, item


# Excel, through openpyxl -------------------------------------------------------------------------------------
HEADER_ROWS = 500
SHEET_ROWS = 1_048_576  # that Excel allows; a few bytes can claim any number


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
    blank = len(whole) - len(rows) - start  # rows are counted without them, which who looks one up must know
    notes += [f"left out: {counted(blank, 'blank row')} of the sheet"] if blank else []
    return table, [*notes, *changed]


def _sheet_rows(origin: Origin, sheet: str | None, skipped: int) -> tuple[str, list[list[Any]], list[str]]:
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


def _trimmed(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows without blank ones and without blank columns at the right, all equally long."""
    width = max(map(_length, rows), default=0)
    return [row[:width] + [None] * (width - len(row)) for row in rows if _length(row)]


def _length(row: list[Any]) -> int:
    return max((position + 1 for position, cell in enumerate(row) if cell is not None), default=0)


# Databases, through SQLAlchemy -------------------------------------------------------------------------------
ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://")
READING = re.compile(r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table|show|from)\b", re.DOTALL | re.IGNORECASE)
NOT_DATABASES = ("ftp", "file", "abfs", "hdfs")


def is_address(source: str) -> bool:
    """Whether the source is an address such as sqlite:///shop.db rather than a file."""
    return ADDRESS.match(source) is not None and not is_remote(source)


def read_sql(address: str, query: str | None) -> tuple[pa.Table, list[str]]:
    """The rows that the query gives; nothing is changed in the database."""
    scheme, shown = address.partition("://")[0].lower(), without_password(address)
    if scheme in NOT_DATABASES:
        raise ReadError(f"{shown}: {scheme} addresses are not read. Download the file and give its path.")
    if not query or not query.strip():
        raise ReadError(f"{shown}: a database needs a query, such as 'select * from orders'.")
    if not READING.match(query):
        raise ReadError(f"{shown}: the query {query!r} is refused: it must begin with select or with.")
    engine = database(address)
    shown = engine.url.render_as_string(hide_password=True)
    with disposed(engine, ReadError, f"{shown}: the query {query!r} failed"), engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # whose driver commits `with ... delete` by itself
            connection.exec_driver_sql("pragma query_only = on")
        options = connection.execution_options(stream_results=True, no_parameters=True)  # never committed
        result = options.exec_driver_sql(query)
        if not result.returns_rows:
            raise ReadError(f"{shown}: the query gives no rows: {query!r}. Write a select.")
        table, notes = table_from_rows(list(result.keys()), [tuple(row) for row in result])
    return table, [f"database: {shown}", f"query: {query}", *notes]


@contextmanager
def disposed(engine: Any, kind: type[Exception], what: str) -> Iterator[None]:
    """Give back the connections at the end; an error of the database says what failed."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise kind(f"{what}: {getattr(error, 'orig', None) or error}.") from error
    finally:
        engine.dispose()


def database(address: str) -> Any:
    """The engine for an address; a file that does not exist is an error."""
    shown = without_password(address)
    sqlalchemy = library("sqlalchemy", "sql", f"{shown}: a database")
    try:
        engine = sqlalchemy.create_engine(address)
    except ImportError as error:
        raise ReadError(f"{shown}: the driver of this database is not installed: {error}.") from error
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise ReadError(f"{shown}: is no address of a database: {without_password(str(error))}.") from error
    name: Any = engine.url.database
    in_file = engine.dialect.name == "sqlite" and name and not name.startswith((":memory:", "file:"))
    if in_file and not Path(name).exists():  # SQLite would create it
        raise no_such_file(Path(name))
    return engine
