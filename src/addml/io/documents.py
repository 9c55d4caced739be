"""Tables from JSON, Excel workbooks and databases."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
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
    decode,
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
    """The table of a JSON file: one object per line, or one document with a list of rows."""
    _, encoding, label = decode(origin.head(SAMPLE_BYTES), origin.name, encoding)
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    try:
        document = _load_document(origin, encoding)
        table, notes = _table_of_lines(origin, encoding) if document is None else _table_of(document, origin.name)
    except DAMAGE as error:
        raise origin.unreadable(error) from error
    return table, [f"encoding: {label}", *notes]


def as_json(value: Any) -> str:
    """The value as JSON; values of types that JSON lacks become text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _load_document(origin: Origin, encoding: str) -> Any:
    """The JSON value of the whole file; None if every line is an object of its own."""
    with origin.open_text(encoding) as stream:
        lines = (line for line in stream if line.strip())
        first, second = next(lines, ""), next(lines, "")
    if not first.lstrip().startswith(("{", "[")):
        return None
    if first.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            document = json.loads(first)
            return None if second or not _find_rows(document)[1] else document
    try:
        with origin.open_text(encoding) as stream:
            return json.load(stream)
    except json.JSONDecodeError as error:
        if first.startswith("{") and second.startswith("{"):  # a line is broken, and _parse_lines names it
            return None
        raise ReadError(f"{origin.name}, line {error.lineno}: is not JSON: {error.msg}. Correct the line.") from error


def _table_of(document: Any, source: str) -> tuple[pa.Table, list[str]]:
    """The table in a document: a list of rows, an object with such a list, or an object of columns."""
    if document in ([], {}):
        raise NoRowsError(f"{source}: holds no rows, only {document!r}.")
    path, rows = _find_rows(document)
    if not rows:
        raise ReadError(f"{source}: no rows found in this JSON. Write a list of objects {{...}}, alone or under a key.")
    notes = [f"format: one JSON document, its rows under {path!r}" if path else "format: one JSON list"]
    if path and (others := [key for key in document if key != path.partition(".")[0]]):
        notes.append(f"not read: {listed(others, 8)}")
    table, changes = _table(rows)
    return table, [*notes, *changes]


def _find_rows(document: Any) -> tuple[str, Rows]:
    """The path (key.key) and the rows of a document's best list: one with a likely name, else the longest."""
    lists = list(_lists_in(document, (), DEEPEST))
    if not lists:
        return "", _from_columns(document) if isinstance(document, dict) else []
    path, rows = max(lists, key=lambda item: (any(key in ROW_NAMES for key in item[0]), len(item[1])))
    return ".".join(path), rows


def _lists_in(node: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Rows]]:
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield path, node
    elif isinstance(node, list) and len(node) > 1 and all(isinstance(item, list) for item in node):
        has_names = all(isinstance(cell, str) for cell in node[0]) and len(set(node[0])) == len(node[0])
        names = node[0] if has_names else numbered_names(len(node[0]))
        yield path, [dict(zip(names, row, strict=False)) for row in node[has_names:]]
    elif isinstance(node, dict) and depth:
        for key, value in node.items():
            yield from _lists_in(value, (*path, key), depth - 1)


def _from_columns(document: dict[str, Any]) -> Rows:
    """Rows from columns: lists of equal length, or objects with equal keys, as pandas writes them; or none."""
    columns = [list(column.values()) if isinstance(column, dict) else column for column in document.values()]
    if not all(isinstance(column, list) for column in columns) or len(set(map(len, columns))) != 1:
        return []
    keys = {tuple(column) for column in document.values() if isinstance(column, dict)}  # row numbers
    if len(keys) > 1 or not all(map(str.isdigit, chain.from_iterable(keys))):
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _table(items: Sequence[dict[str, Any]]) -> tuple[pa.Table, list[str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    return table_from_rows(names, [[item.get(name) for name in names] for item in items])


def _table_of_lines(origin: Origin, encoding: str) -> tuple[pa.Table, list[str]]:
    """The table of one JSON object per line; keys with values of several types become text."""
    block_size = BLOCK_BYTES
    while True:
        try:
            stream = origin.open()
            if encoding != "utf-8-sig":
                stream = pa.transcoding_input_stream(stream, encoding, "utf8")
            with stream:
                return arrow_json.read_json(stream, arrow_json.ReadOptions(block_size=block_size)), []
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if "straddling" not in str(error) or block_size >= LARGEST_BLOCK:
                return _table(list(_parse_lines(origin, encoding)))
            block_size *= 8


def _parse_lines(origin: Origin, encoding: str) -> Iterator[dict[str, Any]]:
    with origin.open_text(encoding) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            location, excerpt = f"{origin.name}, line {number}", f"{line.strip()!r:.60}"
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                problem = f"is not a whole JSON object: {error.msg}: {excerpt}. Write one object per line."
                raise ReadError(f"{location}: {problem}") from error
            if not isinstance(item, dict):
                raise ReadError(f"{location}: is not a JSON object {{...}}: {excerpt}.")
            yield item


HEADER_ROWS = 500
SHEET_ROWS = 1_048_576  # Excel's limit; a tiny malicious file can claim more


def read_excel(
    origin: Origin, sheet: str | None, header: bool | None, skip_rows: int | None
) -> tuple[pa.Table, list[str]]:
    """The table of one sheet (default: the first that is not empty), and notes."""
    name, rows, n_blank, others = _read_sheet(origin, sheet, skip_rows or 0)
    hint = f" Its other sheets: {', '.join(others)}." if others else ""
    if not rows:
        raise NoRowsError(f"{origin.name}: sheet {name!r} is empty.{hint}")
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows[:HEADER_ROWS]]
    start = table_start(texts) if skip_rows is None else 0
    rows, texts = _trimmed(rows[start:]), texts[start:]
    header = has_header(texts) if header is None else header
    names = texts[0][: len(rows[0])] if header else numbered_names(len(rows[0]))
    body = rows[1:] if header else rows
    if not body:
        problem = f"holds a header and no rows: {', '.join(names[:8])}"
        raise NoRowsError(f"{origin.name}: sheet {name!r} {problem}.{hint}")
    table, changes = table_from_rows(names, body)
    notes = [f"sheet: {name}" + (f" (not read: {', '.join(others)})" if others else "")]
    notes += [f"above the table: {counted(start, 'row')} not read (--skip-rows 0 reads them)"] if start else []
    notes.append(f"header: {'first row' if header else 'none found'}")
    notes += [f"left out: {counted(n_blank, 'blank row')} of the sheet"] if n_blank else []
    return table, [*notes, *changes]


def _read_sheet(origin: Origin, sheet: str | None, skip_rows: int) -> tuple[str, list[list[Any]], int, list[str]]:
    """The sheet's name, its rows that are not blank, the number of blank rows among them, and other sheets."""
    openpyxl = library("openpyxl", "excel", f"{origin.name}: an Excel file")
    try:
        with warnings.catch_warnings(), origin.open_seekable() as stream:
            warnings.simplefilter("ignore")  # about styles and validation, not data
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            for chosen in _candidates(book, sheet, origin.name):
                cells = chosen.iter_rows(values_only=True, max_row=SHEET_ROWS + 1)
                rows = [[None if isinstance(cell, str) and is_missing(cell) else cell for cell in row] for row in cells]
                if len(rows) > SHEET_ROWS:
                    raise ReadError(f"{origin.name}: sheet {chosen.title!r} has more than {SHEET_ROWS:,} rows.")
                filled = [index for index, row in enumerate(rows[skip_rows:]) if _length(row)]
                if filled:
                    break
    except ReadError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise ReadError(f"{origin.name}: the workbook is damaged ({error}). Save or copy it again.") from error
    n_blank = filled[-1] - filled[0] + 1 - len(filled) if filled else 0
    others = [name for name in book.sheetnames if name != chosen.title]
    return chosen.title, _trimmed(rows[skip_rows:]), n_blank, others


def _candidates(book: Any, sheet: str | None, source: str) -> list[Any]:
    if sheet is None:
        return sorted(book.worksheets, key=lambda worksheet: bool(worksheet.sheet_state != "visible"))
    names = [worksheet.title for worksheet in book.worksheets]
    if sheet in names:
        return [book.worksheets[names.index(sheet)]]
    raise ReadError(f"{source}: has no sheet {sheet!r}.{did_you_mean(sheet, names)} It has: {', '.join(names)}.")


def _trimmed(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows that are not blank, padded to one length, without blank columns on the right."""
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
    name, scheme = without_password(address), address.partition("://")[0].lower()
    if scheme in NOT_DATABASES:
        raise ReadError(f"{name}: {scheme} addresses are not supported. Download the file and give its path.")
    if not query or not query.strip():
        raise ReadError(f"{name}: a database needs a query, such as 'select * from orders'.")
    if not READING.match(query):
        raise ReadError(f"{name}: the query {query!r} is refused: it must begin with select or with.")
    engine = database(address)
    name = engine.url.render_as_string(hide_password=True)
    with disposing(engine, ReadError, f"{name}: the query {query!r} failed"), engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # its driver commits `with ... delete` on its own
            connection.exec_driver_sql("pragma query_only = on")
        options = connection.execution_options(stream_results=True, no_parameters=True)
        result = options.exec_driver_sql(query)
        if not result.returns_rows:
            raise ReadError(f"{name}: the query returns no rows: {query!r}. Write a select.")
        table, notes = table_from_rows(list(result.keys()), [tuple(row) for row in result])
    return table, [f"database: {name}", f"query: {query}", *notes]


@contextmanager
def disposing(engine: Any, error_type: type[Exception], problem: str) -> Iterator[None]:
    """Release the connections at the end; database errors become `error_type`, prefixed with `problem`."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise error_type(f"{problem}: {getattr(error, 'orig', None) or error}.") from error
    finally:
        engine.dispose()


def database(address: str) -> Any:
    """The engine for an address; a missing SQLite file is an error."""
    name = without_password(address)
    sqlalchemy = library("sqlalchemy", "sql", f"{name}: a database")
    try:
        engine = sqlalchemy.create_engine(address)
    except ImportError as error:
        raise ReadError(f"{name}: the driver of this database is not installed: {error}.") from error
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise ReadError(f"{name}: is not a database address: {without_password(str(error))}.") from error
    file: Any = engine.url.database
    is_file = engine.dialect.name == "sqlite" and file and not file.startswith((":memory:", "file:"))
    if is_file and not Path(file).exists():  # SQLite would create it
        raise no_such_file(Path(file))
    return engine
