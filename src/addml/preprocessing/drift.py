"""How a scored table differs from the training rows, column by column."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from addml.preprocessing.numbers import Column
from addml.preprocessing.scaling import NEW_GAPS
from addml.preprocessing.text_values import TextCells
from addml.text import listed

SOMEWHAT, CLEARLY = 0.1, 0.25  # the customary bounds of the population stability index
UNSEEN_GAPS = "missing values in categories that had none in training count as unseen"
GAPS_SAID = 0.05  # a change in the share of missing values from which on it is reported


class FittedColumns(Protocol):
    """The columns of a table, fitted to so many rows."""

    @property
    def fitted(self) -> tuple[Column, ...]: ...

    @property
    def rows(self) -> int: ...


class Counts(NamedTuple):
    """Rows, of every column how many values lie in each bin and how many are strange, and texts among numbers."""

    rows: int
    bins: list[np.ndarray]
    strange: list[int]
    texts: TextCells


class DriftCounter:
    """Counts values of scored batches in the bins of training."""

    def __init__(self, columns: FittedColumns) -> None:
        """Starts at nothing."""
        self.columns = columns
        self.rows = 0
        self._counts = [np.zeros(len(column.shares)) for column in columns.fitted]
        self._strange = [0] * len(columns.fitted)
        self.texts = TextCells()

    def count(self, values: list[np.ndarray], arrays: list[pa.Array]) -> None:
        """Count the values of all columns of some rows, as `Column.read` gives them of these arrays."""
        for position, (column, part) in enumerate(zip(self.columns.fitted, values, strict=True)):
            self._counts[position] += column.tally(part)
            self._strange[position] += column.strange(part)
            if column.kind == "number" and part.dtype.kind == "f" and len(places := np.flatnonzero(np.isinf(part))):
                self.texts.add(column.name, arrays[position], places, self.rows)
        self.rows += len(values[0]) if values else 0

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        return Counts(self.rows, self._counts, self._strange, self.texts)

    def add(self, other: Counts) -> None:
        """Count what another counter of the same columns has."""
        self.texts.join(other.texts, self.rows)
        self.rows += other.rows
        self._counts = [own + more for own, more in zip(self._counts, other.bins, strict=True)]
        self._strange = [own + more for own, more in zip(self._strange, other.strange, strict=True)]

    @property
    def outside(self) -> dict[str, int]:
        """Columns with values far outside the training range or unseen, and how many."""
        pairs = zip(self.columns.fitted, self._strange, strict=True)
        return {column.name: count for column, count in pairs if count}

    @property
    def new_gaps(self) -> list[str]:
        """What became of gaps in columns that had none in training, in words; nothing where there are none."""
        pairs, texts = zip(self.columns.fitted, self._counts, strict=True), self.texts.counts
        new = [column for column, counts in pairs if counts[-1] > texts[column.name] and not column.shares[-1]]
        words = {NEW_GAPS: [repr(one.name) for one in new if one.kind != "category"]}
        words[UNSEEN_GAPS] = [repr(one.name) for one in new if one.kind == "category"]
        return [f"{message}: {listed(names)}" for message, names in words.items() if names]

    def summary(self) -> list[dict[str, Any]]:
        """One dict for each column, the most changed first."""
        if not self.rows:
            return []
        parts = zip(self.columns.fitted, self._counts, self._strange, strict=True)
        found = [_compared(column, counts, strange, self.columns.rows) for column, counts, strange in parts]
        return sorted(found, key=lambda one: -one["psi"])


def stability_index(then: np.ndarray, now: np.ndarray) -> float:
    """The population stability index of two rows of shares; an empty bin counts as a ten-thousandth."""
    then, now = np.maximum(then, 1e-4), np.maximum(now, 1e-4)
    return float(((now - then) * np.log(now / then)).sum())


def _compared(column: Column, counts: np.ndarray, strange: int, trained_rows: int) -> dict[str, Any]:
    then, rows = column.shares, counts.sum()
    now = counts / rows
    smoothed = (counts + len(then) * then) / (rows + len(then))  # a few rows cannot fill all bins
    is_category = column.kind == "category"
    found = {
        "column": column.name,
        "kind": column.kind,
        "psi": round(stability_index(then, smoothed), 6),
        "gaps_then": float(then[-1]),
        "gaps_now": float(now[-1]),
        "unseen_share": float(strange / rows) if is_category else 0.0,
        "outside_count": 0 if is_category else strange,
    }
    few = 1 / rows + 1 / trained_rows
    by_chance, gaps_by_chance = (len(then) - 1) * few, 2 * math.sqrt(then[-1] * (1 - then[-1]) * few)
    return found | {"words": _words(column, found, then, now, found["psi"] - by_chance, gaps_by_chance)}


def _words(
    column: Column,
    found: dict[str, Any],
    then: np.ndarray,
    now: np.ndarray,
    beyond_chance: float,
    gaps_by_chance: float,
) -> str:
    """What changed; how much of the index and of gaps chance alone explains is left out of the judgement."""
    said = []
    if beyond_chance > SOMEWHAT:
        degree = "clearly" if beyond_chance > CLEARLY else "somewhat"
        said.append(f"{degree} {_direction(column.kind, then[:-1], now[:-1])}")
    if abs(found["gaps_now"] - found["gaps_then"]) > GAPS_SAID + gaps_by_chance:
        said.append(f"missing {found['gaps_then']:.0%} then, {found['gaps_now']:.0%} now")
    if found["unseen_share"]:
        said.append(f"{_percent(found['unseen_share'])} unseen in training")
    if found["outside_count"]:
        said.append(f"{found['outside_count']:,} far outside the training range")
    return "; ".join(said) or "much as in training"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _direction(kind: str, then: np.ndarray, now: np.ndarray) -> str:
    if kind not in ("number", "date") or not then.sum() or not now.sum():
        return "different from training"
    bins = np.arange(len(then))
    moved = (bins @ now / now.sum() - bins @ then / then.sum()) / max(1, len(then) - 1)
    if abs(moved) < 0.1:
        return "different from training"
    words = ("later", "earlier") if kind == "date" else ("higher", "lower")
    return f"{words[0] if moved > 0 else words[1]} than in training"
