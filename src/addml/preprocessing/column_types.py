"""Which type a column has, and which columns are dropped: identifiers, prose, constants and copies of others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import DistinctTexts, as_days, as_numbers, is_date, is_numeric, is_text, plain_chunks
from addml.preprocessing.categories import CategoryColumn
from addml.preprocessing.dates import DateColumn
from addml.preprocessing.numbers import BooleanColumn, Column, NumberColumn, QuantileBins, refuse_infinity
from addml.preprocessing.text_values import among_numbers, nearly_numbers
from addml.text import listed, shortened
from addml.text_formats import (
    DateFormat,
    NumberFormat,
    are_codes,
    are_missing,
    date_format,
    date_zone,
    number_format,
    parse_dates,
    parse_numbers,
)

UNREAD = "do not and count as missing"  # how a note of such values ends
AMONG_NUMBERS = "among its numbers; correct that, or leave it empty"  # and one of values that make numbers text
EMPTY = "empty: no row has a value"
MOST_SHOWN = 3  # texts among numbers


@dataclass(frozen=True)
class Dropped:
    """A column that is not learned from."""

    reason: str


@dataclass(frozen=True)
class Kept:
    """A column that is, with a mark that its copies share and notes for the user."""

    column: Column
    mark: float | bytes
    notes: list[str] = field(default_factory=list)


def fit_column(name: str, column: pa.ChunkedArray) -> Kept | Dropped:
    """Decide on one column of the training table."""
    column = plain_chunks(column)
    kind = column.type
    if column.null_count == len(column):
        return Dropped(EMPTY)
    if pa.types.is_boolean(kind) or is_numeric(kind):
        values = np.concatenate([as_numbers(chunk) for chunk in column.chunks])
        return (_booleans if pa.types.is_boolean(kind) else _numbers)(name, values)
    if is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        days = np.concatenate([as_days(chunk, zone) for chunk in column.chunks])
        return _dates(days, DateColumn.fit(name, days, bool(pa.types.is_time(kind)), zone=zone))
    if is_text(kind):
        return _texts(name, column)
    if pa.types.is_dictionary(kind) and not pa.types.is_nested(kind.value_type):
        return _categories(name, DistinctTexts.of(column))  # whoever made it one knows that it is a category
    return Dropped(f"not understood: values of type {kind}")


def _numbers(name: str, values: np.ndarray, written: NumberFormat | None = None, texts: int = 0) -> Kept | Dropped:
    refuse_infinity(values, name)
    if np.isnan(values).all():
        return Dropped(EMPTY)
    if (values == values[0]).all():
        return Dropped(f"constant: {values[0]:g} in every row")
    if (reason := identifier_numbers(name, values)) is not None:
        return Dropped(reason)
    return Kept(NumberColumn(name, QuantileBins.fit(values), written, texts / len(values)), _number_mark(values))


def _booleans(name: str, values: np.ndarray) -> Kept | Dropped:
    falses, trues = (int(np.count_nonzero(values == value)) for value in (0, 1))
    if len(values) in (falses, trues):
        return Dropped(f"constant: {'true' if trues else 'false'} in every row")
    return Kept(BooleanColumn(name, falses, trues, len(values) - falses - trues), _number_mark(values))


def _dates(days: np.ndarray, column: DateColumn, notes: list[str] | None = None) -> Kept | Dropped:
    if (days == days[0]).all():
        return Dropped(f"constant: {column.shown(days[0])} in every row")
    return Kept(column, _number_mark(days), notes or [])


def _texts(name: str, column: pa.ChunkedArray) -> Kept | Dropped:
    """Numbers or dates written as text, all or nearly all of them; else categories."""
    texts = DistinctTexts.of(column)
    if not len(texts.values):
        return Dropped(EMPTY)
    written = None if are_codes(texts.values) else number_format(texts.sample())
    if written is not None and (written := number_format(texts.values)) is not None:
        decided = _numbers_of(name, texts, written)
        if isinstance(decided, Kept):
            decided.notes.append(f"column {name!r} is text that reads as numbers ({texts.values[0].as_py()!r})")
        return decided
    dates = date_format(texts.values, texts.counts)
    if dates is not None:
        return _dates_of(name, texts, dates)
    known = texts.without(np.asarray(are_missing(texts.values)))
    written = nearly_numbers(known.values, known.counts)
    if written is not None:
        return _numbers_of(name, known, written)
    decided, slips = _categories(name, texts), among_numbers(texts.values, texts.counts)
    if slips is None:
        return decided
    shown = listed([repr(shortened(text)) for text in slips.to_pylist()], MOST_SHOWN)
    words = f"{shown} {'is' if len(slips) == 1 else 'are'} {AMONG_NUMBERS}"  # what keeps it from being one of numbers
    if isinstance(decided, Dropped):
        return Dropped(f"text: {words}")
    decided.notes.append(f"column {name!r} is read as text: {words}")
    return decided


def _numbers_of(name: str, texts: DistinctTexts, written: NumberFormat) -> Kept | Dropped:
    """Numbers written as text, and perhaps a few other texts, which are missing values that count as strange."""
    values, wrong = parse_numbers(texts.values, written)
    return _numbers(name, texts.in_rows(values), written, int(wrong @ texts.counts))


def _dates_of(name: str, texts: DistinctTexts, dates: DateFormat) -> Kept | Dropped:
    zone = date_zone(texts.values, dates.form)
    days = texts.in_rows(parse_dates(texts.values, dates.form, zone))
    column = DateColumn.fit(name, days, dates.form == "clock", zone=zone, form=dates.form, slips=dates.share < 1)
    kind = "times of the day" if column.clock else f"dates, {dates.form}{' (a guess)' if dates.is_guess else ''}"
    note = f"column {name!r} is text that reads as {kind} ({texts.values[0].as_py()!r})"
    unread = round((1 - dates.share) * texts.rows)
    return _dates(days, column, [note + (f"; {unread:,} of its values {UNREAD}" if unread else "")])


def _categories(name: str, texts: DistinctTexts) -> Kept | Dropped:
    if not len(texts.values):
        return Dropped(EMPTY)
    if len(texts.values) == 1 and not texts.gaps:
        return Dropped(f"constant: {shortened(texts.values[0].as_py())!r} in every row")
    if (reason := identifier_texts(name, texts)) is not None:
        return Dropped(reason)
    column = CategoryColumn.fit(name, texts.values.to_pylist(), texts.counts, texts.gaps)
    codes = np.ascontiguousarray(texts.codes, np.int64)  # in order of first occurrence: copies stand for each other
    return Kept(column, hashlib.blake2b(codes.tobytes(), digest_size=16).digest())


# Identifiers ------------------------------------------------------------------------------------------------


FEWEST = 10  # numbers that can tell an identifier
NEARLY_ALL = 0.95  # distinct, of the rows
WITH_A_HINT = 0.9  # the same where the name says identifier; for texts HALF suffices
HALF = 0.5
COLLISIONS = 20  # that numbers without a repetition must have escaped to be called identifiers
HINTS = frozenset(("id", "ids", "uuid", "guid", "key", "pk", "hash", "token", "serial", "identifier"))
HASH = r"^\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$|^[0-9a-fA-F]{24,}$"
PROSE_WORDS, PROSE_LENGTH = 4, 20  # on average


def identifier_numbers(name: str, values: np.ndarray) -> str | None:
    """Why a column of numbers is an identifier, or None; only whole numbers can be one.

    Distinct alone says nothing: amounts in cents are distinct too. But m numbers drawn from a range of R would repeat
    each other about m²/2R times; where that is many and none did, they were given out one by one.
    """
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if len(known) < FEWEST or not _whole(known[:1000]) or not _whole(known):
        return None
    hinted = is_hinted(name)
    if not hinted and len(np.unique(known[:1000])) < min(1000, len(known)):
        return None
    whole = known.astype(np.uint64 if known.dtype == np.uint64 else np.int64)
    ordered = np.sort(whole)
    distinct = 1 + np.count_nonzero(ordered[1:] != ordered[:-1])
    span = float(ordered[-1]) - float(ordered[0]) + 1
    if distinct == len(whole):
        steps = np.diff(whole.astype(np.int64))
        if len(known) == len(values) and (steps == steps[0]).all():
            return f"identifier: counts the rows in steps of {steps[0]:,}"
        if len(whole) ** 2 / (2 * span) >= COLLISIONS:
            return f"identifier: numbers from {ordered[0]:,} to {ordered[-1]:,}, none of them twice"
        if span >= 2.0**53:
            return "identifier: numbers of over 16 digits, none of them twice"
    if hinted and distinct >= WITH_A_HINT * len(whole):
        return "identifier: by its name, and (nearly) every row has a number of its own"
    return None


def identifier_texts(name: str, texts: DistinctTexts) -> str | None:
    """Why a column of texts is an identifier or prose, or None."""
    share, sample = len(texts.values) / max(1, texts.rows), texts.sample()
    if share < HALF:
        return None
    words = pc.mean(pc.count_substring_regex(sample, r"\S+")).as_py()
    length = pc.mean(pc.utf8_length(sample)).as_py()
    if words >= PROSE_WORDS and length >= PROSE_LENGTH:
        return f"free text: {words:.0f} words on average, {share:.0%} of the rows differ"
    if pc.mean(pc.match_substring_regex(sample, HASH).cast("int8")).as_py() >= NEARLY_ALL:
        return "identifier: UUIDs or hashes"
    if share >= NEARLY_ALL:
        return "identifier: (nearly) every row has a value of its own"
    if is_hinted(name):
        return f"identifier: by its name, and {share:.0%} of the rows have a value of their own"
    return None


def is_hinted(name: str) -> bool:
    """Whether the name of the column says identifier: `id`, `order_id`, `orderId`."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower() in HINTS for word in words)


def _whole(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return True
    return bool((np.abs(values) < 2.0**53).all() and (values == np.floor(values)).all())


# Copies -----------------------------------------------------------------------------------------------------


LOOKED_AT = 1000  # rows that tell which pairs are worth a full comparison
TOLERANCE = 1e-9  # of a column's range: rounding of the copy


def _number_mark(values: np.ndarray) -> float:
    """A number that does not change when the values are scaled or shifted, and hardly ever meets another's.

    It is taken from some rows, the same for all columns of a table, unless these hold one value alone.
    """
    if len(values) > LOOKED_AT:
        sample = values[np.random.default_rng(0).integers(0, len(values), LOOKED_AT)]
        values = values if (sample == sample[0]).all() else sample
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    filled = _within_one(np.where(known, values, 0.0).astype(np.float64))
    weights = np.random.default_rng(1).normal(size=(2, len(values)))
    centred = np.where(known, filled - filled.sum() / max(1, known.sum()), 0.0)
    largest = np.abs(centred).max(initial=0.0)
    if largest == 0:
        return float(weights[1] @ known)
    centred /= largest
    shape = weights[0] @ centred / np.sqrt(centred @ centred)
    return float(abs(shape) + weights[1] @ known)


def number_copies(marks: Mapping[str, float], read: Callable[[str], np.ndarray]) -> dict[str, str]:
    """Copy -> original among columns of numbers, up to scale and shift; the first in `marks` is the original."""
    order = {name: position for position, name in enumerate(marks)}
    names = sorted(marks, key=marks.__getitem__)
    jumps = ((place, marks[b] - marks[a]) for place, (a, b) in enumerate(pairwise(names), 1))
    starts = [place for place, jump in jumps if jump > 1e-6]  # the same but for rounding
    found: dict[str, str] = {}
    for start, end in pairwise([0, *starts, len(names)]):
        originals: list[str] = []
        for name in sorted(names[start:end], key=order.__getitem__) if end - start > 1 else ():
            original = next((other for other in originals if is_affine(read(other), read(name))), None)
            if original is None:
                originals.append(name)
            else:
                found[name] = original
    return found


def is_affine(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether y = a x + b in every row, gaps and texts included."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    missing = ~np.isfinite(x)
    if not np.array_equal(np.where(missing, x, 0), np.where(np.isfinite(y), 0, y), equal_nan=True):
        return False
    x, y = (_within_one(values[~missing]) for values in (x, y))
    low, high = int(np.argmin(x)), int(np.argmax(x))
    if x[low] == x[high] or y[low] == y[high]:
        return bool(x[low] == x[high] and np.ptp(y) == 0)
    share = (x - x[low]) / (x[high] - x[low])
    return bool((np.abs(y[low] + share * (y[high] - y[low]) - y) <= TOLERANCE * abs(y[high] - y[low])).all())


def _within_one(values: np.ndarray) -> np.ndarray:
    """Scaled into -1 to 1, where differences cannot overflow."""
    return np.asarray(values / (np.abs(values).max(initial=0.0) or 1.0))


def code_copies(marks: Mapping[str, bytes]) -> dict[str, str]:
    """Copy -> original among columns of categories."""
    first = {mark: name for name, mark in reversed(list(marks.items()))}
    return {name: first[mark] for name, mark in marks.items() if first[mark] != name}
