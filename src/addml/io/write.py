"""Tables to CSV, Parquet, JSON lines or Excel by the name given, and files of any content: whole, or no file at all."""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from addml.io.json import as_json
from addml.io.source import COMPRESSION_NAMES, STREAMS, is_special, library
from addml.text import visible

FORMATS = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson"), "json"),
    ".xlsx": "excel",
}
JSON_ROWS = 10_000
SHEET_ROWS = 2**20 - 1  # of a sheet, below its header
GUARDED = "text cells that began like a formula, now with an apostrophe before"
NOT_FINITE = "numbers that are not finite, written as null"
BUFFER_BYTES = 1 << 20
ROWS = 32_768  # that become text together
FORMULA = r"^[=+\-@\t\r\n]"  # what a spreadsheet may run when it opens the file
NUMBER = r"^-\d+([.,]\d+)?([eE][+\-]?\d+)?$"  # but not this, as ids that are copied may be


class WriteError(OSError):
    """An output that cannot be written; the message names it and the remedy."""


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> list[str]:
    """Write the table and give back what is to be said."""
    return write_pieces([table], path)


def write_pieces(pieces: Iterable[pa.Table], path: str | os.PathLike[str]) -> list[str]:
    """Write a table that comes in pieces, of which there is at least one, and give back what is to be said."""
    coming = iter(pieces)
    first = next(coming)
    with open_writer(path, first.schema) as writer:
        for piece in chain([first], coming):
            writer.write(piece)
    return writer.notes


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of any content: whole, or not at all."""
    target = _real(path)
    with _replacing(target) as file, naming(target), file:
        file.write(content)


@contextmanager
def open_writer(path: str | os.PathLike[str], schema: pa.Schema) -> Iterator[TableWriter]:
    """A writer for pieces of this schema; the file appears when the block ends well, and not otherwise."""
    target = _real(Path(os.path.expanduser(path)))
    kind, compression = table_format(target)
    with _replacing(target) as file:
        stream = pa.PythonFile(file, mode="w")
        opened: list[Any] = [stream if compression is None else pa.CompressedOutputStream(stream, compression)]
        try:
            with naming(target):
                opened.insert(0, WRITERS[kind](opened[0], schema, target))
            yield opened[0]
            with naming(target):
                opened[0].close()
                opened[1].close()
        except BaseException:
            for one in opened:  # or they complain when they are collected
                with suppress(Exception):
                    one.close()
            raise


def table_format(target: Path) -> tuple[str, str | None]:
    """The format and the compression that the name asks for; an error where there are none such."""
    suffix, compression = target.suffix.lower(), COMPRESSION_NAMES.get(target.suffix.lower())
    if compression:
        suffix = Path(target.stem).suffix.lower()
    if suffix not in FORMATS and not is_special(target):
        raise WriteError(f"{target}: the name must end in {', '.join(FORMATS)} (or .csv.gz, .csv.zst).")
    if FORMATS.get(suffix) in ("parquet", "excel") and compression:
        raise WriteError(f"{target}: a {suffix} file is compressed within. Leave out {target.suffix}.")
    return FORMATS.get(suffix, "csv"), compression


def _real(path: Path) -> Path:
    """Where a link leads to, which stays a link; what /dev/stdout leads to has no name."""
    return path if is_special(path) else Path(os.path.realpath(path))


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file under another name in the same folder, which takes the name of `target` if all goes well."""
    if target.is_dir():
        raise WriteError(f"{target}: is a folder. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise WriteError(f"{target}: the folder {target.parent} does not exist. Create it, or write elsewhere.")
    special = is_special(target)  # a device or a pipe is written to, never replaced
    part = target if special else target.with_name(f".addml-{os.getpid()}-{secrets.token_hex(4)}.part")
    with naming(target):
        if str(target) in STREAMS:  # as it is open, so that what `>>` leads to keeps what it holds
            file: IO[bytes] = os.fdopen(os.dup(STREAMS[str(target)]), "wb", buffering=BUFFER_BYTES)
        else:
            file = part.open("wb" if special else "xb", buffering=BUFFER_BYTES)
    try:
        yield file
        if not special:
            with naming(target):
                with part.open("rb+") as written:
                    os.fsync(written.fileno())  # on the disk before it gets its name
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
def naming(target: Path) -> Iterator[None]:
    """Name the output and the remedy in an error of the system."""
    try:
        yield
    except OSError as error:
        if isinstance(error, WriteError | BrokenPipeError):  # whoever read a pipe has had enough
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "Free some space" if full else "Check the folder's permissions"
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WriteError(f"{target}: cannot be written: {reason}. {remedy}, or write elsewhere.") from error


# Formats ------------------------------------------------------------------------------------------------------


class TableWriter:
    """Writes a table to `target` in one format, piece by piece."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema, target: Path) -> None:
        self._stream, self._schema, self._target = stream, schema, target
        self._changed = Counter[str]()
        self._begin()

    def write(self, piece: pa.Table | pa.RecordBatch) -> None:
        """Add rows, of the schema that the writer was opened with."""
        with naming(self._target):
            self._add(pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece)

    @property
    def notes(self) -> list[str]:
        """What was changed so far on the way to the file."""
        return [f"{what}: {count:,}" for what, count in self._changed.items() if count]

    def close(self) -> None:
        """Write what is still to be written."""

    def _begin(self) -> None:
        pass

    def _add(self, table: pa.Table) -> None:
        raise NotImplementedError


class CsvWriter(TableWriter):
    """CSV in which no text cell begins like a spreadsheet formula, on as many threads as Arrow may use."""

    def _begin(self) -> None:
        empty = self._schema.empty_table()
        self._delimiter, self._schema = "\t" if ".tsv" in self._target.suffixes else ",", _guarded(empty)[0].schema
        self._threads, self._waiting = pa.cpu_count(), deque[Future[tuple[pa.Buffer, int]]]()
        self._pool = ThreadPoolExecutor(self._threads)
        self._stream.write(self._text(empty, header=True)[0])

    def _add(self, table: pa.Table) -> None:
        for start in range(0, table.num_rows, ROWS):
            self._waiting.append(self._pool.submit(self._text, table.slice(start, ROWS)))
            if len(self._waiting) > self._threads:
                self._write_first()

    def close(self) -> None:
        try:
            while self._waiting:
                self._write_first()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _write_first(self) -> None:
        text, count = self._waiting.popleft().result()
        self._stream.write(text)
        self._changed[GUARDED] += count

    def _text(self, table: pa.Table, *, header: bool = False) -> tuple[pa.Buffer, int]:
        """The rows as text, and how many cells were changed."""
        table, count = _guarded(table)
        stream = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=header, delimiter=self._delimiter, batch_size=ROWS)
        csv.write_csv(table.cast(self._schema), stream, options)
        return stream.getvalue(), count


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that CSV can hold: text for nested values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        texts = [None if value is None else as_json(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column


def _guarded(table: pa.Table) -> tuple[pa.Table, int]:
    """The table in types that CSV can hold, its text and names neutralised, and how many cells that changed."""
    arrays, changed = [_plain(column) for column in table.columns], 0
    for position, array in enumerate(arrays):
        if pa.types.is_string(array.type):
            arrays[position], count = _neutralised(array)
            changed += count
    names = pa.array(table.column_names, pa.string())
    return pa.table(arrays, names=_neutralised(names)[0].to_pylist()), changed


def _neutralised(text: pa.Array | pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, int]:
    """The text with an apostrophe before what a spreadsheet would take for a formula, and how often."""
    found = pc.fill_null(pc.match_substring_regex(text, FORMULA), False)
    if pc.any(found).as_py():
        found = pc.and_not(found, pc.fill_null(pc.match_substring_regex(text, NUMBER), False))
    count = int(pc.sum(found).as_py() or 0)
    if not count:
        return text, 0
    return pc.if_else(found, pc.binary_join_element_wise("'", text, ""), text), count


class ParquetWriter(TableWriter):
    """Parquet, compressed with zstd."""

    def _begin(self) -> None:
        self._writer = parquet.ParquetWriter(self._stream, self._schema, compression="zstd")

    def _add(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class JsonWriter(TableWriter):
    """One JSON object a line."""

    def _add(self, table: pa.Table) -> None:
        for start in range(0, table.num_rows, JSON_ROWS):
            columns = [self._values(column) for column in table.slice(start, JSON_ROWS).columns]
            rows = (dict(zip(self._schema.names, values, strict=True)) for values in zip(*columns, strict=True))
            self._stream.write("".join(as_json(row) + "\n" for row in rows).encode())

    def _values(self, column: pa.ChunkedArray) -> list[Any]:
        if pa.types.is_floating(column.type):
            finite = pc.is_finite(column)
            self._changed[NOT_FINITE] += (len(finite) - finite.null_count) - (pc.sum(finite).as_py() or 0)
            column = pc.if_else(finite, column, None)
        return list(column.to_pylist())


class ExcelWriter(TableWriter):
    """A workbook with one sheet, in which no text cell is a formula."""

    def _begin(self) -> None:
        openpyxl = library("openpyxl", "excel", f"{self._target}: Excel")
        self._left, self._book = SHEET_ROWS, openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("scored")
        self._sheet.append(_guarded(self._schema.empty_table())[0].column_names)

    def _add(self, table: pa.Table) -> None:
        table, count = _guarded(table)
        self._changed[GUARDED] += count
        self._left -= table.num_rows
        if self._left < 0:
            raise WriteError(f"{self._target}: a sheet holds at most {SHEET_ROWS:,} rows. Write .csv or .parquet.")
        for values in zip(*(column.to_pylist() for column in table.columns), strict=True):
            self._sheet.append(list(map(_excel_value, values)))

    def close(self) -> None:
        self._book.save(self._stream)


def _excel_value(value: Any) -> Any:
    """The value as a cell holds it: no time zone, no control characters, nothing that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value if value is None or isinstance(value, int | date | time | Decimal) else visible(str(value))


WRITERS = {"csv": CsvWriter, "parquet": ParquetWriter, "json": JsonWriter, "excel": ExcelWriter}
