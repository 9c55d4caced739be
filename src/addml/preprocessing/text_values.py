"""Numbers written as text: with thousands marks, a decimal comma, a per cent or currency sign; and texts among them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.io.csv_dialect import GAPS, STYLES, NumberStyle
from addml.preprocessing import plain_values
from addml.preprocessing.arrow import PER_DAY, as_days, as_text, taken
from addml.text import shortened

SIGN = r"[€$£¥₹]|USD|EUR|GBP|CHF|JPY|%"
PARTS = (
    rf"^\s*(?P<minus>[+-]?)\s*(?P<before>{SIGN})?\s*(?P<number>[+-]?[\d.,](?:[\d.,'’ \x{{a0}}\x{{202f}}]*[\d.,])?"
    rf"(?:[eE][+-]?\d+)?)\s*(?P<after>{SIGN})?\s*$"
)
PLAIN = r"^\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf(?:inity)?))\s*$"  # as Arrow reads numbers
CODE = r"^\s*[+-]?0\d"  # 00501 is a code, whose zeros say something, and no number
MIXED = r"^\s*(?:[A-Za-z]+[-./]?\d|\d+[-./]?[A-Za-z])[A-Za-z\d./-]*\s*$"  # V57, 85123A: a code among numbers
FEW = 50  # texts that suffice to say no
FEW_TEXTS = 0.05  # of the cells that hold something: so many texts among numbers are slips
LEAST_NUMBERS = 20  # cells, under which a text says as much as the numbers
MOST_CODES = 2  # different texts of letters and digits among numbers, from which on more are no slips
NEARLY_ALL = 0.9  # of the rows, from which on other texts among numbers are more likely slips


@dataclass(frozen=True)
class WrittenNumber:
    """How the numbers of a text column are written."""

    before: str = ""
    after: str = ""
    thousands: str = ""
    decimal: str = "."

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_plain(cls, document: plain_values.Document) -> WrittenNumber:
        """Back from `to_plain`."""
        return cls(**{key: plain_values.text(document, key) for key in cls.__dataclass_fields__})


def written_numbers(values: pa.Array) -> WrittenNumber | None:
    """How the distinct, non-null texts are written where all of them are numbers of one style."""
    if _any(pc.match_substring_regex(values, CODE)):
        return None
    if _plainly(values) is not None:
        return WrittenNumber()
    parts = pc.extract_regex(values, PARTS)
    if parts.null_count:
        return None
    before, after = (pc.unique(parts.field(part)).to_pylist() for part in ("before", "after"))
    if len(before) > 1 or len(after) > 1:
        return None  # 5 and 5 % are not numbers of one kind
    digits = parts.field("number")
    style = next((style for style in STYLES if not _any(pc.invert(_matches(digits, style)))), None)
    return None if style is None else WrittenNumber(before[0], after[0], style.thousands, style.decimal)


def nearly_numbers(values: pa.Array, counts: np.ndarray) -> WrittenNumber | None:
    """How the distinct texts, which stand in `counts` rows each, are written where all but a few are numbers."""
    if not _may_be_numbers(values):
        return None
    style, is_number = _commonest_style(values, counts)
    numbers = int(is_number @ counts)
    if numbers < LEAST_NUMBERS or counts.sum() - numbers > FEW_TEXTS * counts.sum():
        return None
    texts = values.filter(pa.array(~is_number))
    codes = np.count_nonzero(np.asarray(pc.match_substring_regex(texts, MIXED)))
    return None if codes > MOST_CODES else style


def among_numbers(values: pa.Array, counts: np.ndarray) -> pa.Array | None:
    """The distinct texts, which stand in `counts` rows each, that are no numbers, where nearly all others are some."""
    if not _may_be_numbers(values):
        return None
    is_number = np.asarray(pc.match_substring_regex(values, PARTS))
    if is_number.all() or is_number @ counts < NEARLY_ALL * counts.sum():
        return None
    return values.filter(pa.array(~is_number))


def are_gaps(values: pa.Array) -> pa.Array:
    """Which texts stand for a missing value, as in a CSV: NA, null, -."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.is_in(trimmed, pa.array(GAPS, trimmed.type))


def parse_numbers(column: pa.Array, style: WrittenNumber) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a text column, NaN for gaps and blanks and other texts; and which are such texts."""
    column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    numbers, wrong = _plainly(column) if style == WrittenNumber() else None, np.zeros(len(column), bool)
    if numbers is None:
        column = pc.if_else(are_gaps(column), pa.scalar(None, column.type), column)
        is_number = _is_number(column, style)
        wrong = np.asarray(pc.and_(pc.is_valid(column), pc.invert(is_number)))
        column = pc.if_else(is_number, column, pa.scalar(None, column.type))
        numbers = column.cast(pa.float64()) if style == WrittenNumber() else _styled(column, style)
    return np.array(numbers.to_numpy(zero_copy_only=False), np.float64), wrong


def _may_be_numbers(values: pa.Array) -> bool:
    """A quick look at the first of the distinct texts, and whether none is a code."""
    first = np.asarray(pc.match_substring_regex(values[:FEW], PARTS))
    return bool(len(first)) and first.mean() >= 0.5 and not _any(pc.match_substring_regex(values, CODE))


def _commonest_style(values: pa.Array, counts: np.ndarray) -> tuple[WrittenNumber, np.ndarray]:
    """The style that reads the most rows, the plain one if it is no worse, and which of the texts it reads."""
    parts = pc.extract_regex(values, PARTS)
    between = pa.scalar("\n", values.type)
    signs = pc.binary_join_element_wise(parts.field("before"), parts.field("after"), between).dictionary_encode()
    known = np.asarray(signs.is_valid())
    codes = np.asarray(signs.indices.fill_null(0))
    commonest = int(np.bincount(codes, weights=counts * known).argmax())
    before, after = signs.dictionary[commonest].as_py().split("\n")
    styles = [WrittenNumber(before, after, style.thousands, style.decimal) for style in STYLES]
    read = {style: np.asarray(_is_number(values, style)) for style in (WrittenNumber(), *styles)}
    best = max(read, key=lambda style: int(read[style] @ counts))
    return best, read[best]


def _is_number(column: pa.Array, style: WrittenNumber) -> pa.Array:
    """Which texts are numbers of a style; a gap is none."""
    if style == WrittenNumber():
        return pc.fill_null(pc.match_substring_regex(column, PLAIN), False)
    parts = pc.extract_regex(column, PARTS)
    known = pc.and_(pc.equal(parts.field("before"), style.before), pc.equal(parts.field("after"), style.after))
    known = pc.and_(known, _matches(parts.field("number"), NumberStyle(style.thousands, style.decimal)))
    return pc.fill_null(pc.if_else(pc.is_valid(parts), known, False), False)


def _styled(column: pa.Array, style: WrittenNumber) -> pa.Array:
    """Texts that are all numbers of the style, or gaps."""
    parts = pc.extract_regex(column, PARTS)
    digits, minus = pc.utf8_ltrim(parts.field("number"), characters="+"), parts.field("minus")
    if style.thousands:
        digits = pc.replace_substring(digits, style.thousands, "")
    digits = pc.replace_substring(digits, style.decimal, ".")
    numbers = pc.if_else(pc.is_valid(column), digits, pa.scalar(None, digits.type)).cast(pa.float64())
    return pc.if_else(pc.equal(minus, "-"), pc.negate(numbers), numbers)


def _plainly(values: pa.Array) -> pa.Array | None:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _matches(digits: pa.Array, style: NumberStyle) -> pa.Array:
    return pc.match_substring_regex(digits, style.pattern)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())


# Dates and times written as text, in the forms that people use, with a zone or without.


READ_AT_LEAST = 0.95  # of the rows: a column of dates may hold a slip, which counts as a gap
FEW_DATES = 50  # texts that suffice to say no
MINUTES = 1440  # of a day
TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<half>[AaPp][Mm])?\s*(?P<zone>Z|UTC|[+-][01]\d(?::?[0-5]\d)?)?)?\s*$"
)
CLOCK = TIME.replace(r"(?:[T ,]+", r"^\s*(?:", 1).replace(r")?\s*$", r")\s*$", 1)
MARK = r"[-/. ]"
ANY_FORM = r"\d.*[-/.: ].*\d"  # what all have; the full expressions take a while to compile
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
OTHER_MONTHS = {"mär": 3, "mrz": 3, "mai": 5, "okt": 10, "dez": 12}
FORMS = {  # the name says the order; the first that reads the most is taken
    "iso": rf"^\s*(?P<year>\d{{4}}){MARK}(?P<month>\d{{1,2}}){MARK}(?P<day>\d{{1,2}})" + TIME,
    "day first": rf"^\s*(?P<day>\d{{1,2}}){MARK}(?P<month>\d{{1,2}}){MARK}(?P<year>\d{{4}}|\d{{2}})" + TIME,
    "month first": rf"^\s*(?P<month>\d{{1,2}}){MARK}(?P<day>\d{{1,2}}){MARK}(?P<year>\d{{4}}|\d{{2}})" + TIME,
    "day, month name": (
        r"^\s*(?:[[:alpha:]]+,?\s+)?(?P<day>\d{1,2})[-/. ]+(?P<name>\pL{3,9})[-/., ]+(?P<year>\d{4})" + TIME
    ),
    "month name, day": (
        r"^\s*(?:[[:alpha:]]+,\s+)?(?P<name>\pL{3,9})[. ]+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})" + TIME
    ),
    "clock": CLOCK,
}


def written_dates(values: pa.Array, counts: np.ndarray) -> tuple[str, float] | None:
    """The form of the distinct texts, which stand in `counts` rows each, and the share of rows it reads."""
    if np.asarray(pc.match_substring_regex(values[:FEW_DATES], ANY_FORM)).mean() < 0.5:
        return None
    shares = {form: _share_read(values, counts, form) for form in FORMS}
    form = max(FORMS, key=lambda form: shares[form])  # the first of equals: the day before the month
    return (form, shares[form]) if shares[form] >= READ_AT_LEAST else None


def written_zone(values: pa.Array, form: str) -> str | None:
    """The zone in which the distinct texts are to be read: the one that they say, UTC for several, None for none."""
    offsets = _offsets(pc.extract_regex(values, FORMS[form]))
    said = np.unique(offsets[~np.isnan(offsets)])
    if len(said) != 1:
        return "UTC" if len(said) else None
    hours, minutes = divmod(round(abs(said[0]) * MINUTES), 60)
    return f"{'-' if said[0] < 0 else '+'}{hours:02}:{minutes:02}"


def parse_dates(column: pa.Array, form: str, zone: str | None) -> np.ndarray:
    """Days since 1970 on the clock of a zone; NaN for gaps and what is no such date.

    A date that says its zone is a moment, one that says none is on that clock. Without `zone`, what a date says of its
    own is left aside.
    """
    if form == "iso":
        try:
            return as_days(column.cast(pa.timestamp("us")), None)
        except pa.ArrowInvalid:
            pass  # a slip, a zone or another mark than Arrow's
    encoded = column.dictionary_encode()
    return taken(encoded, _days(encoded.dictionary, form, zone), np.nan)


def _share_read(values: pa.Array, counts: np.ndarray, form: str) -> float:
    if len(values) > FEW_DATES and _read(values[:FEW_DATES], form).mean() < 0.5:
        return 0.0
    return float(_read(values, form) @ counts / counts.sum())


def _read(values: pa.Array, form: str) -> np.ndarray:
    read: np.ndarray = ~np.isnan(_days(values, form))
    return read.astype(np.float64)


def _days(values: pa.Array, form: str, zone: str | None = None) -> np.ndarray:
    """The days of distinct texts."""
    parts = pc.extract_regex(values, FORMS[form])
    whole = _integers(parts)
    valid = np.asarray(pc.is_valid(parts))
    day, in_calendar = (np.zeros(len(values)), valid) if form == "clock" else _calendar_days(parts, whole)
    time, on_clock = _day_shares(parts, whole)
    days = np.where(valid & in_calendar & on_clock, day + time, np.nan)
    if zone is not None:
        days = days + _shifts(days, _offsets(parts), zone)
    return days - np.floor(days) if form == "clock" else days


def _offsets(parts: pa.StructArray) -> np.ndarray:
    """How far ahead of UTC each text says that its clock is, in days; NaN where it says nothing."""
    encoded = parts.field("zone").dictionary_encode()
    return taken(encoded, np.array([_offset(text) for text in encoded.dictionary.to_pylist()], np.float64), np.nan)


def _offset(text: str) -> float:
    if not text:
        return np.nan
    figures = text[1:].replace(":", "")
    minutes = 60 * int(figures[:2]) + int(figures[2:] or 0) if figures.isdigit() else 0  # Z and UTC
    return (-minutes if text[0] == "-" else minutes) / MINUTES


def _shifts(days: np.ndarray, offsets: np.ndarray, zone: str) -> np.ndarray:
    """What leads from the clock that each text is about to that of the zone: 0 where they are the same."""
    shifts, known = np.zeros(len(days)), ~np.isnan(days + offsets)
    moments = np.rint((days - offsets)[known] * PER_DAY["us"]).astype(np.int64)
    utc = pa.array(moments).cast(pa.timestamp("us", "UTC"))
    ahead = np.rint((as_days(utc, zone) - as_days(utc, "UTC")) * MINUTES) / MINUTES
    shifts[known] = ahead - offsets[known]
    return shifts


def _integers(parts: pa.StructArray) -> Callable[[str], np.ndarray]:
    def of(name: str) -> np.ndarray:
        text = parts.field(name)
        text = pc.if_else(pc.equal(text, ""), pa.scalar("0", text.type), text)
        return np.asarray(text.cast(pa.int64()))

    return of


def _calendar_days(parts: pa.StructArray, whole: Callable[[str], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    names = [field.name for field in parts.type]
    month = _months(parts.field("name")) if "name" in names else whole("month")
    year, day = whole("year"), whole("day")
    short = np.asarray(pc.equal(pc.utf8_length(parts.field("year")), 2))
    year = np.where(short, np.where(year < 69, 2000, 1900) + year, year)  # as strptime reads two figures
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    start = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first, following = (moment.astype("datetime64[D]").astype(np.int64) for moment in (start, start + 1))
    return first + day - 1.0, valid & (day <= following - first)


def _months(names: pa.Array) -> np.ndarray:
    beginnings = pc.utf8_slice_codeunits(pc.utf8_lower(names), 0, 3)
    known = {name: number for number, name in enumerate(MONTHS, start=1)} | OTHER_MONTHS
    found = pc.index_in(beginnings, pa.array(list(known), beginnings.type)).fill_null(len(known))
    return np.asarray(np.array([*known.values(), 0])[np.asarray(found)])


def _day_shares(parts: pa.StructArray, whole: Callable[[str], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The time as a share of the day, and whether a clock shows it."""
    hour, minute, second = whole("hour"), whole("minute"), whole("second")
    half = pc.utf8_lower(parts.field("half"))
    morning, afternoon = (np.asarray(pc.equal(half, name).fill_null(False)) for name in ("am", "pm"))
    twelve = morning | afternoon
    valid = (hour <= np.where(twelve, 12, 23)) & (hour >= twelve) & (minute <= 59) & (second <= 60)
    hour = np.where(twelve, hour % 12 + 12 * afternoon, hour)
    digits = np.asarray(pc.utf8_length(parts.field("fraction")).fill_null(0))
    seconds = hour * 3600 + minute * 60 + second + whole("fraction") / 10.0**digits
    return seconds / 86_400, valid


# Texts in columns of numbers: how many there are, and the first of them, to be listed.


LISTED = 5  # cells of a column
LONGEST = 40  # characters of a text


class TextCell(NamedTuple):
    """A text where a number is expected."""

    column: str
    row: int  # counted from 1
    text: str

    @property
    def shown(self) -> str:
        """The text in quotes, cut where it is long."""
        return json.dumps(shortened(self.text, LONGEST), ensure_ascii=False)


@dataclass
class TextCells:
    """The texts in columns of numbers: how many in each column, and its first ones."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[TextCell]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def earliest(self) -> TextCell:
        """The one in the first row."""
        return min((cells[0] for cells in self.first.values()), key=lambda cell: cell.row)

    def add(self, name: str, column: pa.Array, places: np.ndarray, before: int) -> None:
        """Take in the texts at these places of a column, some at least, with so many rows before it."""
        texts = as_text(column.take(pa.array(places[:LISTED]))).to_pylist()
        found = [TextCell(name, before + int(place) + 1, text) for place, text in zip(places, texts, strict=False)]
        self._extend(name, len(places), found)

    def join(self, other: TextCells, before: int) -> None:
        """Take in those of the next rows, with so many rows before them."""
        for name, cells in other.first.items():
            self._extend(name, other.counts[name], [cell._replace(row=cell.row + before) for cell in cells])

    def _extend(self, name: str, count: int, cells: list[TextCell]) -> None:
        self.counts[name] += count
        self.first[name] = (self.first.get(name, []) + cells)[:LISTED]

    def placed(self, places: np.ndarray | None) -> TextCells:
        """The same where the rows lie at these places of a larger table; None for all of it."""
        if places is None:
            return self
        moved = {
            name: [one._replace(row=int(places[one.row - 1]) + 1) for one in own] for name, own in self.first.items()
        }
        return TextCells(self.counts, moved)

    def words(self, hidden: bool = False) -> list[str]:
        """A sentence for each column, without the texts themselves where they are to be `hidden`."""
        written: Callable[[TextCell], str] = _row if hidden else (lambda cell: f"{cell.shown} ({_row(cell)})")
        return [_words(name, count, list(map(written, self.first[name]))) for name, count in self.counts.items()]


def _row(cell: TextCell) -> str:
    return f"row {cell.row:,}"


def _words(name: str, count: int, shown: list[str]) -> str:
    cells = "1 cell is text, not a number, and counts" if count == 1 else f"{count:,} cells are text and count"
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"column {name!r}: {cells} as missing and strange: {', '.join(shown)}{more}"
