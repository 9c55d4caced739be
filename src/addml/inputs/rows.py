"""Rows: all that the training loop sees of the data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from addml.arrays import Array, take
from addml.inputs.series import Windows
from addml.preprocessing.scaling import Features


class InMemory:
    """Rows that are at hand all at once."""

    def portions(self, epoch: int) -> Iterator[None]:
        """All rows are shuffled together."""
        yield None


class MemoryRows(InMemory):
    """Prepared rows held in memory or on a device."""

    def __init__(self, values: Array) -> None:
        """Values are (n, d)."""
        self.values = values

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def take(self, ids: Array) -> Array:
        """The rows with these ids, copied, of shape (*ids.shape, d)."""
        return take(self.values, ids)


class LazyRows(InMemory):
    """Rows of any form in main memory that are prepared when they are asked for: pixels stay bytes until then."""

    def __init__(self, values: np.ndarray, features: Features) -> None:
        """Values are (n, ...), a view perhaps."""
        self.values, self.features = values, features

    def __len__(self) -> int:
        return len(self.values)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows with these ids, prepared, of shape (*ids.shape, d)."""
        chosen = self.values[ids.reshape(-1)]  # not `take`, which would copy the whole of a view
        width = self.features.width
        return self.features.transform(chosen.reshape(len(chosen), width)).reshape(*ids.shape, width)


class WindowRows(InMemory):
    """Windows of a series whose steps have been prepared, copied when they are asked for."""

    def __init__(self, windows: Windows) -> None:
        """The windows (n, window, channels) of prepared steps."""
        self.windows = windows

    @property
    def values(self) -> np.ndarray:
        """What the windows are views of."""
        return self.windows.values

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows with these ids, of shape (*ids.shape, d)."""
        _, window, channels = self.windows.shape
        return self.windows[ids.reshape(-1)].reshape(*ids.shape, window * channels)
