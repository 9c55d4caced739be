"""Dates and times written as text, in the forms that people use, with a zone or without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.preparation.arrow_values import PER_DAY, as_days, taken

READ_AT_LEAST = 0.95  # of the rows: a column of dates may hold a slip, which counts as a gap
FEW = 50  # texts that suffice to say no
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
    if np.asarray(pc.match_substring_regex(values[:FEW], ANY_FORM)).mean() < 0.5:
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
    if len(values) > FEW and _read(values[:FEW], form).mean() < 0.5:
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
