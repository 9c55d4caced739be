"""The times of steps: dates however they are written, epochs and plain numbers; rows brought into their order."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from addml.arrow import DAY_FIRST, MONTH_FIRST, PER_DAY, date_format, parse_dates
from addml.text import counted

EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}  # ticks per second
EPOCH_YEARS = (10**9, 4_102_444_800)  # seconds: September 2001 to 2099, in which numbers count as times of day


def utc_times(values: Any, what: str, first: int = 0) -> np.ndarray:
    """Times as datetime64[ns] in UTC: dates, ISO 8601 texts with zones or without (which count as UTC), or numbers.

    Rows count from `first` where one is no time.
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
        row = f" in row {len(found) + first}" if len(found) < len(values) else ""  # else beyond what nanoseconds count
        raise ValueError(f"{what}: {error}{row}; give ISO 8601 times such as 2026-11-15T08:30:00+01:00") from None


def column_times(column: Any, what: str) -> tuple[np.ndarray, str | None]:
    """The times of an Arrow column, and how they are read where that is not plain; rows count from 1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return utc_times(column.to_numpy(), what, first=1), None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _from_numbers(utc_times(column.to_numpy(), what, first=1))
    if kind in (pa.string(), pa.large_string()):
        column = column.combine_chunks()
        if (found := _from_texts(column) or _number_texts(column)) is not None:
            return found
    return utc_times(np.array(column.to_pylist(), object), what, first=1), None


def _from_numbers(times: np.ndarray) -> tuple[np.ndarray, str | None]:
    """Numbers, as times where all of them are epochs of this century."""
    for unit, ticks in EPOCHS.items():
        low, high = EPOCH_YEARS[0] * ticks, EPOCH_YEARS[1] * ticks
        if len(times) > 1 and low <= times.min() and times.max() < high:  # never where one is NaN
            scale = 10**9 // ticks
            whole = times * scale if times.dtype.kind == "i" else np.rint(times * scale).astype(np.int64)
            return whole.astype("datetime64[ns]"), f"times are {unit} since 1970, in UTC"
    return times, None


def _number_texts(column: Any) -> tuple[np.ndarray, str | None] | None:
    """Texts that are all numbers; None where they are not."""
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return _from_numbers(column.cast(kind).to_numpy(zero_copy_only=False))
    return None


def _from_texts(column: Any) -> tuple[np.ndarray, str | None] | None:
    """Texts that are dates in one of the usual orders, decided by the whole column; None where they are not."""
    distinct = column.dictionary_encode()
    known = distinct.dictionary
    counts = np.bincount(np.asarray(distinct.indices.fill_null(len(known))), minlength=len(known) + 1)[:-1]
    written = date_format(known, counts) if len(known) else None
    if written is None or written.form == "clock" or written.share < 1:
        return None

    def read(form: str) -> np.ndarray:
        days = parse_dates(column, form, "UTC")
        moments = np.where(np.isnan(days), 0, np.rint(days * PER_DAY["us"])).astype(np.int64).astype("datetime64[us]")
        return _nanoseconds(np.where(np.isnan(days), np.datetime64("NaT"), moments), "the times")

    if written.form not in (DAY_FIRST, MONTH_FIRST):
        return read(written.form), None
    forms = (DAY_FIRST, MONTH_FIRST) if written.is_guess else (written.form,)
    form, times = max(((form, read(form)) for form in forms), key=lambda one: _regularity(one[1]))
    guess = ", the more regular order; no value tells" if written.is_guess else ""
    return times, f"times such as {known[0].as_py()!r} are read {form}{guess}"


def _regularity(times: np.ndarray) -> float:
    """The share of steps that are as long as the middle one."""
    steps = np.diff(np.unique(times[~np.isnat(times)]))  # those of all entities together
    return float((steps == np.median(steps)).mean()) if len(steps) else 0.0


def _nanoseconds(times: np.ndarray, what: str) -> np.ndarray:
    exact = times.astype("datetime64[ns]")
    wrong = (exact.astype(times.dtype) != times) & ~np.isnat(times)  # a count that runs over begins anew
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{what}: {times[row]} lies outside the years 1678 to 2261; remove the row, or give its time")
    return np.asarray(exact)


def _instant(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise ValueError(f"{value} is no date")
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value


def check_times(times: np.ndarray, what: str, first: int = 0) -> None:
    """Times must be known; rows count from `first`."""
    unknown = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
    if unknown.any():
        raise ValueError(f"{what} has no time in row {int(unknown.argmax()) + first}; remove the row, or give its time")


# Rows in the order of their times ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Ordered:
    """Rows as steps: those of each series together, by time, rows of one time averaged."""

    values: np.ndarray  # (steps, channels)
    times: np.ndarray | None  # (steps,)
    codes: np.ndarray  # (steps,) the series of each, ascending
    steps: np.ndarray  # (rows,) the step of each row
    unsorted: int  # rows earlier than the row of their series before them
    repeated: int  # rows with a time that their series has already

    @classmethod
    def of(cls, values: np.ndarray, times: np.ndarray | None, codes: np.ndarray) -> Ordered:
        """The steps of rows (n, channels) that belong to the series with these codes (n,)."""
        by_series = np.argsort(codes, kind="stable")
        if times is None:
            steps = np.empty(len(codes), np.int64)
            steps[by_series] = np.arange(len(codes))
            return cls(values[by_series], None, codes[by_series], steps, 0, 0)
        given, same = times[by_series], np.diff(codes[by_series]) == 0
        unsorted = int(((given[1:] < given[:-1]) & same).sum())
        order = np.lexsort((times, codes)) if unsorted else by_series
        times, codes = times[order], codes[order]
        starts = np.flatnonzero(np.append(True, (times[1:] != times[:-1]) | (np.diff(codes) > 0)))
        steps = np.empty(len(order), np.int64)
        steps[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        values = values[order]
        repeated = len(order) - len(starts)
        if repeated:
            known = ~np.isnan(values)
            total, count = (np.add.reduceat(one, starts) for one in (np.where(known, values, 0), known.astype(float)))
            values = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return cls(values, times[starts], codes[starts], steps, unsorted, repeated)

    @property
    def words(self) -> list[str]:
        """What was done, one sentence each."""
        return order_words(self.unsorted, self.repeated)


def order_words(unsorted: int, repeated: int) -> list[str]:
    """What was done to rows that were out of order or of one time, one sentence each."""
    said = [f"rows were not in the order of their times ({unsorted:,} go back): sorted"] if unsorted else []
    return said + ([f"{counted(repeated, 'row repeats', 'rows repeat')} a time: averaged"] if repeated else [])
