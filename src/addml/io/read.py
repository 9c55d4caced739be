"""From a file, standard input or a database to an Arrow table, whole or in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from addml.io.columnar import folder_batches, parquet_batches, read_arrow, read_folder, read_parquet
from addml.io.csv import csv_batches, read_csv_table
from addml.io.csv_dialect import CsvHints, sniff
from addml.io.csv_errors import line_of as csv_line
from addml.io.excel import read_excel
from addml.io.json import line_of as json_line
from addml.io.json import read_json_lines, read_json_list
from addml.io.npy_mat import read_mat, read_npy, read_npz
from addml.io.source import STANDARD_INPUT, Origin, ReadError, find_origin, format_of, is_special
from addml.io.sql import is_address, read_sql
from addml.io.values import check_columns, conformed, shaped
from addml.text import counted

__all__ = ["Batches", "ReadError", "ReadResult", "csv_columns", "line_of", "open_batches", "read_table", "refuse_idle"]

BATCH_ROWS = 65_536
TAKEN_BY = {  # what a caller may know of a file, and the formats that it says something of
    "part": ("excel", "npz", "mat"),
    "delimiter": ("csv",),
    "header": ("csv", "excel"),
    "encoding": ("csv", "json lines", "json list"),
    "decimal": ("csv",),
}
STREAMED = ("csv", "parquet", "folder")


@dataclass(frozen=True)
class ReadResult:
    """A table, and what was found out while reading it and is to be said."""

    table: pa.Table
    notes: list[str]


@dataclass(frozen=True)
class Batches:
    """A table that comes once, in batches of one schema but for `loose` columns; these and `notes` may grow."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    notes: list[str] = field(default_factory=list)
    rows: int | None = None  # in all, where the file was read whole
    loose: list[str] = field(default_factory=list)  # columns of numbers that are text from the first text in them on

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches


def read_table(
    source: str | os.PathLike[str],
    *,
    query: str | None = None,
    columns: Sequence[str] | None = None,
    part: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    texts: Sequence[str] = (),
    codes: bool = True,
    labels: Sequence[str] = (),
) -> ReadResult:
    """The table of a file, a Parquet folder, standard input ('-') or a database address with a `query`.

    `part` names the sheet of a workbook or the array of a file of several; what is None is found out. Of a CSV,
    columns among `texts` stay text, with their zeros in front and all their digits, and so do columns of digits with
    zeros in front, unless `codes` says that these are numbers. Of a file of arrays, labels beside the table are left
    out, lest they be learned from, unless `labels` or `columns` name them.
    """
    hints = CsvHints(delimiter, header, encoding, decimal, tuple(columns or ()), tuple(texts), codes)
    if is_address(os.fspath(source)):
        return _from_database(os.fspath(source), query, columns, part, hints)
    origin, kind, notes = _locate(source, query, part, hints)
    return _whole(origin, kind, columns, part, hints, labels, notes)


def open_batches(
    source: str | os.PathLike[str],
    *,
    query: str | None = None,
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    part: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    texts: Sequence[str] = (),
    codes: bool = True,
    labels: Sequence[str] = (),
    loose: Sequence[str] | None = None,
) -> Batches:
    """As `read_table`, at most `batch_rows` rows at a time; CSV and Parquet are never held whole.

    The columns of `schema` must be there and are read in its types, but for dates of a CSV that say their zone where
    the schema has none, or none where it has one: these are text, or without a zone. `columns` (by default those of
    `schema`, else all) may name others, which keep their type in the file; in a CSV they are text beside a schema.
    Where a CSV has a text in a column of numbers, the column is text from that batch on, and listed as `loose`; given
    those that an earlier reading found, they are text from the start, and another one is an error.
    """
    wanted = schema.names if columns is None and schema is not None else columns
    hints = CsvHints(delimiter, header, encoding, decimal, tuple(wanted or ()), tuple(texts), codes)
    if is_address(os.fspath(source)):
        whole = _from_database(os.fspath(source), query, wanted, part, hints)
        return _cut(whole, wanted, schema, batch_rows, os.fspath(source))
    origin, kind, notes = _locate(source, query, part, hints)
    if kind not in STREAMED:
        whole = _whole(origin, kind, wanted, part, hints, labels, notes)
        return _cut(whole, wanted, schema, batch_rows, origin.name)
    if kind == "csv":
        found: list[str] = []
        batches = _from_csv(origin, wanted, schema, hints, notes, found, loose)  # in the types of the schema
        begun = _begun(conformed(batches, wanted, None, batch_rows, origin.name), notes, origin.name)
        return replace(begun, loose=found)
    batches = _from_parquet(origin, kind, wanted, batch_rows, notes)
    return _begun(conformed(batches, wanted, schema, batch_rows, origin.name), notes, origin.name)


def csv_columns(
    source: str | os.PathLike[str],
    *,
    query: str | None = None,
    part: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> list[str]:
    """The columns of a delimited text, by a look at its first rows alone."""
    hints = CsvHints(delimiter, header, encoding, decimal)
    origin, _, _ = _locate(source, query, part, hints)
    return list(sniff(origin, hints)[0].names)


def line_of(source: str | os.PathLike[str], row: int, column: str, **known: Any) -> int | None:
    """The line of a text on which a row stands that has this column; None where the file has no lines, or comes once.

    What is known of the file is as for `read_table`.
    """
    if is_address(os.fspath(source)) or os.fspath(source) == STANDARD_INPUT or is_special(Path(source)):
        return None
    hints = CsvHints(known["delimiter"], known["header"], known["encoding"], known["decimal"], (column,))
    origin, kind, _ = _locate(source, known["query"], known["part"], hints)
    if kind == "csv":
        return csv_line(origin, sniff(origin, hints)[0], row)
    return json_line(origin, hints.encoding, row) if kind == "json lines" else None


def refuse_idle(source: str, kind: str, known: Mapping[str, Any]) -> None:
    """What is known of a file must say something of its format."""
    for name, formats in TAKEN_BY.items():
        value = known.get(name)
        if value is not None and kind not in formats:
            what = kind if kind in ("database", "folder") else f"{kind} file"
            raise ReadError(f"{source}: is a {what}, of which {name}={value!r} says nothing; leave it out.")


def _locate(
    source: str | os.PathLike[str], query: str | None, part: str | None, hints: CsvHints
) -> tuple[Origin, str, list[str]]:
    """Where the bytes are, their format, and what is to be said of them."""
    if query is not None:
        raise ReadError(f"{source}: a query is for databases (sqlite:///shop.db), and this is a file.")
    origin = find_origin(source)
    kind, notes = format_of(origin)
    refuse_idle(str(source), kind, {"part": part, **vars(hints)})
    return origin, kind, notes + ([f"compression: {origin.compression}"] if origin.compression else [])


def _whole(
    origin: Origin,
    kind: str,
    columns: Sequence[str] | None,
    part: str | None,
    hints: CsvHints,
    labels: Sequence[str],
    notes: list[str],
) -> ReadResult:
    table, found = _read(origin, kind, columns, part, hints, {*labels, *(columns or ())})
    return _finished(table, [*notes, *found], columns, origin.name)


def _read(
    origin: Origin, kind: str, columns: Sequence[str] | None, part: str | None, hints: CsvHints, asked: set[str]
) -> tuple[pa.Table, list[str]]:
    match kind:
        case "csv":
            dialect, notes = sniff(origin, hints)
            table, found = read_csv_table(origin, dialect, check_columns(columns, dialect.names, origin.name))
            return table, notes + found
        case "parquet":
            return read_parquet(origin, columns), []
        case "folder":
            return read_folder(origin, columns)
        case "arrow" | "arrow stream":
            return read_arrow(origin, is_stream=kind == "arrow stream"), []
        case "json lines":
            return read_json_lines(origin, hints.encoding)
        case "json list":
            return read_json_list(origin, hints.encoding)
        case "excel":
            return read_excel(origin, part, hints.header)
        case "npz":
            return read_npz(origin, part, asked)
        case "npy":
            return read_npy(origin)
        case "mat":
            return read_mat(origin, part, asked)
    raise ReadError(f"{origin.name}: {kind} files are not read.")


def _from_database(
    address: str, query: str | None, columns: Sequence[str] | None, part: str | None, hints: CsvHints
) -> ReadResult:
    name = address.split("://")[0] + " database"
    refuse_idle(name, "database", {"part": part, **vars(hints)})
    table, notes = read_sql(address, query)
    return _finished(table, notes, columns, name)


def _finished(table: pa.Table, notes: list[str], columns: Sequence[str] | None, source: str) -> ReadResult:
    table, changed = shaped(table, columns, source)
    if not table.num_rows or not table.num_columns:
        raise ReadError(f"{source}: holds no rows ({_size(table)}).")
    return ReadResult(table, [*notes, *changed, f"read: {_size(table)}"])


def _size(table: pa.Table) -> str:
    return f"{counted(table.num_rows, 'row')}, {counted(table.num_columns, 'column')}"


def _from_parquet(
    origin: Origin, kind: str, columns: Sequence[str] | None, rows: int, notes: list[str]
) -> Iterator[pa.RecordBatch]:
    if kind == "parquet":
        return parquet_batches(origin, columns, rows)
    return folder_batches(origin, columns, rows, notes)


def _from_csv(
    origin: Origin,
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    hints: CsvHints,
    notes: list[str],
    found: list[str],
    loose: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    dialect, words = sniff(origin, hints)
    notes.extend(words)
    chosen = check_columns(columns, dialect.names, origin.name)
    if loose is None:
        return csv_batches(origin, dialect, chosen, schema, notes, found)
    return csv_batches(origin, replace(dialect, loose=tuple(loose)), chosen, schema, notes)


def _cut(whole: ReadResult, columns: Sequence[str] | None, schema: pa.Schema | None, rows: int, source: str) -> Batches:
    batches = whole.table.to_batches(max_chunksize=rows)
    begun = _begun(conformed(batches, columns, schema, rows, source), whole.notes, source)
    return replace(begun, rows=whole.table.num_rows)


def _begun(batches: Iterator[pa.RecordBatch], notes: list[str], source: str) -> Batches:
    """The batches with the first one fetched, for its schema and for errors to come at once."""
    first = next(batches, None)
    if first is None:
        raise ReadError(f"{source}: holds no rows.")
    return Batches(first.schema, chain([first], batches), notes)
