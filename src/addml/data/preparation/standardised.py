"""From the columns of a table to standardised features at once, without the matrix of numbers between them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from addml.data.features import Features

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.data.columns import Columns
    from addml.data.drift import DriftCounter

AT_ONCE = 4160  # rows: their numbers stay in the cache, whose places columns of 4096 would fight for

Runs = list[tuple[slice, slice]]  # features beside each other: where they go, where they come from


class Standardised:
    """Columns and features in one: `features.transform(columns.transform(table))`, to the last bit.

    A category has few codes: the features of each are standardised once and then looked up. The other columns are
    written one after another, so that each is one stretch of memory, and standardised together.
    """

    def __init__(self, columns: Columns, features: Features) -> None:
        """Features must have been fitted to what the columns give."""
        self.columns, self.width = columns, features.width
        spans = [
            (column, np.arange(*ends)) for column, ends in zip(columns.prepared, pairwise(columns.starts), strict=True)
        ]
        self._coded: list[tuple[int, np.ndarray, Runs]] = []  # the column, the features of its codes, their places
        for position, (column, span) in enumerate(spans):
            if column.table is not None:
                own, places = features.of(span)
                self._coded.append((position, own.transform(column.table), _runs(places)))
        plain = [position for position, (column, _) in enumerate(spans) if column.table is None]
        ends = np.cumsum([0, *(len(spans[position][1]) for position in plain)])
        self._plain = [(position, slice(*ends[at : at + 2])) for at, position in enumerate(plain)]
        self._features, places = features.of(np.concatenate([np.empty(0, int), *(spans[at][1] for at in plain)]))
        self._runs = _runs(places)

    def transform(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The features (n, width), float32; errors and `drift` are as in `Columns.transform`."""
        out = np.empty((table.num_rows, self.width), np.float32)
        self.columns.into(out, table, self._write, drift)
        return out

    def _write(self, values: list[np.ndarray], out: np.ndarray) -> None:
        for start in range(0, len(out), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            self._write_some([part[rows] for part in values], out[rows])

    def _write_some(self, values: list[np.ndarray], out: np.ndarray) -> None:
        for position, table, runs in self._coded:
            _copy(table.take(values[position], axis=0, mode="clip"), out, runs)
        if self._plain:
            numbers = np.empty((len(out), len(self._features.median)), order="F")
            for position, place in self._plain:
                self.columns.prepared[position].fill(values[position], numbers[:, place])
            _copy(self._features.transform(numbers), out, self._runs)


def _copy(features: np.ndarray, out: np.ndarray, runs: Runs) -> None:
    for there, here in runs:
        out[:, there] = features[:, here]


def _runs(places: np.ndarray) -> Runs:
    """Places, ascending, as stretches without holes."""
    ends = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    stretches = [(left, right) for left, right in pairwise(ends) if left < right]
    return [(slice(int(places[left]), int(places[right - 1]) + 1), slice(left, right)) for left, right in stretches]
