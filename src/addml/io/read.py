"""Tables from files, standard input and databases, whole or in batches; the format is detected."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from addml.io.binary import parquet_batches, read_arrays, read_arrow, read_parquet
from addml.io.csv import csv_batches, read_csv_table
from addml.io.csv_dialect import sniff
from addml.io.documents import is_address, read_excel, read_json, read_sql
from addml.io.source import (
    PARQUET_NAMES,
    FileOptions,
    NoRowsError,
    Origin,
    ReadError,
    archive_format,
    decode,
    find_origin,
    zip_names,
)
from addml.io.values import check_columns, conformed, shaped
from addml.text import counted, without_password

BATCH_ROWS = 65_536
APPLIES_TO = {  # option: the formats that it applies to
    "part": ("excel", "npz", "mat"),
    "delimiter": ("csv",),
    "header": ("csv", "excel"),
    "skip_rows": ("csv", "excel"),
    "encoding": ("csv", "json"),
    "decimal": ("csv",),
}
STREAMED = ("csv", "parquet", "folder")
SIGNATURES = {
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "zip"),  # workbooks, .npz files and uploads
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
    b"\x93NUMPY": "npy",
    b"MATLAB 5.0 MAT-file": "mat",
    b"MATLAB 7.3 MAT-file": "mat 7.3",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"\xd0\xcf\x11\xe0": "xls",
    b"SQLite format 3\x00": "sqlite",
    b"%PDF-": "pdf",
    **{b"\x80" + bytes([version]): "pickle" for version in range(2, 6)},
}
REFUSED = {
    "zip": "is a zip archive within another. Unpack it first.",
    "mat 7.3": "is a MATLAB 7.3 (HDF5) file. Save it again in MATLAB with save(..., '-v7').",
    "hdf5": "is an HDF5 file, which is not supported. Write the table as Parquet or CSV.",
    "xls": "is an old .xls or a password-protected Excel file. Save it as .xlsx or CSV.",
    "pdf": "is a PDF document, not a table. Export the table as CSV or Excel.",
    "pickle": "is a Python pickle, refused because reading one can run any code. Write Parquet.",
    "sqlite": "is an SQLite database. Read it with the address sqlite:///{name} and a query.",
    "html": "is a web page, not a table. It may be a login page: download the file again.",
}
NAMED = {
    **dict.fromkeys(PARQUET_NAMES, "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".geojson"), "json"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **{f".{kind}": kind for kind in ("npz", "npy", "mat")},
}
TEXT_FORMATS = ("csv", "json")


@dataclass(frozen=True)
class ReadResult:
    """A table, and notes for the user on how it was read."""

    table: pa.Table
    notes: list[str]


@dataclass(frozen=True)
class Batches:
    """A table in batches, readable once. All have one schema, except in `loose`, which may grow as `notes` may."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    notes: list[str] = field(default_factory=list)
    rows: int | None = None  # the total, known if the file was read whole
    loose: list[str] = field(default_factory=list)  # number columns that turned into text at their first text

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches


def read_table(source: str | os.PathLike[str], *, columns: Sequence[str] | None = None, **fields: Any) -> ReadResult:
    """Read a file, a Parquet folder, standard input ('-') or a database address with a `query`.

    `fields` are those of FileOptions. In a CSV, the columns in `texts` stay text, and so do codes such as 00501 unless
    `codes` is False. Label arrays in a file of arrays are dropped unless `labels` or `columns` name them: the model
    must not learn from them.
    """
    options = FileOptions(columns=columns, **fields)
    return _read(*_locate(source, options), options)


def open_batches(
    source: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    loose: Sequence[str] | None = None,
    **fields: Any,
) -> Batches:
    """As `read_table`, at most `batch_rows` rows at a time; CSV and Parquet are never held in memory as a whole.

    The columns of `schema` are required and read in its types, except ISO 8601 dates in a CSV, which stay text.
    `columns` (default: those of `schema`, else all) may name others: they keep their type, or are text in a CSV with
    a schema. A number column of a CSV turns into text at the first batch that has a text in it, and is listed in the
    result's `loose`. Pass that list to a second reading to have these columns as text from the start; a text in any
    other number column is then an error.
    """
    if columns is None and schema is not None:
        columns = schema.names
    options = FileOptions(columns=columns, **fields)
    origin, kind, notes = _locate(source, options)
    if kind == "csv":
        dialect, dialect_notes = sniff(origin, options)
        notes.extend(dialect_notes)
        chosen, mixed = check_columns(columns, dialect.names, origin.name), list[str]()
        dialect = replace(dialect, loose=tuple(loose or ()), columns=chosen, schema=schema)
        batches = csv_batches(origin, dialect, notes, mixed if loose is None else None)
        batches = conformed(batches, columns, None, batch_rows, origin.name)  # csv_batches has applied the schema
        return _started(batches, notes, origin.name, loose=mixed)
    if kind not in STREAMED:
        result = _read(origin, kind, notes, options)
        batches = conformed(result.table.to_batches(max_chunksize=batch_rows), None, schema, batch_rows, origin.name)
        return _started(batches, result.notes, origin.name, rows=result.table.num_rows)
    batches = parquet_batches(origin, columns, batch_rows, notes)
    return _started(conformed(batches, columns, schema, batch_rows, origin.name), notes, origin.name)


def csv_columns(source: str | os.PathLike[str], **fields: Any) -> list[str]:
    """The column names of a CSV; only its first rows are read."""
    options = FileOptions(**fields)
    origin, _, _ = _locate(source, options)
    return list(sniff(origin, options)[0].names)


def check_options_apply(source: str, kind: str, options: Mapping[str, Any]) -> None:
    """Raise for options that do not apply to the source's format."""
    for name, formats in APPLIES_TO.items():
        value = options.get(name)
        if value is not None and kind not in formats:
            label = kind if kind in ("database", "folder") else f"{kind} file"
            raise ReadError(f"{source}: is a {label}; {name}={value!r} does not apply to it. Leave it out.")


def format_of(origin: Origin) -> tuple[str, list[str]]:
    """The format, and a note if the file's extension suggests another."""
    if origin.is_folder:
        return "folder", []
    named = NAMED.get(origin.suffix)
    detected = _format_by_content(origin, named)
    if detected in REFUSED:
        raise ReadError(f"{origin.name}: {REFUSED[detected].format(name=origin.name)}")
    if detected == named or (detected in TEXT_FORMATS and named in TEXT_FORMATS):
        return detected, []
    if detected in TEXT_FORMATS and named is not None:
        problem = f"is named like a {named} file but does not begin like one"
        raise ReadError(f"{origin.name}: {problem}. Copy it again, or correct its extension.")
    return detected, [f"format: {detected}, detected from its content"]


def _format_by_content(origin: Origin, named: str | None) -> str:
    """The format by the first bytes; `named` is the format that the extension suggests."""
    head = origin.head(4096)
    if not head:
        raise NoRowsError(f"{origin.name}: is empty (0 bytes).")
    for mark, kind in SIGNATURES.items():
        if head.startswith(mark):
            return archive_format(zip_names(origin)) or "zip" if kind == "zip" else kind
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    if named == "mat":  # MATLAB 4 files have no signature
        return "mat"
    if named is not None:
        return named if named in TEXT_FORMATS else "csv"
    text = decode(head, origin.name)[0].lstrip()
    return "json" if text.startswith("{") or (text[:1] == "[" and text[1:].lstrip()[:1] == "{") else "csv"


def _locate(source: str | os.PathLike[str], options: FileOptions) -> tuple[Origin, str, list[str]]:
    name = without_password(os.fspath(source))
    if is_address(os.fspath(source)):
        check_options_apply(name.split("://")[0] + " database", "database", vars(options))
        return Origin(name, address=os.fspath(source)), "database", []
    if options.query is not None:
        raise ReadError(f"{name}: is a file. A query is only for databases (sqlite:///shop.db).")
    origin = find_origin(source, options.part)
    kind, notes = format_of(origin)
    check_options_apply(name, kind, vars(options) | ({"part": None} if origin.is_chosen else {}))
    member = f", its file {origin.member}" if origin.member else ""
    if origin.compression:
        notes.append(f"compression: {origin.compression}{member}")
    return origin, kind, notes


def _read(origin: Origin, kind: str, notes: list[str], options: FileOptions) -> ReadResult:
    columns = options.columns
    labels = {*options.labels, *(columns or ())}
    part = None if origin.is_chosen else options.part  # it named a file of the archive
    readers: dict[str, Callable[[], tuple[pa.Table, list[str]]]] = {
        "csv": lambda: read_csv_table(origin, *sniff(origin, options), columns),
        **dict.fromkeys(("parquet", "folder"), lambda: read_parquet(origin, columns)),
        "arrow": lambda: read_arrow(origin),
        "arrow stream": lambda: read_arrow(origin, is_stream=True),
        "database": lambda: read_sql(origin.address, options.query),
        "json": lambda: read_json(origin, options.encoding),
        "excel": lambda: read_excel(origin, part, options.header, options.skip_rows),
        **dict.fromkeys(("npz", "npy", "mat"), lambda: read_arrays(origin, kind, part, labels)),
    }
    table, read_notes = readers[kind]()
    table, changes = shaped(table, columns, origin.name)
    size = f"{counted(table.num_rows, 'row')}, {counted(table.num_columns, 'column')}"
    if not table.num_rows or not table.num_columns:
        raise NoRowsError(f"{origin.name}: holds no rows ({size}).")
    return ReadResult(table, [*notes, *read_notes, *changes, f"read: {size}"])


def _started(batches: Iterator[pa.RecordBatch], notes: list[str], source: str, **fields: Any) -> Batches:
    """The batches, the first of them already read: for its schema, and to raise errors at once."""
    first = next(batches, None)
    if first is None:
        raise NoRowsError(f"{source}: holds no rows.")
    return Batches(first.schema, chain([first], batches), notes, **fields)
