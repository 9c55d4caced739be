"""Distances along plain columns: the differences of two rows, added up.

Most of what the local scorer does is here, once for every row, reference and column. Small integers take half the
time of float32: the references of a table span a bounded range, outside which a row is as much farther from every one
of them, so that the differences inside it fit into 16 bits with steps too fine to matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from addml.arrays import Array, copy, namespace, to_numpy

LARGEST = 32767  # of 16 bits
COARSEST = 0.05  # deviations; a step that is larger would matter


@dataclass(frozen=True)
class Axes:
    """References by column, (d, R), in whole steps where those are fine enough; a step of 0 is none."""

    columns: Array
    reach: Array
    low: Array
    high: Array
    step: float

    @classmethod
    def of(cls, rows: Array, reach: Array) -> Axes:
        """References (R, d), and how much a step along each column counts (d,)."""
        weighted = rows * reach
        xp, columns = namespace(rows), copy(weighted.T)
        low, high = xp.amin(weighted, 0), xp.amax(weighted, 0)
        step = float(to_numpy(high - low).sum(dtype=np.float64)) / max(1, LARGEST - len(columns))
        if not 0 < step <= COARSEST or len(columns) >= LARGEST:
            return cls(columns, reach, low, high, 0.0)
        return cls(_whole((columns - low[:, None]) / step), reach, low, high, step)

    def distances(self, x: Array) -> tuple[Array, Array]:
        """The distances (b, R) of rows (b, d) to the references within their range, and what lies beyond it (b,)."""
        inside, beyond = self._parted(x)
        if not self.step:
            return _added_up(inside, self.columns), beyond
        whole = _added_up(_whole((inside - self.low) / self.step), self.columns)
        return whole * as_float(self.step, x), beyond

    def moved(self, distances: Array, x: Array, values: Array, features: Array) -> tuple[Array, Array]:
        """The same after some features (f,) of rows (b, d) at these distances, which are used up, took values (b, f).

        What lies beyond is added up anew: taken out of a sum, a value a billion deviations out leaves its rounding.
        """
        if len(features):
            own = {name: getattr(self, name)[features] for name in ("columns", "reach", "low", "high")}
            distances += replace(self, **own).distances(values)[0]
            distances -= replace(self, **own).distances(x[:, features])[0]
        after = copy(x)
        after[:, features] = values
        return distances, self._parted(after)[1]

    def _parted(self, x: Array) -> tuple[Array, Array]:
        """The nearest place (b, d) within the range of the references, weighted, and how far (b,) it is from there."""
        x = x * self.reach
        inside = namespace(x).minimum(namespace(x).maximum(x, self.low), self.high)
        return inside, abs(x - inside).sum(1)


def as_float(number: float, like: Array) -> Array:
    """A number that turns whole numbers into floats of the dtype of `like`."""
    return np.float32(number) if isinstance(like, np.ndarray) else number


def _whole(x: Array) -> Array:
    """The nearest whole numbers of 16 bits."""
    return np.rint(x).astype(np.int16) if isinstance(x, np.ndarray) else x.round().to(namespace(x).int16)


def _added_up(x: Array, columns: Array) -> Array:
    """The sums over columns of |x - r|, (b, R), of rows (b, d) and references by column (d, R)."""
    xp = namespace(x)
    total = abs(x[:, :1] - columns[0])
    part = xp.empty_like(total)
    for place in range(1, len(columns)):
        xp.subtract(x[:, place : place + 1], columns[place], out=part)
        xp.abs(part, out=part)
        total += part
    return total
