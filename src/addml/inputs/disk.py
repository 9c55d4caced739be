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
Preference = Callable[[pa.RecordBatch, int], np.ndarray]  # (batch, number of rows before it) -> mask of preferred rows


class Source:
    """The rows of a dataset, in the order of its files."""

    def __init__(
        self,
        dataset: Any,
        name: str,
        columns: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        list_files: Callable[[], list[str]] | None = None,
    ) -> None:
        """`list_files` lists the files that exist now, if they may differ from those of the dataset."""
        self.name, self.columns = name, columns
        self._dataset, self._list_files = dataset, list_files
        self._filter = getattr(dataset, "_scan_options", None)  # of a filtered dataset
        self.units = list(self._units())
        self.starts = [0, *accumulate(rows for _, _, rows in self.units)]
        self.start, self.stop = 0, self.starts[-1]
        if not len(self):
            raise ReadError(f"{name}: holds no rows ({counted(len(self.units), 'part')}).")
        empty, shape_notes = shaped(dataset.schema.empty_table(), columns, name)
        self.names, self.notes = empty.column_names, [*notes, *shape_notes]
        self.partial = [f"{name}: {note}" for note in notes if note.startswith(PARTIAL)]  # columns not in all files
        self.files = self._files()

    def shard(self, rank: int, size: int) -> Source:
        """One of `size` equal parts of the rows; a row group that spans two parts is read for both."""
        if len(self) < size * LEAST_STREAMED:
            raise ValueError(f"{self.name}: {len(self):,} rows are too few for {size} workers; give fewer workers")
        shard = copy.copy(self)
        shard.start, shard.stop = len(self) * rank // size, len(self) * (rank + 1) // size
        return shard

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
        start = self.start if start is None else start
        stop = self.stop if stop is None else stop
        return conformed(self._slices(start, stop, rows), self.columns, None, rows, self.name)

    def _slices(self, start: int, stop: int, rows: int) -> Iterator[pa.RecordBatch]:
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        for position, unit in zip(self.starts[first:last], self.units[first:last], strict=True):
            for batch in self._read(*unit, rows):
                end = position + batch.num_rows
                part = batch.slice(max(0, start - position), max(0, min(stop, end) - max(start, position)))
                if part.num_rows:
                    yield part
                if end >= stop:
                    return
                position = end

    def _read(self, fragment: Any, name: str, size: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The `size` rows of a unit in batches of at most `rows`."""
        count, columns = 0, readable(self.columns, self._dataset.schema.names)
        schema = {} if fragment is self._dataset else {"schema": self._dataset.schema}
        with reading(name):
            for batch in fragment.to_batches(columns=columns, batch_size=rows, **schema, **READ_AHEAD):
                count += batch.num_rows
                yield batch
        if count < size:
            raise ReadError(f"{name}: only {count:,} of {size:,} rows can be read. Copy or write the file again.")

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
        for name, change in changes(self.files, self._files()):
            raise ReadError(f"{name}: {change} since the run began. Run it again, and do not change files meanwhile.")

    def _files(self) -> Files:
        result: Files = {}
        for dataset in _parts_of(self._dataset):
            names = self._list_files() if self._list_files else getattr(dataset, "files", [])
            infos = dataset.filesystem.get_file_info(names) if names else []
            result |= {info.path: [info.size, info.mtime_ns] for info in infos if info.size is not None}
        return result

    @property
    def about(self) -> dict[str, Any]:
        """The identity of the rows, by which a checkpoint recognises them after a restart."""
        if self._list_files is None and not all(getattr(part, "files", None) for part in _parts_of(self._dataset)):
            raise ValueError(
                f"{self.name} with a checkpoint: its rows are not in files, so a resumed run cannot check that they "
                "are the same; write them as Parquet, or give the table itself and more memory"
            )
        return {"files": self.files, "rows": len(self), "columns": self.names, "filter": str(self._filter)}


def changes(before: Files, after: Files) -> Iterator[tuple[str, str]]:
    """The files that differ, and a phrase that says how."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield name, "is gone"
        elif before.get(name) != after[name]:
            yield name, "has changed" if name in before else "is new"


def _parts_of(dataset: Any) -> list[Any]:
    """The datasets of a union, at any depth; any other dataset is its only part."""
    children = getattr(dataset, "children", None)
    return [dataset] if children is None else [part for child in children for part in _parts_of(child)]


def is_on_disk(X: Any) -> bool:
    return isinstance(X, str | os.PathLike | Source) or type(X).__module__.startswith("pyarrow._dataset")


def is_part(path: str | os.PathLike[str], table: str | os.PathLike[str] | Source) -> bool:
    """Whether a path is that of the table on disk, or of a file that is read as a part of it."""
    if isinstance(table, Source):
        return Path(os.path.expanduser(path)).resolve() in {Path(name).resolve() for name in table.files}
    file, whole = Path(os.path.expanduser(path)).resolve(), Path(os.path.expanduser(table)).resolve()
    is_inside = whole.is_dir() and file.is_relative_to(whole) and file.suffix.lower() in PARQUET_NAMES
    return file == whole or is_inside


def open_source(X: Any, columns: Sequence[str] | None = None) -> Source:
    """The rows of a Parquet file, a folder of such files, or a pyarrow dataset."""
    if isinstance(X, Source):
        return X
    if not isinstance(X, str | os.PathLike):
        if not hasattr(X, "get_fragments"):  # not a scanner, whose rows can be read only once
            remedy = "give the path of a Parquet file or folder, or a pyarrow dataset"
            raise TypeError(f"{type(X).__name__} is not a table on disk: {remedy}")
        return Source(X, f"the {type(X).__name__}", columns)
    origin = find_origin(X)
    kind, notes = format_of(origin)
    if kind == "folder":
        folder, folder_notes = folder_dataset(origin)
        return Source(folder, origin.name, columns, folder_notes, lambda: parquet_files(origin))
    if kind != "parquet" or origin.compression is not None:
        raise ReadError(f"{origin.name}: is {kind}; a path must be Parquet. Read the table first, or use addml fit.")
    from pyarrow import dataset

    with reading(origin.name):
        return Source(dataset.dataset(str(origin.path), format="parquet"), origin.name, columns, notes)


class Reservoir:
    """Draws at most `most` rows: each row gets a random number and the smallest stay, whatever the batches."""

    def __init__(self, most: int | None, seed: int) -> None:
        self.most, self.rows = most, 0
        self._random, self._limit = np.random.default_rng([seed, 1]), np.inf
        self._batches, self._keys, self._indices = list[pa.RecordBatch](), list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: pa.RecordBatch, first: np.ndarray | None = None) -> None:
        """Add the next rows; those in the mask `first` are preferred."""
        keys = self._random.random(batch.num_rows) - (0.0 if first is None else first)
        indices = np.arange(self.rows, self.rows + batch.num_rows)
        self.rows += batch.num_rows
        if self._limit < np.inf:
            kept = np.flatnonzero(keys < self._limit)
            batch, keys, indices = batch.take(kept), keys[kept], indices[kept]
        self._batches.append(batch)
        self._keys.append(keys)
        self._indices.append(indices)
        self._prune(factor=2)

    def sample(self) -> tuple[pa.Table, np.ndarray]:
        """The rows drawn, in their order, and their indices."""
        self._prune(factor=1)
        return joined(self._batches), np.concatenate(self._indices)

    def _prune(self, factor: int) -> None:
        """Keep the rows with the smallest numbers once there are more than `factor` times `most`."""
        if self.most is None or sum(map(len, self._keys)) <= factor * self.most:
            return
        keys, indices = np.concatenate(self._keys), np.concatenate(self._indices)
        kept = np.sort(np.argpartition(keys, self.most)[: self.most])
        table = joined(self._batches).take(pa.array(kept)).combine_chunks()
        self._batches, self._keys, self._indices = table.to_batches(), [keys[kept]], [indices[kept]]
        self._limit = float(keys[kept].max())


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; a column that is text in some of them is text."""
    schemas = [batch.schema for batch in batches]
    mixed = [field.name for field in schemas[0] if any(other.field(field.name).type != field.type for other in schemas)]
    if not mixed:
        return pa.Table.from_batches(batches)
    schema = pa.schema([(field.name, pa.string() if field.name in mixed else field.type) for field in schemas[0]])
    return pa.concat_tables([pa.Table.from_batches([batch]).cast(schema) for batch in batches])


def draw(
    batches: Iterable[pa.RecordBatch], most: int | None, seed: int, first: Preference | None = None
) -> tuple[pa.Table, np.ndarray, int]:
    """At most `most` rows drawn at random, in their order; their indices, and the number of all rows."""
    reservoir = Reservoir(most, seed)
    for batch in batches:
        reservoir.add(batch, None if first is None else first(batch, reservoir.rows))
    return *reservoir.sample(), reservoir.rows


def draw_indices(rows: int, most: int | None, seed: int) -> np.ndarray:
    """The indices of at most `most` of `rows` rows, ascending; the same rows that `draw` draws."""
    if most is None or rows <= most:
        return np.arange(rows)
    return np.sort(np.argpartition(np.random.default_rng([seed, 1]).random(rows), most)[:most])


Levels = dict[str, Counter[str] | None]  # column -> rows of each value, "" for a gap; None for too many values


def add_levels(levels: Levels, name: str, counts: dict[str, int] | None) -> None:
    """Add the counts of a column's values to its levels."""
    total = levels.setdefault(name, Counter())
    if total is not None and counts is not None:
        total.update(counts)
    if total is None or counts is None or len(total) > MOST_COUNTED:
        levels[name] = None


class ExtremeRows:
    """For every column a row with its lowest value, one with its highest and one with a gap."""

    def __init__(self) -> None:
        self.values = dict[tuple[str, str], Any]()  # (column, "min" or "max") -> value
        self.rows = dict[tuple[str, str], tuple[int, pa.RecordBatch]]()  # the index of the row, and the row

    def add(self, batch: pa.RecordBatch, columns: dict[str, pa.Array], start: int) -> None:
        """Look for extremes in a batch, with its columns as plain arrays; `start` rows precede it."""
        indices = dict[tuple[str, str], int]()  # -1 if there is none
        for name, column in columns.items():
            if (name, "gap") not in self.rows:
                indices[name, "gap"] = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
            try:
                ends = pc.min_max(column)
            except pa.ArrowNotImplementedError:  # a type without an order
                continue
            for end, is_beyond in (("min", operator.lt), ("max", operator.gt)):
                value, key = ends[end].as_py(), (name, end)
                if value is None or value != value:
                    continue
                if key not in self.values or is_beyond(value, self.values[key]):
                    self.values[key] = value
                    indices[key] = pc.index(column, ends[end]).as_py()
        indices = {key: index for key, index in indices.items() if index >= 0}
        distinct = sorted(set(indices.values()))
        rows = batch.take(pa.array(distinct, pa.int64()))
        self.rows |= {key: (start + index, rows.slice(distinct.index(index), 1)) for key, index in indices.items()}


@dataclass(frozen=True)
class Census:
    """The result of the first pass."""

    rows: int
    sample: pa.Table
    places: np.ndarray  # the indices of the sample among all rows, ascending
    levels: Levels

    @property
    def is_whole(self) -> bool:
        return len(self.places) == self.rows

    @classmethod
    def take(cls, batches: Iterable[pa.RecordBatch], most: int, seed: int) -> Census:
        """Read all rows; the sample holds `most` of them and the extreme rows."""
        reservoir, extremes, levels = Reservoir(most, seed), ExtremeRows(), Levels()
        for batch in batches:
            columns = dict(zip(batch.schema.names, map(_decoded, batch.columns), strict=True))
            extremes.add(batch, columns, reservoir.rows)
            reservoir.add(batch)
            for name, column in columns.items():
                is_coded = is_text(column.type) or pa.types.is_boolean(column.type)
                if is_coded and levels.get(name, ()) is not None:
                    texts = DistinctTexts.of(pa.chunked_array([column]))
                    counts = dict(zip(texts.values.to_pylist(), texts.counts.tolist(), strict=True))
                    add_levels(levels, name, counts | {"": texts.gaps})
        table, indices = reservoir.sample()
        added = {index: row for index, row in extremes.rows.values() if index not in indices}
        if added:
            table = pa.concat_tables([table, joined(list(added.values()))]).combine_chunks()
            indices = np.concatenate([indices, list(added)])
            table, indices = table.take(np.argsort(indices)), np.sort(indices)
        return cls(reservoir.rows, table, indices, levels)

    def joined(self, group: Group) -> Census:
        """The census of all shards of a process group, in the order of its processes."""
        if group.size == 1:
            return self
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.sample.schema) as writer:
            writer.write_table(self.sample)
        starts = np.cumsum([0, *map(int, group.gather(str(self.rows).encode()))])
        tables = [pa.ipc.open_stream(buffer).read_all() for buffer in group.gather(sink.getvalue().to_pybytes())]
        indices = [np.frombuffer(buffer, np.int64) for buffer in group.gather(self.places.astype(np.int64).tobytes())]
        levels = Levels()
        for shard_levels in map(json.loads, group.gather(json.dumps(self.levels).encode())):
            for name, counts in shard_levels.items():
                add_levels(levels, name, counts)
        return Census(
            int(starts[-1]),
            joined([batch for table in tables for batch in table.to_batches()]).combine_chunks(),
            np.concatenate([part + start for part, start in zip(indices, starts, strict=False)]),
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
        counts = {level: count for level, count in levels.items() if level}
        return CategoryColumn.fit(column.name, list(counts), np.array(list(counts.values()), np.int64), levels[""])


def _decoded(column: pa.Array) -> pa.Array:
    column = plain(column)
    return plain(column.dictionary_decode()) if pa.types.is_dictionary(column.type) else column
