"""What a row that is no row of a table looks like before it is laid flat: an image, a window of a series."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

RANKS = {"images": 3, "series": 2}  # of one row


@dataclass(frozen=True)
class Form:
    """The kind of the rows and the shape of one of them.

    An image is (channels, height, width), a window of a series (steps, channels). Behind the preparation all rows are
    flat; the encoder alone lays them out again.
    """

    kind: str
    shape: tuple[int, ...]
    causal: bool = True  # whether a step is scored by its past alone, not by all windows over it

    @property
    def is_series(self) -> bool:
        """Whether rows are the windows that end at each step of a series."""
        return self.kind == "series"

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Colours of an image, quantities of a series: the numbers of one are scaled alike."""
        return self.shape[-1] if self.kind == "series" else self.shape[0]

    def channel_of(self) -> np.ndarray:
        """The channel that each number of a flat row belongs to, (size,)."""
        numbers = np.arange(self.size)
        return numbers % self.channels if self.kind == "series" else numbers // (self.size // self.channels)

    def counts(self) -> np.ndarray:
        """How much each number of a flat row counts along plain columns, (size,): of a window its last step alone."""
        if not self.is_series:
            return np.ones(self.size, np.float32)
        return (np.arange(self.size) >= self.size - self.channels).astype(np.float32)

    def to_plain(self) -> dict[str, Any]:
        """The form as JSON values."""
        return {"kind": self.kind, "shape": list(self.shape), "causal": self.causal}

    @classmethod
    def from_plain(cls, document: dict[str, Any]) -> Form:
        """The form that `to_plain` described; raises ValueError where it is none."""
        kind, shape = document["kind"], tuple(document["shape"])
        if RANKS.get(kind) != len(shape) or any(type(length) is not int or length < 1 for length in shape):
            raise ValueError(f"rows of kind {kind!r} and shape {shape}")
        if type(document["causal"]) is not bool:
            raise ValueError(f"causal={document['causal']!r}")
        return cls(kind, shape, document["causal"])
