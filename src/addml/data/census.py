"""One pass over a table on disk: how many rows, a sample of them, and what no sample tells for certain.

The kinds of columns, medians and quartiles come from the sample. Beside the rows drawn at random it holds, of every
column, one with the lowest value, one with the highest and one with a gap: so a column that hardly ever varies, or has
hardly ever a gap, is not taken for a constant or for one without gaps. Categories and truth values are counted in all
rows.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.columns import Columns
from addml.data.preparation.arrow_values import is_text, plain
from addml.data.preparation.categories import MOST_LEVELS, CategoryColumn
from addml.data.preparation.distinct_texts import DistinctTexts
from addml.data.preparation.numbers import BooleanColumn
from addml.data.preparation.prepared import Prepared
from addml.data.sampling import Reservoir

SAMPLED = 200_000  # rows, as many as the quantiles of a column in memory are taken from
MOST_COUNTED = 10 * MOST_LEVELS  # different values of a column; one with more names rows or holds prose


@dataclass
class Levels:
    """How many rows hold each value of a column of categories, and how many none."""

    counts: Counter[str] = field(default_factory=Counter)
    gaps: int = 0
    too_many: bool = False

    def add(self, column: pa.Array) -> None:
        """Count the values of some rows."""
        if self.too_many:
            return
        texts = DistinctTexts.of(pa.chunked_array([column]))
        self.gaps += texts.gaps
        for value, count in zip(texts.values.to_pylist(), texts.counts.tolist(), strict=True):
            self.counts[value] += count
        if len(self.counts) > MOST_COUNTED:
            self.too_many, self.counts = True, Counter()


@dataclass
class Witnesses:
    """Of one column, the places of rows that hold its lowest value, its highest and a gap."""

    places: dict[str, int] = field(default_factory=dict)
    ends: dict[str, Any] = field(default_factory=dict)

    def add(self, column: pa.Array, start: int) -> None:
        """Look at the next rows of the column."""
        if "gap" not in self.places:
            self._keep("gap", start, pc.index(pc.is_null(column, nan_is_null=True), True).as_py())
        try:
            found = pc.min_max(column)
        except pa.ArrowNotImplementedError:  # a type that has no order
            return
        for end, beyond in (("min", operator.lt), ("max", operator.gt)):
            value = found[end].as_py()
            if value is not None and value == value and (end not in self.ends or beyond(value, self.ends[end])):
                self.ends[end] = value
                self._keep(end, start, pc.index(column, found[end]).as_py())

    def _keep(self, what: str, start: int, at: int) -> None:
        if at >= 0:
            self.places[what] = start + at


class Held:
    """The rows of some places, each once, for however many columns it is a witness."""

    def __init__(self) -> None:
        self.places = np.empty(0, np.int64)
        self._rows: list[pa.Table] = []

    @property
    def table(self) -> pa.Table:
        """The rows, in the order of the places."""
        return self._rows[0]

    def keep(self, wanted: np.ndarray, batch: pa.RecordBatch, start: int) -> None:
        """Hold the rows of these places, ascending, of which new ones are in the batch; let go of the others."""
        new = wanted[wanted >= start] - start
        if not len(new):
            return
        added, still = pa.Table.from_batches([batch.take(pa.array(new))]), np.isin(self.places, wanted)
        old = [rows.filter(pa.array(still)) for rows in self._rows]
        self._rows = [pa.concat_tables([*old, added]).combine_chunks()]
        self.places = np.concatenate([self.places[still], new + start])


@dataclass(frozen=True)
class Census:
    """What one pass found."""

    rows: int
    sample: pa.Table
    places: np.ndarray  # of the sample among all rows, ascending
    levels: dict[str, Levels]

    @property
    def is_whole(self) -> bool:
        """Whether the sample is the table."""
        return len(self.places) == self.rows

    @classmethod
    def take(cls, batches: Iterable[pa.RecordBatch], most: int, seed: int) -> Census:
        """Go through all rows and keep about `most` of them."""
        reservoir, held, levels, start = Reservoir(most, seed), Held(), dict[str, Levels](), 0
        witnesses = dict[str, Witnesses]()
        for batch in batches:
            reservoir.add(batch)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                values = _undecoded(column)
                witnesses.setdefault(name, Witnesses()).add(values, start)
                if is_text(values.type) or pa.types.is_boolean(values.type):
                    levels.setdefault(name, Levels()).add(values)
            held.keep(np.unique([place for one in witnesses.values() for place in one.places.values()]), batch, start)
            start += batch.num_rows
        table, places = _joined(*reservoir.drawn(), held)
        return cls(start, table, places, levels)

    def columns(self) -> Columns:
        """How the columns become numbers: by the sample, the counts by all rows."""
        columns = Columns.fit(self.sample)
        if self.is_whole:
            return columns
        return replace(columns, prepared=tuple(map(self._counted, columns.prepared)), rows=self.rows)

    def _counted(self, column: Prepared) -> Prepared:
        levels = self.levels.get(column.name)
        if levels is None or levels.too_many:
            return column
        if isinstance(column, CategoryColumn):
            counts = np.array(list(levels.counts.values()), np.int64)
            return CategoryColumn.fit(column.name, list(levels.counts), counts, levels.gaps)
        if isinstance(column, BooleanColumn):
            return BooleanColumn(column.name, levels.counts["false"], levels.counts["true"], levels.gaps)
        return column


def _undecoded(column: pa.Array) -> pa.Array:
    """The values of a column, written out where a dictionary holds them."""
    values = plain(column)
    return plain(values.dictionary_decode()) if pa.types.is_dictionary(values.type) else values


def _joined(table: pa.Table, places: np.ndarray, held: Held) -> tuple[pa.Table, np.ndarray]:
    """The table with the rows that are held beside it, all in the order of their places."""
    further = np.flatnonzero(~np.isin(held.places, places))
    if not len(further):
        return table, places
    both = pa.concat_tables([table, held.table.take(pa.array(further))]).combine_chunks()
    every = np.concatenate([places, held.places[further]])
    order = np.argsort(every)
    return both.take(order), every[order]
