"""A table on disk, larger than memory perhaps: Parquet files or any dataset of pyarrow; a sample and a census of it."""

from __future__ import annotations

import copy
import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import is_text, plain
from addml.inputs.table import Columns
from addml.io.binary import PARTIAL, READ_AHEAD, folder_dataset, parquet_files, readable, reading
from addml.io.read import format_of
from addml.io.source import ReadError, find_origin
from addml.io.values import conformed, shaped
from addml.learning.group import Group
from addml.preprocessing.categories import MOST_LEVELS, BooleanColumn, CategoryColumn
from addml.preprocessing.column_types import DistinctTexts
from addml.preprocessing.numbers import Column
from addml.text import counted

BATCH_ROWS = 65_536
LEAST_STREAMED = 1000  # rows; fewer are held in memory, however wide
CELL_BYTES = 40  # of one cell of a table that is learned from in memory: the column, its number, the feature, copies

MOST_COUNTED = 10 * MOST_LEVELS  # different values of a column; one with more names rows or holds prose

Files = dict[str, list[int]]  # name -> size, time of the last change
Unit = tuple[Any, str, int]  # what is read at a time: a row group, or a fragment of another kind; its name; its rows


class Source:
    """The rows of a dataset in the order of its files, some columns of them perhaps."""

    def __init__(
        self,
        found: Any,
        name: str,
        columns: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        listed: Callable[[], list[str]] | None = None,
    ) -> None:
        """`listed` names the files that are there now, where there may be others than those of the dataset."""
        self.name, self.columns = name, columns
        self._dataset, self._listed = found, listed
        self._filter = getattr(found, "_scan_options", None)  # which rows of the files are meant, where not all are
        self.units = list(self._units())
        self.starts = [0, *accumulate(rows for _, _, rows in self.units)]
        self.start, self.stop = 0, self.starts[-1]
        if not len(self):
            raise ReadError(f"{name}: holds no rows ({counted(len(self.units), 'part')}).")
        empty, spread = shaped(found.schema.empty_table(), columns, name)
        self.names, self.notes = empty.column_names, [*notes, *spread]
        self.partial = [f"{name}: {note}" for note in notes if note.startswith(PARTIAL)]  # columns not in all files
        self.files = self._files()

    def shard(self, rank: int, size: int) -> Source:
        """One of as many equal parts of the rows; a row group between two of them is read for both."""
        if len(self) < size * LEAST_STREAMED:
            raise ValueError(f"{self.name}: {len(self):,} rows are too few for {size} workers; give fewer workers")
        part = copy.copy(self)
        part.start, part.stop = len(self) * rank // size, len(self) * (rank + 1) // size
        return part

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def size(self) -> int:
        """Bytes of memory that learning from all rows at once would take, about."""
        return len(self) * len(self.names) * CELL_BYTES

    def batches(
        self, start: int | None = None, stop: int | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to `stop`, all by default, at most so many at a time."""
        ends = (self.start if start is None else start, self.stop if stop is None else stop)
        return conformed(self._slices(*ends, rows), self.columns, None, rows, self.name)

    def _slices(self, start: int, stop: int, rows: int) -> Iterator[pa.RecordBatch]:
        for place in range(bisect_right(self.starts, start) - 1, len(self.units)):
            at = self.starts[place]
            if at >= stop:
                return
            for batch in self._read(*self.units[place], rows):
                part = batch.slice(max(0, start - at), max(0, min(stop, at + batch.num_rows) - max(start, at)))
                if part.num_rows:
                    yield part
                at += batch.num_rows
                if at >= stop:
                    return

    def _read(self, fragment: Any, name: str, known: int, rows: int) -> Iterator[pa.RecordBatch]:
        seen, wanted = 0, readable(self.columns, self._dataset.schema.names)
        schema = {} if fragment is self._dataset else {"schema": self._dataset.schema}
        with reading(name):
            for batch in fragment.to_batches(columns=wanted, batch_size=rows, **schema, **READ_AHEAD):
                seen += batch.num_rows
                yield batch
        if seen < known:
            raise ReadError(f"{name}: {seen:,} rows could be read of {known:,}. Copy or write the file again.")

    def _units(self) -> Iterator[Unit]:
        """The row groups of Parquet files, other fragments as they are; a filtered dataset has no fragments."""
        if self._filter:
            yield self._dataset, self.name, self._dataset.count_rows()
            return
        for fragment in self._dataset.get_fragments():
            name = str(getattr(fragment, "path", "") or self.name)
            with reading(name):
                if not hasattr(fragment, "split_by_row_group"):
                    yield fragment, name, fragment.count_rows()
                    continue
                groups = [(part, part.row_groups[0]) for part in fragment.split_by_row_group()]
            yield from ((part, f"{name}, row group {group.id}", group.num_rows) for part, group in groups)

    def check_unchanged(self) -> None:
        """Every file must still be as it was."""
        for name, what in changes(self.files, self._files()):
            raise ReadError(f"{name}: {what} since the run began. Let the files rest, and run it again.")

    def _files(self) -> Files:
        found = list[Any]()
        for part in _parts_of(self._dataset):
            if names := self._listed() if self._listed else getattr(part, "files", []):
                found.extend(part.filesystem.get_file_info(names))
        return {info.path: [info.size, info.mtime_ns] for info in found if info.size is not None}

    @property
    def about(self) -> dict[str, Any]:
        """What tells these rows from others, after a kill too."""
        if self._listed is None and not all(getattr(part, "files", None) for part in _parts_of(self._dataset)):
            raise ValueError(
                f"{self.name} with a checkpoint: its rows are in no files, and after a kill nobody can tell whether "
                "they are the same; write them as Parquet, or give the table itself and more memory"
            )
        return {"files": self.files, "rows": len(self), "columns": self.names, "filter": str(self._filter)}


def changes(before: Files, after: Files) -> Iterator[tuple[str, str]]:
    """The files that are not as they were, each with what became of it in words."""
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, "is gone" if name not in after else "is new" if name not in before else "has changed"


def _parts_of(found: Any) -> list[Any]:
    """The datasets that one is a union of, and theirs; else itself."""
    children = getattr(found, "children", None)
    return [found] if children is None else [part for child in children for part in _parts_of(child)]


def is_on_disk(X: Any) -> bool:
    """Whether X is a path, a source or a dataset of pyarrow, which hold no rows in memory."""
    return isinstance(X, str | os.PathLike | Source) or type(X).__module__.startswith("pyarrow._dataset")


def is_part(path: str | os.PathLike[str], table: str | os.PathLike[str] | Source) -> bool:
    """Whether a file of this path is the table on disk itself, or would be read as a part of it."""
    if isinstance(table, Source):
        return Path(os.path.expanduser(path)).resolve() in {Path(name).resolve() for name in table.files}
    given, whole = (Path(os.path.expanduser(one)).resolve() for one in (path, table))
    inside = whole.is_dir() and given.is_relative_to(whole) and given.suffix.lower() in (".parquet", ".pq")
    return given == whole or inside


def open_source(X: Any, columns: Sequence[str] | None = None) -> Source:
    """The rows of a Parquet file, a folder of such files, or a dataset of pyarrow."""
    if isinstance(X, Source):
        return X
    if not isinstance(X, str | os.PathLike):
        if not hasattr(X, "get_fragments"):  # a scanner, which gives its rows once, or no table on disk at all
            known = "the path of a Parquet file or folder, or a dataset of pyarrow"
            raise TypeError(f"{type(X).__name__} is no table on disk: give {known}")
        return Source(X, f"the {type(X).__name__}", columns)
    origin = find_origin(X)
    kind, notes = format_of(origin)
    if kind == "folder":
        found, said = folder_dataset(origin)
        return Source(found, origin.name, columns, said, lambda: parquet_files(origin))
    if kind != "parquet" or origin.compression is not None:
        raise ReadError(
            f"{origin.name}: is {kind}; only Parquet is read from its path. Read the table first, or use addml fit."
        )
    from pyarrow import dataset

    with reading(origin.name):
        return Source(dataset.dataset(str(origin.path), format="parquet"), origin.name, columns, notes)


# Rows drawn at random from a table that comes in batches ----------------------------------------------------


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
        return joined(self._pool), np.concatenate(self._places)

    def _prune(self, over: int) -> None:
        """Keep the smallest where there are over so many times as many as may stay."""
        if self.most is None or sum(map(len, self._keys)) <= over * self.most:
            return
        keys, places = np.concatenate(self._keys), np.concatenate(self._places)
        kept = np.sort(np.argpartition(keys, self.most)[: self.most])
        table = joined(self._pool).take(pa.array(kept)).combine_chunks()
        self._pool, self._keys, self._places = table.to_batches(), [keys[kept]], [places[kept]]
        self._limit = float(keys[kept].max())


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; a column that is text in some of them, numbers in others, is text."""
    schemas = [batch.schema for batch in batches]
    mixed = [own.name for own in schemas[0] if any(schema.field(own.name).type != own.type for schema in schemas)]
    if not mixed:
        return pa.Table.from_batches(batches)
    schema = pa.schema([(own.name, pa.string() if own.name in mixed else own.type) for own in schemas[0]])
    return pa.concat_tables([pa.Table.from_batches([batch]).cast(schema) for batch in batches])


def draw(
    batches: Iterable[pa.RecordBatch],
    most: int | None,
    seed: int,
    first: Callable[[pa.RecordBatch, int], np.ndarray] | None = None,
) -> tuple[pa.Table, np.ndarray, int]:
    """At most `most` rows drawn at random, in their order; their places, and the number of rows seen.

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


# The first pass: how many rows, a sample of them, and what no sample tells for certain ----------------------


Levels = dict[str, Counter[str] | None]  # column -> rows of each value, "" for a gap; None for too many values


def add_levels(levels: Levels, name: str, counts: dict[str, int] | None) -> None:
    """Count the values of some rows of a column with the others."""
    known = levels.setdefault(name, Counter())
    if known is not None and counts is not None:
        known.update(counts)
    if known is None or counts is None or len(known) > MOST_COUNTED:
        levels[name] = None


class ExtremeRows:
    """For every column a row with its lowest value, one with its highest and one with a gap."""

    def __init__(self) -> None:
        self.ends = dict[tuple[str, str], Any]()
        self.rows = dict[tuple[str, str], tuple[int, pa.RecordBatch]]()  # the place of the row, and the row

    def add(self, batch: pa.RecordBatch, columns: dict[str, pa.Array], start: int) -> None:
        """Look at the rows of a batch, behind so many others; the columns are its own without special types."""
        found = dict[tuple[str, str], int]()
        for name, column in columns.items():
            if (name, "gap") not in self.rows:
                found[name, "gap"] = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
            try:
                ends = pc.min_max(column)
            except pa.ArrowNotImplementedError:  # a type that has no order
                continue
            for end in ("min", "max"):
                value, key = ends[end].as_py(), (name, end)
                if value is None or value != value:
                    continue
                if key not in self.ends or (value < self.ends[key] if end == "min" else value > self.ends[key]):
                    self.ends[key] = value
                    found[key] = pc.index(column, ends[end]).as_py()
        places = sorted({at for at in found.values() if at >= 0})
        taken = batch.take(pa.array(places, pa.int64()))
        self.rows |= {key: (start + at, taken.slice(places.index(at), 1)) for key, at in found.items() if at >= 0}


@dataclass(frozen=True)
class Census:
    """What the first pass found."""

    rows: int
    sample: pa.Table
    places: np.ndarray  # of the sample among all rows, ascending
    levels: Levels

    @property
    def is_whole(self) -> bool:
        return len(self.places) == self.rows

    @classmethod
    def take(cls, batches: Iterable[pa.RecordBatch], most: int, seed: int) -> Census:
        """Read all rows and keep about `most` of them."""
        reservoir, extremes, levels = Reservoir(most, seed), ExtremeRows(), Levels()
        for batch in batches:
            columns = dict(zip(batch.schema.names, map(_decoded, batch.columns), strict=True))
            extremes.add(batch, columns, reservoir.seen)
            reservoir.add(batch)
            for name, column in columns.items():
                is_coded = is_text(column.type) or pa.types.is_boolean(column.type)
                if is_coded and levels.get(name, ()) is not None:
                    texts = DistinctTexts.of(pa.chunked_array([column]))
                    counts = dict(zip(texts.values.to_pylist(), texts.counts.tolist(), strict=True))
                    add_levels(levels, name, counts | {"": texts.gaps})
        table, places = reservoir.drawn()
        further = {place: row for place, row in extremes.rows.values() if place not in places}
        if further:
            table = pa.concat_tables([table, joined(list(further.values()))]).combine_chunks()
            places = np.concatenate([places, list(further)])
            table, places = table.take(np.argsort(places)), np.sort(places)
        return cls(reservoir.seen, table, places, levels)

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
        levels = Levels()
        for found in map(json.loads, group.gather(json.dumps(self.levels).encode())):
            for name, counts in found.items():
                add_levels(levels, name, counts)
        return Census(
            int(starts[-1]),
            joined([batch for table in tables for batch in table.to_batches()]).combine_chunks(),
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
        levels = self.levels.get(column.name)
        if levels is None or not isinstance(column, CategoryColumn | BooleanColumn):
            return column
        if isinstance(column, BooleanColumn):
            return BooleanColumn(column.name, levels["false"], levels["true"], levels[""])
        known = {level: count for level, count in levels.items() if level}
        return CategoryColumn.fit(column.name, list(known), np.array(list(known.values()), np.int64), levels[""])


def _decoded(column: pa.Array) -> pa.Array:
    column = plain(column)
    return plain(column.dictionary_decode()) if pa.types.is_dictionary(column.type) else column
