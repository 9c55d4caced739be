"""How extreme the values of a row are, each in its own column: the view that needs no neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from addml.arrays import Array, as_like, index_like, namespace, to_numpy


@dataclass(frozen=True)
class Tails:
    """The sorted columns (c, R) of the references that count, and what a number of rows as extreme is worth, (R + 1,).

    Of a column, that is minus the logarithm of the share of references at least as extreme on the side of the value.
    """

    counted: Array  # (c,) places of the columns
    columns: Array
    worth: Array

    @classmethod
    def of(cls, rows: Array, weight: Array) -> Tails:
        """Those of references (R, d), along the columns that have a weight (d,)."""
        counted = index_like(np.flatnonzero(to_numpy(weight)), rows)
        columns = np.sort(to_numpy(rows)[:, to_numpy(counted)].T, axis=1)
        worth = np.log(len(rows) + 1.0) - np.log(np.arange(len(rows) + 1) + 1.0)
        return cls(counted, as_like(columns, rows), as_like(worth, rows))

    def score(self, x: Array, own: Array) -> Array:
        """The sum over columns (b,) of rows (b, d), of which those at the places `own` are references themselves."""
        terms = self.terms(x, own)
        total = as_like(np.zeros(len(x)), x)
        for column in terms:  # one after the other: a row's bits are the same among any others
            total += column
        return total

    def terms(self, x: Array, own: Array) -> Array:
        """What each column that counts adds, (c, b); a reference leaves itself out."""
        xp, size = namespace(x), self.columns.shape[1]
        values = xp.ascontiguousarray(x[:, self.counted].T) if xp is np else x[:, self.counted].T.contiguous()
        below, above = self._counts(values)
        extreme = xp.minimum(below, above)
        terms = self.worth[extreme]
        if len(own):
            fewer = xp.maximum(extreme[:, own] - 1, 0 * extreme[:, own])
            terms[:, own] = self.worth[fewer] - (self.worth[0] - as_like(np.log(size), self.worth))
        return terms

    def _counts(self, values: Array) -> tuple[Array, Array]:
        """How many references are at most, and how many at least, each of values (c, b)."""
        size = self.columns.shape[1]
        if not isinstance(values, np.ndarray):
            search = namespace(values).searchsorted
            return search(self.columns, values, side="right"), size - search(self.columns, values, side="left")
        below, above = np.empty(values.shape, np.int64), np.empty(values.shape, np.int64)
        for place, (column, own) in enumerate(zip(self.columns, values, strict=True)):
            below[place] = column.searchsorted(own, side="right")
            above[place] = size - column.searchsorted(own, side="left")
        return below, above
