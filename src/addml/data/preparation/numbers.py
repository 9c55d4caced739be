"""Numbers and truth values as features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.preparation import plain_values
from addml.data.preparation.arrow_values import as_numbers, as_text, first_of, is_numeric, is_text, plain, taken
from addml.data.preparation.number_text import NotANumberError, WrittenNumber, parse_numbers
from addml.data.preparation.prepared import HALF, CellError, rarity
from addml.data.preparation.spread import Spread

FALSE_WORDS, TRUE_WORDS = ("false", "0", "no", "n", "f", "nein"), ("true", "1", "yes", "y", "t", "ja", "j")
TRUTHS = dict.fromkeys(FALSE_WORDS, 0) | dict.fromkeys(TRUE_WORDS, 1)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, taken as they are."""

    name: str
    spread: Spread
    written: WrittenNumber | None = None  # where training had them as text

    kind = "number"
    table = None

    @property
    def features(self) -> list[str]:
        """The column itself."""
        return [self.name]

    @property
    def scales(self) -> list[float]:
        """The deviation in training."""
        return [math.nan]

    @property
    def usual(self) -> list[float]:
        """The median."""
        return [self.spread.middle]

    @property
    def shares(self) -> np.ndarray:
        """Of the training rows in each bin."""
        return self.spread.shares

    def read(self, column: pa.Array) -> np.ndarray:
        """The numbers, NaN for gaps; text that is no number and infinity are errors."""
        values = read_numbers(column, self.name, self.written)
        refuse_infinity(values, self.name)
        return values

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """The numbers as they are."""
        out[:, 0] = values

    def tally(self, values: np.ndarray) -> np.ndarray:
        """Counts in the bins of training."""
        return self.spread.tally(values)

    def strange(self, values: np.ndarray) -> int:
        """How many lie far outside the training range."""
        return self.spread.outside(values)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        written = None if self.written is None else self.written.to_plain()
        return {"name": self.name, "kind": self.kind, "spread": self.spread.to_plain(), "written": written}

    @classmethod
    def from_plain(cls, document: plain_values.Document) -> NumberColumn:
        """Back from `to_plain`, checked."""
        written = document.get("written")
        style = None if written is None else WrittenNumber.from_plain(plain_values.mapping(written, "'written'"))
        spread = plain_values.mapping(document.get("spread"), "'spread'")
        return cls(plain_values.text(document, "name"), Spread.from_plain(spread), style)


@dataclass(frozen=True)
class BooleanColumn:
    """A column of truth values: 0 or 1, and how rare the value is where one of them is.

    Both stay unstandardised: a deviation would put a flag that one row in a thousand has 30 deviations out.
    """

    name: str
    falses: int
    trues: int
    gaps: int

    kind = "boolean"
    table = None

    @property
    def features(self) -> list[str]:
        """The column itself and its rarity."""
        return [self.name, f"{self.name} (rarity)"][: self._width]

    @property
    def scales(self) -> list[float]:
        """So that true and false lie as far apart as two values of a category."""
        return [HALF / math.sqrt(2), 1.0][: self._width]

    @property
    def usual(self) -> list[float]:
        """The commoner value."""
        return [float(self.trues > self.falses), 0.0][: self._width]

    @property
    def shares(self) -> np.ndarray:
        """Of the training rows: false, true, gaps."""
        counts = np.array([self.falses, self.trues, self.gaps])
        return np.asarray(counts / counts.sum())

    @cached_property
    def _width(self) -> int:
        return 2 if self._rarities.any() else 1

    @cached_property
    def _rarities(self) -> np.ndarray:
        """Of false and of true."""
        counts = np.array([self.falses, self.trues])
        tails = np.where(counts <= counts[::-1], counts, counts.sum())
        return rarity(np.maximum(tails, 1) / (counts.sum() + (counts.min() == 0)))

    def read(self, column: pa.Array) -> np.ndarray:
        """0, 1 or NaN, from truth values, numbers or words."""
        column = plain(column)
        if is_text(column.type) or pa.types.is_dictionary(column.type):
            values = _truths(column)
        else:
            values = read_numbers(column, self.name, None)
        strange = ~((values == 0) | (values == 1) | (values != values))
        if (row := first_of(strange)) is not None:
            raise _wrong(self.name, row, column[row].as_py(), "true or false")
        return values

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        """The value and its rarity."""
        out[:, 0] = values
        if self._width == 2:
            of_false, of_true = self._rarities
            out[:, 1] = np.where(values == 1, of_true, np.where(values == 0, of_false, 0.0))

    def tally(self, values: np.ndarray) -> np.ndarray:
        """Counts of false, true and gaps."""
        trues, falses = np.count_nonzero(values == 1), np.count_nonzero(values == 0)
        return np.array([falses, trues, len(values) - falses - trues], np.float64)

    def strange(self, values: np.ndarray) -> int:
        """How many are a value that training never had."""
        falses, trues, _ = self.tally(values)
        return int(falses * (self.falses == 0) + trues * (self.trues == 0))

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        counts = {"falses": self.falses, "trues": self.trues, "gaps": self.gaps}
        return {"name": self.name, "kind": self.kind, **counts}

    @classmethod
    def from_plain(cls, document: plain_values.Document) -> BooleanColumn:
        """Back from `to_plain`, checked."""
        falses, trues, gaps = (plain_values.count(document, key) for key in ("falses", "trues", "gaps"))
        plain_values.fits(document, falses + trues > 0, "it has no values")
        return cls(plain_values.text(document, "name"), falses, trues, gaps)


def _truths(column: pa.Array) -> np.ndarray:
    """Words as 0 or 1, gaps and blanks as NaN, other words as 2."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(as_text(column)))
    found = np.asarray(pc.index_in(words, pa.array(list(TRUTHS), words.type)).fill_null(len(TRUTHS)))
    values: np.ndarray = np.array([*TRUTHS.values(), 2.0])[found]
    values[np.asarray(pc.equal(words, "").fill_null(True))] = np.nan
    return values


def read_numbers(column: pa.Array, name: str, written: WrittenNumber | None) -> np.ndarray:
    """Numbers of whatever type; a dictionary's entries are read once."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        try:
            return taken(column, read_numbers(column.dictionary, name, written).astype(np.float64), np.nan)
        except ValueError:  # again row by row, for the row that the message names
            return read_numbers(column.dictionary_decode(), name, written)
    if is_text(column.type):
        try:
            return parse_numbers(column, written or WrittenNumber())
        except NotANumberError as error:
            raise _wrong(name, error.row, error.value, "numbers") from None
    if is_numeric(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return as_numbers(column)
    raise ValueError(f"column {name!r} is now of type {column.type}; give numbers, as in training")


def refuse_infinity(values: np.ndarray, name: str) -> None:
    """An infinity is no number to learn from."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total) and (row := first_of(np.isinf(values))) is not None:
        raise CellError(name, row + 1, f"is {values[row]}; make it a gap or a finite number")


def _wrong(name: str, row: int, value: Any, expected: str) -> CellError:
    problem = f"is {plain_values.shown(value)}, but the column's values were {expected} in training"
    return CellError(name, row + 1, f"{problem}; correct it or make it a gap")
