"""Tables to CSV, Parquet, JSON lines, Excel or a database. A file is written completely or not at all."""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from addml.io.documents import SHEET_ROWS, as_json, database, disposing
from addml.io.source import COMPRESSION_NAMES, OUTPUT_FORMATS, STREAMS, is_special, library
from addml.text import listed, visible, without_password

JSON_ROWS = 10_000
GUARDED = "text cells that start like a formula, now with a leading apostrophe"
NOT_FINITE = "infinite and NaN values, written as null"
BUFFER_BYTES = 1 << 20
FORMULA = r"^[=+\-@\t\r\n]"  # a spreadsheet may run such a cell when it opens the file
NUMBER = r"^-\d+([.,]\d+)?([eE][+\-]?\d+)?$"  # not a formula, but a number as text, such as an id


class WriteError(OSError):
    """An output that cannot be written."""


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> list[str]:
    """Write the table; returns notes on what was changed."""
    return write_pieces([table], path)


def write_pieces(pieces: Iterable[pa.Table], path: str | os.PathLike[str]) -> list[str]:
    """Write a table that comes in one or more pieces; returns notes on what was changed."""
    remaining = iter(pieces)
    first = next(remaining)
    with open_writer(path, first.schema) as writer:
        for piece in chain([first], remaining):
            writer.write(piece)
    return writer.notes


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of any content, completely or not at all."""
    target = _resolve(path)
    with _replacing(target) as file, naming_file(target), file:
        file.write(content)


@contextmanager
def open_writer(path: str | os.PathLike[str], schema: pa.Schema) -> Iterator[TableWriter]:
    """A writer for pieces of this schema; the file appears only if the block ends without an error."""
    target = _resolve(Path(os.path.expanduser(path)))
    kind, compression = table_format(target)
    with _replacing(target) as file:
        stream = pa.PythonFile(file, mode="w")
        if compression is not None:
            stream = pa.CompressedOutputStream(stream, compression)
        writer = None
        try:
            with naming_file(target):
                writer = TableWriter(kind, stream, schema, target)
            yield writer
            with naming_file(target):
                writer.close()
                stream.close()
        except BaseException:
            for unfinished in filter(None, (writer, stream)):  # otherwise they raise when garbage-collected
                with suppress(Exception):
                    unfinished.close()
            raise


def table_format(target: Path) -> tuple[str, str | None]:
    """The format and the compression that the file name stands for."""
    compression = COMPRESSION_NAMES.get(target.suffix.lower())
    suffix = (Path(target.stem) if compression else target).suffix.lower()
    kind = OUTPUT_FORMATS.get(suffix)
    if kind is None and not is_special(target):
        raise WriteError(f"{target}: the name must end in {', '.join(OUTPUT_FORMATS)} (or .csv.gz, .csv.zst).")
    if kind in ("parquet", "excel") and compression:
        raise WriteError(f"{target}: a {suffix} file is already compressed. Leave out {target.suffix}.")
    return kind or "csv", compression


def _resolve(path: Path) -> Path:
    """The target of a symbolic link, so that the link stays; special files are not resolved."""
    return path if is_special(path) else Path(os.path.realpath(path))


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file in the same folder, renamed to `target` if the block ends without an error."""
    if target.is_dir():
        raise WriteError(f"{target}: is a folder. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise WriteError(f"{target}: the folder {target.parent} does not exist. Create it, or write elsewhere.")
    special = is_special(target)  # written in place
    part = target if special else target.with_name(f".addml-{os.getpid()}-{secrets.token_hex(4)}.part")
    with naming_file(target):
        if str(target) in STREAMS:  # not reopened, so that `>>` appends
            file: IO[bytes] = os.fdopen(os.dup(STREAMS[str(target)]), "wb", buffering=BUFFER_BYTES)
        else:
            file = part.open("wb" if special else "xb", buffering=BUFFER_BYTES)
    try:
        yield file
        if not special:
            with naming_file(target):
                with part.open("rb+") as written:
                    os.fsync(written.fileno())  # on disk before the rename
                if target.exists():
                    shutil.copymode(target, part)
                part.replace(target)
    except BaseException:
        with suppress(Exception):
            file.close()
        if not special:
            part.unlink(missing_ok=True)
        raise


@contextmanager
def naming_file(target: Path) -> Iterator[None]:
    """Turn OSErrors into a WriteError that names the output and the remedy."""
    try:
        yield
    except OSError as error:
        if isinstance(error, WriteError | BrokenPipeError):  # a pipe's reader may stop early
            raise
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "Free some space" if is_full else "Check the folder's permissions"
        reason = os.strerror(error.errno) if error.errno else str(error)
        write_error = WriteError(f"{target}: cannot be written: {reason}. {remedy}, or write elsewhere.")
        write_error.errno = error.errno
        raise write_error from error


class TableWriter:
    """Writes a table to `target` in one format, piece by piece."""

    def __init__(self, kind: str, stream: pa.NativeFile, schema: pa.Schema, target: Path) -> None:
        self._target = target
        self._changes = Counter[str]()
        self._add, self.close = WRITERS[kind](stream, schema, target, self._changes)

    def write(self, piece: pa.Table | pa.RecordBatch) -> None:
        """Add rows; they must have the schema of the writer."""
        with naming_file(self._target):
            self._add(pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece)

    @property
    def notes(self) -> list[str]:
        """What was changed so far to fit the format."""
        return [f"{change}: {count:,}" for change, count in self._changes.items() if count]


Writer = tuple[Callable[[pa.Table], None], Callable[[], None]]  # adds a piece; ends the file


def _csv(stream: pa.NativeFile, schema: pa.Schema, target: Path, changes: Counter[str]) -> Writer:
    schema = _for_spreadsheet(schema.empty_table(), changes).schema
    options = csv.WriteOptions(delimiter="\t" if ".tsv" in target.suffixes else ",")
    writer = csv.CSVWriter(stream, schema, write_options=options)
    return lambda table: writer.write_table(_for_spreadsheet(table, changes).cast(schema)), writer.close


def _parquet(stream: pa.NativeFile, schema: pa.Schema, target: Path, changes: Counter[str]) -> Writer:
    writer = parquet.ParquetWriter(stream, schema, compression="zstd")
    return writer.write_table, writer.close


def _json(stream: pa.NativeFile, schema: pa.Schema, target: Path, changes: Counter[str]) -> Writer:

    def add(table: pa.Table) -> None:
        for index, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
            if pa.types.is_floating(field.type):
                finite = pc.is_finite(column)
                changes[NOT_FINITE] += pc.sum(pc.invert(finite)).as_py() or 0
                table = table.set_column(index, field, pc.if_else(finite, column, None))
        for start in range(0, table.num_rows, JSON_ROWS):
            columns = [column.to_pylist() for column in table.slice(start, JSON_ROWS).columns]
            rows = (dict(zip(schema.names, values, strict=True)) for values in zip(*columns, strict=True))
            stream.write("".join(as_json(row) + "\n" for row in rows).encode())

    return add, stream.close


def _excel(stream: pa.NativeFile, schema: pa.Schema, target: Path, changes: Counter[str]) -> Writer:
    book = library("openpyxl", "excel", f"{target}: Excel").Workbook(write_only=True)
    sheet, n_rows = book.create_sheet("scored"), 1
    sheet.append(_for_spreadsheet(schema.empty_table(), changes).column_names)

    def add(table: pa.Table) -> None:
        nonlocal n_rows
        n_rows += table.num_rows
        if n_rows > SHEET_ROWS:
            raise WriteError(f"{target}: a sheet holds at most {SHEET_ROWS - 1:,} rows. Write .csv or .parquet.")
        columns = [column.to_pylist() for column in _for_spreadsheet(table, changes).columns]
        for values in zip(*columns, strict=True):
            sheet.append(list(map(_excel_value, values)))

    return add, lambda: book.save(stream)


WRITERS = {"csv": _csv, "parquet": _parquet, "json": _json, "excel": _excel}


def _for_spreadsheet(table: pa.Table, changes: Counter[str]) -> pa.Table:
    """The table in types that CSV supports, without texts or names that a spreadsheet would run as formulas."""
    columns = [_csv_column(column) for column in table.columns]
    for position, column in enumerate(columns):
        if pa.types.is_string(column.type):
            columns[position], n_formulas = _escape_formulas(column)
            changes[GUARDED] += n_formulas
    names, _ = _escape_formulas(pa.array(table.column_names, pa.string()))
    return pa.table(columns, names=names.to_pylist())


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that CSV supports; nested values become JSON."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _csv_column(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        texts = [None if value is None else as_json(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column


def _escape_formulas(text: pa.Array | pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, int]:
    """The text with an apostrophe before each formula, and the number of formulas."""
    is_formula = pc.fill_null(pc.match_substring_regex(text, FORMULA), False)
    if pc.any(is_formula).as_py():
        is_formula = pc.and_not(is_formula, pc.fill_null(pc.match_substring_regex(text, NUMBER), False))
    count = int(pc.sum(is_formula).as_py() or 0)
    if not count:
        return text, 0
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", text, ""), text), count


def _excel_value(value: Any) -> Any:
    """The value in a form that Excel can store: no time zone, control characters, NaN or infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value if value is None or isinstance(value, int | date | time | Decimal) else visible(str(value))


def write_to_database(pieces: Iterable[pa.Table], address: str, table: str) -> Iterator[pa.Table]:
    """Yield the pieces and write each to the database, all in one transaction: a failure changes nothing."""
    remaining = iter(pieces)
    first = next(remaining)
    check_target(address, table, first.schema.names)
    engine, target = database(address), _sql_table(table, first.schema)
    if engine.dialect.name == "sqlite":  # its driver starts the transaction only after `create table`
        from sqlalchemy import event

        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))
    problem = f"{without_password(address)}: the table {table!r} cannot be written"
    with disposing(engine, WriteError, problem), engine.begin() as connection:
        target.create(connection, checkfirst=True)
        connection.execute(target.delete())  # not dropped, so that its indexes, grants and views stay
        for piece in chain([first], remaining):
            rows = [{name: _sql_value(value) for name, value in row.items()} for row in piece.to_pylist()]
            connection.execute(target.insert(), rows)
            yield piece


def check_target(address: str, table: str, names: Iterable[str] = ("score",)) -> None:
    """Raise if a table of this name exists without these columns: it may be the one to read."""
    engine, database_name = database(address), without_password(address)
    with disposing(engine, WriteError, f"{database_name}: cannot be opened"):
        import sqlalchemy

        inspector = sqlalchemy.inspect(engine)
        schema, _, name = table.rpartition(".")
        exists = inspector.has_table(name, schema or None)
        columns = [column["name"] for column in inspector.get_columns(name, schema or None)] if exists else []
    if exists and not set(names) <= set(columns):
        raise WriteError(
            f"{database_name}: the table {table!r} holds something else ({listed(columns, 8)}), so it is not replaced. "
            "Name another table, or drop this one."
        )


def _sql_table(table: str, columns: pa.Schema) -> Any:
    import sqlalchemy as sql

    def sql_type(kind: pa.DataType) -> Any:
        types: dict[Any, Any] = {
            pa.types.is_boolean: sql.Boolean(),
            pa.types.is_integer: sql.BigInteger(),
            pa.types.is_floating: sql.Double(),
            pa.types.is_date: sql.Date(),
            pa.types.is_time: sql.Time(),
            pa.types.is_timestamp: sql.DateTime(timezone=getattr(kind, "tz", None) is not None),
        }
        return next((types[is_kind] for is_kind in types if is_kind(kind)), sql.Text())

    schema, _, name = table.rpartition(".")
    sql_columns = [sql.Column(column.name, sql_type(column.type)) for column in columns]
    return sql.Table(name, sql.MetaData(), *sql_columns, schema=schema or None)


def _sql_value(value: Any) -> Any:
    """The value in a form that a database can store: no NaN, and nested values as JSON."""
    if isinstance(value, float):
        return None if value != value else value
    return as_json(value) if isinstance(value, list | dict) else value
