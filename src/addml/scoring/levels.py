"""Distances along columns in which references take few values, as those that a category becomes: one matrix product.

From one value of a reference to the next, its distance to a row changes by what depends on the row alone. The distance
is that to the lowest value and the changes on the way up to the reference's own, which makes a sum of products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from addml.arrays import Array, convert, index_like, to_numpy

FEW = 5  # values of a column; with twice as many a product takes as long as the differences themselves


@dataclass(frozen=True)
class Levels:
    """The columns of few values, of whole numbers from 0; those of many are left to others.

    Numbers and sums are whole and less than 2^24, so that float32 holds them exactly, added up in whatever order.
    """

    many: np.ndarray  # (d,) flags of the columns that are left to others
    feature: np.ndarray  # (k,) the column of every rise from a value to the next, in order
    lower: Array  # (k,)
    upper: Array  # (k,)
    risen: Array  # (k, R) 1 where a reference has risen so far, else 0

    @cached_property
    def left_out(self) -> np.ndarray:
        """The places of the columns that are left to others."""
        return np.flatnonzero(self.many)

    @classmethod
    def of(cls, columns: Array, like: Array) -> Levels:
        """References by column (d, R), whole numbers of which the least is 0; `like` has the dtype to work in."""
        values = [np.unique(column) for column in to_numpy(columns)]
        many = np.array([len(own) > FEW for own in values])
        few = [own[: 0 if left else None] for own, left in zip(values, many, strict=True)]
        feature = np.repeat(np.arange(len(few)), [len(own[1:]) for own in few])
        lower, upper = (
            convert(index_like(np.concatenate([own[ends] for own in few]), like), like)
            for ends in (slice(None, -1), slice(1, None))
        )
        return cls(many, feature, lower, upper, convert(columns[index_like(feature, like)] >= upper[:, None], like))

    def only(self, features: np.ndarray) -> Levels:
        """The same of some columns (f,)."""
        first, last = (np.searchsorted(self.feature, features, side) for side in ("left", "right"))
        rises = np.concatenate([np.empty(0, np.int64), *map(np.arange, first, last)])
        chosen = index_like(rises, self.lower)
        feature = np.repeat(np.arange(len(features)), last - first)
        return Levels(self.many[features], feature, self.lower[chosen], self.upper[chosen], self.risen[chosen])

    def distances(self, whole: Array) -> Array:
        """The distances (b, R) of rows (b, d) of whole numbers, none of them below 0."""
        x = convert(whole, self.lower)
        lowest = x[:, index_like(~self.many, x)].sum(1)[:, None]
        x = x[:, index_like(self.feature, x)]
        return (abs(x - self.upper) - abs(x - self.lower)) @ self.risen + lowest
