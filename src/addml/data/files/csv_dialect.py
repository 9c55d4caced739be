"""How a delimited text is written, found out from its first rows."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from addml.data.files.column_names import numbered_names, unique_names
from addml.data.files.csv_cells import (
    NUMBER,
    NumberStyle,
    are_codes,
    date_formats,
    decimal_mark,
    filled,
    has_header,
    is_gap,
    number_style,
    says_zone,
)
from addml.data.files.origin import Origin, ReadError
from addml.data.files.text_encoding import decode_start, encoding_of
from addml.wording import counted, listed

SAMPLE_BYTES = 1 << 18
SAMPLE_LIMIT = 1 << 26  # a sample grows to this to hold a few rows of a very wide file
SAMPLE_ROWS = 200
WRITING_ROWS = 60
BLOCK_BYTES = 1 << 21
LONGEST_CELL = 1 << 30
DELIMITERS = ",;\t|"
NO_DELIMITER = "\x1f"  # stands in no text, so that all of a line is one cell
DELIMITER_NAMES = {
    NO_DELIMITER: "none, one column",
    ",": "comma",
    ";": "semicolon",
    "\t": "tab",
    "|": "bar",
    " ": "space",
}
AGREEMENT = 0.8  # the share of rows that must have equally many cells before a delimiter is believed
SEPARATOR_LINE = re.compile(r"sep=(.)(\r\n|\r|\n)", re.IGNORECASE)  # as Excel writes and understands it
EDGES = r"(^|[,;\t|]){}(?=[,;\t|\r\n]|$)"
SINGLE_QUOTED = re.compile(EDGES.format(r"'[^'\r\n]*'"), re.MULTILINE)
DOUBLE_QUOTED = re.compile(EDGES.format(r'"(?:[^"\\]|""|\\.)*"'), re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CsvHints:
    """What the caller already knows of a delimited text; None is found out."""

    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None
    decimal: str | None = None
    columns: tuple[str, ...] = ()  # names of columns that must be there, which tell a header
    texts: tuple[str, ...] = ()  # names of columns, where there are such, that stay as they are written
    codes: bool = True  # whether columns of digits with zeros or 0x before them stay as they are written


@dataclass(frozen=True)
class Writing:
    """How cells are parted and quoted."""

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None


class CsvRow(NamedTuple):
    """A row, with the numbers of the lines it begins and ends on."""

    cells: list[str]
    first: int
    last: int


@dataclass(frozen=True)
class Dialect:
    """All that is needed to read a delimited text."""

    writing: Writing
    encoding: str
    names: tuple[str, ...]
    skip_lines: int
    decimal: str = "."
    date_formats: tuple[str, ...] = ()
    number_styles: Mapping[str, NumberStyle] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    zones: Mapping[str, bool | None] = field(default_factory=dict)  # of columns with a value in the first rows
    loose: tuple[str, ...] = ()  # columns of numbers with texts among them, read as text
    newlines_in_cells: bool = False
    encoding_is_given: bool = False
    block_bytes: int = BLOCK_BYTES


@dataclass(frozen=True)
class Sample:
    """The first text of a file; `whole` when there is no more of it."""

    text: str
    whole: bool
    encoding: str
    encoding_name: str


def sniff(origin: Origin, hints: CsvHints) -> tuple[Dialect, list[str]]:
    """The dialect of a delimited text, and what is to be said about it."""
    sample = _take_sample(origin, hints.encoding)
    separator = SEPARATOR_LINE.match(sample.text)
    text = sample.text[separator.end() :] if separator else sample.text
    if not text.strip():
        raise ReadError(f"{origin.name}: is empty: it holds no rows, only blank lines.")
    given = hints.delimiter or (separator[1] if separator else None)
    writing = _find_writing(text, sample.whole, given, origin.name)
    found = sample_rows(text, sample.whole, writing)
    rows = [row.cells for row in found]
    named = _is_named(rows, hints)
    if named and len(rows) == 1 and sample.whole:
        raise ReadError(f"{origin.name}: holds a header and no rows: {listed(rows[0], 8)}.")
    names, renamed = unique_names(rows[0]) if named else (numbered_names(len(rows[0])), [])
    above = int(separator is not None)
    dialect = Dialect(
        writing,
        sample.encoding,
        tuple(names),
        skip_lines=above + (found[0].last if named else 0),
        newlines_in_cells=_hold_newlines(rows),
        encoding_is_given=hints.encoding is not None,
        block_bytes=max(BLOCK_BYTES, 4 * max(map(len, text.splitlines()))),
        texts=tuple(name for name in names if name in hints.texts),
    )
    body = [row for row in rows[named:] if len(row) == len(names)]
    dialect, cell_notes = _with_cells(dialect, body, hints)
    header = _header_note(above + found[0].first if named else None, names)
    return dialect, [*_writing_notes(writing, sample), header, *renamed, *cell_notes]


def csv_rows(lines: Iterable[str], writing: Writing) -> Iterator[CsvRow]:
    """The rows that are not blank."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    reader = csv.reader(
        lines,
        delimiter=writing.delimiter,
        quotechar=writing.quote,
        quoting=csv.QUOTE_NONE if writing.quote is None else csv.QUOTE_MINIMAL,
        escapechar=writing.escape,
    )
    before = 0
    for cells in reader:
        if cells:
            yield CsvRow(cells, before + 1, reader.line_num)
        before = reader.line_num


def sample_rows(text: str, whole: bool, writing: Writing, limit: int = SAMPLE_ROWS) -> list[CsvRow]:
    """The first rows of the sample, without a last one that was cut."""
    rows = list(islice(csv_rows(io.StringIO(text, newline=""), writing), limit + 1))
    return rows if whole and len(rows) <= limit else rows[:-1] or rows


def _take_sample(origin: Origin, encoding: str | None) -> Sample:
    size = SAMPLE_BYTES
    raw = origin.head(size)
    while raw.count(b"\n") + raw.count(b"\r") < 3 and len(raw) == size and size < SAMPLE_LIMIT:
        size *= 4
        raw = origin.head(size)
    found, name = encoding_of(raw, origin.name) if encoding is None else (encoding, f"{encoding}, as given")
    return Sample(decode_start(raw, found, origin.name), len(raw) < size, found, name)


def _find_writing(text: str, whole: bool, delimiter: str | None, name: str) -> Writing:
    if delimiter is not None and len(delimiter) != 1:
        raise ReadError(f"{name}: the delimiter must be one character, not {delimiter!r}.")
    writings = _possible_writings(text, delimiter)
    parsed = {one: _first_cells(text, whole, one) for one in writings}
    bare = {one: _first_cells(_without_quoted(text, one.quote), whole, one) for one in writings}
    best = max(writings, key=lambda one: _score(parsed[one], bare[one], one.delimiter))
    if delimiter is None and _is_column_of_commas(parsed[best], best.delimiter):
        return Writing(NO_DELIMITER)
    if delimiter is not None or _is_believable(parsed[best], best.delimiter):
        return best
    _refuse_aligned_columns(text, name)
    return Writing(",")


def _first_cells(text: str, whole: bool, writing: Writing) -> list[list[str]]:
    return [row.cells for row in sample_rows(text, whole, writing, WRITING_ROWS)]


def _without_quoted(text: str, quote: str | None) -> str:
    """The text with its quoted cells emptied: a delimiter in one parts nothing."""
    if quote is None:
        return text
    return (SINGLE_QUOTED if quote == "'" else DOUBLE_QUOTED).sub(rf"\1{quote}{quote}", text)


def _possible_writings(text: str, delimiter: str | None) -> list[Writing]:
    delimiters = [delimiter] if delimiter else [*DELIMITERS, " "]
    is_quoted = delimiter not in (None, *DELIMITERS) or DOUBLE_QUOTED.search(text) is not None
    quotes: list[str | None] = [None if '"' in text and not is_quoted else '"']  # inches are no quotes
    if 2 * len(SINGLE_QUOTED.findall(text)) > text.count("\n") and not is_quoted:
        quotes.insert(0, "'")
    escapes = [None, "\\"] if '\\"' in text else [None]
    return [Writing(mark, quote, escape) for escape in escapes for quote in quotes for mark in delimiters]


def _score(rows: list[list[str]], bare: list[list[str]], delimiter: str) -> tuple[bool, float]:
    """Whether the first row, mostly a header, has as many cells as most rows, which tells more than anything else.

    Then how equally many cells the rows have, less those cells that another delimiter would part; `bare` are the rows
    without what is quoted.
    """
    width, agreeing = _usual_width(rows)
    if width < 2 or (delimiter == " " and not _is_numeric_and_even(rows, agreeing)):
        return False, 0.0
    others = [mark for mark in DELIMITERS if mark not in (delimiter, ",")]
    cells = [cell for row in bare for cell in row]
    dirty = sum(any(mark in cell for mark in others) for cell in cells)
    return len(rows[0]) == width, agreeing / len(rows) * (1 - dirty / len(cells))


def _usual_width(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The commonest number of cells, and how many rows have it."""
    counts = Counter(map(len, rows))
    return max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))


def _is_numeric_and_even(rows: list[list[str]], agreeing: int) -> bool:
    cells = [cell for row in rows for cell in row]
    return agreeing == len(rows) and 2 * sum(bool(NUMBER.fullmatch(cell)) for cell in cells) > len(cells)


def _is_believable(rows: list[list[str]], delimiter: str) -> bool:
    width, agreeing = _usual_width(rows)
    if width < 2 or (delimiter == " " and not _is_numeric_and_even(rows, agreeing)):
        return False
    return agreeing >= AGREEMENT * len(rows) or len(rows[0]) > 1


def _is_column_of_commas(rows: list[list[str]], delimiter: str) -> bool:
    """Whether it is one column of numbers with decimal commas below its name."""
    cells = [",".join(row) for row in rows[1:]]
    alone = delimiter == "," and len(rows[0]) == 1 and any(len(row) == 2 for row in rows)
    return alone and all(NUMBER.fullmatch(cell) or is_gap(cell) for cell in cells)


def _refuse_aligned_columns(text: str, name: str) -> None:
    rows = [line.split() for line in text.splitlines()[1:SAMPLE_ROWS] if line.strip()][:-1]
    width, agreeing = _usual_width(rows)
    if width > 1 and agreeing == len(rows) and all(NUMBER.fullmatch(cell) for row in rows for cell in row):
        raise ReadError(
            f"{name}: its columns seem to be parted by several spaces, which is not read here. "
            f"Write commas instead, as by: sed 's/^ *//; s/  */,/g' {name}"
        )


def _hold_newlines(rows: list[list[str]]) -> bool:
    return any("\n" in cell or "\r" in cell for row in rows for cell in row)


def _is_named(rows: list[list[str]], hints: CsvHints) -> bool:
    if hints.header is not None:
        return hints.header
    if hints.columns and set(hints.columns) <= {cell.strip() for cell in rows[0]}:
        return True
    return has_header([row for row in rows if len(row) == len(rows[0])])


def _with_cells(dialect: Dialect, rows: list[list[str]], hints: CsvHints) -> tuple[Dialect, list[str]]:
    """The dialect with what the cells say: decimal mark, codes, dates, numbers in a writing of their own."""
    columns, decimal = list(zip(*rows, strict=True)), hints.decimal
    codes = [name for name, cells in zip(dialect.names, columns, strict=False) if hints.codes and are_codes(cells)]
    dialect = replace(dialect, texts=(*dialect.texts, *(name for name in codes if name not in dialect.texts)))
    if decimal is None:
        decimal = decimal_mark((cell for row in rows for cell in row), dialect.writing.delimiter)
    formats, guess = date_formats(columns, decimal)
    found = zip(dialect.names, (number_style(cells, decimal) for cells in columns), strict=False)
    styles = {name: style for name, style in found if style is not None and name not in dialect.texts}
    zones = {name: says_zone(own) for name, own in zip(dialect.names, columns, strict=False) if filled(own)}
    dialect = replace(dialect, decimal=decimal, date_formats=tuple(formats), number_styles=styles, zones=zones)
    return dialect, _code_note(codes) + _cell_notes(decimal, formats, guess, styles)


def _writing_notes(writing: Writing, sample: Sample) -> list[str]:
    ends = {"CRLF": r"\r\n", "LF": r"(?<!\r)\n", "CR": r"\r(?!\n)"}
    found = [name for name, pattern in ends.items() if re.search(pattern, sample.text.rstrip("\r\n"))]
    notes = [f"delimiter: {DELIMITER_NAMES.get(writing.delimiter, repr(writing.delimiter))}"]
    notes.append(f"encoding: {sample.encoding_name}")
    if len(found) > 1:
        notes.append(f"line ends: mixed ({' and '.join(found)})")
    if writing.quote != '"':
        notes.append("quotes: single" if writing.quote else "quotes: none, they are part of the text")
    if writing.escape:
        notes.append("quotes inside cells: escaped by a backslash")
    return notes


def _header_note(line: int | None, names: list[str]) -> str:
    if line is not None:
        return f"header: line {line}"
    last = f" to {names[-1]}" if len(names) > 1 else ""
    return f"header: none found, the columns are called {names[0]}{last}"


def _code_note(codes: list[str]) -> list[str]:
    return [f"codes: {listed(codes, 5)}, digits with zeros or 0x before them, so read as text"] if codes else []


def _cell_notes(decimal: str, formats: list[str], guess: str | None, styles: dict[str, NumberStyle]) -> list[str]:
    notes = ["decimal mark: comma"] if decimal == "," else []
    if formats:
        notes.append(f"dates: written {', '.join(formats)}" + (f" ({guess} is a guess)" if guess else ""))
    for name, style in list(styles.items())[:5]:
        parted = f"{style.thousands!r} between thousands, " if style.thousands else ""
        notes.append(f"numbers of {name}: {parted}decimal mark {style.decimal!r}")
    return notes + ([f"numbers of {counted(len(styles) - 5, 'more column')} likewise"] if len(styles) > 5 else [])
