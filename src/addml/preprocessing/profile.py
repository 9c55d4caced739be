"""Typical values of the training columns, text cells in number columns, and drift of scored rows."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from addml.arrow import as_text
from addml.preprocessing.scaling import NEW_GAPS
from addml.text import counted, figure, listed, shortened

EPOCH = datetime(1970, 1, 1)
MOST = 0.9  # share of the values between low and high
WEEKS_FROM = 14  # days; weekdays are not counted over a shorter range of dates
NAMED = 3  # common values in words
BETWEEN = "\x1f"  # joins the values of several columns into the key of a group
CODE, CLOCK = "code", "clock"  # numbers that identify things; times of the day, including 1745
CODE_NAMES = frozenset(("id", "ids", "code", "codes", "zip", "zipcode", "postcode", "postal", "fips", "iata", "key"))


@dataclass(frozen=True)
class ColumnProfile:
    """The typical values of one column of the training rows."""

    column: str
    kind: str  # "number", "boolean", "date", "category"
    low: float | None = None  # the middle 90 % of a number
    middle: float | None = None
    high: float | None = None
    levels: Mapping[str, float] = field(default_factory=dict)  # shares of a category's levels, of "true" and "false"
    unlisted: float = 0.0  # share of the training rows with any other level
    gaps: float = 0.0  # share of the training rows without a value
    earliest: date | None = None  # of a date
    latest: date | None = None
    hours: tuple[int, int] | None = None  # the middle 90 % of its hours, inclusive; (22, 4) spans midnight
    weekdays: tuple[float, ...] = ()  # shares, Monday first
    form: str = ""  # CODE or CLOCK: not a quantity, so no value is high or low

    @cached_property
    def commonest(self) -> float:
        return max(self.levels.values(), default=0.0)

    def common(self, most: int) -> tuple[tuple[str, float], ...]:
        return tuple(sorted(self.levels.items(), key=lambda item: -item[1])[:most])

    @property
    def words(self) -> str:
        """The profile in words: "12.5, mostly 3 to 40"."""
        if self.kind == "number" and self.middle is not None:
            low, middle, high = (figure(value or 0.0, 4) for value in (self.low, self.middle, self.high))
            return f"mostly {low} to {high}" if self.form else f"{middle}, mostly {low} to {high}"
        if self.earliest is not None and self.latest is not None:
            hours = f"mostly {self.hours[0]:02} to {self.hours[1]:02} h" if self.hours else ""
            if self.form == CLOCK:
                return hours or f"{self.earliest:%H:%M} to {self.latest:%H:%M}"
            dates = f"{self.earliest:%Y-%m-%d} to {self.latest:%Y-%m-%d}"
            return f"{dates}, {hours}" if hours else dates
        return ", ".join(f"{level} {share:.0%}" for level, share in self.common(NAMED))

    def to_json(self) -> dict[str, Any]:
        dates = {"earliest": self.earliest, "latest": self.latest}
        return asdict(self) | {name: day and day.isoformat() for name, day in dates.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ColumnProfile:
        dates = {name: document[name] and datetime.fromisoformat(document[name]) for name in ("earliest", "latest")}
        hours = document["hours"] and tuple(document["hours"])
        return cls(**{**document, **dates, "hours": hours, "weekdays": tuple(document["weekdays"])})


def column_profiles(columns: Any, table: pa.Table | None = None) -> tuple[ColumnProfile, ...]:
    """The profile of each column over the rows of a table; without a table, from the fitted bins and counts."""
    blocks = [] if table is None else list(columns.read(table))
    values = [np.concatenate(parts) for parts in zip(*blocks, strict=True)] or [np.empty(0)] * len(columns.fitted)
    return tuple(map(_column_profile, columns.fitted, values))


def channel_profiles(names: Sequence[str], steps: np.ndarray) -> tuple[ColumnProfile, ...]:
    """The profile of each non-empty channel of steps (n, channels)."""
    channels = ((name, values[~np.isnan(values)]) for name, values in zip(names, steps.T, strict=True))
    return tuple(number_profile(name, values) for name, values in channels if len(values))


def number_profile(name: str, values: np.ndarray) -> ColumnProfile:
    """The profile of a number column; values that are not finite count as gaps."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ColumnProfile(name, "number", gaps=1.0)
    low, middle, high = 4 * np.quantile(finite / 4, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2])  # / 4 avoids overflow
    form, gaps = _number_form(name, finite), 1 - len(finite) / len(values)
    return ColumnProfile(name, "number", float(low), float(middle), float(high), gaps=gaps, form=form)


def name_words(name: str) -> set[str]:
    """The words of a column's name in lower case: `order_id` and `orderId` both contain `id`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _number_form(name: str, values: np.ndarray) -> str:
    """CODE or CLOCK (1745) if the column's name and its values suggest it, else an empty text."""
    words = name_words(name)
    if (values != np.floor(values)).any() or (values < 0).any():
        return ""
    if words & CODE_NAMES:
        return CODE
    return CLOCK if "time" in words and 100 < values.max() <= 2400 and (values % 100 < 60).all() else ""


def _column_profile(column: Any, values: np.ndarray) -> ColumnProfile:
    """The profile of a column with these values; if none is finite, from its bins."""
    if column.kind in ("category", "boolean"):
        counts, rows = dict(zip(column.levels, column.counts, strict=True)), column.rows
        shares = {level: count / rows for level, count in counts.items() if count}
        unlisted = max(0.0, 1 - (sum(counts.values()) + column.gaps) / rows)
        return ColumnProfile(column.name, column.kind, levels=shares, unlisted=unlisted, gaps=column.gaps / rows)
    finite, spread = values[np.isfinite(values)], column.spread
    if column.kind == "date":
        return _date_profile(column, finite, 1 - len(finite) / len(values) if len(finite) else spread.gaps)
    if len(finite):
        return number_profile(column.name, values)
    low, high = (spread.edges[0], spread.edges[-1]) if spread.edges else (spread.low, spread.high)
    form = _number_form(column.name, np.array([low, spread.middle, high]))
    return ColumnProfile(column.name, "number", low, spread.middle, high, gaps=spread.gaps, form=form)


def _date_profile(column: Any, days: np.ndarray, gaps: float) -> ColumnProfile:
    first, last = (days.min(), days.max()) if len(days) else (column.spread.low, column.spread.high)
    earliest, latest = (EPOCH + timedelta(seconds=round(day * 86_400)) for day in (float(first), float(last)))
    weekdays = np.bincount((np.floor(days).astype(int) + 3) % 7, minlength=7)  # 1970 began on a Thursday
    return ColumnProfile(
        column.name,
        column.kind,
        gaps=gaps,
        earliest=earliest,
        latest=latest,
        hours=_hours(days),
        weekdays=tuple(map(float, weekdays / len(days))) if len(days) and last - first >= WEEKS_FROM else (),
        form=CLOCK if column.clock else "",
    )


def moments(days: np.ndarray) -> np.ndarray:
    """Days since 1970 as datetime64, NaN as NaT."""
    seconds = np.round(np.nan_to_num(days) * 86_400).astype("datetime64[s]")
    return np.where(np.isnan(days), np.datetime64("NaT"), seconds).astype("datetime64[us]")


def _hours(days: np.ndarray) -> tuple[int, int] | None:
    """The shortest range of hours with 90 % of the moments; None if all are at midnight or spread over the day."""
    if not (days % 1).any():
        return None
    counts = np.bincount(((days % 1) * 24 + 1e-6).astype(int) % 24, minlength=24)
    for length in range(1, 20):
        covered = [counts[np.arange(first, first + length) % 24].sum() for first in range(24)]
        if max(covered) >= MOST * len(days):
            first = int(np.argmax(covered))
            return first, (first + length - 1) % 24
    return None


LISTED = 5  # cells of a column
LONGEST = 40  # characters of a text


class TextCell(NamedTuple):
    """A text where a number is expected."""

    column: str
    row: int  # counted from 1
    text: str

    @property
    def shown(self) -> str:
        return json.dumps(shortened(self.text, LONGEST), ensure_ascii=False)


@dataclass
class TextCells:
    """The text cells of number columns: their count and the first few of each column."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[TextCell]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, name: str, column: pa.Array, rows: np.ndarray, rows_before: int) -> None:
        """Add the texts in some rows of a column; `rows_before` rows precede the column."""
        texts = as_text(column.take(pa.array(rows[:LISTED]))).to_pylist()
        cells = [TextCell(name, int(row) + 1, text) for row, text in zip(rows, texts, strict=False)]
        self.join(TextCells(Counter({name: len(rows)}), {name: cells}), rows_before)

    def join(self, other: TextCells, rows_before: int) -> None:
        """Add the cells of later rows; `rows_before` rows precede them."""
        self.counts.update(other.counts)
        for name, cells in other.first.items():
            moved = [cell._replace(row=cell.row + rows_before) for cell in cells]
            self.first[name] = (self.first.get(name, []) + moved)[:LISTED]

    def placed(self, rows: np.ndarray | None) -> TextCells:
        """The cells of a sample of a table, renumbered by the `rows` that were drawn; None if it is the whole table."""
        if rows is None:
            return self
        first = self.first.items()
        moved = {name: [cell._replace(row=int(rows[cell.row - 1]) + 1) for cell in cells] for name, cells in first}
        return TextCells(self.counts, moved)

    def words(self, hidden: bool = False) -> list[str]:
        """A sentence for each column, without the texts if `hidden`."""
        sentences = []
        for name, count in self.counts.items():
            cells = "1 cell is text, not a number, and counts" if count == 1 else f"{count:,} cells are text and count"
            first = self.first[name]
            examples = [f"row {cell.row:,}" if hidden else f"{cell.shown} (row {cell.row:,})" for cell in first]
            more = f" and {count - len(first):,} more" if count > len(first) else ""
            sentences.append(f"column {name!r}: {cells} as missing and strange: {', '.join(examples)}{more}")
        return sentences


UNCHANGED = "much as in training"
SOMEWHAT, CLEARLY = 0.1, 0.25  # the customary bounds of the population stability index
UNSEEN_GAPS = "missing values in categories that had none in training count as unseen"
MORE_GAPS = 0.05  # smallest change in the share of missing values that is reported


class DriftCounter:
    """Counts the values of scored rows in the bins of the fitted columns."""

    def __init__(self, columns: Any) -> None:
        self.columns = columns
        self.rows = 0
        self.texts = TextCells()
        self.unseen = Counter[str]()  # rows of each group unseen in training
        self.bins = [np.zeros(len(column.shares)) for column in columns.fitted]
        self.novel = [0] * len(columns.fitted)  # values far outside the training range, or unseen in training
        self.medians: list[list[tuple[float, int]]] = [[] for _ in columns.fitted]  # median and size of each block

    def count(self, values: list[np.ndarray], arrays: list[pa.Array]) -> None:
        """Count the values of all columns in some rows; `values` are what `Column.read` returned for `arrays`."""
        for position, (column, block) in enumerate(zip(self.columns.fitted, values, strict=True)):
            self.bins[position] += column.tally(block)
            self.novel[position] += column.novel(block)
            if column.kind != "number":
                continue
            if len(finite := block[np.isfinite(block)]):
                self.medians[position].append((float(np.median(finite)), len(finite)))
            if len(rows := np.flatnonzero(np.isinf(block))):
                self.texts.add(column.name, arrays[position], rows, self.rows)
        self.rows += len(values[0])

    def add(self, other: DriftCounter) -> None:
        """Add the counts of later rows."""
        self.texts.join(other.texts, self.rows)
        self.unseen.update(other.unseen)
        self.rows += other.rows
        for name in ("bins", "novel", "medians"):
            setattr(self, name, [a + b for a, b in zip(getattr(self, name), getattr(other, name), strict=True)])

    @property
    def outside(self) -> dict[str, int]:
        """Column -> the number of values far outside the training range or unseen in training, if any."""
        return {column.name: count for column, count in zip(self.columns.fitted, self.novel, strict=True) if count}

    @property
    def new_gaps(self) -> list[str]:
        """Sentences on columns with missing values that had none in training."""
        names: dict[str, list[str]] = {}  # of the columns of each sentence
        for column, counts in zip(self.columns.fitted, self.bins, strict=True):
            if counts[-1] > self.texts.counts[column.name] and not column.shares[-1]:
                message = UNSEEN_GAPS if column.kind == "category" else NEW_GAPS
                names.setdefault(message, []).append(repr(column.name))
        return [f"{message}: {listed(columns)}" for message, columns in names.items()]

    @property
    def unseen_words(self) -> list[str]:
        """A sentence on the groups unseen in training, if any."""
        unseen = self.unseen.most_common()
        groups = [f"{key.replace(BETWEEN, ', ')!r} ({counted(count, 'row')})" for key, count in unseen]
        message = f"{counted(len(groups), 'group')} unseen in training, judged against the whole"
        return [f"{message}: {listed(groups, 10)}"] if groups else []

    def summary(self) -> list[dict[str, Any]]:
        """One dict for each column, the most changed first; empty before any row is counted."""
        columns = zip(self.columns.fitted, self.bins, self.novel, self.medians, strict=True)
        drift = [_column_drift(*column, self.columns.rows) for column in columns if self.rows]
        return sorted(drift, key=lambda column: -column["psi"])


def stability_index(then: np.ndarray, now: np.ndarray) -> float:
    """The population stability index of two distributions over bins; empty bins count as 0.0001."""
    then, now = np.maximum(then, 1e-4), np.maximum(now, 1e-4)
    return float(((now - then) * np.log(now / then)).sum())


def drift_warning(drift: Sequence[dict[str, Any]], *, hidden: bool) -> str | None:
    """A sentence on the drifted columns, with figures unless the table's values are hidden; None without drift."""
    drifted = [column for column in drift if column["drifted"]]
    changes = [f"{one['column']}: {one['words'] if hidden else one['figures'] or one['words']}" for one in drifted]
    columns = counted(len(drifted), "column has", "columns have")
    return f"{columns} drifted since training: {listed(changes, between='; ')}" if drifted else None


def _column_drift(
    column: Any, counts: np.ndarray, novel: int, medians: list[tuple[float, int]], trained_rows: int
) -> dict[str, Any]:
    rows = counts.sum()
    then, now = column.shares, counts / rows
    smoothed = (counts + len(then) * then) / (rows + len(then))  # a few rows cannot fill all bins
    psi = round(stability_index(then, smoothed), 6)
    by_chance = 1 / rows + 1 / trained_rows
    beyond_chance = psi - (len(then) - 1) * by_chance
    more_gaps = now[-1] - then[-1]
    least_gaps = MORE_GAPS + 2 * math.sqrt(then[-1] * (1 - then[-1]) * by_chance)
    unseen, outside = (novel / rows, 0) if column.kind == "category" else (0.0, novel)
    words = [_shift_in_words(column, then, now, beyond_chance)] if beyond_chance > SOMEWHAT else []
    if abs(more_gaps) > least_gaps:
        words.append(f"missing {then[-1]:.0%} then, {now[-1]:.0%} now")
    if unseen:
        words.append(f"{unseen:.1%} unseen in training" if unseen >= 0.001 else "under 0.1% unseen in training")
    if outside:
        words.append(f"{outside:,} far outside the training range")
    return {
        "column": column.name,
        "kind": column.kind,
        "psi": psi,
        "gaps_then": float(then[-1]),
        "gaps_now": float(now[-1]),
        "unseen_share": float(unseen),
        "outside_count": outside,
        "drifted": column.kind != "date" and bool(beyond_chance > CLEARLY or more_gaps > least_gaps),  # dates advance
        "figures": _figures(column, then, now, medians) if beyond_chance > SOMEWHAT else "",
        "words": "; ".join(words) or UNCHANGED,
    }


def _figures(column: Any, then: np.ndarray, now: np.ndarray, medians: list[tuple[float, int]]) -> str:
    """The median of a number then and now, or the share of the level that changed most."""
    if column.kind == "number" and medians:
        values, sizes = np.array(sorted(medians)).T
        median_now = float(values[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)])  # exact for one block
        pair = (column.spread.middle, median_now)
        texts = [f"{median:,.0f}" if abs(median) >= 1000 else f"{median:.3g}" for median in pair]
        return f"median {' -> '.join(texts)}"
    if column.kind not in ("category", "boolean"):
        return ""
    levels = column.levels if column.kind == "boolean" else [*map(repr, column.levels[: len(then) - 2]), "others"]
    changed = int(abs(now - then)[: len(levels)].argmax())
    return f"{levels[changed]} {then[changed]:.0%} -> {now[changed]:.0%}"


def _shift_in_words(column: Any, then: np.ndarray, now: np.ndarray, beyond_chance: float) -> str:
    """How much the values have moved, and in which direction if they have one."""
    degree = "clearly" if beyond_chance > CLEARLY else "somewhat"
    if column.kind in ("number", "date") and then[:-1].any() and now[:-1].any():
        bins = np.arange(len(then) - 1) / max(1, len(then) - 2)
        shift = np.average(bins, weights=now[:-1]) - np.average(bins, weights=then[:-1])
        if abs(shift) >= 0.1:
            up, down = ("later", "earlier") if column.kind == "date" else ("higher", "lower")
            return f"{degree} {up if shift > 0 else down} than in training"
    return f"{degree} different from training"
