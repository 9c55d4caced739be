"""CSV through Arrow's reader, whole or in batches; a file that does not match its first rows is read again."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from addml import arrow
from addml.arrow import DAY_FIRST, MISSING_MARKERS, MONTH_FIRST, PER_DAY, NumberFormat, first_true
from addml.io.csv_dialect import CsvRow, Dialect, csv_rows
from addml.io.source import DAMAGE, LARGEST_BLOCK, SAMPLE_BYTES, Origin, ReadError
from addml.io.values import check_columns
from addml.text import counted, listed, shortened

STREAM_BLOCK_BYTES = 1 << 22
UTF8 = ("utf-8", "utf-8-sig")
NEXT_ENCODING = {"utf-8": "cp1252", "utf-8-sig": "cp1252", "cp1252": "latin-1"}  # Latin-1 accepts any byte
NOT_TEXT = ("int64", "double", "null")  # types that Arrow gives to columns without text
DATE_NAMES = {"iso": "year first", DAY_FIRST: DAY_FIRST, MONTH_FIRST: MONTH_FIRST}


def read_csv_table(
    origin: Origin, dialect: Dialect, notes: list[str], columns: Sequence[str] | None
) -> tuple[pa.Table, list[str]]:
    """The table, and the notes, extended by those that need all rows."""
    dialect = replace(dialect, columns=check_columns(columns, dialect.names, origin.name))
    while True:
        try:
            with origin.open() as stream:
                table = csv.read_csv(stream, *_options(dialect))
            _refuse_binary(table)
            break
        except (pa.ArrowInvalid, UnicodeDecodeError, *DAMAGE) as error:
            dialect = _retry_dialect(origin, dialect, error, notes)
    _check_last_row(origin, dialect, table)
    missing = {name: table[name].null_count for name in table.column_names if table[name].null_count}
    table = _parse_columns(table, dialect, notes)
    if missing:
        columns = listed([f"{name} {count:,}" for name, count in missing.items()], 8)
        cells = counted(sum(missing.values()), "cell")
        notes.append(f"missing values: {cells}, empty or marked (NA, NaN, null, n/a, None, ?, -): {columns}")
    return table, notes


def csv_batches(
    origin: Origin, dialect: Dialect, notes: list[str], mixed: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The table, a few megabytes at a time.

    Types come from the schema, and columns outside it are text; without a schema, the first batch decides. Dates stay
    text unless the schema has dates and the file does not write them in ISO 8601. A number column turns into text at
    the first batch that has a text in it, with a decimal point in its numbers, and is added to `mixed`. If `mixed` is
    None, a text in a number column is an error, except in the dialect's loose columns.
    """
    n_yielded = 0
    dialect = replace(dialect, block_bytes=max(dialect.block_bytes, STREAM_BLOCK_BYTES))
    while True:
        try:
            to_skip = n_yielded  # by an earlier attempt
            for batch in _stream(origin, dialect):
                new = batch.slice(min(to_skip, batch.num_rows))
                to_skip -= batch.num_rows - new.num_rows
                n_yielded += new.num_rows
                if new.num_rows:
                    yield new
            return
        except (pa.ArrowInvalid, UnicodeDecodeError, *DAMAGE) as error:
            conversion = CONVERSION.search(str(error))
            if mixed is not None and conversion is not None and conversion[2] in NOT_TEXT:
                mixed.append(dialect.names[int(conversion[1])])
                dialect = replace(dialect, loose=(*dialect.loose, mixed[-1]))
            else:
                dialect = _retry_dialect(origin, dialect, error, notes)


def _stream(origin: Origin, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    batch = None
    with origin.open() as stream, csv.open_csv(stream, *_options(dialect)) as reader:
        for batch in reader:
            _refuse_binary(batch)
            yield _parse_batch(batch, dialect)
    if batch is not None:
        _check_last_row(origin, dialect, batch)


def _options(dialect: Dialect) -> tuple[Any, ...]:
    read = csv.ReadOptions(
        column_names=list(dialect.names),
        skip_rows=dialect.skip_lines,
        block_size=dialect.block_bytes,
        encoding="utf8" if dialect.encoding in UTF8 else dialect.encoding,
    )
    parse = csv.ParseOptions(
        delimiter=dialect.format.delimiter,
        quote_char=dialect.format.quote or False,
        escape_char=dialect.format.escape or False,
        newlines_in_values=True,  # otherwise Arrow drops the rest of a block that ends inside quotes
        ignore_empty_lines=len(dialect.names) > 1,  # with one column, an empty line is a missing value
    )
    convert = csv.ConvertOptions(
        null_values=list(MISSING_MARKERS),
        strings_can_be_null=True,
        decimal_point=dialect.decimal,
        column_types=_column_types(dialect),
        include_columns=dialect.columns,
    )
    return read, parse, convert


def _column_types(dialect: Dialect) -> dict[str, pa.DataType]:
    """The types to read. Times are text at first: Arrow parses only ISO 8601, with a time zone in all rows or none."""
    raw = (*dialect.numbers, *dialect.dates, *dialect.loose)
    if dialect.schema is None:
        return dict.fromkeys((*dialect.texts, *raw), pa.string())
    types = dict.fromkeys(dialect.names, pa.string())
    for field in dialect.schema:
        if field.name not in raw and not pa.types.is_timestamp(field.type) and not pa.types.is_time(field.type):
            types[field.name] = field.type
    return types


def _retry_dialect(origin: Origin, dialect: Dialect, error: Exception, notes: list[str]) -> Dialect:
    message = str(error)
    if "straddling" in message and dialect.block_bytes < LARGEST_BLOCK and not unclosed_quote(origin, dialect):
        return replace(dialect, block_bytes=dialect.block_bytes * 8)
    is_undecodable = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in message
    is_certain = dialect.encoding in UTF8 and not origin.head(SAMPLE_BYTES).isascii()  # the sample is non-ASCII UTF-8
    if is_undecodable and dialect.encoding in NEXT_ENCODING and not (is_certain or dialect.encoding_is_given):
        encoding = NEXT_ENCODING[dialect.encoding]
        notes.append(f"encoding: not {dialect.encoding} throughout, so read as {encoding}")
        return replace(dialect, encoding=encoding)
    raise _explain(origin, dialect, error) from error


def _refuse_binary(table: pa.Table | pa.RecordBatch) -> None:
    """Raise for columns that are not UTF-8, which Arrow returns as binary."""
    if any(pa.types.is_binary(field.type) for field in table.schema):
        raise pa.ArrowInvalid("invalid UTF8 data")


def _check_last_row(origin: Origin, dialect: Dialect, table: pa.Table | pa.RecordBatch) -> None:
    """Raise for an unclosed quote, which puts line ends into the last row."""
    last_rows = table.slice(max(0, table.num_rows - 1)).to_pylist()
    cells = [cell for row in last_rows for cell in row.values()]
    if not any(isinstance(cell, str) and re.search(r"[\r\n]", cell) for cell in cells):
        return
    if (error := unclosed_quote(origin, dialect)) is not None:
        raise error


def _parse_columns(table: pa.Table, dialect: Dialect, notes: list[str]) -> pa.Table:
    """The table with its text columns of numbers or dates parsed; a column with any other text stays text."""
    for index, name in enumerate(table.column_names):
        if name not in dialect.numbers and name not in dialect.dates:
            continue
        texts, note = table[name].combine_chunks(), None
        if name in dialect.numbers:
            values, wrong = arrow.parse_numbers(texts, dialect.numbers[name])
            parsed = None if wrong.any() else pa.array(values, from_pandas=True)
        else:
            parsed, note = _parse_dates(texts, day_first=dialect.decimal == ",")
        if parsed is not None:
            table = table.set_column(index, name, parsed)
        if note or parsed is None:
            kind = "numbers" if name in dialect.numbers else "dates"
            notes.append(f"{kind} of {name}: {note or 'later rows hold other text'}")
    return table


def _parse_dates(column: pa.Array, day_first: bool) -> tuple[pa.Array | None, str | None]:
    """The dates of a text column and their format; None if a cell is not a date or has a time zone."""
    distinct = column.drop_null().value_counts()
    values, counts = distinct.field("values"), np.asarray(distinct.field("counts"))
    found = arrow.date_format(values, counts, day_first) if len(values) else None
    if found is None or found.share < 1 or found.form not in DATE_NAMES or arrow.date_zone(values, found.form):
        return None, None
    days = arrow.parse_dates(column, found.form, None)
    return _timestamps(days), DATE_NAMES[found.form] + (" (a guess)" if found.is_guess else "")


def _timestamps(days: np.ndarray) -> pa.Array:
    return pa.array(np.rint(days * PER_DAY["us"]).astype("datetime64[us]"))


def _parse_batch(batch: pa.RecordBatch, dialect: Dialect) -> pa.RecordBatch:
    """The batch with its text columns of numbers or dates parsed, unless they are text in the schema."""
    schema = dialect.schema
    for name in dict.fromkeys((*dialect.numbers, *dialect.loose, *dialect.dates)):
        kind = pa.string() if name in dialect.dates else pa.float64()
        if schema is not None:
            kind = schema.field(name).type if name in schema.names else pa.string()
        if name not in batch.schema.names or pa.types.is_string(kind):
            continue
        number_format = dialect.numbers.get(name, NumberFormat(decimal=dialect.decimal))
        texts, position = batch[name], dialect.names.index(name)
        if name in dialect.loose:
            texts = pc.utf8_trim_whitespace(texts)
            values = pc.coalesce(arrow.plain_digits(texts, number_format), texts)  # numbers with a decimal point
        elif name in dialect.dates:
            days = arrow.parse_dates(texts, dialect.dates[name], None)
            _check_parsed(np.isnan(days) & ~np.asarray(texts.is_null()), texts, position, "timestamp")
            values = _timestamps(days)
        else:
            numbers, wrong = arrow.parse_numbers(texts, number_format)
            _check_parsed(wrong, texts, position, "double")
            values = pa.array(numbers, from_pandas=True).cast(kind)
        batch = batch.set_column(batch.schema.get_field_index(name), name, values)
    return batch


def _check_parsed(wrong: np.ndarray, texts: pa.Array, column: int, kind: str) -> None:
    """Raise the error that Arrow would raise for the first wrong text; `_explain` adds the line."""
    if (row := first_true(wrong)) is not None:
        raise pa.ArrowInvalid(f"CSV column #{column}: conversion error to {kind}: invalid value '{texts[row]}'")


CONVERSION = re.compile(r"CSV column #(\d+): .*?conversion error to (\w+)[^:]*: invalid value '(.*)'", re.DOTALL)
TYPE_NAMES = {"double": "a number", "timestamp": "a date", "bool": "true or false"}
SENTINEL = "a line after the last"


def _explain(origin: Origin, dialect: Dialect, error: Exception) -> ReadError:
    """The error to raise instead of Arrow's, with a remedy and the line, which Python's slower reader finds."""
    if isinstance(error, DAMAGE):
        return origin.unreadable(error)
    try:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            return _undecodable(origin, dialect)
        if (unclosed := unclosed_quote(origin, dialect)) is not None:
            return unclosed
        if (conversion := CONVERSION.search(str(error))) is not None:
            return _unconvertible(origin, dialect, conversion)
        return _ragged(origin, dialect) or ReadError(f"{origin.name}: {error}")
    except DAMAGE as damage:
        return origin.unreadable(damage)


def unclosed_quote(origin: Origin, dialect: Dialect) -> ReadError | None:
    """The error for a quote that is never closed, or None."""
    last = deque(_body(origin, dialect, extra_lines=[SENTINEL]), maxlen=1)[0]
    if last.cells == [SENTINEL]:
        return None
    return ReadError(
        f"{origin.name}, line {last.first_line}: a quote ({dialect.format.quote}) is opened and "
        "never closed, so the rest of the file would be one cell. Close it, or double it if it is part of the text."
    )


def _ragged(origin: Origin, dialect: Dialect) -> ReadError | None:
    width = len(dialect.names)
    bad = next((row for row in _body(origin, dialect) if len(row.cells) != width), None)
    if bad is None:
        return None
    amount = "too few" if len(bad.cells) < width else "too many"
    remedy = ", or quote the cell that holds the delimiter" if len(bad.cells) > width else ""
    if width == 1:
        remedy = ", or remove the lines above the table"
    return ReadError(
        f"{origin.name}, line {bad.first_line}: {amount} fields, {len(bad.cells)} where {width} are expected: "
        f"{shortened(dialect.format.delimiter.join(bad.cells), 80)!r}. Correct the line{remedy}."
    )


def _unconvertible(origin: Origin, dialect: Dialect, conversion: re.Match[str]) -> ReadError:
    column, kind, value = int(conversion[1]), conversion[2], conversion[3]
    rows = (row for row in _body(origin, dialect) if column < len(row.cells))
    bad = next((row for row in rows if row.cells[column].strip() == value.strip()), None)
    line = f", line {bad.first_line}" if bad else ""
    return ReadError(
        f"{origin.name}{line}: column {dialect.names[column]!r} holds {value!r} where "
        f"{TYPE_NAMES.get(kind, kind)} is expected. Correct the value, or leave the cell empty if it is unknown."
    )


def _undecodable(origin: Origin, dialect: Dialect) -> ReadError:
    with io.BufferedReader(origin.open()) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode(dialect.encoding)
            except UnicodeDecodeError as error:
                return ReadError(
                    f"{origin.name}, line {number}: byte {line[error.start]:#04x} is not {dialect.encoding}. "
                    "Set the file's encoding, such as cp1252 or latin-1."
                )
    return ReadError(f"{origin.name}: is not {dialect.encoding} throughout. Set the file's encoding.")


def _body(origin: Origin, dialect: Dialect, extra_lines: Iterable[str] = ()) -> Iterator[CsvRow]:
    with origin.open_text(dialect.encoding, newline="") as stream:
        lines = islice(stream, dialect.skip_lines, None)
        for row in csv_rows(chain(lines, extra_lines), dialect.format):
            yield row._replace(first_line=row.first_line + dialect.skip_lines)
