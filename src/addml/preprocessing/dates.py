"""Dates and times as features: when, at what hour, on which day of the week, in which season."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_days, first_of, is_date, is_text, plain, taken
from addml.preprocessing.numbers import CellError, Column, QuantileBins, flag_distance
from addml.text import shortened
from addml.text_formats import parse_dates

YEAR = 365.2425
SEASONS_FROM = 60  # days between first and last, under which the season is only the date again
EPOCH = datetime.datetime(1970, 1, 1)
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

    @property
    def clock(self) -> bool:
        """Whether these are times of the day alone."""
        return TIME not in self.parts

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
            try:
                return taken(column, self._days(plain(column.dictionary)), np.nan)
            except ValueError:  # again row by row, for the row that the message names
                return self._days(plain(column.dictionary_decode()))
        if is_text(kind):
            return self._from_text(column)
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if not is_date(kind) or (pa.types.is_time(kind) and not self.clock):
            raise ValueError(f"column {self.name!r} is now of type {kind}; give dates, as in training")
        return as_days(column, self.zone)

    def _from_text(self, column: pa.Array) -> np.ndarray:
        days = parse_dates(column, self.form or ("clock" if self.clock else "iso"), self.zone)
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
            moment = EPOCH + datetime.timedelta(minutes=round(days * 1440))
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
