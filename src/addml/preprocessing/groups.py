"""Rows judged within their group: the numbers of each group are mapped to the level and spread of the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_text
from addml.preprocessing.numbers import one_chunk
from addml.preprocessing.profile import BETWEEN, MOST, ColumnProfile
from addml.preprocessing.scaling import NORMAL_QUARTILES
from addml.text import counted

BORROWING = 10  # rows: a group of 10 takes half of its spread from the whole, a group of 90 takes a tenth
CONSTANT = 0.1  # of the expected spread: the spread of a group whose values are all equal
MEDIAN_VARIANCE = np.pi / 2  # of the median of n normal values, times n, in squared deviations
STRANGE_QUANTILE = 0.9  # of a group's scores, which sets its divisor
OWN_LEAST, OWN_MOST = 50, 256  # groups with references of their own: the fewest rows of one, and the most groups
OWN_HALF = 50  # rows: a group of 50 is judged half by its own references and half by those of the whole
LEAST_GROUPS = 5  # groups needed to tell whether spreads grow with levels
MISSING = "(missing)"


@dataclass(frozen=True, eq=False)
class Groups:
    """How the numbers of each group are mapped to the scale of the whole; the last of G + 1 is for unseen groups.

    Levels are medians and spreads are interquartile ranges, both shrunk towards the whole. The level of a group of n
    rows keeps n / (n + k) of its difference, where k is the variance within groups over that between groups. Its spread
    keeps n / (n + 10) of its difference from groups of the same level.
    """

    by: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # of numbers
    rows: np.ndarray  # (G,) of training
    ratio: np.ndarray  # (G + 1, columns)
    shift: np.ndarray  # (G + 1, columns)
    limits: np.ndarray  # (3, columns): low end, median and high end of the middle 90 %, on the scale of the whole
    divisor: np.ndarray  # (G + 1,) of the scores of each group
    own: np.ndarray  # (G,) the number of references of each group, 0 for small groups
    own_rows: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))  # (references, features)
    own_embedded: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0), np.float32))  # (members, part, w)
    own_scale: np.ndarray = field(default_factory=lambda: np.empty((2, 0, 0)))  # (median and unit, views, groups)

    @classmethod
    def fit(cls, table: pa.Table, by: Sequence[str], numbers: dict[str, np.ndarray]) -> Groups:
        row_keys = keys_of(table, by)
        keys = tuple(sorted(row_keys.unique().to_pylist()))
        if len(keys) > max(2, len(table)) / 2:
            raise ValueError(f"by={list(by)!r} makes {len(keys):,} groups of {len(table):,} rows; name coarser columns")
        codes = np.asarray(pc.index_in(row_keys, pa.array(keys, row_keys.type)))
        rows = np.bincount(codes, minlength=len(keys))
        maps = [_fit_map(np.where(np.isinf(values), np.nan, values), codes, rows) for values in numbers.values()]
        ratio, shift = np.stack(maps, axis=2) if maps else np.ones((2, len(keys) + 1, 0))
        empty, divisor, own = np.ones((3, len(maps))), np.ones(len(keys) + 1), np.zeros(len(keys), np.int64)
        groups = cls(tuple(by), keys, tuple(numbers), rows, ratio, shift, empty, divisor, own)
        limits = [_limits(groups.apply(name, values, codes)) for name, values in numbers.items()]
        return replace(groups, limits=np.array(limits).reshape(-1, 3).T)

    def codes(self, table: pa.Table | pa.RecordBatch) -> np.ndarray:
        """The group of each row (n,), -1 if it is unseen in training."""
        for name in self.by:
            if name not in table.schema.names:
                raise ValueError(f"column {name!r}, by which rows are grouped, is missing here; add it")
        return np.asarray(pc.index_in(keys_of(table, self.by), pa.array(self.keys, pa.string())).fill_null(-1))

    def code(self, key: str | None) -> int:
        """The position of a group, -1 if it is unseen in training."""
        return self._codes.get(key, -1)

    @cached_property
    def _codes(self) -> dict[str | None, int]:
        return {key: code for code, key in enumerate(self.keys)}

    def unseen(self, table: pa.Table | pa.RecordBatch) -> list[str]:
        """The keys of the rows whose group is unseen in training."""
        is_unseen = self.codes(table) < 0
        return list(keys_of(table, self.by).filter(pa.array(is_unseen)).to_pylist()) if is_unseen.any() else []

    def apply(self, name: str, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The values of a column, numbers on the scale of the whole; gaps and texts do not change."""
        if name not in self.columns:
            return values
        column = self.columns.index(name)
        return np.asarray(values * self.ratio[codes, column] + self.shift[codes, column])

    def profiles(self, profiles: Sequence[ColumnProfile], code: int) -> list[ColumnProfile]:
        limits = (self.limits - self.shift[code]) / self.ratio[code]
        limits_of = dict(zip(self.columns, limits.T.tolist(), strict=True))
        names = ("low", "middle", "high")
        return [replace(one, **dict(zip(names, limits_of.get(one.column, ()), strict=False))) for one in profiles]

    def groups_with_references(self) -> np.ndarray:
        """The groups with enough rows for references of their own; only the largest if there are many."""
        largest = np.argsort(-self.rows, kind="stable")[:OWN_MOST]
        return np.sort(largest[self.rows[largest] >= OWN_LEAST])

    def with_references(
        self, codes: np.ndarray, references: Sequence[dict[str, np.ndarray]], scales: Sequence[Any]
    ) -> Groups:
        """The groups, those of `codes` with references of their own and with their score scales."""
        own = np.zeros(len(self.keys), np.int64)
        own[codes] = [len(arrays["rows"]) for arrays in references]
        return replace(
            self,
            own=own,
            own_rows=np.concatenate([arrays["rows"] for arrays in references]),
            own_embedded=np.concatenate([arrays["references"] for arrays in references], axis=1),
            own_scale=np.stack([[scale.median[:, 0], scale.unit[:, 0]] for scale in scales], axis=2),
        )

    @cached_property
    def own_weight(self) -> np.ndarray:
        """The weight of each group's own references (G + 1,)."""
        return np.append(np.where(self.own > 0, self.rows / (self.rows + OWN_HALF), 0.0), 0.0)

    def with_scores(self, scores: np.ndarray, codes: np.ndarray, *, compressed: bool) -> Groups:
        """The groups with divisors, shrunk like spreads, that bring a high quantile of their scores to that of all."""
        plain = _plain(scores, compressed)
        of_whole = np.quantile(plain, STRANGE_QUANTILE)
        if of_whole <= 0:
            return self
        of_groups = _quantiles(plain, codes, self.rows, (STRANGE_QUANTILE,))[0]
        weight = self.rows / (self.rows + BORROWING)
        divisor = np.exp(weight * np.log(np.clip(of_groups / of_whole, 1 / 4, 4)))
        return replace(self, divisor=np.append(divisor, 1.0))

    def divided(self, scores: np.ndarray, codes: np.ndarray, *, compressed: bool) -> np.ndarray:
        """Scores on a scale on which one threshold serves all groups."""
        plain = _plain(scores, compressed) / self.divisor[codes]
        return np.asarray(np.sign(plain) * np.log1p(abs(plain)) if compressed else plain)

    def to_json(self) -> dict[str, list[str]]:
        """The names; the rest is saved as `arrays`."""
        return {"by": list(self.by), "keys": list(self.keys), "columns": list(self.columns)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {array.name: getattr(self, array.name) for array in fields(self)[3:]}

    @classmethod
    def from_json(cls, document: dict[str, list[str]], arrays: dict[str, np.ndarray]) -> Groups:
        """The groups of a saved model; raises ValueError if names and arrays do not match."""
        by, keys, columns = (tuple(map(str, document[name])) for name in ("by", "keys", "columns"))
        groups, size = cls(by, keys, columns, **arrays), len(keys)
        shapes = [(size,), *[(size + 1, len(columns))] * 2, (3, len(columns)), (size + 1,), (size,)]
        if [array.shape for array in groups.arrays().values()][:6] != shapes:
            raise ValueError(f"{size} groups by {by} do not fit their arrays")
        positive = (groups.ratio, groups.divisor, groups.own_scale[1], groups.own + 1)
        if any(array.min(initial=1) <= 0 for array in positive):
            raise ValueError("the ratio, unit, divisor or number of references of a group is out of range")
        return groups

    @property
    def note(self) -> str:
        least, most = int(self.rows.min()), int(self.rows.max())
        rows = f", {most:,} rows each" if least == most else f" of {least:,} to {most:,} rows"
        groups = f"{counted(len(self.keys), 'group')}{rows}; small ones borrow from the whole"
        return f"rows are judged within {' and '.join(self.by)}: {groups}"


def keys_of(table: pa.Table | pa.RecordBatch, by: Sequence[str]) -> pa.Array:
    """The key of each row's group: its values in the columns `by`."""
    texts = [as_text(one_chunk(table.column(name))).cast(pa.string()).fill_null(MISSING) for name in by]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, BETWEEN)


def _fit_map(x: np.ndarray, codes: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ratio and shift (G + 1,) that map the values of each group to the level and spread of the whole."""
    present = ~np.isnan(x)
    if not present.any():
        return np.ones(len(rows) + 1), np.zeros(len(rows) + 1)
    count = np.bincount(codes[present], minlength=len(rows))
    first, median, third = _quantiles(x, codes, count, (0.25, 0.5, 0.75))
    of_whole = float(np.median(x[present]))
    median = np.where(count > 0, median, of_whole)
    total = _spread(x[present]) or 1.0
    within = _spread((x - median[codes])[present]) or total
    spread = (third - first) / NORMAL_QUARTILES
    expected = _expected_spread(median, spread, count, within)
    spread = np.where(spread > 0, spread, CONSTANT * expected)
    weight = count / (count + BORROWING)
    spread = np.exp(weight * np.log(spread) + (1 - weight) * np.log(expected))
    difference, chance = median - of_whole, MEDIAN_VARIANCE * spread**2 / np.maximum(count, 1)
    between = max(0.0, float(np.average(difference**2 - chance, weights=count)))
    level = of_whole + between / (between + chance) * difference  # shrunk as far as chance explains the difference
    ratio = np.append(within / spread, within / total)
    return ratio, of_whole - np.append(level, of_whole) * ratio


def _expected_spread(level: np.ndarray, spread: np.ndarray, count: np.ndarray, within: float) -> np.ndarray:
    """The expected spread of each group: that within all groups, or a fit to its level if spreads grow with levels."""
    usable = (spread > 0) & (count >= 4) & (level > 0)
    if usable.sum() < LEAST_GROUPS or (level[count > 0] <= 0).any() or np.ptp(level[usable]) == 0:
        return np.full(len(level), within)
    x, y, weight = np.log(level[usable]), np.log(spread[usable]), np.sqrt(count[usable])
    slope, start = np.polyfit(x, y, 1, w=weight)
    slope = min(max(float(slope), 0.0), 1.0)
    start = np.average(y - slope * x, weights=weight**2)
    return np.asarray(np.exp(start + slope * np.log(np.maximum(level, np.finfo(float).tiny))))


def _spread(x: np.ndarray) -> float:
    """The interquartile range in normal deviations, or the standard deviation if that is 0."""
    first, third = np.quantile(x, [0.25, 0.75])
    return float((third - first) / NORMAL_QUARTILES or x.std())


def _quantiles(x: np.ndarray, codes: np.ndarray, count: np.ndarray, q: Sequence[float]) -> np.ndarray:
    """Quantiles (len(q), G) of the values of each group that are not NaN; NaN for a group without any."""
    present = ~np.isnan(x)
    ordered = x[present][np.lexsort((x[present], codes[present]))]
    starts = np.cumsum(count) - count
    positions = starts + np.array(q)[:, None] * np.maximum(count - 1, 0)
    low = np.floor(positions).astype(np.int64)
    high = np.minimum(low + 1, starts + np.maximum(count - 1, 0))
    last = max(len(ordered) - 1, 0)
    a, b = ordered[np.minimum(low, last)], ordered[np.minimum(high, last)]
    return np.where(count > 0, a + (positions - low) * (b - a), np.nan)


def _limits(x: np.ndarray) -> np.ndarray:
    finite = x[np.isfinite(x)]
    return np.quantile(finite, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2]) if len(finite) else np.zeros(3)


def _plain(scores: np.ndarray, compressed: bool) -> np.ndarray:
    """Scores as they are, or z from compressed ones, sign(z) log(1 + |z|)."""
    return np.sign(scores) * np.expm1(abs(scores)) if compressed else scores
