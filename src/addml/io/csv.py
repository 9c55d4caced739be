"""Which line of a delimited text is wrong: read again slowly, after Arrow's reader has failed."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.compute import on_threads
from addml.io.csv_dialect import GAPS, CsvRow, Dialect, NumberStyle, Writing, csv_rows
from addml.io.source import Origin, ReadError
from addml.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

CONVERSION = re.compile(
    r"CSV column #(\d+): .*?conversion error to (\w+)[^:]*: (invalid value|expected (?:a|no) zone offset in) '(.*)'",
    re.DOTALL,
)
KINDS = {"double": "a number", "timestamp": "a date", "time32": "a time of the day", "bool": "true or false"}
CORRECT = "Correct the value, or leave the cell empty if it is not known."
EXPECTED = {  # where something else than a value of the kind is wrong: what is expected, and the remedy
    "expected a zone offset in": ("a time zone", "Write one behind every time, as in 12:00Z or 12:00+02:00."),
    "expected no zone offset in": ("no time zone", "Write the times without theirs."),
}
SENTINEL = "a line after the last"


def explained(origin: Origin, dialect: Dialect, error: Exception) -> ReadError:
    """The error to raise instead of Arrow's, with file, line and remedy."""
    if isinstance(error, OSError):
        return origin.unreadable(error)
    try:
        return _find_line(origin, dialect, error)
    except OSError as damage:
        return origin.unreadable(damage)


def unclosed_quote(origin: Origin, dialect: Dialect) -> ReadError | None:
    """The error for a quote that is opened and never closed, which makes one cell of all the rest."""
    with _text(origin, dialect) as stream:
        last = deque(csv_rows(chain(stream, [SENTINEL]), dialect.writing), maxlen=1)[0]
    if last.cells == [SENTINEL]:
        return None
    return ReadError(
        f"{origin.name}, line {last.first}: a quote ({dialect.writing.quote}) is opened and never closed, so "
        "that all lines after it would be one cell. Close the quote, or double it if it belongs to the text."
    )


def line_of(origin: Origin, dialect: Dialect, row: int) -> int:
    """The line on which a row, counted from 1, begins."""
    if len(dialect.names) == 1:  # in which an empty line is a row
        return dialect.skip_lines + row
    return next(islice(_body(origin, dialect), row - 1, None)).first


def _find_line(origin: Origin, dialect: Dialect, error: Exception) -> ReadError:
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
        return _undecodable(origin, dialect)
    if (unclosed := unclosed_quote(origin, dialect)) is not None:
        return unclosed
    if (conversion := CONVERSION.search(str(error))) is not None:
        return _unconvertible(origin, dialect, conversion)
    return _ragged(origin, dialect) or ReadError(f"{origin.name}: {error}")


def _ragged(origin: Origin, dialect: Dialect) -> ReadError | None:
    width = len(dialect.names)
    bad = next((row for row in _body(origin, dialect) if len(row.cells) != width), None)
    if bad is None:
        return None
    amount = "too few" if len(bad.cells) < width else "too many"
    quoting = ", or quote the cell that holds the delimiter" if len(bad.cells) > width else ""
    if width == 1:
        quoting = ", or take out what stands above the table"
    return ReadError(
        f"{origin.name}, line {bad.first}: {amount} fields, {len(bad.cells)} where {width} are expected: "
        f"{_shown(dialect.writing.delimiter.join(bad.cells))}. Correct the line{quoting}."
    )


def _unconvertible(origin: Origin, dialect: Dialect, conversion: re.Match[str]) -> ReadError:
    column, kind, problem, value = int(conversion[1]), conversion[2], conversion[3], conversion[4]
    expected, remedy = EXPECTED.get(problem, (KINDS.get(kind, kind), CORRECT))
    rows = (row for row in _body(origin, dialect) if column < len(row.cells))
    bad = next((row for row in rows if row.cells[column].strip() == value.strip()), None)
    place = f", line {bad.first}" if bad else ""
    return ReadError(
        f"{origin.name}{place}: column {dialect.names[column]!r} holds {value!r} where {expected} is expected. {remedy}"
    )


def _undecodable(origin: Origin, dialect: Dialect) -> ReadError:
    with io.BufferedReader(origin.open()) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode(dialect.encoding)
            except UnicodeDecodeError as error:
                return ReadError(
                    f"{origin.name}, line {number}: byte {line[error.start]:#04x} is not {dialect.encoding}. "
                    "Give the encoding that the file has, such as cp1252 or latin-1."
                )
    return ReadError(f"{origin.name}: is not {dialect.encoding} throughout. Give the encoding that it has.")


def _body(origin: Origin, dialect: Dialect) -> Iterator[CsvRow]:
    with _text(origin, dialect) as stream:
        yield from (row for row in csv_rows(stream, dialect.writing) if row.first > dialect.skip_lines)


def _text(origin: Origin, dialect: Dialect) -> io.TextIOWrapper:
    raw = io.BufferedReader(origin.open())
    return io.TextIOWrapper(raw, encoding=dialect.encoding, errors="replace", newline="")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


# A delimited text in blocks of whole rows, so that several threads can parse it at once.


LINE_ENDS = (ord("\n"), ord("\r"))


class UnclearRowsError(ValueError):
    """Where rows end cannot be told by counting quotes."""


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
    quotes = _places(block, writing.quote)
    before, end = 0, block.rfind(b"\n")
    while end >= 0 and (before := int(np.searchsorted(quotes, end))) % 2:  # it is within the quotes of a cell
        end = block.rfind(b"\n", 0, int(quotes[before - 1]))
    if end >= 0 and not _are_around_cells(block, quotes[:before], writing):
        raise UnclearRowsError
    return end + 1


def _places(block: bytes, quote: str | None) -> np.ndarray:
    if quote is None or quote.encode() not in block:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block, np.uint8) == ord(quote))


def _are_around_cells(block: bytes, quotes: np.ndarray, writing: Writing) -> bool:
    """Whether every first quote begins a cell and every second one ends it; in a cell a quote is doubled."""
    if not len(quotes):
        return True
    assert writing.quote is not None
    data = np.frombuffer(block, np.uint8)
    edges = np.zeros(256, bool)
    edges[[ord(writing.delimiter), ord(writing.quote), *LINE_ENDS]] = True
    opening, closing = quotes[::2], quotes[1::2]
    begun = edges[data[opening - 1]]
    begun[0] |= opening[0] == 0
    return bool(begun.all() and edges[data[closing + 1]].all())


# Delimited text through Arrow's reader, whole or in batches, read again where the first rows misled.


LARGEST_BLOCK = 1 << 30
STREAM_BLOCK_BYTES = 1 << 22
COUNTED_BYTES = 1 << 18  # what a core keeps at hand
MOST_THREADS = 4  # parse blocks: more rows than these find nobody scores
UTF8 = ("utf-8", "utf-8-sig")
ONE_BYTE_LINE_ENDS = (*UTF8, "cp1252", "latin-1")  # and quotes, which no other character holds
UNTEXTUAL = ("int64", "double", "null")  # what Arrow takes a column for that holds no text
NEXT_ENCODING = {"utf-8": "cp1252", "utf-8-sig": "cp1252", "cp1252": "latin-1"}  # the last takes any byte


def read_csv_table(origin: Origin, dialect: Dialect, columns: Sequence[str] | None) -> tuple[pa.Table, list[str]]:
    """The table, and what was found out only while reading it."""
    import pyarrow as pa
    from pyarrow import csv

    notes: list[str] = []
    if origin.compression or dialect.encoding not in UTF8:  # to count its lines would be to unpack it twice
        dialect = replace(dialect, newlines_in_cells=True)
    while True:
        try:
            with origin.open() as stream:
                table = csv.read_csv(stream, *_options(dialect, columns))
            _refuse_binary(table)
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            dialect = _amended(origin, dialect, error, notes)
            continue
        if not dialect.newlines_in_cells and _lost_rows(origin, dialect, table):
            dialect = replace(dialect, newlines_in_cells=True)
            continue
        _check_last_row(origin, dialect, table)
        return _with_numbers(table, dialect, notes), [*notes, *_gap_note(table)]


def csv_batches(
    origin: Origin,
    dialect: Dialect,
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    notes: list[str],
    found: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The table a few megabytes at a time, columns outside `schema` as text; typed by the first if None.

    Dates without the zones of the schema have none, and those that no type of Arrow's takes are text. So are numbers
    from the batch on that holds the first text among them, with a decimal point whatever the file has: such a column is
    added to `found`. Without that list a text among numbers is an error, but in columns that are known to be loose.
    """
    import pyarrow as pa

    done = 0
    block = max(dialect.block_bytes, STREAM_BLOCK_BYTES)
    dialect = replace(dialect, block_bytes=block, newlines_in_cells=True)  # which costs a stream nothing
    is_plain = len(dialect.names) > 1 and dialect.encoding in ONE_BYTE_LINE_ENDS
    in_blocks = schema is not None and is_plain and _parsing_threads() > 1
    while True:
        read = _in_blocks if in_blocks else _stream
        try:
            for batch in _without_first(read(origin, dialect, columns, schema), done):
                done += batch.num_rows
                yield batch
            return
        except UnclearRowsError:
            in_blocks = False
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError, TextAmongNumbersError) as error:
            name = _column_with_text(dialect, error)
            if found is not None and name is not None:
                found.append(name)
                dialect = replace(dialect, loose=(*dialect.loose, name))
            elif isinstance(error, TextAmongNumbersError):
                raise
            else:
                dialect = _amended(origin, dialect, error, notes)


class TextAmongNumbersError(ReadError):
    """A text in a column whose first rows are numbers."""

    def __init__(self, source: str, column: str) -> None:
        super().__init__(f"{source}: column {column!r} holds text where its first rows hold numbers.")
        self.column = column


def _column_with_text(dialect: Dialect, error: Exception) -> str | None:
    """The column that was taken for one of numbers before a text was met, if that is what is wrong."""
    if isinstance(error, TextAmongNumbersError):
        return error.column
    found = CONVERSION.search(str(error))
    return dialect.names[int(found[1])] if found is not None and found[2] in UNTEXTUAL else None


def _stream(
    origin: Origin, dialect: Dialect, columns: Sequence[str] | None, schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    with origin.open() as stream, csv.open_csv(stream, *_options(dialect, columns, schema)) as reader:
        batch = None
        for batch in reader:
            _refuse_binary(batch)
            yield _in_schema(batch, dialect, schema, origin.name)
    if batch is not None:
        _check_last_row(origin, dialect, batch)


def _in_blocks(
    origin: Origin, dialect: Dialect, columns: Sequence[str] | None, schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    """As `_stream`, on several threads, where the types of all columns are known and quotes stand around cells."""
    import pyarrow as pa
    from pyarrow import csv

    def parsed(item: tuple[int, bytes]) -> list[pa.RecordBatch]:
        place, block = item
        read, parse, convert = _options(dialect, columns, schema)
        read.skip_rows = dialect.skip_lines if place == 0 else 0
        read.use_threads, read.block_size = False, len(block) + 1
        batches = csv.read_csv(pa.BufferReader(block), read, parse, convert).to_batches()
        return [_in_schema(batch, dialect, schema, origin.name) for batch in batches]

    with origin.open() as stream:
        blocks = row_blocks(stream, dialect.block_bytes, dialect.writing)
        filled = ((place, block) for place, block in enumerate(blocks) if block.lstrip(b"\r\n"))
        for batches in on_threads(parsed, filled, _parsing_threads()):
            yield from batches


def _parsing_threads() -> int:
    """How many threads parse blocks: on two cores the one of a stream does, as the other has the rows to work on."""
    import pyarrow as pa

    return min(int(pa.cpu_count()) // 2, MOST_THREADS)


def _without_first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches without their first rows, which an earlier attempt has already given."""
    for batch in batches:
        left = batch.slice(min(rows, batch.num_rows))
        rows -= batch.num_rows - left.num_rows
        if left.num_rows:
            yield left


def _options(dialect: Dialect, columns: Sequence[str] | None, schema: pa.Schema | None = None) -> tuple[Any, ...]:
    """Arrow's read, parse and convert options."""
    from pyarrow import csv

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
        newlines_in_values=dialect.newlines_in_cells,
        ignore_empty_lines=len(dialect.names) > 1,  # in a single column an empty line is a gap
    )
    convert = csv.ConvertOptions(
        null_values=list(GAPS),
        strings_can_be_null=True,
        decimal_point=dialect.decimal,
        column_types=_column_types(dialect, schema),
        include_columns=list(columns) if columns is not None else None,
        timestamp_parsers=[csv.ISO8601, *dialect.date_formats] if dialect.date_formats else None,
    )
    return read, parse, convert


def _column_types(dialect: Dialect, schema: pa.Schema | None) -> dict[str, pa.DataType]:
    import pyarrow as pa

    raw = (*dialect.number_styles, *dialect.loose)
    text = dict.fromkeys((*dialect.texts, *raw) if schema is None else dialect.names, pa.string())
    if schema is None:
        return text
    known = [field for field in schema if field.name not in raw]
    return text | {field.name: _as_written(field, dialect) for field in known}


def _as_written(field: pa.Field, dialect: Dialect) -> pa.DataType:
    """The type in which Arrow takes a column: one with a zone takes dates with zones alone, and one without none."""
    import pyarrow as pa

    kind = field.type
    if not pa.types.is_timestamp(kind) or field.name not in dialect.zones:
        return kind
    zoned = dialect.zones[field.name]
    if zoned is None or (zoned and kind.tz is None):
        return pa.string()
    return kind if zoned else pa.timestamp(kind.unit)


def _amended(origin: Origin, dialect: Dialect, error: Exception, notes: list[str]) -> Dialect:
    """The dialect with which to try again, or the error in words."""
    text = str(error)
    if ("out of sync" in text or "CSV parse error" in text) and not dialect.newlines_in_cells:
        return replace(dialect, newlines_in_cells=True)
    if "straddling" in text and dialect.block_bytes < LARGEST_BLOCK and not unclosed_quote(origin, dialect):
        return replace(dialect, block_bytes=dialect.block_bytes * 8)
    undecoded = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text
    if undecoded and dialect.encoding in NEXT_ENCODING and not dialect.encoding_is_given:
        encoding = NEXT_ENCODING[dialect.encoding]
        notes.append(f"encoding: not {dialect.encoding} throughout, so read as {encoding}")
        return replace(dialect, encoding=encoding)
    raise explained(origin, dialect, error) from error


def _refuse_binary(table: pa.Table | pa.RecordBatch) -> None:
    """Arrow gives a column that is not UTF-8 as binary instead of failing."""
    import pyarrow as pa

    if any(pa.types.is_binary(field.type) for field in table.schema):
        raise pa.ArrowInvalid("invalid UTF8 data")


def _lost_rows(origin: Origin, dialect: Dialect, table: pa.Table) -> bool:
    """Whether rows may be lost: Arrow drops the rest of a block that ends within quotes, and does not say so."""
    if dialect.writing.quote is None:
        return False
    size, lines, is_quoted = _count_lines(origin, ord(dialect.writing.quote))
    return size > dialect.block_bytes and is_quoted and table.num_rows != lines - dialect.skip_lines


def _count_lines(origin: Origin, quote: int) -> tuple[int, int, bool]:
    """The number of bytes and of lines, and whether there is any quote."""
    import numpy as np

    size = lines = 0
    is_quoted, ended = False, True
    with origin.open() as stream:
        while (block := np.frombuffer(stream.read_buffer(COUNTED_BYTES), np.uint8)).size:
            size += block.size
            lines += int(np.count_nonzero(block == ord("\n")))
            is_quoted = is_quoted or bool((block == quote).any())
            ended = bool(block[-1] == ord("\n"))
    return size, lines + (not ended), is_quoted


def _check_last_row(origin: Origin, dialect: Dialect, table: pa.Table | pa.RecordBatch) -> None:
    """A line end in the last row may be a quote that was never closed."""
    last = table.slice(max(0, table.num_rows - 1)).to_pylist()
    texts = [value for row in last for value in row.values() if isinstance(value, str)]
    if any("\n" in text or "\r" in text for text in texts):
        error = unclosed_quote(origin, dialect)
        if error is not None:
            raise error


def _with_numbers(table: pa.Table, dialect: Dialect, notes: list[str]) -> pa.Table:
    """The table with the numbers that are written in another way than Arrow reads."""
    for name, style in dialect.number_styles.items():
        if name not in table.column_names:
            continue
        numbers = _numbers(table[name], style)
        if numbers is None:
            notes.append(f"numbers of {name}: later rows hold other text")
        else:
            table = table.set_column(table.column_names.index(name), name, numbers)
    return table


def _in_schema(batch: pa.RecordBatch, dialect: Dialect, schema: pa.Schema | None, source: str) -> pa.RecordBatch:
    """The batch with the numbers that are written in another way, unless the schema has them as text."""
    import pyarrow as pa

    plain = NumberStyle("", dialect.decimal)
    for name in dict.fromkeys((*dialect.number_styles, *dialect.loose)):
        kind = schema.field(name).type if schema is not None and name in schema.names else pa.string()
        kind = pa.float64() if schema is None else kind
        if name not in batch.schema.names or pa.types.is_string(kind):
            continue
        style, at = dialect.number_styles.get(name, plain), batch.schema.get_field_index(name)
        if name in dialect.loose:
            batch = batch.set_column(at, name, _with_points(batch[name], style))
        elif (numbers := _numbers(batch[name], style)) is not None:
            batch = batch.set_column(at, name, numbers.cast(kind))
        else:
            raise TextAmongNumbersError(source, name)
    return batch


def _with_points(column: pa.Array, style: NumberStyle) -> pa.Array:
    """The texts of a column, its numbers written with a decimal point and nothing between thousands."""
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    digits = pc.replace_substring(text, style.thousands, "") if style.thousands else text
    bare = rf"|^[+-]?{re.escape(style.decimal)}\d+([eE][+-]?\d+)?$"  # ,5 without a digit before it
    is_number = pc.match_substring_regex(text, style.pattern + bare)
    return pc.if_else(is_number, pc.replace_substring(digits, style.decimal, "."), text)


def _numbers(column: pa.ChunkedArray | pa.Array, style: NumberStyle) -> pa.ChunkedArray | pa.Array | None:
    """The numbers of a text column, or None when some cell is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    if pc.all(pc.match_substring_regex(text, style.pattern)).as_py() is False:
        return None
    text = pc.utf8_ltrim(text, characters="+")
    if style.thousands:
        text = pc.replace_substring(text, style.thousands, "")
    return pc.replace_substring(text, style.decimal, ".").cast(pa.float64())


def _gap_note(table: pa.Table) -> list[str]:
    gaps = {name: table[name].null_count for name in table.column_names if table[name].null_count}
    if not gaps:
        return []
    listed = ", ".join(f"{name} {count:,}" for name, count in list(gaps.items())[:8])
    more = f" and {counted(len(gaps) - 8, 'more column')}" if len(gaps) > 8 else ""
    return [
        f"gaps: {counted(sum(gaps.values()), 'cell')}, empty or marked as missing "
        f"(NA, NaN, null, n/a, None, ?, -): {listed}{more}"
    ]
