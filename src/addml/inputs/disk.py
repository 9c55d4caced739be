"""Rows on disk as the training loop sees them: in a cache of prepared rows, or prepared anew from their source."""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from addml.arrays import Array, mapped, to_numpy
from addml.compute import on_device
from addml.inputs import Rows
from addml.io.binary import PARTIAL, READ_AHEAD, folder_dataset, parquet_files, readable, reading
from addml.io.read import format_of
from addml.io.source import ReadError, find_origin
from addml.io.values import conformed, shaped
from addml.text import counted

if TYPE_CHECKING:
    from pyarrow import dataset

logger = logging.getLogger("addml")

BLOCKS = 16  # of a portion
LEAST_BLOCK = 256  # rows
REPORTED = 2**18  # rows between two words on how far a run is

Prepare = Callable[[pa.RecordBatch], np.ndarray]


@dataclass(frozen=True)
class Portions:
    """Which rows are shuffled together: blocks from anywhere in the table, as many as a buffer holds."""

    rows: int
    block: int  # rows
    seed: int

    @classmethod
    def of(cls, rows: int, most: int, seed: int) -> Portions:
        """Portions of at most so many rows, but of at least a few blocks."""
        return cls(rows, rows if rows <= most else max(LEAST_BLOCK, most // BLOCKS), seed)

    def portions(self, epoch: int) -> Iterator[list[tuple[int, int]]]:
        """The ranges of rows, ascending, of every portion of an epoch."""
        blocks = -(-self.rows // self.block)
        order = np.random.default_rng([self.seed, epoch]).permutation(blocks)
        for start in range(0, blocks, BLOCKS):
            chosen = np.sort(order[start : start + BLOCKS]) * self.block
            yield [(int(first), min(self.rows, int(first) + self.block)) for first in chosen]


class DiskRows(Rows):
    """Prepared rows in a file of float32 numbers mapped into memory: the system keeps what it has room for.

    The table they come from must not change meanwhile.
    """

    resident = False

    def __init__(self, source: Source | Shard, portions: Portions, device: str, values: np.ndarray) -> None:
        self.source, self._portions, self.device, self.values = source, portions, device, values
        self._served = 0

    def __len__(self) -> int:
        return len(self.source)

    def portions(self, epoch: int) -> Iterator[list[tuple[int, int]]]:
        self.source.check_unchanged()
        return self._portions.portions(epoch)

    def take(self, ids: Array) -> Array:
        """The rows with these ids, of shape (*ids.shape, ...), where the network is."""
        self._report(ids.shape[0] * ids.shape[1] if ids.ndim > 1 else len(ids))
        return on_device(np.asarray(self.values).take(to_numpy(ids), axis=0), self.device)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in their order, so many at a time."""
        for start in range(0, len(self), size):
            part = np.asarray(self.values[start : start + size])
            self._report(len(part))
            yield part

    def _report(self, rows: int) -> None:
        self._served += rows
        if self._served >= REPORTED:
            logger.debug("%(rows)d rows", {"rows": self._served})
            self._served = 0


def cached(source: Source | Shard, prepare: Prepare, width: int, folder: str | os.PathLike[str]) -> np.ndarray:
    """All rows, prepared once, in a nameless file of the folder."""
    values, done = mapped(folder, (len(source), width), np.float32), 0
    for batch in source.batches():
        values[done : done + batch.num_rows] = prepare(batch)
        done += batch.num_rows
        logger.debug("%(rows)d rows", {"rows": batch.num_rows})
    return values


# A table on disk, larger than memory perhaps: Parquet files or any dataset of pyarrow, read in several passes.


BATCH_ROWS = 65_536
LEAST_STREAMED = 1000  # rows; fewer are held in memory, however wide
CELL_BYTES = 40  # of one cell of a table that is learned from in memory: the column, its number, the feature, copies

Files = dict[str, list[int]]  # name -> size, time of the last change


class Unit(NamedTuple):
    """What is read at a time: a row group of a Parquet file, or a whole fragment of another kind."""

    fragment: Any
    name: str
    group: int | None
    rows: int


class Source:
    """The rows of a dataset in the order of its files, some columns of them perhaps."""

    def __init__(
        self,
        found: dataset.Dataset,
        name: str,
        columns: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        listed: Callable[[], list[str]] | None = None,
    ) -> None:
        """`listed` names the files that are there now, where there may be others than those of the dataset."""
        self.name, self.notes, self.columns = name, list(notes), columns
        self._dataset, self._listed = found, listed
        self.units = list(self._units())
        self.starts = [0, *accumulate(unit.rows for unit in self.units)]
        if not len(self):
            raise ReadError(f"{name}: holds no rows ({counted(len(self.units), 'part')}).")
        empty, spread = shaped(found.schema.empty_table(), columns, name)
        self.names, self.notes = empty.column_names, [*self.notes, *spread]
        self.files = self._files()

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def size(self) -> int:
        """Bytes of memory that learning from all rows at once would take, about."""
        return len(self) * len(self.names) * CELL_BYTES

    @property
    def partial(self) -> list[str]:
        """What is said of columns that some files do not have, where there are such."""
        return [f"{self.name}: {note}" for note in self.notes if note.startswith(PARTIAL)]

    def table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.batches()))

    def batches(self, start: int = 0, stop: int | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to `stop`, at most so many at a time."""
        stop = len(self) if stop is None else stop
        return conformed(self._slices(start, stop, rows), self.columns, None, rows, self.name)

    def _slices(self, start: int, stop: int, rows: int) -> Iterator[pa.RecordBatch]:
        for place in range(bisect_right(self.starts, start) - 1, len(self.units)):
            at = self.starts[place]
            if at >= stop:
                return
            for batch in self._read(self.units[place], rows):
                part = batch.slice(max(0, start - at), max(0, min(stop, at + batch.num_rows) - max(start, at)))
                if part.num_rows:
                    yield part
                at += batch.num_rows
                if at >= stop:
                    return

    def _read(self, unit: Unit, rows: int) -> Iterator[pa.RecordBatch]:
        seen, wanted = 0, readable(self.columns, self._dataset.schema.names)
        schema = {} if unit.fragment is self._dataset else {"schema": self._dataset.schema}
        place = unit.name if unit.group is None else f"{unit.name}, row group {unit.group}"
        with reading(place):
            for batch in unit.fragment.to_batches(columns=wanted, batch_size=rows, **schema, **READ_AHEAD):
                seen += batch.num_rows
                yield batch
        if seen < unit.rows:
            raise ReadError(f"{place}: {seen:,} rows could be read of {unit.rows:,}. Copy or write the file again.")

    def _units(self) -> Iterator[Unit]:
        """The row groups of Parquet files, other fragments as they are; a filtered dataset has no fragments."""
        if self._filter:
            yield Unit(self._dataset, self.name, None, self._dataset.count_rows())
            return
        for fragment in self._dataset.get_fragments():
            name = str(getattr(fragment, "path", "") or self.name)
            with reading(name):
                if not hasattr(fragment, "split_by_row_group"):
                    yield Unit(fragment, name, None, fragment.count_rows())
                    continue
                groups = ((part, part.row_groups[0]) for part in fragment.split_by_row_group())
                yield from [Unit(part, name, group.id, group.num_rows) for part, group in groups]

    # Has it changed? ------------------------------------------------------------------------------------------

    def check_unchanged(self) -> None:
        """Every file must still be as it was."""
        for name, what in changes(self.files, self._files()):
            raise ReadError(f"{name}: {what} since the run began. Let the files rest, and run it again.")

    def _files(self) -> Files:
        found = list[Any]()
        for part in parts_of(self._dataset):
            if names := self._listed() if self._listed else getattr(part, "files", []):
                found.extend(part.filesystem.get_file_info(names))
        return {info.path: [info.size, info.mtime_ns] for info in found if info.size is not None}

    @property
    def about(self) -> dict[str, Any]:
        """What tells these rows from others, after a kill too."""
        if self._listed is None and not all(getattr(part, "files", None) for part in parts_of(self._dataset)):
            raise ValueError(
                f"{self.name} with a checkpoint: its rows are in no files, and after a kill nobody can tell whether "
                "they are the same; write them as Parquet, or give the table itself and more memory"
            )
        kept = {"filter": str(self._filter)} if self._filter else {}
        return {"files": self.files, "rows": len(self), "columns": self.names, **kept}

    @property
    def _filter(self) -> Any:
        """Which rows of the files are meant, where not all are."""
        return getattr(self._dataset, "_scan_options", None)


class Shard:
    """The rows from `start` to `stop` of a source, as one of its own."""

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self.source, self.start, self.stop = source, start, stop

    @classmethod
    def of(cls, source: Source, rank: int, size: int) -> Shard:
        """One of as many shards, even to a row: what is between two row groups goes to both their readers."""
        if len(source) < size * LEAST_STREAMED:
            raise ValueError(f"{source.name}: {len(source):,} rows are too few for {size} workers; give fewer workers")
        return cls(source, len(source) * rank // size, len(source) * (rank + 1) // size)

    def __len__(self) -> int:
        return self.stop - self.start

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.source.batches(self.start, self.stop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def changes(before: Files, after: Files) -> Iterator[tuple[str, str]]:
    """The files that are not as they were, each with what became of it in words."""
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, "is gone" if name not in after else "is new" if name not in before else "has changed"


def parts_of(found: dataset.Dataset) -> list[dataset.Dataset]:
    """The datasets that one is a union of, and theirs; else itself."""
    children = getattr(found, "children", None)
    return [found] if children is None else [part for child in children for part in parts_of(child)]


def is_on_disk(X: Any) -> bool:
    """Whether X is a path, a source or a dataset of pyarrow, which hold no rows in memory."""
    if isinstance(X, str | os.PathLike | Source):
        return True
    return type(X).__module__.startswith("pyarrow._dataset")


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
            raise TypeError(
                f"{type(X).__name__} is no table on disk: give the path of a Parquet file or folder, "
                "or a dataset of pyarrow"
            )
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
