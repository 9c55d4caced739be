"""How values are written: numbers with a few digits, days and times, levels that are not too long."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.text import shortened

LONGEST = 40  # characters of a level


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts put together, value by value."""
    return pc.binary_join_element_wise(*parts, "")


def shown_as(kind: str, values: Any) -> pa.Array:
    """Values, none a gap, as text."""
    if kind == "number":
        return figures(values, 4)
    if kind == "date":
        days, minutes = day_and_minute(values)
        return pc.if_else(minutes == 0, _days(days), joined(_days(days), " ", clock().take(pa.array(minutes))))
    encoded = values.dictionary_encode()
    return pa.array([level_text(kind, one) for one in encoded.dictionary.to_pylist()]).take(encoded.indices)


def figures(numbers: np.ndarray, digits: int) -> pa.Array:
    """Numbers with so many significant digits, and all digits before the point: 97.3, 60, 1234567, 2.5e-09.

    A number that is rounded to so many digits is the shortest text of the nearest float, which Arrow writes. What
    lies so near the middle between two such texts that the product below may have crossed it is written one by one.
    """
    sizes = np.abs(numbers)
    plain = (sizes == 0) | ((sizes >= 1e-4) & (sizes < 1e9))  # beyond these Arrow writes exponents
    before = np.floor(np.log10(np.where(plain & (sizes > 0), sizes, 1)))
    tens = 10.0 ** np.maximum(0, digits - 1 - before)
    scaled = np.where(plain, numbers, 0) * tens
    whole = np.rint(scaled)
    texts = pa.array(whole / tens).cast(pa.string())
    hard = ~plain | (np.abs(np.abs(scaled - whole) - 0.5) < 1e-6)
    if not hard.any():
        return texts
    return pc.replace_with_mask(texts, hard, pa.array([figure(one, digits) for one in numbers[hard].tolist()]))


@lru_cache(maxsize=4096)
def figure(number: float, digits: int) -> str:
    """One number as `figures` writes it."""
    size = abs(number)
    if size and not 1e-4 <= size < 1e15:
        return f"{number:.{digits}g}"
    text = f"{number:.{max(0, digits - 1 - math.floor(math.log10(size or 1)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def level_text(kind: str, text: str) -> str:
    """A level on one line, cut where it is too long."""
    return one_line(text) if kind == "boolean" else f"'{one_line(text)}'"


def no_number(texts: pa.Array) -> pa.Array:
    """What is said of texts in a column of numbers."""
    return pa.array([f'is "{one_line(text)}", not a number' for text in texts.to_pylist()], pa.string())


def one_line(text: str) -> str:
    """A text on one line, cut where it is too long."""
    return shortened(" ".join(text.split()), LONGEST)


def year_or_day(moments: np.ndarray, nearest: np.ndarray) -> pa.Array:
    """The year where it is another than that of the nearest moment, else the day."""
    years, same = moments.astype("datetime64[Y]"), nearest.astype("datetime64[Y]")
    in_year = joined("in ", pa.array(years.astype(np.int64) + 1970).cast(pa.string()))
    return pc.if_else(years != same, in_year, joined("on ", _days(moments.astype("datetime64[D]"))))


def day_and_minute(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The days, and the minutes since midnight."""
    days = moments.astype("datetime64[D]")
    return days, ((moments - days) // np.timedelta64(1, "m")).astype(np.int64)


@lru_cache(maxsize=1)
def clock() -> pa.Array:
    """Every minute of a day as text; made late, since Arrow's first array from Python imports pandas."""
    return pa.array([f"{minute // 60:02}:{minute % 60:02}" for minute in range(1440)])


def _days(days: np.ndarray) -> pa.Array:
    return pa.array(days).cast(pa.string())
