"""Column types, and the columns that are dropped: identifiers, prose, constants and copies of others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml import arrow
from addml.preprocessing.categories import BooleanColumn, CategoryColumn
from addml.preprocessing.numbers import Column, DateColumn, NumberColumn, QuantileBins, one_chunk, refuse_infinity
from addml.preprocessing.profile import name_words
from addml.text import shortened

UNREAD = "do not and count as missing"  # the end of a note on such values
EMPTY = "empty: no row has a value"


@dataclass(frozen=True)
class Kept:
    """A column to learn from, with a mark that its copies share and notes for the user."""

    column: Column
    mark: float | bytes
    notes: list[str] = field(default_factory=list)


Decision = Kept | str  # the column, or why it is dropped


def fit_column(name: str, column: pa.ChunkedArray) -> Decision:
    """Choose the type of one training column, or the reason to drop it."""
    column = arrow.plain_chunks(column)
    kind = column.type
    if column.null_count == len(column):
        return EMPTY
    if pa.types.is_boolean(kind) or arrow.is_numeric(kind):
        values = np.concatenate([arrow.as_numbers(chunk) for chunk in column.chunks])
        return _booleans(name, values) if pa.types.is_boolean(kind) else _numbers(name, values)
    if arrow.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        days = np.concatenate([arrow.as_days(chunk, zone) for chunk in column.chunks])
        return _dates(days, DateColumn.fit(name, days, bool(pa.types.is_time(kind)), zone=zone))
    is_category = pa.types.is_dictionary(kind) and not pa.types.is_nested(kind.value_type)
    if not arrow.is_text(kind) and not is_category:
        return f"not understood: values of type {kind}"
    texts = DistinctTexts.of(column)
    if not len(texts.values):
        return EMPTY
    return _categories(name, texts) if is_category else _texts(name, texts)


def _numbers(name: str, values: np.ndarray, written: arrow.NumberFormat | None = None, texts: int = 0) -> Decision:
    refuse_infinity(values, name)
    if np.isnan(values).all():
        return EMPTY
    if (values == values[0]).all():
        return f"constant: {values[0]:g} in every row"
    if (reason := identifier_numbers(name, values)) is not None:
        return reason
    return Kept(NumberColumn(name, QuantileBins.fit(values), written, texts / len(values)), _number_mark(values))


def _booleans(name: str, values: np.ndarray) -> Decision:
    falses, trues = (int(np.count_nonzero(values == value)) for value in (0, 1))
    if len(values) in (falses, trues):
        return f"constant: {'true' if trues else 'false'} in every row"
    return Kept(BooleanColumn(name, falses, trues, len(values) - falses - trues), _number_mark(values))


def _dates(days: np.ndarray, column: DateColumn, *notes: str) -> Decision:
    if (days == days[0]).all():
        return f"constant: {column.shown(days[0])} in every row"
    return Kept(column, _number_mark(days), list(notes))


def _texts(name: str, texts: DistinctTexts) -> Decision:
    """Numbers or dates if all or nearly all texts are, else categories."""
    example = repr(texts.values[0].as_py())
    written = None if arrow.are_codes(texts.values) else arrow.number_format(texts.sample())
    if written is not None and (written := arrow.number_format(texts.values)) is not None:
        decided = _numbers_of(name, texts, written)
        if isinstance(decided, Kept):
            decided.notes.append(f"column {name!r} is text that reads as numbers ({example})")
        return decided
    if (dates := arrow.date_format(texts.values, texts.counts)) is not None:
        return _dates_of(name, texts, dates, example)
    known = texts.without(np.asarray(arrow.are_missing(texts.values)))
    if (written := nearly_numbers(known.values, known.counts)) is not None:
        return _numbers_of(name, known, written)
    return _categories(name, texts)


def _numbers_of(name: str, texts: DistinctTexts, written: arrow.NumberFormat) -> Decision:
    """Numbers written as text; a few other texts are missing values with a flag."""
    values, wrong = arrow.parse_numbers(texts.values, written)
    return _numbers(name, texts.in_rows(values), written, int(wrong @ texts.counts))


def _dates_of(name: str, texts: DistinctTexts, dates: arrow.DateFormat, example: str) -> Decision:
    """Dates written as text; a few other texts are missing values."""
    zone = arrow.date_zone(texts.values, dates.form)
    days = texts.in_rows(arrow.parse_dates(texts.values, dates.form, zone))
    column = DateColumn.fit(name, days, dates.form == "clock", zone=zone, form=dates.form, slips=dates.share < 1)
    kind = "times of the day" if column.clock else f"dates, {dates.form}{' (a guess)' if dates.is_guess else ''}"
    unread = round((1 - dates.share) * texts.rows)
    slips = f"; {unread:,} of its values {UNREAD}" if unread else ""
    return _dates(days, column, f"column {name!r} is text that reads as {kind} ({example}){slips}")


def _categories(name: str, texts: DistinctTexts) -> Decision:
    if len(texts.values) == 1 and not texts.gaps:
        return f"constant: {shortened(texts.values[0].as_py())!r} in every row"
    if (reason := identifier_texts(name, texts)) is not None:
        return reason
    column = CategoryColumn.fit(name, texts.values.to_pylist(), texts.counts, texts.gaps)
    codes = np.ascontiguousarray(texts.codes, np.int64)  # in order of first occurrence, so copies have the same codes
    return Kept(column, hashlib.blake2b(codes.tobytes(), digest_size=16).digest())


SAMPLE = 1000  # distinct texts that are examined closely
MIXED = r"^\s*(?:[A-Za-z]+[-./]?\d|\d+[-./]?[A-Za-z])[A-Za-z\d./-]*\s*$"  # V57, 85123A: a code among numbers
FEW = 50  # texts that suffice to rule numbers out
FEW_TEXTS = 0.05  # largest share of the known cells for texts among numbers to be slips
LEAST_NUMBERS = 20  # cells; among fewer numbers a text is no slip
MOST_CODES = 2  # different codes such as V57 among numbers that may be slips


@dataclass(frozen=True)
class DistinctTexts:
    """The distinct texts of a column; blanks count as gaps."""

    values: pa.Array  # in order of first occurrence
    counts: np.ndarray  # rows of each
    codes: np.ndarray  # (n,): the position in `values`, -1 for a gap

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> DistinctTexts:
        kind = arrow.as_text(pa.nulls(0, column.type)).type
        text = pa.chunked_array([arrow.as_text(chunk) for chunk in column.chunks], kind)
        encoded = one_chunk(pc.dictionary_encode(text))
        codes = np.array(encoded.indices.fill_null(-1))
        values = encoded.dictionary
        texts = cls(values, np.bincount(codes + 1, minlength=len(values) + 1)[1:], codes)
        return texts.without(blank) if (blank := arrow.are_blank(values)).any() else texts

    def without(self, dropped: np.ndarray) -> DistinctTexts:
        """Without some of the distinct texts, which become gaps."""
        renumbered = np.append(np.where(dropped, -1, np.cumsum(~dropped) - 1), -1).astype(self.codes.dtype)
        return DistinctTexts(self.values.filter(pa.array(~dropped)), self.counts[~dropped], renumbered[self.codes])

    def in_rows(self, values: np.ndarray) -> np.ndarray:
        """A number for each distinct text as a number for each row, NaN for gaps."""
        return np.asarray(np.append(values, np.nan)[self.codes])

    rows = property(lambda self: int(self.counts.sum()))  # with a text
    gaps = property(lambda self: len(self.codes) - self.rows)

    def sample(self) -> pa.Array:
        """At most SAMPLE of the distinct texts, evenly spaced."""
        if len(self.values) <= SAMPLE:
            return self.values
        return self.values.take(np.linspace(0, len(self.values) - 1, SAMPLE).astype(np.int64))


def nearly_numbers(values: pa.Array, counts: np.ndarray) -> arrow.NumberFormat | None:
    """The number format of distinct texts, each in `counts` rows, if all but a few are numbers."""
    first = np.asarray(pc.match_substring_regex(values[:FEW], arrow.PARTS))
    if not len(first) or first.mean() < 0.5 or arrow.are_codes(values):
        return None
    written, is_number = arrow.commonest_number_format(values, counts)
    numbers = int(is_number @ counts)
    if numbers < LEAST_NUMBERS or counts.sum() - numbers > FEW_TEXTS * counts.sum():
        return None
    texts = values.filter(pa.array(~is_number))
    codes = np.count_nonzero(np.asarray(pc.match_substring_regex(texts, MIXED)))
    return None if codes > MOST_CODES else written


FEWEST = 10  # numbers; fewer are never called an identifier
NEARLY_ALL = 0.95  # distinct share of the rows that makes an identifier
WITH_A_HINT = 0.9  # the same if the name suggests an identifier; for texts HALF suffices
HALF = 0.5
COLLISIONS = 20  # expected repetitions in random numbers; if none occurs, the numbers are an identifier
HINTS = frozenset(("id", "ids", "uuid", "guid", "key", "pk", "hash", "token", "serial", "identifier"))
HASH = r"^\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$|^[0-9a-fA-F]{24,}$"
PROSE_WORDS, PROSE_LENGTH = 4, 20  # on average


def identifier_numbers(name: str, values: np.ndarray) -> str | None:
    """Why a column of numbers is an identifier, or None; only whole numbers can be one.

    Being distinct is not enough: amounts in cents are distinct too. But m numbers drawn from a range of R would repeat
    each other about m²/2R times; if that is many and none did, they were assigned one by one.
    """
    known = values[~np.isnan(values)]
    if len(known) < FEWEST or not _whole(known[:1000]) or not _whole(known):
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
    if distinct >= WITH_A_HINT * len(whole) and not HINTS.isdisjoint(name_words(name)):
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
    if not HINTS.isdisjoint(name_words(name)):
        return f"identifier: by its name, and {share:.0%} of the rows have a value of their own"
    return None


def _whole(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return True
    return bool((np.abs(values) < 2.0**53).all() and (values == np.floor(values)).all())


MARKED = 1000  # rows behind a mark, which tells the pairs that are worth a full comparison
TOLERANCE = 1e-9  # of a column's range: rounding of the copy


def _number_mark(values: np.ndarray) -> float:
    """A fingerprint of numbers that does not change when they are scaled or shifted.

    It comes from a few rows, the same for all columns of a table, or from all if these have a single value.
    """
    if len(values) > MARKED:
        sample = values[np.random.default_rng(0).integers(0, len(values), MARKED)]
        values = values if (sample == sample[0]).all() else sample
    known = ~np.isnan(values)
    filled = _within_one(np.where(known, values, 0.0).astype(np.float64))
    weights = np.random.default_rng(1).normal(size=(2, len(values)))
    centred = np.where(known, filled - filled.sum() / max(1, known.sum()), 0.0)
    largest = np.abs(centred).max(initial=0.0)
    if largest == 0:
        return float(weights[1] @ known)
    centred /= largest
    shape = weights[0] @ centred / np.sqrt(centred @ centred)
    return float(abs(shape) + weights[1] @ known)


def find_copies(table: pa.Table, kept: Mapping[str, Kept]) -> dict[str, str]:
    """Copy -> original: numbers up to scale and shift, categories up to other names of their levels.

    A date is the original of its number, words are the original of their codes.
    """

    def read(name: str) -> np.ndarray:
        return np.concatenate([kept[name].column.read(chunk) for chunk in table[name].chunks])

    letters = {name: _letters(one.column) for name, one in kept.items() if isinstance(one.column, CategoryColumn)}
    words_first = sorted(letters, key=lambda name: -letters[name])
    first = {kept[name].mark: name for name in reversed(words_first)}
    found = {name: original for name in words_first if (original := first[kept[name].mark]) != name}
    numbers = [name for name in kept if name not in letters]
    names = sorted(numbers, key=lambda name: kept[name].column.kind != "date")
    marks = np.array([kept[name].mark for name in names])
    for place, name in enumerate(names):
        near = np.flatnonzero(np.abs(marks[:place] - marks[place]) <= 1e-6)  # equal up to rounding
        originals = (names[one] for one in near if names[one] not in found)
        copied = next((other for other in originals if is_affine(read(other), read(name))), None)
        if copied is not None:
            found[name] = copied
    return found


def _letters(column: CategoryColumn) -> float:
    """Average number of letters in a level."""
    return sum(sum(map(str.isalpha, level)) for level in column.levels) / max(1, len(column.levels))


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
    """Scaled to -1 to 1, where differences cannot overflow."""
    return np.asarray(values / (np.abs(values).max(initial=0.0) or 1.0))
