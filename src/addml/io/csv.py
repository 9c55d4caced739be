"""Delimited text through Arrow's reader, whole or in batches, read again where the first rows misled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from addml import text_formats
from addml.arrow import PER_DAY, DistinctTexts, first_of
from addml.compute import on_threads
from addml.io.csv_dialect import SAMPLE_BYTES, Dialect, Writing
from addml.io.csv_errors import CONVERSION, explained, unclosed_quote
from addml.io.source import Origin
from addml.io.values import check_columns
from addml.text import counted, listed
from addml.text_formats import DAY_FIRST, MISSING_MARKERS, MONTH_FIRST, NumberFormat, date_zone

LARGEST_BLOCK = 1 << 30
STREAM_BLOCK_BYTES = 1 << 22
MOST_THREADS = 4  # parse blocks: rows would come faster than they are scored
UTF8 = ("utf-8", "utf-8-sig")
ONE_BYTE_LINE_ENDS = (*UTF8, "cp1252", "latin-1")  # and quotes, which no other character holds
NEXT_ENCODING = {"utf-8": "cp1252", "utf-8-sig": "cp1252", "cp1252": "latin-1"}  # the last takes any byte
NOT_TEXT = ("int64", "double", "null")  # what Arrow takes a column for that holds no text
DATE_NAMES = {"iso": "year first", DAY_FIRST: DAY_FIRST, MONTH_FIRST: MONTH_FIRST}
LINE_ENDS = (ord("\n"), ord("\r"))


class UnclearRowsError(ValueError):
    """Counting quotes does not tell where rows end."""


def read_csv_table(
    origin: Origin, dialect: Dialect, notes: list[str], columns: Sequence[str] | None
) -> tuple[pa.Table, list[str]]:
    """The table, and the notes with those on what was found out only while reading it."""
    dialect = replace(dialect, columns=check_columns(columns, dialect.names, origin.name))
    while True:
        try:
            with origin.open() as stream:
                table = csv.read_csv(stream, *_options(dialect))
            _refuse_binary(table)
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            dialect = _amended(origin, dialect, error, notes)
        else:
            _check_last_row(origin, dialect, table)
            return _with_values(table, dialect, notes), [*notes, *_missing_note(table)]


def csv_batches(
    origin: Origin, dialect: Dialect, notes: list[str], found: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The table a few megabytes at a time, columns outside the schema as text; typed by the first batch without one.

    Dates come as text, unless the schema has dates where the file has another form than ISO 8601. Columns of numbers
    are text from the batch on that holds the first text among them, with a decimal point whatever the file has: they
    are added to `found`. Without that list a text among numbers is an error, except in columns known to be loose.
    """
    done = 0
    dialect = replace(dialect, block_bytes=max(dialect.block_bytes, STREAM_BLOCK_BYTES))
    is_plain = len(dialect.names) > 1 and dialect.encoding in ONE_BYTE_LINE_ENDS
    in_blocks = dialect.schema is not None and is_plain and _parsing_threads() > 1
    while True:
        read = _in_blocks if in_blocks else _stream
        try:
            for batch in _without_first(read(origin, dialect), done):
                done += batch.num_rows
                yield batch
            return
        except UnclearRowsError:
            in_blocks = False
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            slip = CONVERSION.search(str(error))
            if found is not None and slip is not None and slip[2] in NOT_TEXT:
                found.append(dialect.names[int(slip[1])])
                dialect = replace(dialect, loose=(*dialect.loose, found[-1]))
            else:
                dialect = _amended(origin, dialect, error, notes)


def _stream(origin: Origin, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    with origin.open() as stream, csv.open_csv(stream, *_options(dialect)) as reader:
        batch = None
        for batch in reader:
            _refuse_binary(batch)
            yield _in_schema(batch, dialect)
    if batch is not None:
        _check_last_row(origin, dialect, batch)


def _in_blocks(origin: Origin, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """As `_stream`, on several threads, where the types of all columns are known and quotes stand around cells."""

    def parsed(item: tuple[int, bytes]) -> list[pa.RecordBatch]:
        place, block = item
        read, parse, convert = _options(dialect)
        read.skip_rows = dialect.skip_lines if place == 0 else 0
        read.use_threads, read.block_size = False, len(block) + 1
        batches = csv.read_csv(pa.BufferReader(block), read, parse, convert).to_batches()
        return [_in_schema(batch, dialect) for batch in batches]

    with origin.open() as stream:
        blocks = row_blocks(stream, dialect.block_bytes, dialect.writing)
        filled = ((place, block) for place, block in enumerate(blocks) if block.lstrip(b"\r\n"))
        for batches in on_threads(parsed, filled, _parsing_threads()):
            yield from batches


def _parsing_threads() -> int:
    """How many threads parse blocks: on two cores one, as the other works on the rows."""
    return min(int(pa.cpu_count()) // 2, MOST_THREADS)


def _without_first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches without their first rows, which an earlier attempt has given already."""
    for batch in batches:
        left = batch.slice(min(rows, batch.num_rows))
        rows -= batch.num_rows - left.num_rows
        if left.num_rows:
            yield left


def _options(dialect: Dialect) -> tuple[Any, ...]:
    writing = dialect.writing
    read = csv.ReadOptions(
        column_names=list(dialect.names),
        skip_rows=dialect.skip_lines,
        block_size=dialect.block_bytes,
        encoding="utf8" if dialect.encoding in UTF8 else dialect.encoding,
    )
    parse = csv.ParseOptions(
        delimiter=writing.delimiter,
        quote_char=writing.quote or False,
        escape_char=writing.escape or False,
        newlines_in_values=True,  # or Arrow drops the rest of a block that ends within quotes, and does not say so
        ignore_empty_lines=len(dialect.names) > 1,  # in a single column an empty line is a missing value
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
    """Moments are read as text: Arrow takes no other form than ISO 8601, and none with zones beside others without."""
    raw, schema = (*dialect.numbers, *dialect.dates, *dialect.loose), dialect.schema
    text = dict.fromkeys((*dialect.texts, *raw) if schema is None else dialect.names, pa.string())
    known = [] if schema is None else [one for one in schema if one.name not in raw]
    moments = (pa.types.is_timestamp, pa.types.is_time)
    return text | {one.name: one.type for one in known if not any(is_moment(one.type) for is_moment in moments)}


def _amended(origin: Origin, dialect: Dialect, error: Exception, notes: list[str]) -> Dialect:
    """The dialect with which to try again, or the error to raise."""
    text = str(error)
    if "straddling" in text and dialect.block_bytes < LARGEST_BLOCK and not unclosed_quote(origin, dialect):
        return replace(dialect, block_bytes=dialect.block_bytes * 8)
    undecoded = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text
    is_certain = dialect.encoding in UTF8 and not origin.head(SAMPLE_BYTES).isascii()  # letters or a mark say so
    if undecoded and dialect.encoding in NEXT_ENCODING and not (is_certain or dialect.encoding_is_given):
        encoding = NEXT_ENCODING[dialect.encoding]
        notes.append(f"encoding: not {dialect.encoding} throughout, so read as {encoding}")
        return replace(dialect, encoding=encoding)
    raise explained(origin, dialect, error) from error


def _refuse_binary(table: pa.Table | pa.RecordBatch) -> None:
    """Arrow gives a column that is not UTF-8 as binary instead of failing."""
    if any(pa.types.is_binary(field.type) for field in table.schema):
        raise pa.ArrowInvalid("invalid UTF8 data")


def _check_last_row(origin: Origin, dialect: Dialect, table: pa.Table | pa.RecordBatch) -> None:
    """A line end in the last row may be a quote that was never closed."""
    last = table.slice(max(0, table.num_rows - 1)).to_pylist()
    texts = [value for row in last for value in row.values() if isinstance(value, str)]
    if any("\n" in text or "\r" in text for text in texts) and (error := unclosed_quote(origin, dialect)) is not None:
        raise error


# Values that Arrow takes for text ---------------------------------------------------------------------------


def _with_values(table: pa.Table, dialect: Dialect, notes: list[str]) -> pa.Table:
    """The table with its numbers and dates, each column decided by all its values."""
    for place, name in enumerate(table.column_names):
        if name in dialect.numbers:
            values, wrong = text_formats.parse_numbers(table[name].combine_chunks(), dialect.numbers[name])
            found, kind, note = None if wrong.any() else pa.array(values, from_pandas=True), "numbers", None
        elif name in dialect.dates:
            (found, note), kind = _dates(table[name], day_first=dialect.decimal == ","), "dates"
        else:
            continue
        if found is None:
            note = "later rows hold other text"
        else:
            table = table.set_column(place, name, found)
        notes.extend([f"{kind} of {name}: {note}"] if note else [])
    return table


def _dates(column: pa.ChunkedArray, day_first: bool) -> tuple[pa.Array | None, str | None]:
    """The dates of a text column and how they are written; None when some cell is none, or has a time zone."""
    texts = DistinctTexts.of(column)
    found = text_formats.date_format(texts.values, texts.counts, day_first) if len(texts.values) else None
    if found is None or found.share < 1 or found.form not in DATE_NAMES or date_zone(texts.values, found.form):
        return None, None
    days = text_formats.parse_dates(texts.values, found.form, None)
    return _timestamps(texts.in_rows(days)), DATE_NAMES[found.form] + (" (a guess)" if found.is_guess else "")


def _timestamps(days: np.ndarray) -> pa.Array:
    missing = np.isnan(days)
    micros = np.rint(np.where(missing, 0, days) * PER_DAY["us"]).astype(np.int64)
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us"))


def _in_schema(batch: pa.RecordBatch, dialect: Dialect) -> pa.RecordBatch:
    """The batch with the numbers and dates that Arrow takes for text, unless the schema has them as text."""
    schema = dialect.schema
    for name in dict.fromkeys((*dialect.numbers, *dialect.loose, *dialect.dates)):
        kind = pa.string() if name in dialect.dates else pa.float64()
        if schema is not None:
            kind = schema.field(name).type if name in schema.names else pa.string()
        if name not in batch.schema.names or pa.types.is_string(kind):
            continue
        written, texts = dialect.numbers.get(name, NumberFormat(decimal=dialect.decimal)), batch[name]
        if name in dialect.loose:
            values = _with_points(texts, written)
        elif name in dialect.dates:
            days = text_formats.parse_dates(texts, dialect.dates[name], None)
            _refuse_others(np.isnan(days) & ~np.asarray(texts.is_null()), texts, dialect.names.index(name), "timestamp")
            values = _timestamps(days)
        else:
            numbers, wrong = text_formats.parse_numbers(texts, written)
            _refuse_others(wrong, texts, dialect.names.index(name), "double")
            values = pa.array(numbers, from_pandas=True).cast(kind)
        batch = batch.set_column(batch.schema.get_field_index(name), name, values)
    return batch


def _with_points(column: pa.Array, written: NumberFormat) -> pa.Array:
    """The texts of a column, its numbers written with a decimal point and nothing between thousands."""
    text = pc.utf8_trim_whitespace(column)
    is_number = text_formats.are_numbers(text, written)
    return pc.if_else(is_number, text_formats.plain_digits(pc.if_else(is_number, text, None), written), text)


def _refuse_others(wrong: np.ndarray, texts: pa.Array, column: int, kind: str) -> None:
    """An error in the words of Arrow, from which the one with the line is made."""
    if (row := first_of(wrong)) is not None:
        raise pa.ArrowInvalid(f"CSV column #{column}: conversion error to {kind}: invalid value '{texts[row]}'")


def _missing_note(table: pa.Table) -> list[str]:
    missing = {name: table[name].null_count for name in table.column_names if table[name].null_count}
    columns = listed([f"{name} {count:,}" for name, count in missing.items()], 8)
    cells = f"{counted(sum(missing.values()), 'cell')}, empty or marked as missing (NA, NaN, null, n/a, None, ?, -)"
    return [f"missing values: {cells}: {columns}"] if missing else []


# Blocks of whole rows, for several threads to parse at once ---------------------------------------------------


def row_blocks(stream: pa.NativeFile, size: int, writing: Writing) -> Iterator[bytes]:
    """Blocks of whole rows, of about `size` bytes; UnclearRowsError where rows are longer, or quoted in another way."""
    if writing.escape is not None:
        raise UnclearRowsError
    rest = b""
    while read := stream.read(size):
        block = rest + read
        end = _rows_end(block, writing)
        if end:
            yield block[:end]
        elif len(block) > size:
            raise UnclearRowsError
        rest = block[end:]
    if rest:  # a last row without a line end
        if _rows_end(rest + b"\n", writing) <= len(rest):
            raise UnclearRowsError
        yield rest


def _rows_end(block: bytes, writing: Writing) -> int:
    """How many bytes of a block, which begins with a row, are whole rows."""
    data, quote = np.frombuffer(block, np.uint8), (writing.quote or "").encode()
    quotes = np.flatnonzero(data == ord(quote)) if quote and quote in block else np.empty(0, np.int64)
    before, end = 0, block.rfind(b"\n")
    while end >= 0 and (before := int(np.searchsorted(quotes, end))) % 2:  # it is within the quotes of a cell
        end = block.rfind(b"\n", 0, int(quotes[before - 1]))
    if before and end >= 0:  # every first quote begins a cell and every second one ends it; in a cell it is doubled
        edges = np.zeros(256, bool)
        edges[[ord(writing.delimiter), ord(quote), *LINE_ENDS]] = True
        opening, closing = quotes[:before:2], quotes[1:before:2]
        begun = edges[data[opening - 1]] | (opening == 0)
        if not (begun.all() and edges[data[closing + 1]].all()):
            raise UnclearRowsError
    return end + 1
