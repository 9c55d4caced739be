"""Rows: all that the training loop sees of the data."""

from __future__ import annotations

from collections.abc import Iterator

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

    def blocks(self, size: int) -> Iterator[Array]:
        """All rows in their order, so many at a time."""
        return (self.values[start : start + size] for start in range(0, len(self), size))

    def windows(self, epoch: int) -> Iterator[None]:
        """All rows are shuffled together."""
        yield None
