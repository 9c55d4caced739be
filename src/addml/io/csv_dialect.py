"""The dialect of a CSV file, detected from its first rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from addml import arrow
from addml.arrow import DAY_FIRST, MONTH_FIRST, NumberFormat
from addml.io.source import LARGEST_BLOCK, SAMPLE_BYTES, FileOptions, NoRowsError, Origin, ReadError, decode
from addml.io.values import (
    AGREEMENT,
    DATE_LIKE,
    ISO_DATE,
    MOST_ABOVE,
    filled_cells,
    has_header,
    numbered_names,
    table_start,
    unique_names,
    usual_width,
)
from addml.text import counted, listed

SAMPLE_LIMIT = 1 << 26  # for files so wide that a smaller sample holds no three lines
SAMPLE_ROWS = 200
FORMAT_ROWS = 60
BLOCK_BYTES = 1 << 21
DELIMITERS = ",;\t|"
NO_DELIMITER = "\x1f"  # never occurs in text, so a line is one cell
DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space", NO_DELIMITER: "none"}
SEPARATOR_LINE = re.compile(r"sep=(.)(\r\n|\r|\n)", re.IGNORECASE)  # Excel writes and reads it
EDGES = r"(^|[,;\t|\r\n]){}(?=[,;\t|\r\n]|$)"
SINGLE_QUOTED = re.compile(EDGES.format(r"'(?:[^'\r\n]|'')*'"))
DOUBLE_QUOTED = re.compile(EDGES.format(r'"(?:[^"\\]|""|\\.)*"'), re.DOTALL)

PLAIN_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
POINT_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
EITHER_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # 1,234 may be 1.234 or 1234
HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")  # Arrow reads these as integers, and only these
ZONED_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T].*(?:Z|[+-]\d{2}(?::?\d{2})?)")


@dataclass(frozen=True)
class CsvFormat:
    """How cells are delimited and quoted."""

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None


class CsvRow(NamedTuple):
    """A row and the numbers of its first and last line."""

    cells: list[str]
    first_line: int
    last_line: int


@dataclass(frozen=True)
class Dialect:
    format: CsvFormat
    encoding: str
    names: tuple[str, ...]
    skip_lines: int
    decimal: str = "."
    numbers: Mapping[str, NumberFormat] = field(default_factory=dict)  # of number columns that Arrow reads as text
    dates: Mapping[str, str] = field(default_factory=dict)  # the form of date columns that Arrow reads as text
    texts: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()  # number columns that also hold texts, read as text
    encoding_is_given: bool = False
    block_bytes: int = BLOCK_BYTES
    columns: list[str] | None = None  # the columns to read; None: all
    schema: pa.Schema | None = None  # the types to read; columns outside it are text


def sniff(origin: Origin, hints: FileOptions) -> tuple[Dialect, list[str]]:
    """The dialect of a CSV, and notes on it."""
    sample, is_complete = _sample(origin)
    text, encoding, encoding_name = decode(sample, origin.name, hints.encoding)
    separator_line = SEPARATOR_LINE.match(text)
    skipped = int(separator_line is not None) + (hints.skip_rows or 0)
    text = "".join(islice(io.StringIO(text, newline=""), skipped, None))
    if not text.strip():
        raise NoRowsError(f"{origin.name}: is empty: it has only blank lines.")
    delimiter = hints.delimiter or (separator_line[1] if separator_line else None)
    csv_format = _detect_format(text, is_complete, delimiter, origin.name)
    sample_rows = read_sample(text, is_complete, csv_format)
    start, has_names = _find_table([row.cells for row in sample_rows], hints)
    rows, first = [row.cells for row in sample_rows[start:]], sample_rows[start]
    if has_names and len(rows) == 1 and is_complete:
        raise NoRowsError(f"{origin.name}: holds a header and no rows: {listed(rows[0], 8)}.")
    names, renamed = _column_names(rows) if has_names else (numbered_names(len(rows[0])), [])
    dialect = Dialect(
        csv_format,
        encoding,
        tuple(names),
        skip_lines=skipped + (first.last_line if has_names else first.first_line - 1),
        encoding_is_given=hints.encoding is not None,
        block_bytes=max(BLOCK_BYTES, 4 * max(map(len, text.splitlines()))),
        texts=tuple(name for name in names if name in hints.texts),
    )
    notes = [*_format_notes(csv_format), f"encoding: {encoding_name}"]
    if start:
        notes.append(f"above the table: {counted(first.first_line - 1, 'line')} not read (--skip-rows 0 reads them)")
    called = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    header = f"line {skipped + first.first_line}" if has_names else f"none found, the columns are called {called}"
    body = [row for row in rows[has_names:] if len(row) == len(names)]
    dialect, cell_notes = _detect_types(dialect, body, hints)
    return dialect, [*notes, f"header: {header}", *renamed, *cell_notes]


def _sample(origin: Origin) -> tuple[bytes, bool]:
    """The first bytes of a file, and whether they are the whole file."""
    size = SAMPLE_BYTES
    raw = origin.head(size)
    while raw.count(b"\n") + raw.count(b"\r") < 3 and len(raw) == size and size < SAMPLE_LIMIT:
        size *= 4
        raw = origin.head(size)
    return raw, len(raw) < size


def _find_table(rows: list[list[str]], hints: FileOptions) -> tuple[int, bool]:
    """The number of rows above the table, and whether it has a header."""
    required = set(hints.columns or ())
    if required and hints.header is not False:
        for index, row in enumerate(rows[: MOST_ABOVE if hints.skip_rows is None else 1]):
            if required <= {cell.strip() for cell in row}:
                return index, True
    start = table_start(rows) if hints.skip_rows is None else 0
    if hints.header is not None:
        return start, hints.header
    return start, has_header([row for row in rows[start:] if len(row) == len(rows[start])])


def _column_names(rows: list[list[str]]) -> tuple[list[str], list[str]]:
    first, body = rows[0], rows[1:]
    width, agreeing = usual_width(body)
    if agreeing == len(body) > 0 and len(first) + 1 == width > 2 and len({row[0] for row in body}) == len(body):
        names, renamed = unique_names(["", *first])
        return names, ["header: has no name for the row names, as R writes them; they are column x0", *renamed[1:]]
    if len(first) == width + 1 and not first[-1].strip():  # only the header ends in a delimiter
        first = first[:-1]
    return unique_names(first)


def csv_rows(lines: Iterable[str], csv_format: CsvFormat) -> Iterator[CsvRow]:
    """The rows that are not blank."""
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_BLOCK))
    reader = csv.reader(
        lines,
        delimiter=csv_format.delimiter,
        quotechar=csv_format.quote,
        quoting=csv.QUOTE_NONE if csv_format.quote is None else csv.QUOTE_MINIMAL,
        escapechar=csv_format.escape,
    )
    lines_read = 0
    for cells in reader:
        if cells:
            yield CsvRow(cells, lines_read + 1, reader.line_num)
        lines_read = reader.line_num


def read_sample(text: str, is_complete: bool, csv_format: CsvFormat, limit: int = SAMPLE_ROWS) -> list[CsvRow]:
    """The first rows of the sample, without a last row that may be cut off."""
    rows = list(islice(csv_rows(io.StringIO(text, newline=""), csv_format), limit + 1))
    return rows if is_complete and len(rows) <= limit else rows[:-1] or rows


def _detect_format(text: str, is_complete: bool, delimiter: str | None, name: str) -> CsvFormat:
    if delimiter is not None and len(delimiter) != 1:
        raise ReadError(f"{name}: the delimiter must be one character, not {delimiter!r}.")
    best, rows = _best_format(text, is_complete, delimiter)
    if delimiter is not None:
        return best
    first, *lines = (best.delimiter.join(row) for row in rows)
    if lines and "," not in first and all(map(PLAIN_NUMBER.fullmatch, filter(None, lines))):
        return CsvFormat(NO_DELIMITER)  # one column of numbers with decimal commas
    table = rows[table_start(rows) :]
    width, agreeing = _table_width(table, best.delimiter)
    if width > 1 and (agreeing >= AGREEMENT * len(table) or len(rows[0]) > 1):
        return best
    _refuse_aligned(text, name)
    return CsvFormat(",")


def _best_format(text: str, is_complete: bool, delimiter: str | None) -> tuple[CsvFormat, list[list[str]]]:
    """The format in which the rows fit best, and these rows."""

    def parse(text: str, candidate: CsvFormat) -> list[list[str]]:
        return [row.cells for row in read_sample(text, is_complete, candidate, FORMAT_ROWS)]

    def score(candidate: CsvFormat) -> tuple[bool, float]:
        return _score(parsed[candidate], parse(bare[candidate.quote], candidate), candidate.delimiter)

    bare = {  # the text without the content of quoted cells
        None: text,
        "'": SINGLE_QUOTED.sub(r"\1''", text),
        '"': DOUBLE_QUOTED.sub(r'\1""', text),
    }
    parsed = {candidate: parse(text, candidate) for candidate in _possible_formats(text, delimiter)}
    best = max(parsed, key=score)
    return best, parsed[best]


def _refuse_aligned(text: str, name: str) -> None:
    """Raise if all rows are numbers separated by several spaces."""
    rows = [line.split() for line in text.splitlines()[1:SAMPLE_ROWS] if line.strip()][:-1]
    width, agreeing = usual_width(rows)
    if width > 1 and agreeing == len(rows) and all(PLAIN_NUMBER.fullmatch(cell) for row in rows for cell in row):
        raise ReadError(
            f"{name}: its columns seem to be separated by several spaces, which is not supported. "
            f"Write commas instead: sed 's/^ *//; s/  */,/g' {name}"
        )


def _possible_formats(text: str, delimiter: str | None) -> list[CsvFormat]:
    delimiters = [delimiter] if delimiter else [*DELIMITERS, " "]
    is_quoted = delimiter not in (None, *DELIMITERS) or DOUBLE_QUOTED.search(text) is not None
    quotes: list[str | None] = [None if '"' in text and not is_quoted else '"']  # inch signs are not quotes
    n_single = 0 if is_quoted else len(SINGLE_QUOTED.findall(text))
    if n_single:  # preferred if most lines have them, else used only if the rows fit better
        quotes.insert(0 if 2 * n_single > len(text.splitlines()) else 1, "'")
    escapes = [None, "\\"] if '\\"' in text else [None]
    return [CsvFormat(mark, quote, escape) for escape in escapes for quote in quotes for mark in delimiters]


def _score(rows: list[list[str]], bare: list[list[str]], delimiter: str) -> tuple[bool, float]:
    """How well a format fits: whether the first row is as wide as most rows, then how uniform the rows are."""
    width, agreeing = _table_width(rows[table_start(rows) :], delimiter)
    if width < 2:
        return False, 0.0
    others = [mark for mark in DELIMITERS if mark not in (delimiter, ",")]
    cells = [cell for row in bare for cell in row]  # quoted ones are empty: they may contain any delimiter
    n_suspicious = sum(any(mark in cell for mark in others) for cell in cells)
    return len(rows[0]) == width, agreeing / len(rows) * (1 - n_suspicious / len(cells))


def _table_width(rows: list[list[str]], delimiter: str) -> tuple[int, int]:
    """As `usual_width`, but spaces are delimiters only between cells that are mostly numbers."""
    width, agreeing = usual_width(rows)
    if delimiter != " ":
        return width, agreeing
    cells = [cell for row in rows for cell in row]
    n_numbers = sum(bool(PLAIN_NUMBER.fullmatch(cell)) for cell in cells)
    lacks_name = bool(rows) and len(rows[0]) + 1 == width  # R writes no name for the column of row names
    is_numeric = agreeing + lacks_name == len(rows) and 2 * n_numbers > len(cells)
    return (width, agreeing) if is_numeric else (1, 0)


def _detect_types(dialect: Dialect, rows: list[list[str]], hints: FileOptions) -> tuple[Dialect, list[str]]:
    """Add the decimal mark, the text columns, and the formats of numbers and dates that Arrow reads as text."""
    columns = {name: filled_cells(cells) for name, cells in zip(dialect.names, zip(*rows, strict=True), strict=False)}
    all_cells = chain.from_iterable(columns.values())
    decimal = hints.decimal or _decimal_mark(all_cells, dialect.format.delimiter)
    codes = [name for name, cells in columns.items() if hints.codes and _are_codes(cells)]
    zoned = [name for name, cells in columns.items() if any(map(ZONED_DATE.fullmatch, cells))]
    texts = tuple(dict.fromkeys((*dialect.texts, *codes, *zoned)))
    numbers, dates = dict[str, NumberFormat](), dict[str, str]()
    for name, cells in columns.items():
        if not cells or name in texts:
            continue
        if (number_format := _number_format(cells, decimal)) is not None:
            numbers[name] = number_format
        elif (date_form := _date_form(cells, decimal)) is not None:
            dates[name] = date_form
    notes = [f"codes: {listed(codes, 5)}, digits with leading zeros or 0x, read as text"] if codes else []
    notes += ["decimal mark: comma"] if decimal == "," else []
    for name, number_format in list(numbers.items())[:5]:
        thousands = f"{number_format.thousands!r} between thousands, " if number_format.thousands else ""
        notes.append(f"numbers of {name}: {thousands}decimal mark {number_format.decimal!r}")
    return replace(dialect, decimal=decimal, numbers=numbers, dates=dates, texts=texts), notes


def _are_codes(cells: list[str]) -> bool:
    """Whether the cells are codes such as 00501 or 0x1F, whose prefix matters."""
    if all(map(HEXADECIMAL.fullmatch, cells)):
        return bool(cells)
    return any(cell[0] == "0" for cell in cells) and arrow.are_codes(pa.array(cells, pa.string()))


def _decimal_mark(cells: Iterable[str], delimiter: str) -> str:
    """The decimal mark of most numbers; if all are like 1,234, a comma unless commas delimit cells."""
    commas = points = ambiguous = 0
    for cell in cells:
        if EITHER_NUMBER.fullmatch(cell):
            ambiguous += "," in cell
        elif "," in cell or "." in cell:
            commas += bool(COMMA_NUMBER.fullmatch(cell))
            points += bool(POINT_NUMBER.fullmatch(cell))
    if commas == points == 0:
        return "," if ambiguous and delimiter != "," else "."
    return "," if commas > points else "."


def _number_format(cells: list[str], decimal: str) -> NumberFormat | None:
    """The format of a number column that Arrow would read as text, else None."""
    plain = re.compile(NumberFormat(decimal=decimal).digits)
    if not re.search(r"[\d)-]$", cells[0]) or all(map(plain.match, cells)):
        return None
    detected = arrow.number_format(pa.array(cells, pa.string()), decimal)
    return None if detected in (None, arrow.PLAIN_NUMBERS) or detected.before or detected.after else detected


def _date_form(cells: list[str], decimal: str) -> str | None:
    """The form of a date column that Arrow would read as text, else None."""
    if not DATE_LIKE.fullmatch(cells[0]) or all(map(ISO_DATE.fullmatch, cells)):
        return None
    detected = arrow.date_format(pa.array(cells, pa.string()), np.ones(len(cells)), day_first=decimal == ",")
    return detected.form if detected is not None and detected.form in ("iso", DAY_FIRST, MONTH_FIRST) else None


def _format_notes(csv_format: CsvFormat) -> list[str]:
    notes = [f"delimiter: {DELIMITER_NAMES.get(csv_format.delimiter, repr(csv_format.delimiter))}"]
    if csv_format.quote != '"':
        notes.append("quotes: single" if csv_format.quote else "quotes: none, they are part of the text")
    if csv_format.escape:
        notes.append("quotes inside cells: escaped by a backslash")
    return notes
