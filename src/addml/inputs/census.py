"""Means, deviations and gaps of all rows of a table, in one pass, where its features were fitted to a sample."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import is_text, plain
from addml.inputs.table import Columns
from addml.learning.group import Group
from addml.preprocessing.categories import MOST_LEVELS, BooleanColumn, CategoryColumn
from addml.preprocessing.column_types import DistinctTexts
from addml.preprocessing.numbers import Column
from addml.preprocessing.scaling import Features

if TYPE_CHECKING:
    First = Callable[[pa.RecordBatch, int], np.ndarray]


class Moments:
    """Adds up features; those of a sample are nearly standardised already, so that the sums round little."""

    def __init__(self, features: Features) -> None:
        self.features, self.rows = features, 0
        self._total, self._squares = np.zeros(features.width), np.zeros(features.width)
        self._flagged = np.zeros(len(features.gaps))

    def add(self, values: np.ndarray) -> None:
        """Take in the features (n, width) of the next rows."""
        exact = values.astype(np.float64)
        self.rows += len(values)
        self._total += exact.sum(axis=0)
        self._squares += np.einsum("ij,ij->j", exact, exact)
        self._flagged += (values[:, len(self.features.median) :] > 0).sum(axis=0)  # a gap's flag is above its mean

    def add_up(self, group: Group) -> None:
        """Take in what the other processes of a group have added."""
        (self.rows,) = group.counts([self.rows])
        self._total, self._squares, self._flagged = map(group.sum, (self._total, self._squares, self._flagged))

    def refined(self) -> Features:
        """The features fitted to all rows but for medians and quartiles."""
        mean = self._total / self.rows
        deviation = np.sqrt(np.maximum(self._squares / self.rows - mean**2, 0))
        return self.features.refined(mean, deviation, self._flagged / self.rows)


# Rows drawn at random from a table that comes in batches.


class Reservoir:
    """At most so many rows, drawn at random from all that were added.

    Every row draws a number and the smallest stay, so that the sample does not depend on how the rows come. Rows that
    come first draw smaller ones than all others.
    """

    def __init__(self, most: int | None, seed: int) -> None:
        self.most, self.seen = most, 0
        self._random, self._limit = np.random.default_rng([seed, 1]), np.inf
        self._pool, self._keys, self._places = list[pa.RecordBatch](), list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: pa.RecordBatch, first: np.ndarray | None = None) -> None:
        """Let the next rows take part, and say which of them come first."""
        keys = self._random.random(batch.num_rows) - (0.0 if first is None else first)
        places = np.arange(self.seen, self.seen + batch.num_rows)
        self.seen += batch.num_rows
        if self._limit < np.inf:  # what draws more than every row that stays cannot stay
            near = np.flatnonzero(keys < self._limit)
            batch, keys, places = batch.take(near), keys[near], places[near]
        self._pool.append(batch)
        self._keys.append(keys)
        self._places.append(places)
        self._prune(over=2)

    def drawn(self) -> tuple[pa.Table, np.ndarray]:
        """The sample in the order of the rows, and their places."""
        self._prune(over=1)
        return _joined(self._pool), np.concatenate(self._places)

    def _prune(self, over: int) -> None:
        """Keep the smallest where there are over so many times as many as may stay."""
        if self.most is None or sum(map(len, self._keys)) <= over * self.most:
            return
        keys, places = np.concatenate(self._keys), np.concatenate(self._places)
        kept = np.sort(np.argpartition(keys, self.most)[: self.most])
        table = _joined(self._pool).take(pa.array(kept)).combine_chunks()
        self._pool, self._keys, self._places = table.to_batches(), [keys[kept]], [places[kept]]
        self._limit = float(keys[kept].max())


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; numbers that became text in a later batch, in which a text is among them, are text."""
    first, schemas = batches[0].schema, [batch.schema for batch in batches]
    mixed = [own.name for own in first if any(schema.field(own.name).type != own.type for schema in schemas)]
    if not mixed:
        return pa.Table.from_batches(batches)
    schema = pa.schema([(own.name, pa.string() if own.name in mixed else own.type) for own in first])
    return pa.concat_tables([pa.Table.from_batches([batch]).cast(schema) for batch in batches])


def draw(
    batches: Iterable[pa.RecordBatch], most: int | None, seed: int, first: First | None = None
) -> tuple[pa.Table, np.ndarray, int]:
    """At most `most` rows drawn at random, in their order; their places, and the number of rows gone through.

    `first` says which rows of a batch, behind so many others, come before all others.
    """
    reservoir = Reservoir(most, seed)
    for batch in batches:
        reservoir.add(batch, None if first is None else first(batch, reservoir.seen))
    return *reservoir.drawn(), reservoir.seen


def draw_places(rows: int, most: int | None, seed: int) -> np.ndarray:
    """The places of at most `most` of so many rows, drawn as `draw` does, in their order."""
    if most is None or rows <= most:
        return np.arange(rows)
    return np.sort(np.argpartition(np.random.default_rng([seed, 1]).random(rows), most)[:most])


# One pass over a table on disk: how many rows, a sample of them, and what no sample tells for certain.


SAMPLED = 200_000  # rows, as many as the quantiles of a column in memory are taken from
MOST_COUNTED = 10 * MOST_LEVELS  # different values of a column; one with more names rows or holds prose


@dataclass
class Levels:
    """How many rows hold each value of a column of categories, and how many none."""

    counts: Counter[str] = field(default_factory=Counter)
    gaps: int = 0
    too_many: bool = False

    def add(self, column: pa.Array) -> None:
        if not self.too_many:
            texts = DistinctTexts.of(pa.chunked_array([column]))
            counts = dict(zip(texts.values.to_pylist(), texts.counts.tolist(), strict=True))
            self.join(Levels(Counter(counts), texts.gaps))

    def join(self, other: Levels) -> None:
        """Count the values of other rows with these."""
        self.gaps += other.gaps
        self.counts.update(other.counts)
        if self.too_many or other.too_many or len(self.counts) > MOST_COUNTED:
            self.too_many, self.counts = True, Counter()


@dataclass
class ExtremeRows:
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
        self.places, self.table = np.empty(0, np.int64), pa.table({})  # the rows in the order of the places

    def keep(self, wanted: np.ndarray, batch: pa.RecordBatch, start: int) -> None:
        """Hold the rows of these places, ascending, of which new ones are in the batch; let go of the others."""
        new = wanted[wanted >= start] - start
        if not len(new):
            return
        added, still = pa.Table.from_batches([batch.take(pa.array(new))]), np.isin(self.places, wanted)
        old = [self.table.filter(pa.array(still))] if len(still) else []
        self.table = pa.concat_tables([*old, added]).combine_chunks()
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
        return len(self.places) == self.rows

    @classmethod
    def take(cls, batches: Iterable[pa.RecordBatch], most: int, seed: int) -> Census:
        """Go through all rows and keep about `most` of them."""
        reservoir, held, levels, start = Reservoir(most, seed), Held(), dict[str, Levels](), 0
        witnesses = dict[str, ExtremeRows]()
        for batch in batches:
            reservoir.add(batch)
            for name, column in zip(batch.schema.names, map(plain, batch.columns), strict=True):
                is_coded = pa.types.is_dictionary(column.type)
                values = plain(column.dictionary_decode()) if is_coded else column
                witnesses.setdefault(name, ExtremeRows()).add(values, start)
                if is_text(values.type) or pa.types.is_boolean(values.type):
                    levels.setdefault(name, Levels()).add(values)
            held.keep(np.unique([place for one in witnesses.values() for place in one.places.values()]), batch, start)
            start += batch.num_rows
        table, places = _with_held(*reservoir.drawn(), held)
        return cls(start, table, places, levels)

    def joined(self, group: Group) -> Census:
        """The census of all rows of a group, whose processes have theirs one after another."""
        if group.size == 1:
            return self
        rows, sink = group.gather(str(self.rows).encode()), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.sample.schema) as writer:
            writer.write_table(self.sample)
        tables = [pa.ipc.open_stream(one).read_all() for one in group.gather(sink.getvalue().to_pybytes())]
        starts = np.cumsum([0, *map(int, rows)])
        places = [np.frombuffer(one, np.int64) for one in group.gather(self.places.astype(np.int64).tobytes())]
        own = json.dumps({name: [dict(one.counts), one.gaps, one.too_many] for name, one in self.levels.items()})
        levels = dict[str, Levels]()
        for found in map(json.loads, group.gather(own.encode())):
            for name, (counts, gaps, too_many) in found.items():
                levels.setdefault(name, Levels()).join(Levels(Counter(counts), gaps, too_many))
        return Census(
            int(starts[-1]),
            _joined([batch for table in tables for batch in table.to_batches()]).combine_chunks(),
            np.concatenate([one + start for one, start in zip(places, starts, strict=False)]),
            levels,
        )

    def columns(self) -> Columns:
        """How the columns become numbers: by the sample, the counts by all rows."""
        columns = Columns.fit(self.sample)
        if self.is_whole:
            return columns
        return replace(columns, fitted=tuple(map(self._counted, columns.fitted)), rows=self.rows)

    def _counted(self, column: Column) -> Column:
        levels = self.levels.get(column.name, Levels(too_many=True))
        if isinstance(column, CategoryColumn) and not levels.too_many:
            counts = np.array(list(levels.counts.values()), np.int64)
            return CategoryColumn.fit(column.name, list(levels.counts), counts, levels.gaps)
        if isinstance(column, BooleanColumn) and not levels.too_many:
            return BooleanColumn(column.name, levels.counts["false"], levels.counts["true"], levels.gaps)
        return column


def _with_held(table: pa.Table, places: np.ndarray, held: Held) -> tuple[pa.Table, np.ndarray]:
    """The table with the rows that are held beside it, all in the order of their places."""
    further = np.flatnonzero(~np.isin(held.places, places))
    if not len(further):
        return table, places
    both = pa.concat_tables([table, held.table.take(pa.array(further))]).combine_chunks()
    every = np.concatenate([places, held.places[further]])
    order = np.argsort(every)
    return both.take(order), every[order]
