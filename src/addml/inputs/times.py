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


def utc_times(values: Any, label: str, first: int = 0) -> np.ndarray:
    """Dates and ISO 8601 texts as datetime64[ns] in UTC (the default zone), or numbers; rows count from `first`."""
    values = np.asarray(values)
    if values.dtype.kind in "iuf":
        return np.asarray(values.astype(np.int64 if values.dtype.kind == "i" else np.float64))
    if values.dtype.kind == "M":
        return _nanoseconds(values, label)
    instants: list[Any] = []
    try:
        instants.extend(None if value is None or value != value else _instant(value) for value in values.tolist())
        return np.asarray(pa.array(instants, pa.timestamp("ns")).to_numpy(zero_copy_only=False))
    except (TypeError, ValueError) as error:  # if all values have been read, one is out of range for nanoseconds
        row = f" in row {len(instants) + first}" if len(instants) < len(values) else ""
        raise ValueError(f"{label}: {error}{row}; give ISO 8601 times such as 2026-11-15T08:30:00+01:00") from None


def column_times(column: Any, label: str) -> tuple[np.ndarray, str | None]:
    """The times of an Arrow column, and a note if their notation is ambiguous; errors count rows from 1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return utc_times(column.to_numpy(), label, first=1), IN_UTC if kind.tz not in (None, "UTC") else None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _from_numbers(utc_times(column.to_numpy(), label, first=1))
    if kind in (pa.string(), pa.large_string()):
        column = column.combine_chunks()
        times = _from_texts(column, label) or _number_texts(column)
        if times is not None:
            return times
    return utc_times(np.array(column.to_pylist(), object), label, first=1), None


def _from_numbers(times: np.ndarray) -> tuple[np.ndarray, str | None]:
    """Numbers as times if all of them are epochs of this century, or dates without separators."""
    for unit, ticks in EPOCHS.items():
        low, high = EPOCH_YEARS[0] * ticks, EPOCH_YEARS[1] * ticks
        if len(times) > 1 and low <= times.min() and times.max() < high:  # false if one is NaN
            scale = 10**9 // ticks
            integers = times * scale if times.dtype.kind == "i" else np.rint(times * scale).astype(np.int64)
            return integers.astype("datetime64[ns]"), f"times are read as {unit} since 1970 (UTC)"
    if times.dtype.kind == "i" and len(times) > 1 and (form := BASIC_FORMS.get(len(str(times[0])))):
        moments = pc.strptime(pa.array(times).cast(pa.string()), form, "s", error_is_null=True)
        if not moments.null_count:
            return moments.to_numpy().astype("datetime64[ns]"), f"times such as {times[0]} are read as dates"
    return times, None


def _number_texts(column: Any) -> tuple[np.ndarray, str | None] | None:
    """The times of texts that are all numbers; None for other texts."""
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return _from_numbers(column.cast(kind).to_numpy(zero_copy_only=False))
    return None


def _from_texts(column: Any, label: str) -> tuple[np.ndarray, str | None] | None:
    """The times of texts that are all dates in one notation, which the whole column decides; None for other texts."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary
    counts = np.bincount(np.asarray(encoded.indices.fill_null(len(texts))), minlength=len(texts) + 1)[:-1]
    notation = date_format(texts, counts) if len(texts) else None
    if notation is None or notation.form == "clock" or (notation.form == "iso" and notation.share < 1):
        return None

    def read(form: str) -> np.ndarray:
        days = parse_dates(column, form, "UTC")
        if len(unread := np.flatnonzero(np.isnan(days) & np.asarray(column.is_valid()))):
            text = f"{label}: {column[unread[0]].as_py()!r} in row {unread[0] + 1}"
            raise ValueError(f"{text} is not a date if read {form} like the others; correct it or remove the row")
        times = np.where(np.isnan(days), 0, np.rint(days * PER_DAY["us"])).astype(np.int64).astype("datetime64[us]")
        return _nanoseconds(np.where(np.isnan(days), np.datetime64("NaT"), times), "the times")

    zone = date_zone(texts.take([0, len(texts) // 2, len(texts) - 1]), notation.form)
    if notation.form not in (DAY_FIRST, MONTH_FIRST):
        return read(notation.form), IN_UTC if zone not in (None, "+00:00") else None
    forms = (DAY_FIRST, MONTH_FIRST) if notation.is_guess else (notation.form,)
    times = {form: read(form) for form in forms}
    regularity = {form: _regularity(times[form]) for form in forms}
    form = max(forms, key=regularity.__getitem__)
    is_tie = len(set(regularity.values())) == 1
    reason = "use ISO 8601 if it is the other order" if is_tie else "this order makes steps more regular"
    guess = f" (ambiguous; {reason})" if notation.is_guess else ""
    return times[form], f"times such as {texts[0].as_py()!r} are read {form}{guess}"


def _regularity(times: np.ndarray) -> tuple[float, float]:
    """The share of steps that equal the median step, over all entities together; a shorter series breaks ties."""
    steps = np.diff(np.unique(times[~np.isnat(times)])).astype(float)
    return float((steps == np.median(steps)).mean()) if len(steps) else 0.0, -float(steps.sum())


def _nanoseconds(times: np.ndarray, label: str) -> np.ndarray:
    exact = times.astype("datetime64[ns]")
    is_changed = (exact.astype(times.dtype) != times) & ~np.isnat(times)  # an overflow wraps around
    if is_changed.any():
        row = int(is_changed.argmax())
        raise ValueError(f"{label}: {times[row]} is outside the years 1678 to 2261; remove the row or correct its time")
    return np.asarray(exact)


def _instant(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise ValueError(f"{value} is not a date")
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value


def check_times(times: np.ndarray, label: str, first: int = 0) -> None:
    """Raise ValueError for a missing time; errors count rows from `first`."""
    missing = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
    if missing.any():
        raise ValueError(f"{label} has no time in row {int(missing.argmax()) + first}; remove the row or add its time")


@dataclass(frozen=True)
class Ordered:
    """Rows as steps: sorted by series and time; rows of a series with the same time are averaged."""

    values: np.ndarray  # (steps, channels)
    times: np.ndarray | None  # (steps,)
    codes: np.ndarray  # (steps,) the code of each step's series, ascending
    steps: np.ndarray  # (rows,) the step of each row
    unsorted: int  # rows earlier than the previous row of their series
    repeated: int  # rows that repeat a time of their series

    @classmethod
    def of(cls, values: np.ndarray, times: np.ndarray | None, codes: np.ndarray) -> Ordered:
        """The steps of rows (n, channels), whose series have these codes (n,); without times, rows keep their order."""
        by_series = np.argsort(codes, kind="stable")
        keys = np.arange(len(codes)) if times is None else times
        before_sorting, is_same = keys[by_series], np.diff(codes[by_series]) == 0
        unsorted = int(((before_sorting[1:] < before_sorting[:-1]) & is_same).sum())
        order = np.lexsort((keys, codes)) if unsorted else by_series
        values, keys, codes = values[order], keys[order], codes[order]
        starts = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]) | (np.diff(codes) > 0)))
        steps = np.empty(len(order), np.int64)
        steps[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        repeated = len(order) - len(starts)
        if repeated:
            is_present = ~np.isnan(values)
            total = np.add.reduceat(np.where(is_present, values, 0), starts)
            count = np.add.reduceat(is_present.astype(float), starts)
            values = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return cls(values, None if times is None else keys[starts], codes[starts], steps, unsorted, repeated)


def order_notes(unsorted: int, repeated: int) -> list[str]:
    """One sentence if rows were sorted, and one if rows were averaged."""
    notes = [f"rows sorted by time: {unsorted:,} out of order"] if unsorted else []
    if repeated:
        notes.append(f"rows with the same time averaged: {counted(repeated, 'repeat')}")
    return notes
