"""The distinct texts of a column, how often each occurs and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.preparation.arrow_values import as_text

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

    @property
    def rows(self) -> int:
        """How many rows hold a text."""
        return int(self.counts.sum())

    @property
    def gaps(self) -> int:
        """How many rows hold none."""
        return len(self.codes) - self.rows

    @property
    def distinct_share(self) -> float:
        """Distinct texts in a row that holds one."""
        return len(self.values) / max(1, self.rows)

    def sample(self) -> pa.Array:
        """Some of the distinct texts, from all over the column."""
        if len(self.values) <= SAMPLE:
            return self.values
        return self.values.take(pa.array(np.linspace(0, len(self.values) - 1, SAMPLE).astype(np.int64)))
