"""Rows drawn at random from a table that comes in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    First = Callable[[pa.RecordBatch, int], np.ndarray]


class Reservoir:
    """At most so many rows, drawn at random from all that were added.

    Every row draws a number and the smallest stay, so that the sample does not depend on how the rows come. Rows that
    come first draw smaller ones than all others.
    """

    def __init__(self, most: int | None, seed: int) -> None:
        self.most, self.seen = most, 0
        self._random, self._limit = np.random.default_rng([seed, 1]), np.inf
        self._pool: list[pa.RecordBatch] = []
        self._keys: list[np.ndarray] = []
        self._places: list[np.ndarray] = []

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
        if self.most is not None and sum(map(len, self._keys)) > 2 * self.most:
            self._prune(self.most)

    def drawn(self) -> tuple[pa.Table, np.ndarray]:
        """The sample in the order of the rows, and their places."""
        if self.most is not None and sum(map(len, self._keys)) > self.most:
            self._prune(self.most)
        return _joined(self._pool), np.concatenate(self._places)

    def _prune(self, most: int) -> None:
        import pyarrow as pa

        keys, places = np.concatenate(self._keys), np.concatenate(self._places)
        kept = np.sort(np.argpartition(keys, most)[:most])
        table = _joined(self._pool).take(pa.array(kept)).combine_chunks()
        self._pool, self._keys, self._places = table.to_batches(), [keys[kept]], [places[kept]]
        self._limit = float(keys[kept].max())


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; numbers that became text in a later batch, in which a text is among them, are text."""
    import pyarrow as pa

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
