"""Rows: all that the training loop sees of the data."""

from __future__ import annotations

from addml.arrays import Array, take


class MemoryRows:
    """Prepared rows held in memory or on a device."""

    def __init__(self, values: Array) -> None:
        """Values are (n, ...)."""
        self.values = values

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def take(self, ids: Array) -> Array:
        """The rows with these ids, copied, of shape (*ids.shape, ...)."""
        return take(self.values, ids)
