"""Columns of numbers and of truth values, and what every fitted column offers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_numbers, as_text, first_of, is_numeric, is_text, plain, taken
from addml.text import shortened
from addml.text_formats import PLAIN_NUMBERS, NumberFormat, parse_numbers

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
        if not len(known) or (known.min() >= self.low - reach and known.max() <= self.high + reach):  # as nearly always
            return 0
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


# Numbers and truth values --------------------------------------------------------------------------------------


FALSE_WORDS, TRUE_WORDS = ("false", "0", "no", "n", "f", "nein"), ("true", "1", "yes", "y", "t", "ja", "j")
TRUTHS = dict.fromkeys(FALSE_WORDS, 0) | dict.fromkeys(TRUE_WORDS, 1)
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


@dataclass(frozen=True)
class BooleanColumn(Column):
    """A column of truth values: 0 or 1, and how rare the value is where one of them is.

    Both stay unstandardised: a deviation would put a flag that one row in a thousand has 30 deviations out.
    """

    name: str
    falses: int
    trues: int
    gaps: int

    kind = "boolean"

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The value, true and false as far apart as two values of a category, and its rarity where there is any."""
        value = (self.name, HALF / math.sqrt(2), float(self.trues > self.falses))
        return [value, (f"{self.name} (rarity)", 1.0, 0.0)] if self._rarities.any() else [value]

    @property
    def shares(self) -> np.ndarray:
        counts = np.array([self.falses, self.trues, self.gaps])
        return np.asarray(counts / counts.sum())

    @cached_property
    def _rarities(self) -> np.ndarray:
        """Of false and of true."""
        counts = np.array([self.falses, self.trues])
        tails = np.where(counts <= counts[::-1], counts, counts.sum())
        return rarity(np.maximum(tails, 1) / (counts.sum() + (counts.min() == 0)))

    def read(self, column: pa.Array) -> np.ndarray:
        """0, 1 or NaN, from truth values, numbers or words."""
        column = plain(column)
        is_words = is_text(column.type) or pa.types.is_dictionary(column.type)
        values = _truths(column) if is_words else read_numbers(column, self.name, None)
        strange = ~((values == 0) | (values == 1) | (values != values))
        if (row := first_of(strange)) is not None:
            problem = f"is {shortened(repr(column[row].as_py()))}, but its values were true or false in training"
            raise CellError(self.name, row + 1, f"{problem}; correct it or leave it empty")
        return values

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        out[:, 0] = values
        if self._rarities.any():
            of_false, of_true = self._rarities
            out[:, 1] = np.where(values == 1, of_true, np.where(values == 0, of_false, 0.0))

    def tally(self, values: np.ndarray) -> np.ndarray:
        trues, falses = np.count_nonzero(values == 1), np.count_nonzero(values == 0)
        return np.array([falses, trues, len(values) - falses - trues], np.float64)

    def strange(self, values: np.ndarray) -> int:
        falses, trues, _ = self.tally(values)
        return int(falses * (self.falses == 0) + trues * (self.trues == 0))


def _truths(column: pa.Array) -> np.ndarray:
    """Words as 0 or 1, gaps and blanks as NaN, other words as 2."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(as_text(column)))
    found = np.asarray(pc.index_in(words, pa.array(list(TRUTHS), words.type)).fill_null(len(TRUTHS)))
    values: np.ndarray = np.array([*TRUTHS.values(), 2.0])[found]
    values[np.asarray(pc.equal(words, "").fill_null(True))] = np.nan
    return values


def read_numbers(column: pa.Array, name: str, written: NumberFormat | None) -> np.ndarray:
    """Numbers of whatever type, NaN for missing values, TEXT for other texts; a dictionary's entries are read once."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        try:
            return taken(column, read_numbers(column.dictionary, name, written).astype(np.float64), np.nan)
        except ValueError:  # again row by row, for the row that the message names
            return read_numbers(column.dictionary_decode(), name, written)
    if is_text(column.type):
        values, wrong = parse_numbers(column, written or PLAIN_NUMBERS)
        refuse_infinity(values, name)
        values[wrong] = TEXT
        return values
    if is_numeric(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        refuse_infinity(values := as_numbers(column), name)
        return values
    raise ValueError(f"column {name!r} is now of type {column.type}; give numbers, as in training")


def refuse_infinity(values: np.ndarray, name: str) -> None:
    """An infinity is no number to learn from."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total) and (row := first_of(np.isinf(values))) is not None:
        raise CellError(name, row + 1, f"is {values[row]}; leave it empty or give a finite number")
