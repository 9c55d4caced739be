"""Number and date columns, and the interface of every fitted column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from addml import arrow
from addml.arrow import NumberFormat
from addml.preprocessing.profile import EPOCH
from addml.text import shortened

BINS = 20
SAMPLE = 200_000  # rows used for quantiles
TALLIED = 4_096  # rows of a block that are binned; their counts are scaled up to the block


@dataclass(frozen=True)
class QuantileBins:
    """The distribution of a column in training: its range, and bins of roughly equal share."""

    low: float
    middle: float
    high: float
    edges: tuple[float, ...]  # upper ends of all bins but the last, ascending
    filled: tuple[float, ...]  # share of the numbers in each bin
    gaps: float  # share of the rows

    @classmethod
    def fit(cls, values: np.ndarray) -> QuantileBins:
        """From the training values, NaN for missing values; at least one is a number."""
        finite = _finite(values)
        rows = slice(None) if len(finite) <= SAMPLE else np.random.default_rng(0).integers(0, len(finite), SAMPLE)
        sample = np.sort(finite[rows]).astype(np.float64)
        edges = np.unique(np.quantile(sample, np.arange(1, BINS) / BINS, method="inverted_cdf"))
        ends = np.searchsorted(sample, edges, side="right")
        shares = np.diff(ends, prepend=0, append=len(sample)) / len(sample)
        middle = 2 * float(np.quantile(sample / 2, 0.5))  # / 2 avoids overflow in differences of the largest numbers
        gaps = 1 - len(finite) / len(values)
        return cls(
            float(finite.min()), middle, float(finite.max()), tuple(edges.tolist()), tuple(shares.tolist()), gaps
        )

    @property
    def shares(self) -> np.ndarray:
        return np.append(np.array(self.filled) * (1 - self.gaps), self.gaps)

    def tally(self, values: np.ndarray) -> np.ndarray:
        """The number of values in each bin, the gaps last; estimated from some rows of a large block."""
        finite = _finite(values)
        sample = np.ascontiguousarray(finite[:: max(1, len(finite) // TALLIED) | 1])
        counts = np.bincount(np.searchsorted(np.array(self.edges), sample), minlength=len(self.edges) + 1)
        return np.append(counts * (len(finite) / max(1, len(sample))), len(values) - len(finite))

    def outside(self, values: np.ndarray) -> int:
        """The number of values that lie outside the training range by more than its length."""
        finite, length = _finite(values), self.high - self.low
        return int(np.count_nonzero((finite < self.low - length) | (finite > self.high + length)))


def _finite(values: np.ndarray) -> np.ndarray:
    is_finite = np.isfinite(values)
    return values if is_finite.all() else values[is_finite]


RARE = 0.02  # share of the rows below which a value begins to stand out
HALF = 2.0  # scale of a 0/1 feature of a category: two different values lie half a squared deviation apart
TEXT = math.inf  # stands for a text in a number column, where infinity is refused


class CellError(ValueError):
    """A cell that does not fit its column; callers that passed a slice of a table add its start to `row`."""

    def __init__(self, column: str, row: int, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem  # rows count from 1

    def __str__(self) -> str:
        return f"column {self.column!r}, row {self.row:,} {self.problem}"


class Column:
    """A fitted column: turns values into features and knows their distribution in training."""

    name: str
    kind: ClassVar[str]  # "number", "boolean", "date" or "category"
    spread: QuantileBins  # of numbers and dates

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The name, scale and typical value of each feature; a scale of NaN stands for its deviation in training."""
        raise NotImplementedError

    @property
    def features(self) -> list[str]:
        return [name for name, _, _ in self.specs]

    @property
    def table(self) -> np.ndarray | None:
        """The features of each code (codes, features), if the values are codes."""
        return None

    @property
    def shares(self) -> np.ndarray:
        """Shares of the training rows in each bin of `tally`; the last bin holds the gaps."""
        return self.spread.shares

    def read(self, column: pa.Array) -> np.ndarray:
        """The values in NumPy (n,): numbers, TEXT for a text among them, days since 1970 or codes of levels."""
        raise NotImplementedError

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the features of the values (n,) into out (n, features)."""
        raise NotImplementedError

    def tally(self, values: np.ndarray) -> np.ndarray:
        """The number of values in each bin, the gaps last."""
        return self.spread.tally(values)

    def novel(self, values: np.ndarray) -> int:
        """The number of values far outside the training range, or unseen in training."""
        return self.spread.outside(values)


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one chunk, which is faster to read than many small ones."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.unify_dictionaries().combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def rarity(share: np.ndarray | float) -> np.ndarray:
    """How far a rare value stands out, in deviations: 0 from RARE on, growing with the logarithm below it.

    `share` is that of all values at least as rare, as in a p-value: if most values are rare, none stands out.
    """
    return np.log(RARE / np.clip(share, 1e-300, RARE))


def flag_distance(share: np.ndarray | float) -> np.ndarray:
    """Deviations between a missing value and others: as between false and true, more if the share of gaps is small."""
    return np.asarray(np.maximum(math.sqrt(2) / HALF, rarity(share)))


BEYOND = 10.0  # lengths of the training range between it and a text, if training had no text
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers.

    A text among them counts as a missing value and sets a flag, which is scaled like the flag of a gap. If training had
    no text, there is no such flag, and a text counts as a number far outside the training range.
    """

    name: str
    spread: QuantileBins
    written: NumberFormat | None = None  # the format, if training had them as text
    texts: float = 0.0  # share of the training rows with a text that is not a number
    below: bool = False  # whether a text counts as a low number

    kind = "number"

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The number, and a flag for texts if training had any."""
        number = (self.name, math.nan, self.spread.middle)
        return [number, (f"{self.name} (text)", 1 / float(flag_distance(self.texts)), 0.0)] if self.texts else [number]

    @property
    def outside(self) -> float:
        """The number that stands for a text if training had none."""
        low, high = self.spread.low, self.spread.high
        distance = BEYOND * ((high - low) or 1.0)
        return max(-LARGEST, low - distance) if self.below else min(high + distance, LARGEST)

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
    """Numbers from a column of any type, NaN for missing values, TEXT for other texts."""
    column = arrow.plain(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _read_dictionary(column, partial(read_numbers, name=name, written=written))
    if arrow.is_text(kind):
        values, wrong = arrow.parse_numbers(column, written or arrow.PLAIN_NUMBERS)
        refuse_infinity(values, name)
        values[wrong] = TEXT
        return values
    if arrow.is_numeric(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        values = arrow.as_numbers(column)
        refuse_infinity(values, name)
        return values
    raise ValueError(f"column {name!r} is now of type {kind}; give numbers, as in training")


def _read_dictionary(column: pa.DictionaryArray, read: Callable[[pa.Array], np.ndarray]) -> np.ndarray:
    """Read each entry once for all rows; if one is wrong, read all rows, so that the error names the row."""
    try:
        return arrow.look_up(column, read(column.dictionary).astype(np.float64), np.nan)
    except ValueError:
        return read(column.dictionary_decode())


def refuse_infinity(values: np.ndarray, name: str) -> None:
    if (row := arrow.first_true(np.isinf(values))) is not None:
        raise CellError(name, row + 1, f"is {values[row]}; leave it empty or give a finite number")


YEAR = 365.2425
SEASONS_FROM = 60  # days between first and last; over a shorter range the season only repeats the date
TIME, WEEKEND = "time", "weekend"
CYCLES = {"hour": 1440, "weekday": 7, "season": 366}  # steps: minutes or days
UNIFORM = math.sqrt(0.5)  # the deviation of a sine over a cycle whose steps are equally common
TABLES = {  # part -> its value at each step of its cycle
    f"{cycle} {name}": wave(np.arange(steps) * (2 * math.pi / steps))
    for cycle, steps in CYCLES.items()
    for name, wave in (("sin", np.sin), ("cos", np.cos))
} | {WEEKEND: np.array([0.0] * 5 + [1.0] * 2)}
PARTS = (TIME, *TABLES)


@dataclass(frozen=True)
class DateColumn(Column):
    """A column of dates, or of times of the day (`clock`)."""

    name: str
    parts: tuple[str, ...]  # of PARTS: the first, and the others that vary in training
    means: tuple[float, ...]  # of the parts in training; gaps take them in all parts but the first
    spread: QuantileBins  # in days since 1970
    zone: str | None = None  # time zone in which dates with a zone are read; None if training had none
    form: str | None = None  # of arrow.FORMS, if training had text
    slips: bool = False  # whether training had texts that are not dates; if not, they are an error

    kind = "date"

    @classmethod
    def fit(cls, name: str, days: np.ndarray, clock: bool, **reading: Any) -> DateColumn:
        """From days since 1970, NaN for missing values, with at least two different moments."""
        spread = QuantileBins.fit(days)
        present = days[~np.isnan(days)]
        if clock:
            parts = [part for part in PARTS if part.startswith("hour")]
        else:
            has_seasons = spread.high - spread.low > SEASONS_FROM
            parts = [part for part in PARTS if has_seasons or not part.startswith("season")]
        values = np.empty((len(present), len(parts)), order="F")
        write_parts(parts, present, spread.middle, values)
        varies = np.ptp(values, axis=0) > 1e-9
        varies[0] = True
        return cls(name, tuple(compress(parts, varies)), tuple(values.mean(axis=0)[varies].tolist()), spread, **reading)

    clock = property(lambda self: TIME not in self.parts)

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The date, then its other parts.

        Scales are deviations in training, except for weekdays, which must not outweigh the measurements: by its
        deviation, a day with 2 % of the rows would lie seven deviations out. Their waves are scaled as if all days were
        equally common, and a weekend lies as far from other days as a missing value from any other.
        """
        means = dict(zip(self.parts, self.means, strict=True))
        weekends = means.get(WEEKEND, 0.5)
        weekend_scale = 1 / float(flag_distance(min(weekends, 1 - weekends)))
        scales = {"weekday sin": UNIFORM, "weekday cos": UNIFORM, WEEKEND: weekend_scale}
        names = {part: self.name if part == TIME else f"{self.name}.{part}" for part in self.parts}
        return [(names[part], scales.get(part, math.nan), mean) for part, mean in means.items()]

    def read(self, column: pa.Array) -> np.ndarray:
        """Days since 1970, NaN for missing values; a time of the day is part of a day."""
        days = self._days(arrow.plain(column))
        return days - np.floor(days) if self.clock else days

    def _days(self, column: pa.Array) -> np.ndarray:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return _read_dictionary(column, self._days)
        if arrow.is_text(kind):
            return self._from_text(column)
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if not arrow.is_date(kind) or (pa.types.is_time(kind) and not self.clock):
            raise ValueError(f"column {self.name!r} is now of type {kind}; give dates, as in training")
        return arrow.as_days(column, self.zone)

    def _from_text(self, column: pa.Array) -> np.ndarray:
        days = arrow.parse_dates(column, self.form or ("clock" if self.clock else "iso"), self.zone)
        missing = np.isnan(days)
        if self.slips or not missing.any():
            return days
        if (row := arrow.first_true(missing & ~arrow.are_blank(column))) is not None:
            value, form = shortened(repr(column[row].as_py())), self.form or "ISO 8601"
            problem = f"is {value}, but all its values were dates in training ({form})"
            raise CellError(self.name, row + 1, f"{problem}; correct it or leave it empty")
        return days

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the parts; a gap is NaN in the first part and the mean in the others, so that it is flagged once."""
        gaps = np.isnan(values)
        write_parts(self.parts, np.where(gaps, self.spread.middle, values), self.spread.middle, out)
        if gaps.any():
            out[gaps, 0] = np.nan
            out[gaps, 1:] = self.means[1:]

    def format(self, days: float) -> str:
        """The moment as ISO 8601 text, to the minute or the day as in training."""
        try:
            moment = EPOCH + timedelta(minutes=round(days * 1440))
        except OverflowError:  # after the year 9999
            return f"{days:,.0f} days after 1970"
        if self.clock:
            return f"{moment:%H:%M}"
        return moment.isoformat(" ", "minutes") if "hour sin" in self.parts else moment.date().isoformat()


def write_parts(parts: Sequence[str], days: np.ndarray, middle: float, out: np.ndarray) -> None:
    """Write the parts of days without gaps into out (n, parts)."""
    midnights = np.floor(days)
    years = midnights / YEAR
    steps = {
        "hour": ((days - midnights) * CYCLES["hour"] + 1e-6).astype(np.int32),  # so that 10:00 is not 9:59
        "weekday": (midnights.astype(np.int64) + 3) % 7,  # 1970 began on a Thursday
        "season": ((years - np.floor(years)) * CYCLES["season"]).astype(np.int32),
    }
    for position, part in enumerate(parts):
        if part == TIME:
            np.subtract(days, middle, out=out[:, position])
        else:
            cycle = "weekday" if part == WEEKEND else part.split()[0]
            out[:, position] = TABLES[part].take(steps[cycle], mode="clip")
