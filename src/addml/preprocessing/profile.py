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
WEEKS_FROM = 14  # days: a column of dates needs this range for weekdays to mean anything
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
            low, middle, high = (figure(one or 0.0, 4) for one in (self.low, self.middle, self.high))
            return f"mostly {low} to {high}" if self.form else f"{middle}, mostly {low} to {high}"
        if self.earliest is not None and self.latest is not None:
            hours = f"mostly {self.hours[0]:02} to {self.hours[1]:02} h" if self.hours else ""
            if self.form == CLOCK:
                return hours or f"{self.earliest:%H:%M} to {self.latest:%H:%M}"
            return f"{self.earliest:%Y-%m-%d} to {self.latest:%Y-%m-%d}{hours and f', {hours}'}"
        return ", ".join(f"{level} {share:.0%}" for level, share in self.common(NAMED))

    def to_json(self) -> dict[str, Any]:
        dates = {name: one and one.isoformat() for name, one in (("earliest", self.earliest), ("latest", self.latest))}
        return asdict(self) | dates

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ColumnProfile:
        dates = {key: document[key] and datetime.fromisoformat(document[key]) for key in ("earliest", "latest")}
        hours = document["hours"] and tuple(document["hours"])
        return cls(**{**document, **dates, "hours": hours, "weekdays": tuple(document["weekdays"])})


def column_profiles(columns: Any, table: pa.Table | None = None) -> tuple[ColumnProfile, ...]:
    """The profile of each column over the rows of a table; without a table, from the fitted bins and counts."""
    blocks = [] if table is None else list(columns.read(table))
    values = [np.concatenate(parts) for parts in zip(*blocks, strict=True)] or [np.empty(0)] * len(columns.fitted)
    return tuple(map(_profile, columns.fitted, values))


def channel_profiles(names: Sequence[str], steps: np.ndarray) -> tuple[ColumnProfile, ...]:
    """The profile of each non-empty channel of steps (n, channels)."""
    known = ((name, values[~np.isnan(values)]) for name, values in zip(names, steps.T, strict=True))
    return tuple(number_profile(name, values) for name, values in known if len(values))


def number_profile(name: str, values: np.ndarray) -> ColumnProfile:
    """The profile of a number column; values that are not finite count as gaps."""
    known = values[np.isfinite(values)]
    if not len(known):
        return ColumnProfile(name, "number", gaps=1.0)
    low, middle, high = 4 * np.quantile(known / 4, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2])  # / 4 avoids overflow
    form, gaps = number_form(name, known), 1 - len(known) / len(values)
    return ColumnProfile(name, "number", float(low), float(middle), float(high), gaps=gaps, form=form)


def name_words(name: str) -> set[str]:
    """The words of a column's name in lower case: `order_id` and `orderId` both contain `id`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def number_form(name: str, known: np.ndarray) -> str:
    """CODE or CLOCK (1745) if the column's name and its values say so, else an empty text."""
    words = name_words(name)
    if (known != np.floor(known)).any() or (known < 0).any():
        return ""
    if words & CODE_NAMES:
        return CODE
    return CLOCK if "time" in words and 100 < known.max() <= 2400 and (known % 100 < 60).all() else ""


def _profile(column: Any, values: np.ndarray) -> ColumnProfile:
    """The profile of a column with these values; without a known one, from its bins."""
    if column.kind in ("category", "boolean"):
        counts, rows = dict(zip(column.levels, column.counts, strict=True)), column.rows
        shares = {level: count / rows for level, count in counts.items() if count}
        unlisted = max(0.0, 1 - (sum(counts.values()) + column.gaps) / rows)
        return ColumnProfile(column.name, column.kind, levels=shares, unlisted=unlisted, gaps=column.gaps / rows)
    known, spread = values[np.isfinite(values)], column.spread
    if column.kind == "date":
        return _date_profile(column, known, 1 - len(known) / len(values) if len(known) else spread.gaps)
    if len(known):
        return number_profile(column.name, values)
    low, high = (spread.edges[0], spread.edges[-1]) if spread.edges else (spread.low, spread.high)
    form = number_form(column.name, np.array([low, spread.middle, high]))
    return ColumnProfile(column.name, "number", low, spread.middle, high, gaps=spread.gaps, form=form)


def _date_profile(column: Any, known: np.ndarray, gaps: float) -> ColumnProfile:
    first, last = (known.min(), known.max()) if len(known) else (column.spread.low, column.spread.high)
    earliest, latest = (EPOCH + timedelta(seconds=round(days * 86_400)) for days in (float(first), float(last)))
    weekdays = np.bincount((np.floor(known).astype(int) + 3) % 7, minlength=7)  # 1970 began on a Thursday
    return ColumnProfile(
        column.name,
        column.kind,
        gaps=gaps,
        earliest=earliest,
        latest=latest,
        hours=_hours(known),
        weekdays=tuple(map(float, weekdays / len(known))) if len(known) and last - first >= WEEKS_FROM else (),
        form=CLOCK if column.clock else "",
    )


def moments(days: np.ndarray) -> np.ndarray:
    """Days since 1970 as datetime64; NaT for NaN."""
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

    def add(self, name: str, column: pa.Array, places: np.ndarray, before: int) -> None:
        """Add the texts at `places` of a column; `before` rows precede it."""
        texts = as_text(column.take(pa.array(places[:LISTED]))).to_pylist()
        found = [TextCell(name, int(place) + 1, text) for place, text in zip(places, texts, strict=False)]
        self.join(TextCells(Counter({name: len(places)}), {name: found}), before)

    def join(self, other: TextCells, before: int) -> None:
        """Add the cells of later rows; `before` rows precede them."""
        self.counts.update(other.counts)
        for name, cells in other.first.items():
            moved = [cell._replace(row=cell.row + before) for cell in cells]
            self.first[name] = (self.first.get(name, []) + moved)[:LISTED]

    def placed(self, places: np.ndarray | None) -> TextCells:
        """The cells with rows of the larger table that these rows were taken from, at `places`; None for all of it."""
        if places is None:
            return self
        first = self.first.items()
        moved = {name: [one._replace(row=int(places[one.row - 1]) + 1) for one in cells] for name, cells in first}
        return TextCells(self.counts, moved)

    def words(self, hidden: bool = False) -> list[str]:
        """A sentence for each column, without the texts themselves if `hidden`."""
        found = []
        for name, count in self.counts.items():
            named = [f"row {one.row:,}" if hidden else f"{one.shown} (row {one.row:,})" for one in self.first[name]]
            cells = "1 cell is text, not a number, and counts" if count == 1 else f"{count:,} cells are text and count"
            more = f" and {count - len(named):,} more" if count > len(named) else ""
            found.append(f"column {name!r}: {cells} as missing and strange: {', '.join(named)}{more}")
        return found


UNCHANGED = "much as in training"
SOMEWHAT, CLEARLY = 0.1, 0.25  # the customary bounds of the population stability index
UNSEEN_GAPS = "missing values in categories that had none in training count as unseen"
MORE_GAPS = 0.05  # smallest change in the share of missing values that is reported


class DriftCounter:
    """Counts the values of scored rows in the bins of the fitted columns."""

    def __init__(self, columns: Any) -> None:
        self.columns, self.rows, self.texts = columns, 0, TextCells()
        self.unseen = Counter[str]()  # rows of each group unseen in training
        self.bins = [np.zeros(len(column.shares)) for column in columns.fitted]
        self.novel = [0] * len(columns.fitted)  # values far outside the training range, or unseen in training
        self.medians: list[list[tuple[float, int]]] = [[] for _ in columns.fitted]  # of each block, and its values

    def count(self, values: list[np.ndarray], arrays: list[pa.Array]) -> None:
        """Count the values of all columns of some rows, which `Column.read` gave for these arrays."""
        for position, (column, part) in enumerate(zip(self.columns.fitted, values, strict=True)):
            self.bins[position] += column.tally(part)
            self.novel[position] += column.novel(part)
            if column.kind != "number":
                continue
            if len(known := part[np.isfinite(part)]):
                self.medians[position].append((float(np.median(known)), len(known)))
            if len(places := np.flatnonzero(np.isinf(part))):
                self.texts.add(column.name, arrays[position], places, self.rows)
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
        """Column -> values far outside the training range or unseen in training, if any."""
        return {one.name: count for one, count in zip(self.columns.fitted, self.novel, strict=True) if count}

    @property
    def new_gaps(self) -> list[str]:
        """Sentences on columns that have gaps only now."""
        words: dict[str, list[str]] = {}
        for column, counts in zip(self.columns.fitted, self.bins, strict=True):
            if counts[-1] > self.texts.counts[column.name] and not column.shares[-1]:
                message = UNSEEN_GAPS if column.kind == "category" else NEW_GAPS
                words.setdefault(message, []).append(repr(column.name))
        return [f"{message}: {listed(names)}" for message, names in words.items()]

    @property
    def unseen_words(self) -> list[str]:
        unseen = self.unseen.most_common()
        named = [f"{key.replace(BETWEEN, ', ')!r} ({counted(count, 'row')})" for key, count in unseen]
        groups = f"{counted(len(named), 'group')} unseen in training, judged against the whole"
        return [f"{groups}: {listed(named, 10)}"] if named else []

    def summary(self) -> list[dict[str, Any]]:
        """One dict for each column, the most changed first; none before any row is counted."""
        parts = zip(self.columns.fitted, self.bins, self.novel, self.medians, strict=True)
        found = [_compared(*part, self.columns.rows) for part in parts if self.rows]
        return sorted(found, key=lambda one: -one["psi"])


def stability_index(then: np.ndarray, now: np.ndarray) -> float:
    """The population stability index of two distributions over bins; an empty bin counts as 0.0001."""
    then, now = np.maximum(then, 1e-4), np.maximum(now, 1e-4)
    return float(((now - then) * np.log(now / then)).sum())


def drift_warning(drift: Sequence[dict[str, Any]], *, hidden: bool) -> str | None:
    """A sentence on the drifted columns, with figures unless the table's values are hidden; None without drift."""
    drifted = [f"{one['column']}: {(not hidden and one['figures']) or one['words']}" for one in drift if one["drifted"]]
    columns = counted(len(drifted), "column has", "columns have")
    return f"{columns} drifted since training: {listed(drifted, between='; ')}" if drifted else None


def _compared(
    column: Any, counts: np.ndarray, novel: int, medians: list[tuple[float, int]], trained_rows: int
) -> dict[str, Any]:
    then, rows = column.shares, counts.sum()
    now = counts / rows
    smoothed = (counts + len(then) * then) / (rows + len(then))  # a few rows cannot fill all bins
    psi = round(stability_index(then, smoothed), 6)
    by_chance = 1 / rows + 1 / trained_rows
    beyond_chance = psi - (len(then) - 1) * by_chance
    more_gaps = now[-1] - then[-1]
    least_gaps = MORE_GAPS + 2 * math.sqrt(then[-1] * (1 - then[-1]) * by_chance)
    unseen, outside = (novel / rows, 0) if column.kind == "category" else (0.0, novel)
    words = [_moved(column, then, now, beyond_chance)] if beyond_chance > SOMEWHAT else []
    if abs(more_gaps) > least_gaps:
        words.append(f"missing {then[-1]:.0%} then, {now[-1]:.0%} now")
    if unseen:
        words.append(f"{f'{unseen:.1%}' if unseen >= 0.001 else 'under 0.1%'} unseen in training")
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
        pair = (f"{one:,.0f}" if abs(one) >= 1000 else f"{one:.3g}" for one in (column.spread.middle, median_now))
        return f"median {' -> '.join(pair)}"
    if column.kind not in ("category", "boolean"):
        return ""
    levels = column.levels if column.kind == "boolean" else [*map(repr, column.levels[: len(then) - 2]), "others"]
    most = int(abs(now - then)[: len(levels)].argmax())
    return f"{levels[most]} {then[most]:.0%} -> {now[most]:.0%}"


def _moved(column: Any, then: np.ndarray, now: np.ndarray, beyond_chance: float) -> str:
    """How much the values have moved, and in which direction if they have one."""
    degree = "clearly" if beyond_chance > CLEARLY else "somewhat"
    if column.kind in ("number", "date") and then[:-1].any() and now[:-1].any():
        bins = np.arange(len(then) - 1) / max(1, len(then) - 2)
        shift = np.average(bins, weights=now[:-1]) - np.average(bins, weights=then[:-1])
        if abs(shift) >= 0.1:
            up, down = ("later", "earlier") if column.kind == "date" else ("higher", "lower")
            return f"{degree} {up if shift > 0 else down} than in training"
    return f"{degree} different from training"
