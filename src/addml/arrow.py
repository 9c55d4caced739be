"""Arrow columns in NumPy, whatever type and chunks they come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is one of strings."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_numeric(kind: pa.DataType) -> bool:
    """Whether the type is one of numbers; a duration is a number of seconds."""
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_duration))


def is_date(kind: pa.DataType) -> bool:
    """Whether the type is one of dates or times."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind))


def plain(column: pa.Array) -> pa.Array:
    """The column without extension, run-length and view types, which few functions take."""
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column))
    if pa.types.is_dictionary(column.type) and is_packed(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, plain(column.dictionary))
    views = {pa.binary_view(): pa.large_binary(), pa.string_view(): pa.large_string()}
    return column.cast(views[column.type]) if column.type in views else column


def is_packed(kind: pa.DataType) -> bool:
    """Whether rows of the type cannot be picked out, which Arrow does not do yet for views and run lengths."""
    if pa.types.is_dictionary(kind):
        return is_packed(kind.value_type)
    return bool(kind in (pa.string_view(), pa.binary_view()) or pa.types.is_run_end_encoded(kind))


def plain_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As `plain`, for all chunks."""
    kind = plain(pa.nulls(0, column.type)).type
    return pa.chunked_array([plain(chunk) for chunk in column.chunks], kind)


def as_text(column: pa.Array) -> pa.Array:
    """The values as strings; a dictionary's values are written out."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        column = plain(column.dictionary_decode())
    return column if is_text(column.type) else column.cast(pa.string())


def as_numbers(column: pa.Array) -> np.ndarray:
    """A numeric or boolean column as a NumPy array of numbers, NaN for missing values."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_duration(kind):
        return _numpy(column.cast(pa.int64())) / (PER_DAY[kind.unit] / 86_400)
    return _numpy(column)


def as_days(column: pa.Array, zone: str | None) -> np.ndarray:
    """Dates or times as days since 1970 in local time, NaN for missing values; a time alone is part of a day."""
    kind = column.type
    if pa.types.is_date32(kind):
        return _numpy(column.cast(pa.int32())).astype(np.float64)
    if pa.types.is_date64(kind):
        return _numpy(column.cast(pa.int64())) / PER_DAY["ms"]
    if pa.types.is_time32(kind):
        return _numpy(column.cast(pa.int32())) / PER_DAY[kind.unit]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column.cast(pa.timestamp(kind.unit, zone or kind.tz)))
    return _numpy(column.cast(pa.int64())) / PER_DAY[kind.unit]


def taken(column: pa.DictionaryArray, values: np.ndarray, gap: Any) -> np.ndarray:
    """What `values` says of each entry of the dictionary, for each row; `gap` for null."""
    found = np.append(values, np.asarray([gap], values.dtype))
    return np.asarray(found[_numpy(column.indices.cast(pa.int64()).fill_null(len(values)))])


def first_of(mask: np.ndarray) -> int | None:
    """The position of the first that the mask marks."""
    return int(np.argmax(mask)) if mask.any() else None


def _numpy(column: pa.Array) -> np.ndarray:
    return np.asarray(column.to_numpy(zero_copy_only=False))


SAMPLE = 1000  # distinct texts that are looked at closely


@dataclass(frozen=True)
class DistinctTexts:
    """What a text column holds, its blanks counted as gaps."""

    values: pa.Array  # in the order in which they first occur
    counts: np.ndarray  # rows of each
    codes: np.ndarray  # (n,): the position in `values`, -1 for a gap

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> DistinctTexts:
        """From a column of any type that can be written as text."""
        text = pa.chunked_array([as_text(chunk) for chunk in column.chunks], as_text(pa.nulls(0, column.type)).type)
        encoded = pc.dictionary_encode(text)
        encoded = encoded.combine_chunks() if encoded.num_chunks != 1 else encoded.chunk(0)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().chunk(0)
        codes = np.array(encoded.indices.fill_null(-1))
        values = encoded.dictionary
        texts = cls(values, np.bincount(codes + 1, minlength=len(values) + 1)[1:], codes)
        blank = np.asarray(pc.equal(pc.utf8_trim_whitespace(values), ""))
        return texts.without(blank) if blank.any() else texts

    def without(self, left_out: np.ndarray) -> DistinctTexts:
        """The texts but for some of the distinct ones, which count as gaps."""
        renumbered = np.append(np.where(left_out, -1, np.cumsum(~left_out) - 1), -1).astype(self.codes.dtype)
        return DistinctTexts(self.values.filter(pa.array(~left_out)), self.counts[~left_out], renumbered[self.codes])

    def in_rows(self, values: np.ndarray) -> np.ndarray:
        """The numbers of the distinct texts in all rows, NaN for gaps."""
        return np.asarray(np.append(values, np.nan)[self.codes])

    @property
    def rows(self) -> int:
        """How many rows hold a text."""
        return int(self.counts.sum())

    @property
    def gaps(self) -> int:
        """How many rows hold none."""
        return len(self.codes) - self.rows

    def sample(self) -> pa.Array:
        """Some of the distinct texts, from all over the column."""
        few = len(self.values) <= SAMPLE
        return self.values if few else self.values.take(np.linspace(0, len(self.values) - 1, SAMPLE).astype(np.int64))
