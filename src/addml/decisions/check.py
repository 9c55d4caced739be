"""A check without labels: plant known kinds of faults in held-out rows and count how many the detector finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

MIN_ROWS, MAX_ROWS = 50, 20_000  # rows of the table; a larger one is sampled
PLANTED = 40  # rows per kind of fault
HELD_OUT = 0.2  # share of the rows
TOP = 0.99  # quantile of the training scores above which a row counts as ranked first
FOUND, MISSED = 0.8, 0.2  # shares of a kind's rows from which it is found, and below which it is missed
MIN_CORRELATION = 0.6  # rank correlation of columns that can contradict each other
MIN_EXPLAINED = 0.25  # share of a number's variance that a column of groups explains
MAX_LEVELS = 20  # of a column of groups
MAX_COLUMNS = 50  # searched for correlations and groups
CLUSTER, SHIFT, SPREAD = 3, 4.0, 0.1  # a cluster's shifted columns; its shift and its width in deviations

Row = dict[str, Any]
Fitted = tuple[Callable[[pa.Table], np.ndarray], np.ndarray, float]  # scores of rows, of the training rows, threshold


class Checked(NamedTuple):
    """How well the detector finds one kind of fault."""

    kind: str
    planted: int  # rows
    flagged: float  # share of them above the threshold
    first: float  # share of them among the highest 1% of scores
    verdict: str  # "found", "partly found", "missed", or "not tried: ..."


def check(table: pa.Table, fit: Callable[[pa.Table], Fitted], seed: int = 0) -> tuple[Checked, ...]:
    """Plant faults of each kind in rows that `fit` does not see; a cluster of faults is part of the training rows."""
    if table.num_rows < MIN_ROWS:
        raise ValueError(f"a check needs at least {MIN_ROWS} rows; the table has {table.num_rows}")
    random = np.random.default_rng(seed)
    order = random.permutation(table.num_rows)[:MAX_ROWS]
    held_out, train = np.split(order, [max(1, int(HELD_OUT * len(order)))])
    faults = _Faults(table.take(train).combine_chunks(), random)
    cluster = faults.cluster(max(5, len(train) // 200))
    score, training, threshold = fit(faults.table if cluster is None else pa.concat_tables([faults.table, cluster]))
    rows = table.take(held_out)
    scores = score(rows)
    ordinary = np.flatnonzero(scores <= np.median(scores))
    outcomes = []
    for kind, (plant, obstacle) in KINDS.items():
        planted = [plant(faults, row) for row in rows.take(random.choice(ordinary, PLANTED)).to_pylist()]
        planted_scores = None if None in planted else score(faults.as_table(planted))
        outcomes.append(_outcome(kind, planted_scores, obstacle, training, threshold))
    cluster_scores = None if cluster is None else score(cluster)
    return (*outcomes, _outcome("a small cluster of similar rows", cluster_scores, NO_NUMBERS, training, threshold))


def _outcome(kind: str, scores: np.ndarray | None, obstacle: str, training: np.ndarray, threshold: float) -> Checked:
    """The verdict on planted rows with these scores; without scores, an `obstacle` kept them from being planted."""
    if scores is None:
        return Checked(kind, 0, np.nan, np.nan, f"not tried: {obstacle}")
    flagged, first = (float((scores > limit).mean()) for limit in (threshold, np.quantile(training, TOP)))
    verdict = "found" if flagged >= FOUND else "missed" if flagged < MISSED else "partly found"
    return Checked(kind, len(scores), flagged, first, verdict)


class _Faults:
    """Makes faulty rows from the values of the training rows."""

    def __init__(self, table: pa.Table, random: np.random.Generator) -> None:
        self.table, self.random = table, random

    def as_table(self, rows: list[Any]) -> pa.Table:
        """Rows with the table's types; values of integer columns are rounded."""
        integers = [field.name for field in self.table.schema if pa.types.is_integer(field.type)]
        rounded = [row | {name: round(row[name]) for name in integers if row[name] is not None} for row in rows]
        return pa.Table.from_pylist(rounded, self.table.schema)

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        """The number columns that vary, with NaN for missing values."""
        columns = {}
        for field in self.table.schema:
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
                values = self.table[field.name].to_numpy().astype(np.float64)
                if np.isfinite(values).any() and _quantile(values, 0.05) < _quantile(values, 0.95):
                    columns[field.name] = values
        return columns

    @cached_property
    def related(self) -> list[tuple[str, str, float]]:
        """Pairs of strongly correlated columns, with their rank correlation."""
        names = list(self.numbers)[:MAX_COLUMNS]
        if len(names) < 2:
            return []
        columns = [self.numbers[name] for name in names]
        imputed = np.array([np.where(np.isnan(values), np.nanmedian(values), values) for values in columns])
        correlation = np.triu(np.corrcoef(_ranks(imputed)), 1)
        return [(names[a], names[b], correlation[a, b]) for a, b in np.argwhere(abs(correlation) >= MIN_CORRELATION)]

    @cached_property
    def groups(self) -> tuple[str, list[Any]] | None:
        """The column of groups that explains most of a number's variance, and its levels."""
        best, result = MIN_EXPLAINED, None
        for name in [name for name in self.table.column_names if name not in self.numbers][:MAX_COLUMNS]:
            column = self.table[name]
            texts, present = np.array(column.to_pylist(), str), column.drop_null().unique().to_pylist()
            levels, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
            if 1 < len(present) <= len(levels) <= MAX_LEVELS and counts.min() > 1:
                for ranks in map(_ranks, self.numbers.values()):
                    means = np.bincount(codes, ranks) / counts
                    explained = means[codes].var() / ranks.var()
                    if explained > best:
                        best, result = explained, (name, present)
        return result

    def cluster(self, count: int) -> pa.Table | None:
        """Similar rows, shifted together in up to three columns; None without number columns."""
        if not self.numbers:
            return None
        columns = self.random.permutation(list(self.numbers))[:CLUSTER].tolist()
        (template,) = self.table.slice(int(self.random.integers(self.table.num_rows)), 1).to_pylist()
        rows = [dict(template) for _ in range(count)]
        for name in columns:
            low, median, high = (_quantile(self.numbers[name], share) for share in (0.05, 0.5, 0.95))
            deviation = (high - low) / 3.29  # of a normal distribution
            center = median + self.random.choice([-1, 1]) * SHIFT * deviation
            for row in rows:
                row[name] = float(center + SPREAD * deviation * self.random.normal())
        return self.as_table(rows)

    def out_of_range(self, row: Row) -> Row | None:
        if not self.numbers:
            return None
        name = str(self.random.choice(list(self.numbers)))
        low, high = np.nanmin(self.numbers[name]), np.nanmax(self.numbers[name])
        return row | {name: float(self.random.choice([2 * high - low, 2 * low - high]))}

    def contradiction(self, row: Row) -> Row | None:
        if not self.related:
            return None
        first, second, sign = self.related[self.random.integers(len(self.related))]
        share, opposite = (0.05, 0.95) if self.random.random() < 0.5 else (0.95, 0.05)
        contrary = _quantile(self.numbers[second], opposite if sign > 0 else share)
        return row | {first: _quantile(self.numbers[first], share), second: contrary}

    def other_group(self, row: Row) -> Row | None:
        if self.groups is None:
            return None
        name, levels = self.groups
        return row | {name: self.random.choice([level for level in levels if level != row[name]])}

    def changed_cell(self, row: Row) -> Row:
        name = str(self.random.choice(self.table.column_names))
        return row | {name: self.table[name][int(self.random.integers(self.table.num_rows))].as_py()}


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.nanquantile(values, share))


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


NO_NUMBERS = "no number column varies"
KINDS: dict[str, tuple[Callable[[_Faults, Row], Row | None], str]] = {
    "a value out of range": (_Faults.out_of_range, NO_NUMBERS),
    "columns that contradict each other": (_Faults.contradiction, "no two number columns are related"),
    "a row from another group": (_Faults.other_group, "no category column separates the numbers"),
    "a copy with one cell changed": (_Faults.changed_cell, ""),
}
