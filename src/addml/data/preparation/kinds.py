"""Which kind a column is, and its preparation; or why it is left out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from addml.data.preparation.arrow_values import as_days, as_numbers, is_date, is_numeric, is_text, plain_chunks
from addml.data.preparation.categories import CategoryColumn
from addml.data.preparation.copies import code_mark, number_mark, sample_rows
from addml.data.preparation.date_text import parse_dates, written_dates, written_zone
from addml.data.preparation.dates import DateColumn
from addml.data.preparation.distinct_texts import DistinctTexts
from addml.data.preparation.identifiers import identifier_numbers, identifier_texts
from addml.data.preparation.number_text import (
    WrittenNumber,
    among_numbers,
    are_gaps,
    nearly_numbers,
    parse_numbers,
    written_numbers,
)
from addml.data.preparation.numbers import BooleanColumn, NumberColumn, refuse_infinity
from addml.data.preparation.prepared import Prepared
from addml.data.preparation.spread import Spread
from addml.wording import listed, shortened

UNREAD = "do not and count as gaps"  # how a note of such values ends
AMONG_NUMBERS = "among its numbers; correct that, or make it a gap"  # and one of values that make numbers text
EMPTY = "empty: no row has a value"
MOST_SHOWN = 3  # texts among numbers


@dataclass(frozen=True)
class LeftOut:
    """A column that is not learned from."""

    reason: str


@dataclass(frozen=True)
class Kept:
    """A column that is, with a mark that copies of it share and what is to be said of it."""

    prepared: Prepared
    mark: float | bytes
    notes: list[str] = field(default_factory=list)


def prepare_column(name: str, column: pa.ChunkedArray) -> Kept | LeftOut:
    """Decide on one column of the training table."""
    column = plain_chunks(column)
    kind = column.type
    if column.null_count == len(column):
        return LeftOut(EMPTY)
    if pa.types.is_boolean(kind):
        return _booleans(name, _joined([as_numbers(chunk) for chunk in column.chunks]))
    if is_numeric(kind):
        return _numbers(name, _joined([as_numbers(chunk) for chunk in column.chunks]))
    if is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        days = _joined([as_days(chunk, zone) for chunk in column.chunks])
        return _dates(days, DateColumn.fit(name, days, bool(pa.types.is_time(kind)), zone=zone))
    if is_text(kind):
        return _texts(name, column)
    if pa.types.is_dictionary(kind) and not pa.types.is_nested(kind.value_type):
        return _categories(name, DistinctTexts.of(column))  # whoever made it one says that it is a category
    return LeftOut(f"not understood: values of type {kind}")


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _numbers(name: str, values: np.ndarray, written: WrittenNumber | None = None, texts: int = 0) -> Kept | LeftOut:
    refuse_infinity(values, name)
    if np.isnan(values).all():
        return LeftOut(EMPTY)
    if (values == values[0]).all():
        return LeftOut(f"constant: {values[0]:g} in every row")
    reason = identifier_numbers(name, values)
    if reason is not None:
        return LeftOut(reason)
    return Kept(NumberColumn(name, Spread.fit(values), written, texts / len(values)), _number_mark(values))


def _number_mark(values: np.ndarray) -> float:
    sample = values[sample_rows(len(values))]
    return number_mark(values if (sample == sample[0]).all() else sample)


def _booleans(name: str, values: np.ndarray) -> Kept | LeftOut:
    falses, trues = (int(np.count_nonzero(values == value)) for value in (0, 1))
    if len(values) in (falses, trues):
        return LeftOut(f"constant: {'true' if trues else 'false'} in every row")
    return Kept(BooleanColumn(name, falses, trues, len(values) - falses - trues), _number_mark(values))


def _dates(days: np.ndarray, prepared: DateColumn, notes: list[str] | None = None) -> Kept | LeftOut:
    if (days == days[0]).all():
        return LeftOut(f"constant: {prepared.shown(days[0])} in every row")
    return Kept(prepared, _number_mark(days), notes or [])


def _texts(name: str, column: pa.ChunkedArray) -> Kept | LeftOut:
    texts = DistinctTexts.of(column)
    if not len(texts.values):
        return LeftOut(EMPTY)
    written = written_numbers(texts.sample())
    if written is not None and (written := written_numbers(texts.values)) is not None:
        return _noted(_numbers_of(name, texts, written), texts)
    found = written_dates(texts.values, texts.counts)
    if found is None:
        known = texts.without(np.asarray(are_gaps(texts.values)))
        written = nearly_numbers(known.values, known.counts)
        if written is not None:
            return _numbers_of(name, known, written)
        return _with_slips(name, _categories(name, texts), texts)
    form, share = found
    zone = written_zone(texts.values, form)
    days = _spread_out(parse_dates(texts.values, form, zone), texts)
    prepared = DateColumn.fit(name, days, form == "clock", zone=zone, form=form, slips=share < 1)
    return _dates(days, prepared, _date_notes(prepared, texts, share))


def _numbers_of(name: str, texts: DistinctTexts, written: WrittenNumber) -> Kept | LeftOut:
    """The decision on numbers written as text, and perhaps a few other texts, which are missing but for their score."""
    values, wrong = parse_numbers(texts.values, written)
    return _numbers(name, _spread_out(values, texts), written, int(wrong @ texts.counts))


def _spread_out(values: np.ndarray, texts: DistinctTexts) -> np.ndarray:
    """The values of the distinct texts in all rows."""
    return np.asarray(np.append(values, np.nan)[texts.codes])


def _noted(kept: Kept | LeftOut, texts: DistinctTexts) -> Kept | LeftOut:
    if isinstance(kept, Kept):
        kept.notes.append(f"column {kept.prepared.name!r} is text that reads as numbers ({texts.values[0].as_py()!r})")
    return kept


def _with_slips(name: str, decided: Kept | LeftOut, texts: DistinctTexts) -> Kept | LeftOut:
    """The decision on a column of text, with what keeps it from being one of numbers, where that is little."""
    slips = among_numbers(texts.values, texts.counts)
    if slips is None:
        return decided
    shown = listed([repr(shortened(text)) for text in slips.to_pylist()], MOST_SHOWN)
    words = f"{shown} {'is' if len(slips) == 1 else 'are'} {AMONG_NUMBERS}"
    if isinstance(decided, LeftOut):
        return LeftOut(f"text: {words}")
    decided.notes.append(f"column {name!r} is read as text: {words}")
    return decided


def _date_notes(prepared: DateColumn, texts: DistinctTexts, share: float) -> list[str]:
    kind = "times of the day" if prepared.clock else f"dates, {prepared.form}"
    example = f"column {prepared.name!r} is text that reads as {kind} ({texts.values[0].as_py()!r})"
    unread = round((1 - share) * texts.rows)
    return [example + (f"; {unread:,} of its values {UNREAD}" if unread else "")]


def _categories(name: str, texts: DistinctTexts) -> Kept | LeftOut:
    if not len(texts.values):
        return LeftOut(EMPTY)
    if len(texts.values) == 1 and not texts.gaps:
        return LeftOut(f"constant: {shortened(texts.values[0].as_py())!r} in every row")
    reason = identifier_texts(name, texts)
    if reason is not None:
        return LeftOut(reason)
    prepared = CategoryColumn.fit(name, texts.values.to_pylist(), texts.counts, texts.gaps)
    return Kept(prepared, code_mark(texts.codes))
