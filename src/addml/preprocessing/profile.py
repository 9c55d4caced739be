"""The typical values of each column of the training rows: what reasons compare with, and what the report shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.text import figure

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = datetime(1970, 1, 1)
MOST = 0.9  # of the values lie between low and high
WEEKS_FROM = 14  # days between first and last, from which weekdays mean something
NAMED = 3  # common values in words
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
        """The share of the commonest level."""
        return max(self.levels.values(), default=0.0)

    def common(self, most: int) -> tuple[tuple[str, float], ...]:
        """The most common levels with their shares."""
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
        """The profile as JSON values."""
        dates = {name: one and one.isoformat() for name, one in (("earliest", self.earliest), ("latest", self.latest))}
        return asdict(self) | dates

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ColumnProfile:
        """The profile that `to_json` gave."""
        dates = {key: document[key] and datetime.fromisoformat(document[key]) for key in ("earliest", "latest")}
        hours = document["hours"] and (int(document["hours"][0]), int(document["hours"][1]))
        return cls(**{**document, **dates, "hours": hours, "weekdays": tuple(document["weekdays"])})


def column_profiles(columns: Any, table: pa.Table | None = None) -> tuple[ColumnProfile, ...]:
    """The profile of each column in the rows of a table, or, without rows, what the columns themselves remember."""
    blocks = [] if table is None else list(columns.read(table))
    if not blocks:
        return tuple(map(_remembered, columns.fitted))
    values = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return tuple(map(_found, columns.fitted, values))


def channel_profiles(names: Sequence[str], steps: np.ndarray) -> tuple[ColumnProfile, ...]:
    """The profile of each channel of steps (n, channels) that has values."""
    known = ((name, values[~np.isnan(values)]) for name, values in zip(names, steps.T, strict=True))
    return tuple(number_profile(name, values) for name, values in known if len(values))


def number_profile(name: str, known: np.ndarray, gaps: float = 0.0) -> ColumnProfile:
    """The profile of a column of numbers, of which these are known, some at least."""
    low, middle, high = 4 * np.quantile(known / 4, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2])  # differences stay finite
    form = number_form(name, known)
    return ColumnProfile(name, "number", float(low), float(middle), float(high), gaps=gaps, form=form)


def number_form(name: str, known: np.ndarray) -> str:
    """Whether numbers are codes, or times of the day such as 1745, by the name of their column and their values."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    whole = bool((known == np.floor(known)).all() and (known >= 0).all())
    if whole and words & CODE_NAMES:
        return CODE
    timed = "time" in words and known.max() > 100 and known.max() <= 2400
    return CLOCK if whole and timed and (known % 100 < 60).all() else ""


def _remembered(column: Any) -> ColumnProfile:
    if column.kind in ("category", "boolean"):
        return _levels(column)
    name, kind, spread = column.name, column.kind, column.spread
    if kind == "date":
        low, high = _moment(spread.low), _moment(spread.high)
        form = CLOCK if column.clock else ""
        return ColumnProfile(name, kind, gaps=spread.gaps, earliest=low, latest=high, form=form)
    edges = spread.edges or [spread.low, spread.high]
    form = number_form(name, np.array([edges[0], spread.middle, edges[-1]]))
    return ColumnProfile(name, kind, edges[0], spread.middle, edges[-1], gaps=spread.gaps, form=form)


def _found(column: Any, values: np.ndarray) -> ColumnProfile:
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if column.kind in ("category", "boolean") or not len(known):
        return _remembered(column)
    gaps = 1 - len(known) / len(values)
    if column.kind == "number":
        return number_profile(column.name, known, gaps)
    first, last = float(known.min()), float(known.max())
    weekdays = np.bincount((np.floor(known).astype(int) + 3) % 7, minlength=7)  # 1970 began on a Thursday
    return ColumnProfile(
        column.name,
        column.kind,
        gaps=gaps,
        earliest=_moment(first),
        latest=_moment(last),
        hours=_hours(known),
        weekdays=tuple(map(float, weekdays / len(known))) if last - first >= WEEKS_FROM else (),
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


# Dates, which are read as days since 1970 -------------------------------------------------------------------


def moments(days: np.ndarray) -> np.ndarray:
    """The moments so many days after the beginning of 1970, datetime64; NaT for NaN."""
    known = np.where(np.isnan(days), 0, days)
    seconds = np.round(known * 86_400).astype("datetime64[s]")
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
