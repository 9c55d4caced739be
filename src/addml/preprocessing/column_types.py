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
class LearnedColumn:
    """A column to learn from, with a fingerprint that its copies share, and notes for the user."""

    column: Column
    fingerprint: float | bytes
    notes: list[str] = field(default_factory=list)


Decision = LearnedColumn | str  # the column, or why it is dropped


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
    return LearnedColumn(
        NumberColumn(name, QuantileBins.fit(values), written, texts / len(values)), _fingerprint(values)
    )


def _booleans(name: str, values: np.ndarray) -> Decision:
    falses, trues = (int(np.count_nonzero(values == value)) for value in (0, 1))
    if len(values) in (falses, trues):
        return f"constant: {'true' if trues else 'false'} in every row"
    return LearnedColumn(BooleanColumn(name, falses, trues, len(values) - falses - trues), _fingerprint(values))


def _dates(days: np.ndarray, column: DateColumn, *notes: str) -> Decision:
    if (days == days[0]).all():
        return f"constant: {column.format(days[0])} in every row"
    return LearnedColumn(column, _fingerprint(days), list(notes))


def _texts(name: str, texts: DistinctTexts) -> Decision:
    """Numbers or dates if all or nearly all texts are, else categories."""
    example = repr(texts.values[0].as_py())
    is_numeric = not arrow.are_codes(texts.values) and arrow.number_format(texts.sample()) is not None
    if is_numeric and (number_format := arrow.number_format(texts.values)) is not None:
        decision = _numbers_in_text(name, texts, number_format)
        if isinstance(decision, LearnedColumn):
            decision.notes.append(f"column {name!r} is text that reads as numbers ({example})")
        return decision
    if (date_format := arrow.date_format(texts.values, texts.counts)) is not None:
        return _dates_in_text(name, texts, date_format, example)
    present = texts.without(np.asarray(arrow.are_missing(texts.values)))
    if (number_format := nearly_numbers(present.values, present.counts)) is not None:
        return _numbers_in_text(name, present, number_format)
    return _categories(name, texts)


def _numbers_in_text(name: str, texts: DistinctTexts, number_format: arrow.NumberFormat) -> Decision:
    """Numbers written as text; a few other texts are missing values with a flag."""
    values, wrong = arrow.parse_numbers(texts.values, number_format)
    return _numbers(name, texts.in_rows(values), number_format, int(wrong @ texts.counts))


def _dates_in_text(name: str, texts: DistinctTexts, date_format: arrow.DateFormat, example: str) -> Decision:
    """Dates written as text; a few other texts are missing values."""
    form = date_format.form
    zone = arrow.date_zone(texts.values, form)
    days = texts.in_rows(arrow.parse_dates(texts.values, form, zone))
    column = DateColumn.fit(name, days, form == "clock", zone=zone, form=form, slips=date_format.share < 1)
    kind = "times of the day" if column.clock else f"dates, {form}{' (a guess)' if date_format.is_guess else ''}"
    n_unread = round((1 - date_format.share) * texts.rows)
    unread = f"; {n_unread:,} of its values {UNREAD}" if n_unread else ""
    return _dates(days, column, f"column {name!r} is text that reads as {kind} ({example}){unread}")


def _categories(name: str, texts: DistinctTexts) -> Decision:
    if len(texts.values) == 1 and not texts.gaps:
        return f"constant: {shortened(texts.values[0].as_py())!r} in every row"
    if (reason := identifier_texts(name, texts)) is not None:
        return reason
    column = CategoryColumn.fit(name, texts.values.to_pylist(), texts.counts, texts.gaps)
    codes = np.ascontiguousarray(texts.codes, np.int64)  # in order of first occurrence, so copies have the same codes
    return LearnedColumn(column, hashlib.blake2b(codes.tobytes(), digest_size=16).digest())


SAMPLE = 1000  # distinct texts that are examined closely
MIXED = r"^\s*(?:[A-Za-z]+[-./]?\d|\d+[-./]?[A-Za-z])[A-Za-z\d./-]*\s*$"  # V57, 85123A: a code among numbers
FEW = 50  # texts that suffice to rule out numbers
FEW_TEXTS = 0.05  # largest share of the cells in which texts among numbers are taken for errors
LEAST_NUMBERS = 20  # cells; among fewer numbers a text is not taken for an error
MOST_CODES = 2  # different codes such as V57 that are taken for errors among numbers


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
        """The texts without the dropped ones, which become gaps."""
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
    number_format, is_number = arrow.commonest_number_format(values, counts)
    n_numbers = int(is_number @ counts)
    if n_numbers < LEAST_NUMBERS or counts.sum() - n_numbers > FEW_TEXTS * counts.sum():
        return None
    texts = values.filter(pa.array(~is_number))
    n_codes = np.count_nonzero(np.asarray(pc.match_substring_regex(texts, MIXED)))
    return None if n_codes > MOST_CODES else number_format


FEWEST = 10  # numbers; fewer are never called an identifier
NEARLY_ALL = 0.95  # distinct share of the rows that makes an identifier
WITH_A_HINT = 0.9  # the same if the name suggests an identifier; for texts HALF suffices
HALF = 0.5
COLLISIONS = 20  # expected repetitions in random numbers; if none occurs, the numbers are an identifier
HINTS = frozenset(("id", "ids", "uuid", "guid", "key", "pk", "hash", "token", "serial", "identifier"))
HASH = r"^\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$|^[0-9a-fA-F]{24,}$"
PROSE_WORDS, PROSE_LENGTH = 4, 20  # words and characters of a text, on average


def identifier_numbers(name: str, values: np.ndarray) -> str | None:
    """The reason why a column of numbers is an identifier, or None; only whole numbers can be one.

    Being distinct is not enough: amounts in cents are distinct too. But m numbers drawn from a range of R would repeat
    each other about m²/2R times; if that is many and none did, they were assigned one by one.
    """
    present = values[~np.isnan(values)]
    if len(present) < FEWEST or not _are_whole(present[:1000]) or not _are_whole(present):
        return None
    numbers = present.astype(np.uint64 if present.dtype == np.uint64 else np.int64)
    ordered = np.sort(numbers)
    n_distinct = 1 + np.count_nonzero(ordered[1:] != ordered[:-1])
    span = float(ordered[-1]) - float(ordered[0]) + 1
    if n_distinct == len(numbers):
        steps = np.diff(numbers.astype(np.int64))
        if len(numbers) == len(values) and (steps == steps[0]).all():
            return f"identifier: counts the rows in steps of {steps[0]:,}"
        if len(numbers) ** 2 / (2 * span) >= COLLISIONS:
            return f"identifier: numbers from {ordered[0]:,} to {ordered[-1]:,}, none of them twice"
        if span >= 2.0**53:
            return "identifier: numbers of over 16 digits, none of them twice"
    if n_distinct >= WITH_A_HINT * len(numbers) and not HINTS.isdisjoint(name_words(name)):
        return "identifier: by its name, and (nearly) every row has a number of its own"
    return None


def identifier_texts(name: str, texts: DistinctTexts) -> str | None:
    """The reason why a column of texts is an identifier or prose, or None."""
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


def _are_whole(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return True
    return bool((np.abs(values) < 2.0**53).all() and (values == np.floor(values)).all())


FINGERPRINT_ROWS = 1000  # columns with equal fingerprints are worth a full comparison
TOLERANCE = 1e-9  # rounding of the copy, as a share of a column's range


def _fingerprint(values: np.ndarray) -> float:
    """A fingerprint of numbers that does not change when they are scaled or shifted."""
    if len(values) > FINGERPRINT_ROWS:  # of the same rows in all columns, or of all rows if these have one value
        sample = values[np.random.default_rng(0).integers(0, len(values), FINGERPRINT_ROWS)]
        values = values if (sample == sample[0]).all() else sample
    present = ~np.isnan(values)
    imputed = _within_one(np.where(present, values, 0.0).astype(np.float64))
    weights = np.random.default_rng(1).normal(size=(2, len(values)))
    centred = np.where(present, imputed - imputed.sum() / max(1, present.sum()), 0.0)
    largest = np.abs(centred).max(initial=0.0)
    if largest == 0:
        return float(weights[1] @ present)
    centred /= largest
    shape = weights[0] @ centred / np.sqrt(centred @ centred)
    return float(abs(shape) + weights[1] @ present)


def find_copies(table: pa.Table, kept: Mapping[str, LearnedColumn]) -> dict[str, str]:
    """Copy -> original: numbers up to scale and shift, categories up to the names of their levels."""

    def read(name: str) -> np.ndarray:
        return np.concatenate([kept[name].column.read(chunk) for chunk in table[name].chunks])

    columns = {name: one.column for name, one in kept.items()}
    letters = {name: _letters(column) for name, column in columns.items() if isinstance(column, CategoryColumn)}
    words_first = sorted(letters, key=lambda name: -letters[name])  # words are the original of their codes
    originals = {kept[name].fingerprint: name for name in reversed(words_first)}
    copies = {name: original for name in words_first if (original := originals[kept[name].fingerprint]) != name}
    numbers = [name for name in columns if name not in letters]
    dates_first = sorted(numbers, key=lambda name: columns[name].kind != "date")  # dates are the original of numbers
    fingerprints = np.array([kept[name].fingerprint for name in dates_first])
    for index, name in enumerate(dates_first):
        candidates = np.flatnonzero(np.abs(fingerprints[:index] - fingerprints[index]) <= 1e-6)  # equal up to rounding
        for other in (dates_first[candidate] for candidate in candidates):
            if other not in copies and is_affine(read(other), read(name)):
                copies[name] = other
                break
    return copies


def _letters(column: CategoryColumn) -> float:
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
    return np.asarray(values / (np.abs(values).max(initial=0.0) or 1.0))
