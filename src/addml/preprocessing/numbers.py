"""Columns of numbers and of dates, and what every fitted column offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml import arrow
from addml.arrow import PLAIN_NUMBERS, NumberFormat, first_of, is_text, plain
from addml.preprocessing.profile import EPOCH
from addml.text import shortened

BINS = 20
SAMPLE = 200_000  # rows that quantiles are taken from
TALLIED = 4_096  # rows of a block that are put into bins; its others count like them


@dataclass(frozen=True)
class QuantileBins:
    """How the numbers of a column lay in training: their range, and bins of about equal share."""

    low: float
    middle: float
    high: float
    edges: tuple[float, ...]  # upper ends of all bins but the last, ascending
    filled: tuple[float, ...]  # shares of the numbers in each bin
    gaps: float  # share of the rows

    @classmethod
    def fit(cls, values: np.ndarray) -> QuantileBins:
        """From all training values, NaN for missing values; at least one is a number."""
        known = _known(values)
        some = slice(None) if len(known) <= SAMPLE else np.random.default_rng(0).integers(0, len(known), SAMPLE)
        sample = np.sort(known[some]).astype(np.float64)
        edges = np.unique(np.quantile(sample, np.arange(1, BINS) / BINS, method="inverted_cdf"))
        ends = np.searchsorted(sample, edges, side="right")
        counts = np.diff(ends, prepend=0, append=len(sample))
        return cls(
            float(known.min()),
            2 * float(np.quantile(sample / 2, 0.5)),  # halves: differences of the largest numbers may overflow
            float(known.max()),
            tuple(map(float, edges)),
            tuple(map(float, counts / len(sample))),
            1 - len(known) / len(values),
        )

    @property
    def shares(self) -> np.ndarray:
        """Shares of the rows in each bin, the gaps last."""
        return np.append(np.array(self.filled) * (1 - self.gaps), self.gaps)

    def tally(self, values: np.ndarray) -> np.ndarray:
        """How many values fall into each bin, the gaps last; those of a large block are estimated by some of them."""
        known = _known(values)
        part = np.ascontiguousarray(known[:: max(1, len(known) // TALLIED) | 1])
        counts = np.bincount(np.searchsorted(np.array(self.edges), part), minlength=len(self.edges) + 1)
        return np.append(counts * (len(known) / max(1, len(part))), len(values) - len(known))

    def outside(self, values: np.ndarray) -> int:
        """How many values lie beyond the training range by more than its length."""
        known, reach = _known(values), self.high - self.low
        return int(np.count_nonzero((known < self.low - reach) | (known > self.high + reach)))


def _known(values: np.ndarray) -> np.ndarray:
    """What is neither a gap nor a text."""
    known = np.isfinite(values) if values.dtype.kind == "f" else np.ones(1, bool)
    return values if known.all() else values[known]


# What every fitted column offers -----------------------------------------------------------------------------
RARE = 0.02  # of the rows; what is at least as rare as this begins to stand out
HALF = 2.0  # scale of a 0/1 feature of a category: two different values lie half a squared deviation apart
TEXT = math.inf  # what `read` gives for a text in a column of numbers, in which no infinity is allowed


class CellError(ValueError):
    """A cell that does not fit its column. Whoever cut the rows out of a larger table may add to `row`."""

    def __init__(self, column: str, row: int, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem  # rows count from 1

    def __str__(self) -> str:
        return f"column {self.column!r}, row {self.row:,} {self.problem}"


class Column:
    """One fitted column: how its values become features, and how they lay in training."""

    name: str
    kind: ClassVar[str]  # "number", "boolean", "date" or "category"
    spread: QuantileBins  # of numbers and dates

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """Of each feature its name, what to divide it by, NaN for its deviation in training, and its ordinary value."""
        raise NotImplementedError

    @property
    def features(self) -> list[str]:
        return [name for name, _, _ in self.specs]

    @property
    def table(self) -> np.ndarray | None:
        """Where the values are codes, the features of each code (codes, features)."""
        return None

    @property
    def shares(self) -> np.ndarray:
        """Shares of the training rows in each bin of `tally`; the last bin holds the gaps."""
        return self.spread.shares

    def read(self, column: pa.Array) -> np.ndarray:
        """The values in NumPy (n,): numbers, TEXT for a text among them, days since 1970 or codes of levels."""
        raise NotImplementedError

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the features of values (n,) into out (n, features)."""
        raise NotImplementedError

    def tally(self, values: np.ndarray) -> np.ndarray:
        """How many of the values fall into each bin, the gaps last."""
        return self.spread.tally(values)

    def strange(self, values: np.ndarray) -> int:
        """How many values lie far outside the training range, or were not seen in training."""
        return self.spread.outside(values)


def rarity(share: np.ndarray | float) -> np.ndarray:
    """How far a value stands out that is as rare as `share`, in deviations: 0 from RARE on, then with the logarithm.

    A share is that of all values at least as rare, a tail as of a p-value: where most values are rare, none stands out.
    """
    return np.log(RARE / np.clip(share, 1e-300, RARE))


def flag_distance(share: np.ndarray | float) -> np.ndarray:
    """How far a missing value lies from a known one, in deviations, where this share of the rows has none.

    As far as false from true, and farther where it is rare.
    """
    return np.asarray(np.maximum(math.sqrt(2) / HALF, rarity(share)))


# Numbers ------------------------------------------------------------------------------------------------------
BEYOND = 10.0  # lengths of the training range: how far outside a text lies where training had none
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers, taken as they are.

    A text among them is a missing value and sets a flag, on the scale of the flag of a gap. Where training had no text
    there is no such flag: then it counts as a number far outside the training range.
    """

    name: str
    spread: QuantileBins
    written: NumberFormat | None = None  # where training had them as text
    texts: float = 0.0  # share of the training rows with another text
    below: bool = False  # whether a text counts as a low number

    kind = "number"

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The number; a flag of texts, on the scale of that of a gap in a column that has no others."""
        number = (self.name, math.nan, self.spread.middle)
        return [number, (f"{self.name} (text)", 1 / float(flag_distance(self.texts)), 0.0)] if self.texts else [number]

    @property
    def outside(self) -> float:
        """The number that a text counts as where training had none."""
        low, high = self.spread.low, self.spread.high
        away = BEYOND * ((high - low) or 1.0)
        return max(-LARGEST, low - away) if self.below else min(high + away, LARGEST)

    def read(self, column: pa.Array) -> np.ndarray:
        return read_numbers(column, self.name, self.written)

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        texts = np.isinf(values)
        out[:, 0] = values
        if texts.any():
            out[texts, 0] = np.nan if self.texts else self.outside
        if self.texts:
            out[:, 1] = texts


def read_numbers(column: pa.Array, name: str, written: NumberFormat | None) -> np.ndarray:
    """Numbers of whatever type, NaN for missing values, TEXT for other texts."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        return _read_once(column, partial(read_numbers, name=name, written=written))
    if is_text(column.type):
        values, wrong = arrow.parse_numbers(column, written or PLAIN_NUMBERS)
        refuse_infinity(values, name)
        values[wrong] = TEXT
        return values
    if arrow.is_numeric(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        refuse_infinity(values := arrow.as_numbers(column), name)
        return values
    raise ValueError(f"column {name!r} is now of type {column.type}; give numbers, as in training")


def _read_once(column: pa.DictionaryArray, read: Callable[[pa.Array], np.ndarray]) -> np.ndarray:
    """Read a dictionary's entries once for all rows; row by row where one is wrong, so that an error has its row."""
    try:
        return arrow.taken(column, read(column.dictionary).astype(np.float64), np.nan)
    except ValueError:
        return read(column.dictionary_decode())


def refuse_infinity(values: np.ndarray, name: str) -> None:
    """An infinity is no number to learn from."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total) and (row := first_of(np.isinf(values))) is not None:
        raise CellError(name, row + 1, f"is {values[row]}; leave it empty or give a finite number")


# Dates and times: when, at what hour, on which day of the week, in which season ------------------------------
YEAR = 365.2425
SEASONS_FROM = 60  # days between first and last, under which the season is only the date again
TIME, WEEKEND = "time", "weekend"
CYCLES = {"hour": 1440, "weekday": 7, "season": 366}  # steps of a minute or a day: fine enough for tables of waves
UNIFORM = math.sqrt(0.5)  # the deviation of a wave over a cycle whose steps are equally common
WAVES = {"sin": np.sin, "cos": np.cos}
PARTS = (TIME, *(f"{cycle} {wave}" for cycle in CYCLES for wave in WAVES), WEEKEND)


@dataclass(frozen=True)
class DateColumn(Column):
    """A column of dates, or of times of the day alone (`clock`)."""

    name: str
    parts: tuple[str, ...]  # of PARTS: the first, and those that differed between training rows
    means: tuple[float, ...]  # of the parts in training, which gaps take in all but the first
    spread: QuantileBins  # in days since 1970
    zone: str | None = None  # whose clock dates with a zone are read on; None where training had none
    form: str | None = None  # of FORMS, where training had text
    slips: bool = False  # whether training held text that is no date; else such text is an error

    kind = "date"

    @classmethod
    def fit(cls, name: str, days: np.ndarray, clock: bool, **reading: Any) -> DateColumn:
        """From days since 1970, NaN for missing values, of at least two different moments."""
        spread = QuantileBins.fit(days)
        known = days[~np.isnan(days)]
        seasons = spread.high - spread.low > SEASONS_FROM
        parts = [part for part in PARTS if seasons or not part.startswith("season")]
        parts = [part for part in PARTS if part.startswith("hour")] if clock else parts
        values = np.empty((len(known), len(parts)), order="F")
        write_parts(parts, known, spread.middle, values)
        varied = np.ptp(values, axis=0) > 1e-9
        varied[0] = True
        means = tuple(map(float, values.mean(axis=0)[varied]))
        return cls(name, tuple(part for part, one in zip(parts, varied, strict=True) if one), means, spread, **reading)

    clock = property(lambda self: TIME not in self.parts)  # whether these are times of the day alone

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The column itself, then its parts."""
        # Scales are deviations in training, but for the weekday, which is derived and must not outweigh what was
        # measured: by its deviation a day that 2 % of the rows have would lie seven deviations out. Its waves are
        # scaled as if all days were equally common, and the weekend lies as far from other days as a missing value
        # from a known one.
        weekends = dict(zip(self.parts, self.means, strict=True)).get(WEEKEND, 0.5)
        own = {"weekday sin": UNIFORM, "weekday cos": UNIFORM}
        own[WEEKEND] = 1 / float(flag_distance(min(weekends, 1 - weekends)))
        return [
            (self.name if part == TIME else f"{self.name}.{part}", own.get(part, math.nan), mean)
            for part, mean in zip(self.parts, self.means, strict=True)
        ]

    def read(self, column: pa.Array) -> np.ndarray:
        """Days since 1970, NaN for missing values; a time of the day is part of a day."""
        days = self._days(plain(column))
        return days - np.floor(days) if self.clock else days

    def _days(self, column: pa.Array) -> np.ndarray:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return _read_once(column, self._days)
        if is_text(kind):
            return self._from_text(column)
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if not arrow.is_date(kind) or (pa.types.is_time(kind) and not self.clock):
            raise ValueError(f"column {self.name!r} is now of type {kind}; give dates, as in training")
        return arrow.as_days(column, self.zone)

    def _from_text(self, column: pa.Array) -> np.ndarray:
        days = arrow.parse_dates(column, self.form or ("clock" if self.clock else "iso"), self.zone)
        if self.slips or not (missing := np.isnan(days)).any():
            return days
        wrong = missing & ~np.asarray(pc.equal(pc.utf8_trim_whitespace(column), "").fill_null(True))
        if (row := first_of(wrong)) is not None:
            value, form = shortened(repr(column[row].as_py())), self.form or "ISO 8601"
            problem = f"is {value}, but all its values were dates in training ({form})"
            raise CellError(self.name, row + 1, f"{problem}; correct it or leave it empty")
        return days

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """The parts; a gap is one in the first and the mean in the others, so that it is flagged once."""
        gaps = np.isnan(values)
        known = np.where(gaps, self.spread.middle, values) if gaps.any() else values
        write_parts(self.parts, known, self.spread.middle, out)
        if known is not values:
            out[gaps, 0] = np.nan
            out[gaps, 1:] = self.means[1:]

    def shown(self, days: float) -> str:
        """The moment as ISO 8601 text, to the minute or to the day as in training."""
        try:
            moment = EPOCH + timedelta(minutes=round(days * 1440))
        except OverflowError:  # beyond the year 9999
            return f"{days:,.0f} days after 1970"
        if self.clock:
            return f"{moment:%H:%M}"
        return moment.isoformat(" ", "minutes") if "hour sin" in self.parts else moment.date().isoformat()


@lru_cache
def _table(part: str) -> tuple[str, np.ndarray]:
    """The cycle of a part, and the part at each step of the cycle."""
    if part == WEEKEND:
        return "weekday", np.array([0.0] * 5 + [1.0] * 2)
    cycle, wave = part.split()
    return cycle, WAVES[wave](np.arange(CYCLES[cycle]) * (2 * math.pi / CYCLES[cycle]))


def _steps(cycle: str, days: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Where in a cycle the moments are; 1970 began on a Thursday."""
    if cycle == "hour":
        return np.asarray((days - whole) * CYCLES[cycle] + 1e-6).astype(np.int32)  # 10:00 is not 9:59 by rounding
    if cycle == "weekday":
        return np.asarray((whole.astype(np.int64) + 3) % 7)
    years = whole / YEAR
    return ((years - np.floor(years)) * CYCLES[cycle]).astype(np.int32)


def write_parts(parts: Sequence[str], days: np.ndarray, middle: float, out: np.ndarray) -> None:
    """Write parts of moments, none a gap, into out (n, parts)."""
    whole, steps = np.floor(days), dict[str, np.ndarray]()
    for position, part in enumerate(parts):
        if part == TIME:
            np.subtract(days, middle, out=out[:, position])
            continue
        cycle, table = _table(part)
        if cycle not in steps:
            steps[cycle] = _steps(cycle, days, whole)
        out[:, position] = table.take(steps[cycle], mode="clip")
