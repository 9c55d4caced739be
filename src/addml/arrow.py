"""Arrow columns: types, values in NumPy, and the formats of numbers and dates written as text.

The same rules apply to text from every source, and all values of a column decide its format. For day or month first, a
number over 12 decides; without one, the day is first in 1.2.2026, the month in 1/2/2026.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_numeric(kind: pa.DataType) -> bool:
    """Whether the type is numeric; a duration counts as a number of seconds."""
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_duration))


def is_date(kind: pa.DataType) -> bool:
    """Whether the type is a date, a time or both."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind))


def plain(column: pa.Array) -> pa.Array:
    """The column without extension, run-end-encoded and view types, which few Arrow functions support."""
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column))
    if pa.types.is_dictionary(column.type):
        values = plain(column.dictionary)
        is_same = values.type == column.type.value_type
        return column if is_same else pa.DictionaryArray.from_arrays(column.indices, values)
    views = {pa.binary_view(): pa.large_binary(), pa.string_view(): pa.large_string()}
    return column.cast(views[column.type]) if column.type in views else column


def plain_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same as `plain`, for each chunk."""
    kind = plain(pa.nulls(0, column.type)).type
    return pa.chunked_array([plain(chunk) for chunk in column.chunks], kind)


def as_text(column: pa.Array) -> pa.Array:
    """The values as strings, dictionaries decoded."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        column = plain(column.dictionary_decode())
    return column if is_text(column.type) else column.cast(pa.string())


def as_numbers(column: pa.Array) -> np.ndarray:
    """A numeric or boolean column in NumPy, NaN for missing values."""
    kind, types = column.type, pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_null(kind) or types.is_decimal(kind) or types.is_float16(kind):
        column = column.cast(pa.float64())
    elif types.is_duration(kind):
        return np.asarray(column.cast(pa.int64())) / (PER_DAY[kind.unit] / 86_400)
    return np.asarray(column)


def as_days(column: pa.Array, zone: str | None) -> np.ndarray:
    """Dates in days since 1970 in local time, times in fractions of a day; NaN for missing values."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column.cast(pa.timestamp(kind.unit, zone or kind.tz)))
    numbers = np.asarray(column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()))
    if pa.types.is_date32(kind):
        return numbers.astype(np.float64)
    return numbers / PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit]


def look_up(column: pa.DictionaryArray, values: np.ndarray, gap: Any) -> np.ndarray:
    """Look up each row's entry in `values`, which has one for each dictionary value; `gap` for null."""
    with_gap = np.append(values, np.asarray([gap], values.dtype))
    return np.asarray(with_gap[np.asarray(column.indices.cast(pa.int64()).fill_null(len(values)))])


def are_blank(text: pa.Array) -> np.ndarray:
    """Which texts are null, empty or only white space."""
    return np.asarray(pc.equal(pc.utf8_trim_whitespace(text), "").fill_null(True))


def first_true(mask: np.ndarray) -> int | None:
    """The position of the first True, or None."""
    return int(np.argmax(mask)) if mask.any() else None


MISSING_MARKERS = (
    *("", "NA", "N/A", "n/a", "na", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "?", "-"),
    *("#N/A", "#N/A N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
CODE = r"^\s*0\d{2,}\s*$"  # 00501; two digits are more likely a month, an hour or an age
SIGN = r"[€$£¥₹]|USD|EUR|GBP|CHF|JPY|%"
PARTS = (
    rf"^\s*(?P<minus>[+-]?)\s*(?P<before>{SIGN})?\s*(?P<number>[+-]?[\d.,](?:[\d.,'’ \x{{a0}}\x{{202f}}]*[\d.,])?"
    rf"(?:[eE][+-]?\d+)?)\s*(?P<after>{SIGN})?\s*$"
)
PLAIN = r"^\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf(?:inity)?))\s*$"  # as Arrow reads numbers
NEGATIVE = (  # (1,234.00) in accounting, 1,234.00- in SAP, and U+2212, the true minus sign
    (rf"^\s*({SIGN})?\s*\(\s*([^()+-]*\d[^()+-]*)\)\s*({SIGN})?\s*$", r"-\1\2\3"),
    (r"^\s*([\d.,'’ ]*\d)\s?-\s*$", r"-\1"),
    (r"^(\s*)\x{2212}", r"\1-"),
)


def _with_minus(values: pa.Array) -> pa.Array:
    """The texts with a leading hyphen in place of other ways to write negative numbers."""
    if not _any(pc.match_substring_regex(values, r"[)\-]\s*$|^\s*\x{2212}")):
        return values
    for pattern, replacement in NEGATIVE:
        values = pc.replace_substring_regex(values, pattern, replacement)
    return values


def are_missing(values: pa.Array) -> pa.Array:
    """Which texts mark a missing value: NA, null, -."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.is_in(trimmed, pa.array(MISSING_MARKERS, trimmed.type))


def are_codes(values: pa.Array) -> bool:
    """Whether some texts are codes such as 00501, whose leading zeros matter, and none has a sign."""
    return _any(pc.match_substring_regex(values, CODE)) and not _any(pc.match_substring_regex(values, r"^\s*[+-]"))


@dataclass(frozen=True)
class NumberFormat:
    """How a column writes numbers: the symbols around them, the thousands separator and the decimal mark."""

    before: str = ""
    after: str = ""
    thousands: str = ""
    decimal: str = "."

    @property
    def digits(self) -> str:
        """The regular expression of a number without the symbols around it."""
        thousands, decimal = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(\d+|[1-9]\d{{0,2}}({thousands}\d{{3}})+)" if self.thousands else r"\d+"
        return rf"^[+-]?({whole}({decimal}\d*)?|{decimal}\d+)([eE][+-]?\d+)?$"


PLAIN_NUMBERS = NumberFormat()
THOUSANDS = (",", ".", "'", "\u2019", " ", "\u00a0", "\u202f", "")
MARKS = [(thousands, decimal) for thousands in THOUSANDS for decimal in ".," if thousands != decimal]


def number_format(values: pa.Array, decimal: str = ".") -> NumberFormat | None:
    """The format of the texts (none null) if all are numbers in one format, else None.

    `decimal` decides where both marks are possible, as in 1,234.
    """
    if decimal == "." and _cast(values, pa.float64()) is not None:
        return PLAIN_NUMBERS
    if pc.extract_regex(_with_minus(values), PARTS).null_count:
        return None
    style, is_number = commonest_number_format(values, np.ones(len(values), np.int64), decimal)
    return style if is_number.all() else None


def commonest_number_format(
    values: pa.Array, counts: np.ndarray, decimal: str | None = None
) -> tuple[NumberFormat, np.ndarray]:
    """The format that reads the most rows, and which of the distinct texts it reads.

    Ties go to the plain format, or to one with the preferred decimal mark.
    """
    values = _with_minus(values)
    parts = pc.extract_regex(values, PARTS)
    separator = pa.scalar("\n", values.type)
    symbols = pc.binary_join_element_wise(parts.field("before"), parts.field("after"), separator).dictionary_encode()
    codes, is_number = np.asarray(symbols.indices.fill_null(0)), np.asarray(symbols.is_valid())
    commonest = int(np.bincount(codes, weights=counts * is_number).argmax())
    before, after = symbols.dictionary[commonest].as_py().split("\n")
    styles = [NumberFormat(before, after, *marks) for marks in MARKS]
    styles = [PLAIN_NUMBERS, *styles] if decimal is None else sorted(styles, key=lambda style: style.decimal != decimal)
    readable = {style: np.asarray(pc.is_valid(plain_digits(values, style))) for style in styles}
    best = max(readable, key=lambda style: int(readable[style] @ counts))
    return best, readable[best]


def parse_numbers(column: pa.Array, style: NumberFormat) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a text column, NaN for missing values and other texts; and which rows are other texts."""
    column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.equal(column, ""), None, column)
    numbers = _cast(column, pa.float64()) if style == PLAIN_NUMBERS else None
    wrong = np.zeros(len(column), bool)
    if numbers is None:
        column = pc.if_else(are_missing(column), None, column)
        digits = plain_digits(column, style)
        wrong = np.asarray(pc.and_(pc.is_valid(column), pc.is_null(digits)))
        numbers = digits.cast(pa.float64())
    return np.array(numbers, np.float64), wrong


def plain_digits(column: pa.Array, style: NumberFormat) -> pa.Array:
    """The numbers in this format with plain digits and a decimal point; null for other texts."""
    column = _with_minus(column)
    null, empty = pa.scalar(None, column.type), pa.scalar("", column.type)
    if style == PLAIN_NUMBERS:
        return pc.if_else(pc.match_substring_regex(column, PLAIN), column, null)
    parts = pc.extract_regex(column, PARTS)
    matches = pc.and_(pc.equal(parts.field("before"), style.before), pc.equal(parts.field("after"), style.after))
    matches = pc.and_(matches, pc.match_substring_regex(parts.field("number"), style.digits))
    digits = pc.utf8_ltrim(parts.field("number"), characters="+")
    if style.thousands:
        digits = pc.replace_substring(digits, style.thousands, "")
    digits = pc.replace_substring(digits, style.decimal, ".")
    minus = pc.if_else(pc.equal(parts.field("minus"), "-"), pa.scalar("-", column.type), empty)
    signed = pc.replace_substring(pc.binary_join_element_wise(minus, digits, empty), "--", "")
    return pc.if_else(pc.and_(pc.is_valid(parts), matches), signed, null)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column in another type, or None if some value cannot be cast."""
    with suppress(pa.ArrowInvalid):
        return column.cast(kind)
    return None


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())


READ_AT_LEAST = 0.95  # share of the rows; the rest are typing errors and count as missing
FEW_DATES = 50  # so many texts are enough to reject a format
TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<half>[AaPp][Mm])?\s*(?P<zone>Z|UTC|[+-][01]\d(?::?[0-5]\d)?)?)?\s*$"
)
CLOCK = TIME.replace(r"(?:[T ,]+", r"^\s*(?:", 1).replace(r")?\s*$", r")\s*$", 1)
MARK = r"[-/. ]"
ANY_FORM = r"\d.*[-/.: ].*\d"  # common to all forms, and faster to compile than FORMS
POINTS = r"^\s*\d{1,2}\.\d"
DAY_FIRST, MONTH_FIRST = "day first", "month first"
FORMS = {  # in order of preference
    "iso": rf"^\s*(?P<year>\d{{4}}){MARK}(?P<month>\d{{1,2}}){MARK}(?P<day>\d{{1,2}})" + TIME,
    MONTH_FIRST: rf"^\s*(?P<month>\d{{1,2}}){MARK}(?P<day>\d{{1,2}}){MARK}(?P<year>\d{{4}}|\d{{2}})" + TIME,
    DAY_FIRST: rf"^\s*(?P<day>\d{{1,2}}){MARK}(?P<month>\d{{1,2}}){MARK}(?P<year>\d{{4}}|\d{{2}})" + TIME,
    "day, month name": (
        r"^\s*(?:[[:alpha:]]+,?\s+)?(?P<day>\d{1,2})[-/. ]+(?P<name>\pL{3,9})[-/., ]+(?P<year>\d{4})" + TIME
    ),
    "month name, day": (
        r"^\s*(?:[[:alpha:]]+,\s+)?(?P<name>\pL{3,9})[. ]+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})" + TIME
    ),
    "clock": CLOCK,
}
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, start=1)}
MONTHS |= {"mär": 3, "mrz": 3, "mai": 5, "okt": 10, "dez": 12}


class DateFormat(NamedTuple):
    """How a column writes dates."""

    form: str  # a key of FORMS
    share: float  # of the rows that it reads
    is_guess: bool = False  # whether day and month could be the other way round


def date_format(values: pa.Array, counts: np.ndarray, day_first: bool = False) -> DateFormat | None:
    """The format of the distinct texts, each in `counts` rows, if nearly all are dates, else None.

    `day_first` decides where the values do not.
    """
    if np.asarray(pc.match_substring_regex(values[:FEW_DATES], ANY_FORM)).mean() < 0.5:
        return None
    if _as_iso(values, "UTC") is not None:
        return DateFormat("iso", 1.0)
    first, shares = values[:FEW_DATES], dict.fromkeys(FORMS, 0.0)
    for form in FORMS:
        if len(values) <= FEW_DATES or np.isnan(_days(first, form)).mean() <= 0.5:
            shares[form] = float(~np.isnan(_days(values, form)) @ counts / counts.sum())
    best = max(FORMS, key=shares.__getitem__)
    if shares[best] < READ_AT_LEAST:
        return None
    is_ambiguous = best == MONTH_FIRST and shares[best] == shares[DAY_FIRST]
    if is_ambiguous and _any(pc.match_substring_regex(values, POINTS)):
        return DateFormat(DAY_FIRST, shares[best])
    return DateFormat(DAY_FIRST if is_ambiguous and day_first else best, shares[best], is_ambiguous)


def date_zone(values: pa.Array, form: str) -> str | None:
    """The time zone of the distinct texts: their own, UTC if there are several, None if they have none."""
    offsets = _offsets(pc.extract_regex(values, FORMS[form]))
    offsets = np.unique(offsets[~np.isnan(offsets)])
    if len(offsets) != 1:
        return "UTC" if len(offsets) else None
    return datetime(1970, 1, 1, tzinfo=timezone(timedelta(days=offsets[0]))).isoformat()[-6:]  # +01:00


def parse_dates(column: pa.Array, form: str, zone: str | None) -> np.ndarray:
    """Days since 1970 in local time of `zone`; NaN for missing values and other texts.

    Dates without a time zone are already in local time. If `zone` is None, time zones are ignored.
    """
    if form == "iso" and (timestamps := _as_iso(column, zone)) is not None:
        return as_days(timestamps, zone)
    encoded = column.dictionary_encode()
    return look_up(encoded, _days(encoded.dictionary, form, zone), np.nan)


def _as_iso(column: pa.Array, zone: str | None) -> pa.Array | None:
    """ISO 8601 texts as timestamps, or None; texts with a time zone need `zone`, and all must have one or none."""
    timestamps = _cast(column, pa.timestamp("us"))
    return _cast(column, pa.timestamp("us", "UTC")) if timestamps is None and zone else timestamps


def _days(values: pa.Array, form: str, zone: str | None = None) -> np.ndarray:
    """The same as `parse_dates`, for distinct texts in any form."""
    parts = pc.extract_regex(values, FORMS[form])
    valid = np.asarray(pc.is_valid(parts))
    day, is_valid_day = (np.zeros(len(values)), valid) if form == "clock" else _calendar_days(parts)
    time, is_valid_time = _day_shares(parts)
    days = np.where(valid & is_valid_day & is_valid_time, day + time, np.nan)
    if zone is not None:
        offsets = _offsets(parts)
        has_zone = ~np.isnan(days + offsets)
        microseconds = np.rint((days - offsets)[has_zone] * PER_DAY["us"]).astype(np.int64)
        days[has_zone] = as_days(pa.array(microseconds).cast(pa.timestamp("us", "UTC")), zone)
    return days - np.floor(days) if form == "clock" else days


def _offsets(parts: pa.StructArray) -> np.ndarray:
    """The UTC offset of each text in days; NaN without a time zone."""
    encoded = parts.field("zone").dictionary_encode()
    texts = [f"2000-01-01T00{text.replace('UTC', 'Z')}" for text in encoded.dictionary.to_pylist()]
    offsets = [datetime.fromisoformat(text).utcoffset() for text in texts]
    days = [math.nan if offset is None else offset / timedelta(days=1) for offset in offsets]
    return look_up(encoded, np.array(days, np.float64), np.nan)


def _integers(text: pa.Array) -> np.ndarray:
    return np.asarray(pc.if_else(pc.equal(text, ""), pa.scalar("0", text.type), text).cast(pa.int64()))


def _calendar_days(parts: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    """Each date in days since 1970, and whether it is a valid one."""
    if any(field.name == "name" for field in parts.type):
        names = pc.utf8_slice_codeunits(pc.utf8_lower(parts.field("name")), 0, 3)
        index = pc.index_in(names, pa.array(list(MONTHS), names.type)).fill_null(len(MONTHS))
        month = np.array([*MONTHS.values(), 0])[np.asarray(index)]
    else:
        month = _integers(parts.field("month"))
    year, day = _integers(parts.field("year")), _integers(parts.field("day"))
    has_two_digits = np.asarray(pc.equal(pc.utf8_length(parts.field("year")), 2))
    year = np.where(has_two_digits, np.where(year < 69, 2000, 1900) + year, year)  # as in strptime
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    month_start = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first, next_first = (start.astype("datetime64[D]").astype(np.int64) for start in (month_start, month_start + 1))
    return first + day - 1.0, valid & (day <= next_first - first)


def _day_shares(parts: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    """Each time as a fraction of a day, and whether it is a valid one."""
    hour, minute, second, fraction = (_integers(parts.field(name)) for name in ("hour", "minute", "second", "fraction"))
    half = pc.utf8_lower(parts.field("half"))
    is_am, is_pm = (np.asarray(pc.equal(half, name).fill_null(False)) for name in ("am", "pm"))
    is_12_hour = is_am | is_pm
    valid = (hour <= np.where(is_12_hour, 12, 23)) & (hour >= is_12_hour) & (minute <= 59) & (second <= 60)
    hour = np.where(is_12_hour, hour % 12 + 12 * is_pm, hour)
    digits = np.asarray(pc.utf8_length(parts.field("fraction")).fill_null(0))
    return (hour * 3600 + minute * 60 + second + fraction / 10.0**digits) / 86_400, valid
