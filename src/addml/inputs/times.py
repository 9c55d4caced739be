"""The times of steps: dates in any notation, epochs and plain numbers; rows sorted by them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import DAY_FIRST, MONTH_FIRST, PER_DAY, date_format, date_zone, parse_dates
from addml.text import counted

EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}  # ticks per second
EPOCH_YEARS = (10**9, 4_102_444_800)  # seconds: numbers from September 2001 to 2099 are read as epochs
BASIC_FORMS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # ISO 8601 without separators, by number of digits
IN_UTC = "times are converted to UTC"


def utc_times(values: Any, what: str, first: int = 0) -> np.ndarray:
    """Dates and ISO 8601 texts as datetime64[ns] in UTC (assumed if they have no zone); numbers stay numbers.

    Errors count rows from `first`.
    """
    values = np.asarray(values)
    if values.dtype.kind in "iuf":
        return np.asarray(values.astype(np.int64 if values.dtype.kind == "i" else np.float64))
    if values.dtype.kind == "M":
        return _nanoseconds(values, what)
    found: list[Any] = []
    try:
        found.extend(None if value is None or value != value else _instant(value) for value in values.tolist())
        return np.asarray(pa.array(found, pa.timestamp("ns")).to_numpy(zero_copy_only=False))
    except (TypeError, ValueError) as error:
        row = f" in row {len(found) + first}" if len(found) < len(values) else ""  # else out of range for nanoseconds
        raise ValueError(f"{what}: {error}{row}; give ISO 8601 times such as 2026-11-15T08:30:00+01:00") from None


def column_times(column: Any, what: str) -> tuple[np.ndarray, str | None]:
    """The times of an Arrow column, and a note if their notation is ambiguous; errors count rows from 1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return utc_times(column.to_numpy(), what, first=1), IN_UTC if kind.tz not in (None, "UTC") else None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _from_numbers(utc_times(column.to_numpy(), what, first=1))
    if kind in (pa.string(), pa.large_string()):
        column = column.combine_chunks()
        if (found := _from_texts(column, what) or _number_texts(column)) is not None:
            return found
    return utc_times(np.array(column.to_pylist(), object), what, first=1), None


def _from_numbers(times: np.ndarray) -> tuple[np.ndarray, str | None]:
    """Numbers as times if all of them are epochs of this century, or dates without separators."""
    for unit, ticks in EPOCHS.items():
        low, high = EPOCH_YEARS[0] * ticks, EPOCH_YEARS[1] * ticks
        if len(times) > 1 and low <= times.min() and times.max() < high:  # false if one is NaN
            scale = 10**9 // ticks
            whole = times * scale if times.dtype.kind == "i" else np.rint(times * scale).astype(np.int64)
            return whole.astype("datetime64[ns]"), f"times are read as {unit} since 1970 (UTC)"
    if times.dtype.kind == "i" and len(times) > 1 and (form := BASIC_FORMS.get(len(str(times[0])))):
        moments = pc.strptime(pa.array(times).cast(pa.string()), form, "s", error_is_null=True)
        if not moments.null_count:
            return moments.to_numpy().astype("datetime64[ns]"), f"times such as {times[0]} are read as dates"
    return times, None


def _number_texts(column: Any) -> tuple[np.ndarray, str | None] | None:
    """Times of texts that are all numbers, else None."""
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return _from_numbers(column.cast(kind).to_numpy(zero_copy_only=False))
    return None


def _from_texts(column: Any, what: str) -> tuple[np.ndarray, str | None] | None:
    """Times of texts that are all dates in one notation, which the whole column decides; else None."""
    distinct = column.dictionary_encode()
    known = distinct.dictionary
    counts = np.bincount(np.asarray(distinct.indices.fill_null(len(known))), minlength=len(known) + 1)[:-1]
    written = date_format(known, counts) if len(known) else None
    if written is None or written.form == "clock" or (written.form == "iso" and written.share < 1):
        return None

    def read(form: str) -> np.ndarray:
        days = parse_dates(column, form, "UTC")
        if len(wrong := np.flatnonzero(np.isnan(days) & np.asarray(column.is_valid()))):
            text = f"{what}: {column[wrong[0]].as_py()!r} in row {wrong[0] + 1}"
            raise ValueError(f"{text} is no date, others are read {form}; correct it or remove the row")
        moments = np.where(np.isnan(days), 0, np.rint(days * PER_DAY["us"])).astype(np.int64).astype("datetime64[us]")
        return _nanoseconds(np.where(np.isnan(days), np.datetime64("NaT"), moments), "the times")

    zone = date_zone(known.take([0, len(known) // 2, len(known) - 1]), written.form)
    if written.form not in (DAY_FIRST, MONTH_FIRST):
        return read(written.form), IN_UTC if zone not in (None, "+00:00") else None
    forms = (DAY_FIRST, MONTH_FIRST) if written.is_guess else (written.form,)
    times = {form: read(form) for form in forms}
    regular = {form: _regularity(times[form]) for form in forms}
    form = max(forms, key=regular.__getitem__)
    is_tie = len(set(regular.values())) == 1
    why = "use ISO 8601 if it is the other order" if is_tie else "this order makes steps more regular"
    guess = f" (ambiguous; {why})" if written.is_guess else ""
    return times[form], f"times such as {known[0].as_py()!r} are read {form}{guess}"


def _regularity(times: np.ndarray) -> tuple[float, float]:
    """The share of steps that equal the median step, over all entities together; then the shorter series wins."""
    steps = np.diff(np.unique(times[~np.isnat(times)])).astype(float)
    return float((steps == np.median(steps)).mean()) if len(steps) else 0.0, -float(steps.sum())


def _nanoseconds(times: np.ndarray, what: str) -> np.ndarray:
    exact = times.astype("datetime64[ns]")
    wrong = (exact.astype(times.dtype) != times) & ~np.isnat(times)  # an overflow wraps around
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{what}: {times[row]} is outside the years 1678 to 2261; remove the row or correct its time")
    return np.asarray(exact)


def _instant(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise ValueError(f"{value} is not a date")
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value


def check_times(times: np.ndarray, what: str, first: int = 0) -> None:
    """Raise ValueError for a missing time; errors count rows from `first`."""
    unknown = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
    if unknown.any():
        raise ValueError(f"{what} has no time in row {int(unknown.argmax()) + first}; remove the row or add its time")


@dataclass(frozen=True)
class Ordered:
    """Rows as steps: sorted by series and time; rows of a series with the same time are averaged."""

    values: np.ndarray  # (steps, channels)
    times: np.ndarray | None  # (steps,)
    codes: np.ndarray  # (steps,) the series, ascending
    steps: np.ndarray  # (rows,) the step of each row
    unsorted: int  # rows earlier than the previous row of their series
    repeated: int  # rows that repeat a time of their series

    @classmethod
    def of(cls, values: np.ndarray, times: np.ndarray | None, codes: np.ndarray) -> Ordered:
        """The steps of rows (n, channels) of the series `codes` (n,); without times, rows keep their order."""
        by_series = np.argsort(codes, kind="stable")
        when = np.arange(len(codes)) if times is None else times
        given, same = when[by_series], np.diff(codes[by_series]) == 0
        unsorted = int(((given[1:] < given[:-1]) & same).sum())
        order = np.lexsort((when, codes)) if unsorted else by_series
        when, codes = when[order], codes[order]
        starts = np.flatnonzero(np.append(True, (when[1:] != when[:-1]) | (np.diff(codes) > 0)))
        steps = np.empty(len(order), np.int64)
        steps[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        values = values[order]
        repeated = len(order) - len(starts)
        if repeated:
            known = ~np.isnan(values)
            total, count = (np.add.reduceat(one, starts) for one in (np.where(known, values, 0), known.astype(float)))
            values = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return cls(values, None if times is None else when[starts], codes[starts], steps, unsorted, repeated)


def order_words(unsorted: int, repeated: int) -> list[str]:
    """One sentence each if rows were sorted or averaged."""
    said = [f"rows sorted by time: {unsorted:,} out of order"] if unsorted else []
    return said + ([f"rows with the same time averaged: {counted(repeated, 'repeat')}"] if repeated else [])
