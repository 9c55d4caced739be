"""What the cells of a delimited text mean: gaps, numbers in the writing of a country, dates, a header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from addml.io.source import Origin, ReadError, decode_start, encoding_of
from addml.io.values import numbered_names, unique_names
from addml.text import counted, listed

GAPS = (
    *("", "NA", "N/A", "n/a", "na", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "?", "-"),
    *("#N/A", "#N/A N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
GAP_SET = frozenset(GAPS)
TYPED_SHARE = 0.9  # a column is of numbers or dates when nearly all its cells are: one may be a slip

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
NUMBER_LIKE = re.compile(r"[+-]?[\d.,][\d.,'\u2019 \u00a0\u202f]*([eE][+-]?\d+)?")
COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
POINT_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
EITHER_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # 1,234: one and a bit, or over a thousand
TIME = r"(?:(?P<gap>[ T])(?P<hour>\d{1,2}):\d{2}(?P<seconds>:\d{2})?(?P<half> ?[AaPp][Mm])?)?"
DAY_FIRST = re.compile(r"(?P<a>\d{1,2})(?P<mark>[./-])(?P<b>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + TIME)
YEAR_FIRST = re.compile(r"\d{4}(?P<mark>[./])\d{1,2}(?P=mark)\d{1,2}" + TIME)
CODE = re.compile(r"0\d{2,}")  # of two digits it is more likely a month, an hour or an age
HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")  # which Arrow takes for a whole number, and for no other
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?")
PADDED_DATE = re.compile(r"(\s+\d{4}-\d{2}-\d{2}.*|\d{4}-\d{2}-\d{2}.*\s+)")  # Arrow takes it as a day, and as no time
ZONED_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T][\d:.,]+ ?(?:Z|[+-]\d{2}(?::?\d{2})?)")
ODD_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T][\d:]+(?:[.,]\d{7,}|,\d|\.?\d* [Z+-]).*")  # Arrow's microseconds take none


@dataclass(frozen=True)
class NumberStyle:
    """How the numbers of a column are written: the mark between thousands, if any, and the decimal mark."""

    thousands: str
    decimal: str

    @property
    def pattern(self) -> str:
        """The whole-cell expression of such numbers, understood alike by Python and by Arrow."""
        mark, decimal = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(\d+|[1-9]\d{{0,2}}({mark}\d{{3}})+)" if self.thousands else r"\d+"
        return rf"^[+-]?{whole}({decimal}\d*)?([eE][+-]?\d+)?$"


STYLES = tuple(
    NumberStyle(thousands, decimal)
    for thousands in (",", ".", "'", "\u2019", " ", "\u00a0", "\u202f", "")
    for decimal in ".,"
    if thousands != decimal
)


def is_gap(cell: str) -> bool:
    """Whether the cell stands for a missing value."""
    return cell.strip() in GAP_SET


def filled(cells: Iterable[str]) -> list[str]:
    """The cells that hold a value, without the spaces around them."""
    return [stripped for cell in cells if (stripped := cell.strip()) not in GAP_SET]


def are_codes(cells: Iterable[str]) -> bool:
    """Whether the cells are digits with zeros or 0x before them, which say something: 00501 and 0x1F are no numbers."""
    values = filled(cells)
    if all(map(HEXADECIMAL.fullmatch, values)):
        return bool(values)
    return all(value.isdecimal() for value in values) and any(CODE.fullmatch(value) for value in values)


def is_typed(cell: str) -> bool:
    """Whether the cell is a number, a date or a truth value: what column names are not."""
    if NUMBER.fullmatch(cell) or ISO_DATE.fullmatch(cell) or cell.lower() in ("true", "false"):
        return True
    return bool(DAY_FIRST.fullmatch(cell) or YEAR_FIRST.fullmatch(cell))


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: text above numbers says so, numbers above numbers do not."""
    first = [cell.strip() for cell in rows[0]]
    if _counts_up(first):
        return True
    if len(rows) == 1:
        return not any(is_typed(cell) for cell in first)
    columns = [filled(cells) for cells in zip(*rows[1:], strict=True)]
    votes = sum(_vote(cell, cells) for cell, cells in zip(first, columns, strict=True))
    return votes > 0 or (votes == 0 and _like_names(first))


def _vote(name: str, cells: list[str]) -> int:
    typed = sum(map(is_typed, cells))
    if cells and typed >= TYPED_SHARE * len(cells):
        return -1 if is_typed(name) else int(not is_gap(name))
    return -1 if name in cells else 0


def _counts_up(names: list[str]) -> bool:
    """0, 1, 2, ... as arrays are written, or the years of a table that has one column for each."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < 3 or any(is_typed(name) for name in names if not name.isdecimal()):
        return False
    in_order = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    years = numbers[0] >= 1900 and numbers[-1] <= 2100 and len(numbers) < len(names)
    return in_order and (numbers[0] == 0 or years)


def _like_names(cells: list[str]) -> bool:
    return len(set(cells)) == len(cells) and not any(is_gap(cell) or is_typed(cell) for cell in cells)


def decimal_mark(cells: Iterable[str], delimiter: str) -> str:
    """The decimal mark of most numbers; 1,234 alone is one and a bit only where commas part no cells."""
    commas = points = unclear = 0
    for cell in filled(cells):
        if EITHER_NUMBER.fullmatch(cell):
            unclear += "," in cell
        elif "," in cell or "." in cell:
            commas += bool(COMMA_NUMBER.fullmatch(cell))
            points += bool(POINT_NUMBER.fullmatch(cell))
    if commas == points == 0:
        return "," if unclear and delimiter != "," else "."
    return "," if commas > points else "."


def number_style(cells: Iterable[str], decimal: str) -> NumberStyle | None:
    """How a column of numbers is written where Arrow would take it for text; None where it would not."""
    values = filled(cells)
    if not values or not all(NUMBER_LIKE.fullmatch(value) for value in values):
        return None
    plain = re.compile(NumberStyle("", decimal).pattern.replace("[+-]?", "-?", 1))
    if all(plain.match(value) or value.startswith((decimal, "-" + decimal)) for value in values):
        return None
    likely = sorted(STYLES, key=lambda style: style.decimal != decimal)
    return next((style for style in likely if all(re.match(style.pattern, value) for value in values)), None)


def says_zone(cells: Sequence[str]) -> bool | None:
    """Whether the dates of a column say their zone; None where some do, or are not written as Arrow takes them."""
    values = filled(cells)
    zoned = sum(ZONED_DATE.fullmatch(value) is not None for value in values)
    is_padded = any(map(PADDED_DATE.fullmatch, cells))
    if is_padded or 0 < zoned < len(values) or any(map(ODD_DATE.fullmatch, values)):
        return None
    return zoned > 0


def date_formats(columns: Iterable[Sequence[str]], decimal: str) -> tuple[list[str], str | None]:
    """The strptime formats of dates that are not ISO 8601, and the order of day and month if guessed."""
    dates = [match for cells in columns for match in _date_matches(filled(cells))]
    day_first, guessed = _day_first([match for match in dates if "a" in match.groupdict()], decimal)
    if day_first is None:
        return [], None
    formats = list(dict.fromkeys(_date_format(match, day_first) for match in dates))
    return formats, ("day first" if day_first else "month first") if guessed else None


def _date_matches(cells: list[str]) -> list[re.Match[str]]:
    matches = []
    for cell in cells:
        match = DAY_FIRST.fullmatch(cell) or YEAR_FIRST.fullmatch(cell)
        if match is None:
            return []
        matches.append(match)
    return matches


def _day_first(dates: list[re.Match[str]], decimal: str) -> tuple[bool | None, bool]:
    """Whether the day comes first (None: contradicting), and whether that had to be guessed."""
    if not dates:
        return True, False
    first = any(int(match["a"]) > 12 or match["mark"] == "." for match in dates)
    second = any(int(match["b"]) > 12 for match in dates)
    if first and second:
        return None, False
    return (first, False) if first or second else (decimal == ",", True)


def _date_format(match: re.Match[str], day_first: bool) -> str:
    mark = match["mark"]
    if "a" not in match.groupdict():
        return f"%Y{mark}%m{mark}%d{_time_format(match)}"
    year = "%Y" if len(match["year"]) == 4 else "%y"
    order = ["%d", "%m", year] if day_first else ["%m", "%d", year]
    return mark.join(order) + _time_format(match)


def _time_format(match: re.Match[str]) -> str:
    if match["hour"] is None:
        return ""
    half = match["half"] or ""
    seconds = ":%S" if match["seconds"] else ""
    return f"{match['gap']}{'%I' if half else '%H'}:%M{seconds}{half[:-2]}{'%p' if half else ''}"


# How a delimited text is written, found out from its first rows.


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
