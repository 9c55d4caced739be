"""Rows: features wherever they lie, as training and scoring ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from addml.arrays import Array, take
from addml.compute import on_device
from addml.errors import rows_before
from addml.inputs.series import Sampling, Windows

ROWS_AT_ONCE = 65536


class Rows(Protocol):
    """Rows of features (n, d), in memory or prepared when they are asked for."""

    groups: np.ndarray | None  # (n,) the group of each row, where rows are judged within groups

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of one before it is prepared."""

    def take(self, ids: Any) -> Any:
        """The rows with these ids, of shape (*ids.shape, d)."""

    def slice(self, start: int, size: int) -> np.ndarray:
        """The `size` rows from `start`, (size, d)."""

    def usable(self, stride: int) -> np.ndarray:
        """The ids of the rows to learn from."""

    def for_training(self, device: str) -> InMemory:
        """The rows where the training takes place."""


class TrainingRows(Protocol):
    """What the training loop sees of the data."""

    def __len__(self) -> int: ...

    def take(self, ids: Any) -> Any:
        """The rows with these ids, of shape (*ids.shape, d)."""

    def portions(self, epoch: int) -> Iterator[Any]:
        """What is shuffled together."""


class InMemory:
    """Rows that are shuffled all together, made of `values`."""

    groups: np.ndarray | None = None
    values: Any

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def take(self, ids: Any) -> Any:
        raise NotImplementedError

    def portions(self, epoch: int) -> Iterator[None]:
        yield None

    def usable(self, stride: int) -> np.ndarray:
        return np.arange(len(self))


class MemoryRows(InMemory):
    """Prepared rows in memory or on a device."""

    def __init__(self, values: Array, groups: np.ndarray | None = None) -> None:
        self.values, self.groups = values, groups

    def take(self, ids: Array) -> Array:
        return take(self.values, ids)

    def slice(self, start: int, size: int) -> np.ndarray:
        return np.asarray(self.values[start : start + size])

    def for_training(self, device: str) -> MemoryRows:
        return MemoryRows(on_device(self.values, device))


class LazyRows(InMemory):
    """Rows of an array, a table or images that are prepared when they are asked for: pixels stay bytes until then."""

    def __init__(self, values: Any, prepare: Callable[[Any], np.ndarray], prepared: np.ndarray | None = None) -> None:
        """Values are an array (n, ...) or a pyarrow table; `prepared` their features, where these are at hand."""
        self.values, self.prepare, self.prepared = values, prepare, prepared

    def take(self, ids: np.ndarray) -> np.ndarray:
        flat = ids.reshape(-1)
        if self.prepared is not None or not isinstance(self.values, np.ndarray):
            found = (self.prepare(self.values) if self.prepared is None else self.prepared)[flat]
        else:
            found = self.prepare(self.values[flat])  # not `take`, which would copy the whole of a view
        return np.asarray(found).reshape(*ids.shape, found.shape[1])

    def slice(self, start: int, size: int) -> np.ndarray:
        if self.prepared is not None:
            return self.prepared[start : start + size]
        if isinstance(self.values, np.ndarray):
            return self.prepare(self.values[start : start + size])
        with rows_before(start):
            return self.prepare(self.values.slice(start, size))

    def for_training(self, device: str) -> MemoryRows | LazyRows:
        if self.prepared is not None:
            return MemoryRows(on_device(self.prepared, device))
        return self if device == "cpu" else _on_device(self, device)  # images stay bytes on the CPU


class WindowRows(InMemory):
    """Windows of a series whose steps have been prepared, copied when they are asked for."""

    def __init__(self, windows: Windows, sampling: Sampling | None = None) -> None:
        """The windows (n, window, channels) of prepared steps, and what was done to make these even."""
        self.windows, self.sampling, self.values = windows, sampling, windows.values
        self.steps: np.ndarray | None = None  # of training, as they were given

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.windows.shape

    def take(self, ids: np.ndarray) -> np.ndarray:
        _, window, channels = self.windows.shape
        return self.windows[ids.reshape(-1)].reshape(*ids.shape, window * channels)

    def slice(self, start: int, size: int) -> np.ndarray:
        part = self.windows.slice(start, size)
        return part.reshape(len(part), -1)

    def usable(self, stride: int) -> np.ndarray:
        """Whole windows, every `stride` steps."""
        return self.windows.whole(stride)

    def for_training(self, device: str) -> MemoryRows | WindowRows:
        return self if device == "cpu" else _on_device(self, device)


def as_rows(rows: Rows | np.ndarray) -> Rows:
    """Rows, or an array of features as such."""
    return MemoryRows(rows.astype(np.float32, copy=False)) if isinstance(rows, np.ndarray) else rows


def _on_device(rows: LazyRows | WindowRows, device: str) -> MemoryRows:
    parts = [rows.slice(start, ROWS_AT_ONCE) for start in range(0, len(rows), ROWS_AT_ONCE)]
    return MemoryRows(on_device(np.concatenate(parts), device))
