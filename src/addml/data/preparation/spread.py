"""How numbers lie: ends, bins of about equal share, gaps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from addml.data.preparation import plain_values

BINS = 20
SAMPLE = 200_000  # rows that quantiles are taken from
TALLIED = 4_096  # rows of a block that are put into bins; its others count like them


@dataclass(frozen=True)
class Spread:
    """How the numbers of a column lay in training."""

    low: float
    middle: float
    high: float
    edges: tuple[float, ...]  # upper ends of all bins but the last, ascending
    filled: tuple[float, ...]  # shares of the numbers in each bin
    gaps: float  # share of the rows

    @classmethod
    def fit(cls, values: np.ndarray) -> Spread:
        """From all training values, NaN for gaps; at least one is a number."""
        known = _known(values)
        sample = np.sort(sampled(known)).astype(np.float64)
        edges = np.unique(np.quantile(sample, np.arange(1, BINS) / BINS, method="inverted_cdf"))
        ends = np.searchsorted(sample, edges, side="right")
        counts = np.diff(ends, prepend=0, append=len(sample))
        return cls(
            float(known.min()),
            2 * float(np.quantile(sample / 2, 0.5)),  # halves: differences of the largest numbers may overflow
            float(known.max()),
            tuple(map(float, edges)),
            tuple(map(float, counts / len(sample))),
            1 - len(known) / len(values),
        )

    @property
    def shares(self) -> np.ndarray:
        """Shares of the rows in each bin, the gaps last."""
        return np.append(np.array(self.filled) * (1 - self.gaps), self.gaps)

    @cached_property
    def _edges(self) -> np.ndarray:
        return np.array(self.edges)

    def tally(self, values: np.ndarray) -> np.ndarray:
        """How many values fall into each bin, the gaps last; those of a large block are estimated by some of them."""
        known = _known(values)
        part = np.ascontiguousarray(known[:: max(1, len(known) // TALLIED) | 1])
        counts = np.bincount(np.searchsorted(self._edges, part), minlength=len(self.edges) + 1)
        return np.append(counts * (len(known) / max(1, len(part))), len(values) - len(known))

    def outside(self, values: np.ndarray) -> int:
        """How many values lie beyond the training range by more than its length."""
        known, reach = _known(values), self.high - self.low
        if not len(known) or (known.min() >= self.low - reach and known.max() <= self.high + reach):  # as nearly always
            return 0
        return int(np.count_nonzero((known < self.low - reach) | (known > self.high + reach)))

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"edges": list(self.edges), "filled": list(self.filled)}

    @classmethod
    def from_plain(cls, document: plain_values.Document) -> Spread:
        """Back from `to_plain`, checked."""
        low, middle, high, gaps = (plain_values.number(document, key) for key in ("low", "middle", "high", "gaps"))
        edges, filled = plain_values.numbers(document, "edges"), plain_values.numbers(document, "filled")
        plain_values.fits(document, low <= middle <= high, "its ends are in no order")
        plain_values.fits(document, len(filled) == len(edges) + 1, f"{len(filled)} bins have {len(edges)} edges")
        plain_values.fits(document, list(edges) == sorted(edges), "its bins are in no order")
        plain_values.fits(document, 0 <= gaps < 1 and min(filled) >= 0, "a share is out of range")
        return cls(low, middle, high, edges, filled, gaps)


def _known(values: np.ndarray) -> np.ndarray:
    """What is neither a gap nor a text."""
    known = np.isfinite(values) if values.dtype.kind == "f" else np.ones(1, bool)
    return values if known.all() else values[known]


def sampled(values: np.ndarray) -> np.ndarray:
    """The values, or as many at random as quantiles need, the same ones every time."""
    if len(values) <= SAMPLE:
        return values
    return values[np.random.default_rng(0).integers(0, len(values), SAMPLE)]
