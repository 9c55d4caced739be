"""How a scored table differs from the training rows, column by column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from addml.preprocessing.groups import shown
from addml.preprocessing.numbers import Column
from addml.preprocessing.scaling import NEW_GAPS
from addml.preprocessing.text_values import TextCells
from addml.text import counted, listed

SOMEWHAT, CLEARLY = 0.1, 0.25  # the customary bounds of the population stability index
UNSEEN_GAPS = "missing values in categories that had none in training count as unseen"
GAPS_SAID = 0.05  # a change in the share of missing values from which on it is reported


@dataclass
class Counts:
    """Of every column how many values lie in each bin and how many are strange, and texts among numbers."""

    bins: list[np.ndarray]
    strange: list[int]
    medians: list[list[tuple[float, int]]]  # of the numbers of each block, and how many they are
    rows: int = 0
    texts: TextCells = field(default_factory=TextCells)
    unseen: Counter[str] = field(default_factory=Counter)  # rows of groups that training did not have


class DriftCounter:
    """Counts values of scored batches in the bins of training, of fitted columns."""

    def __init__(self, columns: Any) -> None:
        self.columns, number = columns, len(columns.fitted)
        bins = [np.zeros(len(column.shares)) for column in columns.fitted]
        self.counts = Counts(bins, [0] * number, [[] for _ in range(number)])
        self.texts, self.unseen = self.counts.texts, self.counts.unseen

    def count(self, values: list[np.ndarray], arrays: list[pa.Array]) -> None:
        """Count the values of all columns of some rows, as `Column.read` gives them of these arrays."""
        counts = self.counts
        for position, (column, part) in enumerate(zip(self.columns.fitted, values, strict=True)):
            counts.bins[position] += column.tally(part)
            counts.strange[position] += column.strange(part)
            if column.kind == "number" and len(known := part[np.isfinite(part)]):
                counts.medians[position].append((float(np.median(known)), len(known)))
            if column.kind == "number" and part.dtype.kind == "f" and len(places := np.flatnonzero(np.isinf(part))):
                self.texts.add(column.name, arrays[position], places, counts.rows)
        counts.rows += len(values[0]) if values else 0

    def add(self, other: Counts) -> None:
        """Count what another counter of the same columns has."""
        own = self.counts
        self.texts.join(other.texts, own.rows)
        self.unseen.update(other.unseen)
        own.rows += other.rows
        own.medians = [one + more for one, more in zip(own.medians, other.medians, strict=True)]
        own.bins = [one + more for one, more in zip(own.bins, other.bins, strict=True)]
        own.strange = [one + more for one, more in zip(own.strange, other.strange, strict=True)]

    @property
    def outside(self) -> dict[str, int]:
        """Columns with values far outside the training range or unseen, and how many."""
        return {one.name: count for one, count in zip(self.columns.fitted, self.counts.strange, strict=True) if count}

    @property
    def new_gaps(self) -> list[str]:
        """What became of gaps in columns that had none in training, in words; nothing where there are none."""
        pairs, texts = zip(self.columns.fitted, self.counts.bins, strict=True), self.texts.counts
        new = [column for column, counts in pairs if counts[-1] > texts[column.name] and not column.shares[-1]]
        words = {NEW_GAPS: [repr(one.name) for one in new if one.kind != "category"]}
        words[UNSEEN_GAPS] = [repr(one.name) for one in new if one.kind == "category"]
        return [f"{message}: {listed(names)}" for message, names in words.items() if names]

    @property
    def unseen_words(self) -> list[str]:
        """Which groups training did not have."""
        if not self.unseen:
            return []
        named = [f"{shown(key)!r} ({counted(count, 'row')})" for key, count in self.unseen.most_common()]
        return [f"{counted(len(named), 'group')} unseen in training, judged against the whole: {listed(named, 10)}"]

    def summary(self) -> list[dict[str, Any]]:
        """One dict for each column, the most changed first."""
        counts = self.counts
        parts = zip(self.columns.fitted, counts.bins, counts.strange, counts.medians, strict=True)
        found = [_compared(*part, self.columns.rows) for part in parts if counts.rows]
        return sorted(found, key=lambda one: -one["psi"])


def stability_index(then: np.ndarray, now: np.ndarray) -> float:
    """The population stability index of two rows of shares; an empty bin counts as a ten-thousandth."""
    then, now = np.maximum(then, 1e-4), np.maximum(now, 1e-4)
    return float(((now - then) * np.log(now / then)).sum())


def drift_warning(drift: Sequence[dict[str, Any]], *, hidden: bool) -> str | None:
    """Which columns have drifted, with figures unless the table's values are hidden; None where none has."""
    drifted = [entry for entry in drift if entry["drifted"]]
    said = [f"{one['column']}: {(not hidden and one['figures']) or one['words']}" for one in drifted]
    columns = counted(len(drifted), "column has", "columns have")
    return f"{columns} drifted since training: {listed(said, between='; ')}" if drifted else None


def drift_words(entry: dict[str, Any]) -> str:
    """What changed in a column: "median 872 -> 1,403, clearly higher than in training"."""
    return ", ".join(filter(None, (entry.get("figures"), entry["words"])))


def _compared(
    column: Column, counts: np.ndarray, strange: int, medians: list[tuple[float, int]], trained_rows: int
) -> dict[str, Any]:
    then, rows = column.shares, counts.sum()
    now = counts / rows
    smoothed = (counts + len(then) * then) / (rows + len(then))  # a few rows cannot fill all bins
    is_category = column.kind == "category"
    found: dict[str, Any] = {
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
    beyond_chance = found["psi"] - by_chance
    gaps_grew = found["gaps_now"] - found["gaps_then"] > GAPS_SAID + gaps_by_chance
    return found | {
        "drifted": column.kind != "date" and bool(beyond_chance > CLEARLY or gaps_grew),  # new dates are later
        "figures": _figures(column, then, now, medians) if beyond_chance > SOMEWHAT else "",
        "words": _words(column, found, then, now, beyond_chance, gaps_by_chance),
    }


def _figures(column: Any, then: np.ndarray, now: np.ndarray, medians: list[tuple[float, int]]) -> str:
    """The median of a number then and now, or the share of the level that changed most."""
    if column.kind == "number" and medians:
        values, sizes = np.array(sorted(medians)).T
        now_middle = float(values[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)])  # exact for one block
        pair = (f"{one:,.0f}" if abs(one) >= 1000 else f"{one:.3g}" for one in (column.spread.middle, now_middle))
        return f"median {' -> '.join(pair)}"
    if column.kind not in ("category", "boolean"):
        return ""
    levels = ["false", "true"] if column.kind == "boolean" else [*map(repr, column.levels[: len(then) - 2]), "others"]
    most = int(abs(now - then)[: len(levels)].argmax())
    return f"{levels[most]} {then[most]:.0%} -> {now[most]:.0%}"


def _words(
    column: Column, found: dict[str, Any], then: np.ndarray, now: np.ndarray, beyond: float, gaps_by_chance: float
) -> str:
    """What changed; how much of the index and of gaps chance alone explains is left out of the judgement."""
    said = []
    if beyond > SOMEWHAT:
        degree = "clearly" if beyond > CLEARLY else "somewhat"
        said.append(f"{degree} {_direction(column.kind, then[:-1], now[:-1])}")
    if abs(found["gaps_now"] - found["gaps_then"]) > GAPS_SAID + gaps_by_chance:
        said.append(f"missing {found['gaps_then']:.0%} then, {found['gaps_now']:.0%} now")
    if found["unseen_share"]:
        share = found["unseen_share"]
        said.append(f"{f'{share:.1%}' if share >= 0.001 else 'under 0.1%'} unseen in training")
    if found["outside_count"]:
        said.append(f"{found['outside_count']:,} far outside the training range")
    return "; ".join(said) or "much as in training"


def _direction(kind: str, then: np.ndarray, now: np.ndarray) -> str:
    bins, moved = np.arange(len(then)), 0.0
    if kind in ("number", "date") and then.sum() and now.sum():
        moved = (bins @ now / now.sum() - bins @ then / then.sum()) / max(1, len(then) - 1)
    if abs(moved) < 0.1:
        return "different from training"
    up, down = ("later", "earlier") if kind == "date" else ("higher", "lower")
    return f"{up if moved > 0 else down} than in training"
