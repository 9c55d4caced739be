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
    equal: Array  # (c, R + 1) how many of a column are equal to the one at each place, from there on
    worth: Array

    @classmethod
    def of(cls, rows: Array, weight: Array) -> Tails:
        """Those of references (R, d), along the columns that have a weight (d,)."""
        counted = index_like(np.flatnonzero(to_numpy(weight)), rows)
        columns = np.sort(to_numpy(rows)[:, to_numpy(counted)].T, axis=1)
        ends = np.stack([column.searchsorted(column, side="right") for column in columns]) if len(columns) else columns
        equal = np.zeros((len(columns), len(rows) + 1), np.int64)
        equal[:, :-1] = ends - np.arange(len(rows))
        worth = np.log(len(rows) + 1.0) - np.log(np.arange(len(rows) + 1) + 1.0)
        return cls(counted, as_like(columns, rows), index_like(equal, rows), as_like(worth, rows))

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
        extreme = self._extreme(values)
        terms = self.worth[extreme]
        if len(own):
            fewer = xp.maximum(extreme[:, own] - 1, 0 * extreme[:, own])
            terms[:, own] = self.worth[fewer] - (self.worth[0] - as_like(np.log(size), self.worth))
        return terms

    def _extreme(self, values: Array) -> Array:
        """How many references are at least as extreme as each of values (c, b), on the side where these are fewer."""
        xp, size = namespace(values), self.columns.shape[1]
        if isinstance(values, np.ndarray):
            pairs = zip(self.columns, values, strict=True)
            less = np.array([column.searchsorted(own) for column, own in pairs], np.int64).reshape(values.shape)
        else:
            less = xp.searchsorted(self.columns, values)
        each = index_like(np.arange(len(values))[:, None], values)
        is_one = self.columns[each, less.clip(0, size - 1)] == values
        at_most = less + is_one * self.equal[each, less]
        return xp.minimum(at_most, size - less)
