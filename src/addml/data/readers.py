"""From a file, standard input or a database to an Arrow table, whole or in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from addml.data.files.arrays import read_mat, read_npy, read_npz
from addml.data.files.casting import conformed, shaped
from addml.data.files.column_names import check_columns
from addml.data.files.columnar import folder_batches, parquet_batches, read_arrow, read_folder, read_parquet
from addml.data.files.csv_dialect import CsvHints, sniff
from addml.data.files.csv_tables import csv_batches, read_csv_table
from addml.data.files.formats import format_of
from addml.data.files.json_lines import read_json_lines, read_json_list
from addml.data.files.origin import Origin, ReadError, find_origin
from addml.data.files.sheets import read_excel
from addml.data.files.sql import is_address, read_sql
from addml.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batches", "ReadError", "ReadResult", "csv_columns", "open_batches", "read_table", "refuse_idle"]

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
    """A table that comes once, in batches of one schema; `notes` may grow while it does."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    notes: list[str] = field(default_factory=list)
    rows: int | None = None  # in all, where the file was read whole

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
) -> Batches:
    """As `read_table`, at most `batch_rows` rows at a time; CSV and Parquet are never held whole.

    The columns of `schema` must be there and are read in its types, but for dates of a CSV that say their zone where
    the schema has none, or none where it has one: these are text, or without a zone. `columns` (by default those of
    `schema`, else all) may name others, which keep their type in the file; in a CSV they are text beside a schema.
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
    batches = _streamed(origin, kind, wanted, schema, hints, batch_rows, notes)
    cast = None if kind == "csv" else schema  # which is read in its types
    return _begun(conformed(batches, wanted, cast, batch_rows, origin.name), notes, origin.name)


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


def _streamed(
    origin: Origin,
    kind: str,
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    hints: CsvHints,
    rows: int,
    notes: list[str],
) -> Iterator[pa.RecordBatch]:
    if kind == "parquet":
        return parquet_batches(origin, columns, rows)
    if kind == "folder":
        return folder_batches(origin, columns, rows, notes)
    dialect, found = sniff(origin, hints)
    notes.extend(found)
    chosen = check_columns(columns, dialect.names, origin.name)
    return csv_batches(origin, dialect, chosen, schema, notes)


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
