"""The typical values of each column of the training rows, text among its numbers, and drift of scored rows."""

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
MOST = 0.9  # of the values lie between low and high
WEEKS_FROM = 14  # days between first and last, from which weekdays mean something
NAMED = 3  # common values in words
BETWEEN = "\x1f"  # the values of several columns, in the key of a group
CODE, CLOCK = "code", "clock"  # numbers that stand for things; times of the day, also as 1745
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
    unlisted: float = 0.0  # share of the training rows whose level is not among them
    gaps: float = 0.0  # share of the training rows without a value
    earliest: date | None = None  # of a date
    latest: date | None = None
    hours: tuple[int, int] | None = None  # the middle 90 % of its hours, both included; (22, 4) goes over midnight
    weekdays: tuple[float, ...] = ()  # shares, Monday first
    form: str = ""  # CODE or CLOCK: no quantities, of which nothing is high or low

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
        hours = document["hours"] and (int(document["hours"][0]), int(document["hours"][1]))
        return cls(**{**document, **dates, "hours": hours, "weekdays": tuple(document["weekdays"])})


def column_profiles(columns: Any, table: pa.Table | None = None) -> tuple[ColumnProfile, ...]:
    """The profile of each column in the rows of a table, or, without rows, what the columns themselves remember."""
    blocks = [] if table is None else list(columns.read(table))
    values = [np.concatenate(parts) for parts in zip(*blocks, strict=True)] or [np.empty(0)] * len(columns.fitted)
    return tuple(map(_profile, columns.fitted, values))


def channel_profiles(names: Sequence[str], steps: np.ndarray) -> tuple[ColumnProfile, ...]:
    """The profile of each channel of steps (n, channels) that has values."""
    known = ((name, values[~np.isnan(values)]) for name, values in zip(names, steps.T, strict=True))
    return tuple(number_profile(name, values) for name, values in known if len(values))


def number_profile(name: str, known: np.ndarray, gaps: float = 0.0) -> ColumnProfile:
    """The profile of a column of numbers, of which these are known, some at least."""
    low, middle, high = 4 * np.quantile(known / 4, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2])  # differences stay finite
    form = number_form(name, known)
    return ColumnProfile(name, "number", float(low), float(middle), float(high), gaps=gaps, form=form)


def name_words(name: str) -> set[str]:
    """The words of a column's name in lower case: `order_id` and `orderId` hold `id`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def number_form(name: str, known: np.ndarray) -> str:
    """Whether numbers are codes, or times of the day such as 1745, by the name of their column and their values."""
    words = name_words(name)
    whole = bool((known == np.floor(known)).all() and (known >= 0).all())
    if whole and words & CODE_NAMES:
        return CODE
    timed = "time" in words and known.max() > 100 and known.max() <= 2400
    return CLOCK if whole and timed and (known % 100 < 60).all() else ""


def _profile(column: Any, values: np.ndarray) -> ColumnProfile:
    """The profile of a column with these values, or by its bins where none is known."""
    if column.kind in ("category", "boolean"):
        return _levels(column)
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    spread = column.spread
    gaps = 1 - len(known) / len(values) if len(known) else spread.gaps
    if column.kind == "number" and len(known):
        return number_profile(column.name, known, gaps)
    if column.kind == "number":
        low, high = (spread.edges[0], spread.edges[-1]) if spread.edges else (spread.low, spread.high)
        form = number_form(column.name, np.array([low, spread.middle, high]))
        return ColumnProfile(column.name, "number", low, spread.middle, high, gaps=gaps, form=form)
    first, last = (float(known.min()), float(known.max())) if len(known) else (spread.low, spread.high)
    weekdays = np.bincount((np.floor(known).astype(int) + 3) % 7, minlength=7)  # 1970 began on a Thursday
    return ColumnProfile(
        column.name,
        column.kind,
        gaps=gaps,
        earliest=_moment(first),
        latest=_moment(last),
        hours=_hours(known),
        weekdays=tuple(map(float, weekdays / len(known))) if len(known) and last - first >= WEEKS_FROM else (),
        form=CLOCK if column.clock else "",
    )


def _levels(column: Any) -> ColumnProfile:
    """Shares among all training rows: of what was seen in them nothing is unseen."""
    if column.kind == "boolean":
        counts = {"false": column.falses, "true": column.trues}
        rows = sum(counts.values()) + column.gaps
    else:
        counts, rows = dict(zip(column.levels, column.counts, strict=True)), column.rows
    shares = {level: count / rows for level, count in counts.items() if count}
    unlisted = max(0.0, 1 - (sum(counts.values()) + column.gaps) / rows)
    return ColumnProfile(column.name, column.kind, levels=shares, unlisted=unlisted, gaps=column.gaps / rows)


def moments(days: np.ndarray) -> np.ndarray:
    """The moments so many days after the beginning of 1970, datetime64; NaT for NaN."""
    seconds = np.round(np.nan_to_num(days) * 86_400).astype("datetime64[s]")
    return np.where(np.isnan(days), np.datetime64("NaT"), seconds).astype("datetime64[us]")


def _moment(days: float) -> datetime:
    return EPOCH + timedelta(seconds=round(days * 86_400))


def _hours(days: np.ndarray) -> tuple[int, int] | None:
    """The shortest stretch of hours with nine tenths of the moments; None where all are at midnight or at any hour."""
    if not (days % 1).any():
        return None
    counts = np.bincount(((days % 1) * 24 + 1e-6).astype(int) % 24, minlength=24)
    for length in range(1, 20):
        covered = [counts[np.arange(first, first + length) % 24].sum() for first in range(24)]
        if max(covered) >= MOST * len(days):
            first = int(np.argmax(covered))
            return first, (first + length - 1) % 24
    return None


# Texts in columns of numbers ----------------------------------------------------------------------------------
LISTED = 5  # cells of a column
LONGEST = 40  # characters of a text


class TextCell(NamedTuple):
    """A text where a number is expected."""

    column: str
    row: int  # counted from 1
    text: str

    @property
    def shown(self) -> str:
        """The text in quotes, cut where it is long."""
        return json.dumps(shortened(self.text, LONGEST), ensure_ascii=False)


@dataclass
class TextCells:
    """The texts in columns of numbers: how many in each column, and its first ones."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[TextCell]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, name: str, column: pa.Array, places: np.ndarray, before: int) -> None:
        """Take in the texts at these places of a column, some at least, with so many rows before it."""
        texts = as_text(column.take(pa.array(places[:LISTED]))).to_pylist()
        found = [TextCell(name, before + int(place) + 1, text) for place, text in zip(places, texts, strict=False)]
        self.join(TextCells(Counter({name: len(places)}), {name: found}), 0)

    def join(self, other: TextCells, before: int) -> None:
        """Take in those of the next rows, with so many rows before them."""
        self.counts.update(other.counts)
        for name, cells in other.first.items():
            moved = [cell._replace(row=cell.row + before) for cell in cells]
            self.first[name] = (self.first.get(name, []) + moved)[:LISTED]

    def placed(self, places: np.ndarray | None) -> TextCells:
        """The same where the rows lie at these places of a larger table; None for all of it."""
        if places is None:
            return self
        moved = {
            name: [cell._replace(row=int(places[cell.row - 1]) + 1) for cell in cells]
            for name, cells in self.first.items()
        }
        return TextCells(self.counts, moved)

    def words(self, hidden: bool = False) -> list[str]:
        """A sentence for each column, without the texts themselves where they are to be `hidden`."""
        found = []
        for name, count in self.counts.items():
            first = self.first[name]
            named = ", ".join(f"row {one.row:,}" if hidden else f"{one.shown} (row {one.row:,})" for one in first)
            cells = "1 cell is text, not a number, and counts" if count == 1 else f"{count:,} cells are text and count"
            more = f" and {count - len(first):,} more" if count > len(first) else ""
            found.append(f"column {name!r}: {cells} as missing and strange: {named}{more}")
        return found


# Drift --------------------------------------------------------------------------------------------------------
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
        words: dict[str, list[str]] = {}
        for column, counts in zip(self.columns.fitted, self.counts.bins, strict=True):
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


def _compared(
    column: Any, counts: np.ndarray, strange: int, medians: list[tuple[float, int]], trained_rows: int
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
    beyond_chance = found["psi"] - (len(then) - 1) * few
    gaps_by_chance = 2 * math.sqrt(then[-1] * (1 - then[-1]) * few)
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
    column: Any, found: dict[str, Any], then: np.ndarray, now: np.ndarray, beyond: float, gaps_by_chance: float
) -> str:
    """What changed, beyond what chance alone explains of the index and of missing values."""
    words, direction = list[str](), ""
    if column.kind in ("number", "date") and then[:-1].any() and now[:-1].any():
        bins = np.arange(len(then) - 1) / max(1, len(then) - 2)
        moved = np.average(bins, weights=now[:-1]) - np.average(bins, weights=then[:-1])
        up, down = ("later than", "earlier than") if column.kind == "date" else ("higher than", "lower than")
        direction = "" if abs(moved) < 0.1 else up if moved > 0 else down
    if beyond > SOMEWHAT:
        degree = "clearly" if beyond > CLEARLY else "somewhat"
        words.append(f"{degree} {direction} in training" if direction else f"{degree} different from training")
    if abs(found["gaps_now"] - found["gaps_then"]) > GAPS_SAID + gaps_by_chance:
        words.append(f"missing {found['gaps_then']:.0%} then, {found['gaps_now']:.0%} now")
    if share := found["unseen_share"]:
        words.append(f"{f'{share:.1%}' if share >= 0.001 else 'under 0.1%'} unseen in training")
    if found["outside_count"]:
        words.append(f"{found['outside_count']:,} far outside the training range")
    return "; ".join(words) or "much as in training"
