"""Rows on disk as the training loop sees them: in a cache of prepared rows, or prepared anew from their source."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from addml.arrays import Array, to_numpy
from addml.compute import on_device
from addml.scratch import mapped

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    from addml.data.datasets import Source

logger = logging.getLogger("addml")

BLOCKS = 16  # of a portion
LEAST_BLOCK = 256  # rows
REPORTED = 2**18  # rows between two words on how far a run is

Prepare = Callable[["pa.RecordBatch"], np.ndarray]


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


class DiskRows(ABC):
    """Prepared rows that do not lie in memory; the table they come from must not change meanwhile."""

    resident = False

    def __init__(self, source: Source, portions: Portions, device: str) -> None:
        self.source, self._portions, self.device = source, portions, device
        self._served = 0

    def __len__(self) -> int:
        return len(self.source)

    def portions(self, epoch: int) -> Iterator[list[tuple[int, int]]]:
        """The ranges of rows that are shuffled together in an epoch."""
        self.source.check_unchanged()
        return self._portions.portions(epoch)

    def take(self, ids: Array) -> Array:
        """The rows with these ids, of shape (*ids.shape, ...), where the network is."""
        self._report(ids.shape[0] * ids.shape[1] if ids.ndim > 1 else len(ids))
        return on_device(self._rows(to_numpy(ids)), self.device)

    @abstractmethod
    def _rows(self, ids: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in their order, so many at a time."""

    def _report(self, rows: int) -> None:
        self._served += rows
        if self._served >= REPORTED:
            logger.debug("%(rows)d rows", {"rows": self._served})
            self._served = 0


class MappedRows(DiskRows):
    """Rows in a file of prepared float32 numbers that is mapped into memory: the system keeps what it has room for."""

    def __init__(self, source: Source, portions: Portions, device: str, values: np.ndarray) -> None:
        super().__init__(source, portions, device)
        self.values = values

    def _rows(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self.values).take(ids, axis=0)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in their order, so many at a time."""
        for start in range(0, len(self), size):
            part = np.asarray(self.values[start : start + size])
            self._report(len(part))
            yield part


class SourceRows(DiskRows):
    """Rows that are read and prepared whenever they are asked for; the blocks used last are kept."""

    def __init__(self, source: Source, portions: Portions, device: str, prepare: Prepare) -> None:
        super().__init__(source, portions, device)
        self._prepare = prepare
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()

    def _rows(self, ids: np.ndarray) -> np.ndarray:
        flat, size = ids.reshape(-1), self._portions.block
        numbers = flat // size
        first = self._block(int(numbers[0]))
        out = np.empty((len(flat), *first.shape[1:]), first.dtype)
        for number in np.unique(numbers):
            own = np.flatnonzero(numbers == number)
            out[own] = self._block(int(number)).take(flat[own] - number * size, axis=0)
        return out.reshape(*ids.shape, *first.shape[1:])

    def _block(self, number: int) -> np.ndarray:
        if number not in self._kept:
            start = number * self._portions.block
            self._kept[number] = self._prepared(start, min(len(self), start + self._portions.block))
            if len(self._kept) > BLOCKS + 1:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]

    def _prepared(self, start: int, stop: int) -> np.ndarray:
        return np.concatenate([self._prepare(batch) for batch in self.source.batches(start, stop)])

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in their order, so many at a time."""
        for batch in self.source.batches(rows=size):
            part = self._prepare(batch)
            self._report(len(part))
            yield part


def cached(source: Source, prepare: Prepare, width: int, folder: str | os.PathLike[str]) -> np.ndarray:
    """All rows, prepared once, in a nameless file of the folder."""
    values, done = mapped(folder, (len(source), width), np.float32), 0
    for batch in source.batches():
        values[done : done + batch.num_rows] = prepare(batch)
        done += batch.num_rows
        logger.debug("%(rows)d rows", {"rows": batch.num_rows})
    return values
