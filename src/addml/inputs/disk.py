"""Tables on disk, which may be larger than memory: Parquet files or pyarrow datasets, random samples and a census."""

from __future__ import annotations

import copy
import json
import operator
import os
from bisect import bisect_left, bisect_right
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
from addml.io.source import PARQUET_NAMES, ReadError, find_origin
from addml.io.values import conformed, shaped
from addml.learning.group import Group
from addml.preprocessing.categories import MOST_LEVELS, BooleanColumn, CategoryColumn
from addml.preprocessing.column_types import DistinctTexts
from addml.preprocessing.numbers import Column
from addml.text import counted

BATCH_ROWS = 65_536
LEAST_STREAMED = 1000  # rows; fewer are held in memory, however wide they are
CELL_BYTES = 40  # memory for a cell when learning in memory: the column, its number, the feature, copies

MOST_COUNTED = 10 * MOST_LEVELS  # distinct values; a column with more holds identifiers or prose

Files = dict[str, list[int]]  # name -> size, time of the last change
Unit = tuple[Any, str, int]  # a row group or a fragment of another kind, its name and its rows


class Source:
    """The rows of a dataset, in the order of its files."""

    def __init__(
        self,
        found: Any,
        name: str,
        columns: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        listed: Callable[[], list[str]] | None = None,
    ) -> None:
        """`listed` names the files that exist now, if they may differ from those of the dataset."""
        self.name, self.columns = name, columns
        self._dataset, self._listed = found, listed
        self._filter = getattr(found, "_scan_options", None)  # of a filtered dataset
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
        """One of `size` equal parts of the rows; a row group that spans two parts is read for both."""
        if len(self) < size * LEAST_STREAMED:
            raise ValueError(f"{self.name}: {len(self):,} rows are too few for {size} workers; give fewer workers")
        part = copy.copy(self)
        part.start, part.stop = len(self) * rank // size, len(self) * (rank + 1) // size
        return part

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def size(self) -> int:
        """Estimated memory in bytes to learn from all rows at once."""
        return len(self) * len(self.names) * CELL_BYTES

    def batches(
        self, start: int | None = None, stop: int | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to `stop` (default: all) in batches of at most `rows`."""
        start, stop = self.start if start is None else start, self.stop if stop is None else stop
        return conformed(self._slices(start, stop, rows), self.columns, None, rows, self.name)

    def _slices(self, start: int, stop: int, rows: int) -> Iterator[pa.RecordBatch]:
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        for at, unit in zip(self.starts[first:last], self.units[first:last], strict=True):
            for batch in self._read(*unit, rows):
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
            raise ReadError(f"{name}: only {seen:,} of {known:,} rows can be read. Copy or write the file again.")

    def _units(self) -> Iterator[Unit]:
        """Row groups of Parquet files, or other fragments; a filtered dataset has no fragments and is read whole."""
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
        for name, what in changes(self.files, self._files()):
            raise ReadError(f"{name}: {what} since the run began. Run it again, and do not change files meanwhile.")

    def _files(self) -> Files:
        found = list[Any]()
        for part in _parts_of(self._dataset):
            if names := self._listed() if self._listed else getattr(part, "files", []):
                found.extend(part.filesystem.get_file_info(names))
        return {info.path: [info.size, info.mtime_ns] for info in found if info.size is not None}

    @property
    def about(self) -> dict[str, Any]:
        """The identity of the rows, by which a checkpoint recognises them after a restart."""
        if self._listed is None and not all(getattr(part, "files", None) for part in _parts_of(self._dataset)):
            raise ValueError(
                f"{self.name} with a checkpoint: its rows are not in files, so a resumed run cannot check that they "
                "are the same; write them as Parquet, or give the table itself and more memory"
            )
        return {"files": self.files, "rows": len(self), "columns": self.names, "filter": str(self._filter)}


def changes(before: Files, after: Files) -> Iterator[tuple[str, str]]:
    """The files that differ, and how in words."""
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, "is gone" if name not in after else "is new" if name not in before else "has changed"


def _parts_of(found: Any) -> list[Any]:
    """The datasets that a union consists of, at any depth, or a dataset that is no union."""
    children = getattr(found, "children", None)
    return [found] if children is None else [part for child in children for part in _parts_of(child)]


def is_on_disk(X: Any) -> bool:
    return isinstance(X, str | os.PathLike | Source) or type(X).__module__.startswith("pyarrow._dataset")


def is_part(path: str | os.PathLike[str], table: str | os.PathLike[str] | Source) -> bool:
    """Whether a path is that of the table on disk, or of a file that would be read as a part of it."""
    if isinstance(table, Source):
        return Path(os.path.expanduser(path)).resolve() in {Path(name).resolve() for name in table.files}
    given, whole = (Path(os.path.expanduser(one)).resolve() for one in (path, table))
    inside = whole.is_dir() and given.is_relative_to(whole) and given.suffix.lower() in PARQUET_NAMES
    return given == whole or inside


def open_source(X: Any, columns: Sequence[str] | None = None) -> Source:
    """The rows of a Parquet file, a folder of such files, or a pyarrow dataset."""
    if isinstance(X, Source):
        return X
    if not isinstance(X, str | os.PathLike):
        if not hasattr(X, "get_fragments"):  # not a scanner, whose rows can be read only once
            known = "the path of a Parquet file or folder, or a dataset of pyarrow"
            raise TypeError(f"{type(X).__name__} is not a table on disk: give {known}")
        return Source(X, f"the {type(X).__name__}", columns)
    origin = find_origin(X)
    kind, notes = format_of(origin)
    if kind == "folder":
        found, said = folder_dataset(origin)
        return Source(found, origin.name, columns, said, lambda: parquet_files(origin))
    if kind != "parquet" or origin.compression is not None:
        raise ReadError(f"{origin.name}: is {kind}; a path must be Parquet. Read the table first, or use addml fit.")
    from pyarrow import dataset

    with reading(origin.name):
        return Source(dataset.dataset(str(origin.path), format="parquet"), origin.name, columns, notes)


class Reservoir:
    """Draws at most `most` rows at random from all that are added.

    Every row draws a number and the smallest stay, so the sample does not depend on the batches.
    """

    def __init__(self, most: int | None, seed: int) -> None:
        self.most, self.seen = most, 0
        self._random, self._limit = np.random.default_rng([seed, 1]), np.inf
        self._pool, self._keys, self._places = list[pa.RecordBatch](), list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: pa.RecordBatch, first: np.ndarray | None = None) -> None:
        """Add the next rows; those marked as `first` are preferred."""
        keys = self._random.random(batch.num_rows) - (0.0 if first is None else first)
        places = np.arange(self.seen, self.seen + batch.num_rows)
        self.seen += batch.num_rows
        if self._limit < np.inf:
            near = np.flatnonzero(keys < self._limit)
            batch, keys, places = batch.take(near), keys[near], places[near]
        self._pool.append(batch)
        self._keys.append(keys)
        self._places.append(places)
        self._prune(over=2)

    def drawn(self) -> tuple[pa.Table, np.ndarray]:
        """The sample in row order, and the places of its rows."""
        self._prune(over=1)
        return joined(self._pool), np.concatenate(self._places)

    def _prune(self, over: int) -> None:
        """Keep the `most` smallest once there are more than `over` times as many."""
        if self.most is None or sum(map(len, self._keys)) <= over * self.most:
            return
        keys, places = np.concatenate(self._keys), np.concatenate(self._places)
        kept = np.sort(np.argpartition(keys, self.most)[: self.most])
        table = joined(self._pool).take(pa.array(kept)).combine_chunks()
        self._pool, self._keys, self._places = table.to_batches(), [keys[kept]], [places[kept]]
        self._limit = float(keys[kept].max())


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; a column that is text in some of them is text."""
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
    """At most `most` rows drawn at random, in row order; their places, and the number of rows seen.

    `first` marks the preferred rows of a batch; it also gets the number of rows before it.
    """
    reservoir = Reservoir(most, seed)
    for batch in batches:
        reservoir.add(batch, None if first is None else first(batch, reservoir.seen))
    return *reservoir.drawn(), reservoir.seen


def draw_places(rows: int, most: int | None, seed: int) -> np.ndarray:
    """The places of at most `most` of `rows` rows, ascending; the same rows that `draw` picks."""
    if most is None or rows <= most:
        return np.arange(rows)
    return np.sort(np.argpartition(np.random.default_rng([seed, 1]).random(rows), most)[:most])


Levels = dict[str, Counter[str] | None]  # column -> rows of each value, "" for a gap; None for too many values


def add_levels(levels: Levels, name: str, counts: dict[str, int] | None) -> None:
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
        """Look for extremes in a batch, with its columns as plain arrays; `start` rows precede it."""
        found = dict[tuple[str, str], int]()
        for name, column in columns.items():
            if (name, "gap") not in self.rows:
                found[name, "gap"] = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
            try:
                ends = pc.min_max(column)
            except pa.ArrowNotImplementedError:  # a type without an order
                continue
            for end, better in (("min", operator.lt), ("max", operator.gt)):
                value, key = ends[end].as_py(), (name, end)
                if value is None or value != value:
                    continue
                if key not in self.ends or better(value, self.ends[key]):
                    self.ends[key] = value
                    found[key] = pc.index(column, ends[end]).as_py()
        places = sorted({at for at in found.values() if at >= 0})
        taken = batch.take(pa.array(places, pa.int64()))
        self.rows |= {key: (start + at, taken.slice(places.index(at), 1)) for key, at in found.items() if at >= 0}


@dataclass(frozen=True)
class Census:
    """The result of the first pass."""

    rows: int
    sample: pa.Table
    places: np.ndarray  # of the sample among all rows, ascending
    levels: Levels

    @property
    def is_whole(self) -> bool:
        return len(self.places) == self.rows

    @classmethod
    def take(cls, batches: Iterable[pa.RecordBatch], most: int, seed: int) -> Census:
        """Read all rows; the sample holds `most` of them and the extreme ones."""
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
        """The census of all shards of a process group, in the order of its processes."""
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
        """The columns fitted to the sample, with the counts of all rows."""
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
