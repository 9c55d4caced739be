"""Categories and booleans as features.

One-hot columns standardised like numbers would hide strange numbers: a value in 2 % of the rows lies 7 deviations out.
So these features have fixed scales: two different values lie half a squared deviation apart, however frequent they are,
and a separate feature tells how rare the value is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import are_blank, as_text, first_true, is_text, look_up, plain
from addml.preprocessing.numbers import HALF, RARE, CellError, Column, rarity, read_numbers
from addml.text import shortened

FEW = 20  # levels with a one-hot column each
FREQUENT = 0.001  # share of the rows, and at least two rows; rarer levels share one column
MOST_LEVELS = 10_000  # remembered; rarer levels count as unseen
HASHED = 8  # hash columns if there are too many levels for one-hot columns
UNSEEN_AT_LEAST = 3.0  # deviations by which an unseen level stands out at least, unless new levels are common
GAP = "(gap)"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A column of categories; codes are the positions of levels, followed by one for gaps and one for unseen levels."""

    name: str
    levels: tuple[str, ...]  # the commonest first
    counts: tuple[int, ...]
    gaps: int
    rows: int  # of training; more than gaps and counts if some levels are not remembered

    kind = "category"

    @classmethod
    def fit(cls, name: str, values: Sequence[str], counts: np.ndarray, gaps: int) -> CategoryColumn:
        """From the distinct values, neither null nor blank, and the number of rows with each."""
        order = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
        levels = tuple(values[index] for index in order.tolist())
        return cls(name, levels, tuple(counts[order].tolist()), gaps, int(counts.sum()) + gaps)

    gap = property(lambda self: len(self.levels))
    unseen = property(lambda self: len(self.levels) + 1)

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """One for each frequent level and one for the others, or hash columns for many levels; then the rarity."""
        if self._one_hot is None:
            names, scale = [f"{self.name} (hash {position})" for position in range(HASHED)], HALF * math.sqrt(HASHED)
        else:
            levels = [*self.levels, GAP]
            names, scale = [f"{self.name}={levels[code]}" for code in self._one_hot] + [f"{self.name} (other)"], HALF
        typical = self.table[int(np.argmax(self._code_counts[: self.unseen]))].tolist()  # the commonest level
        return list(zip([*names, f"{self.name} (rarity)"], [scale] * len(names) + [1.0], typical, strict=True))

    @cached_property
    def _code_counts(self) -> np.ndarray:
        """Training rows of each code; levels that are not remembered count as unseen."""
        return np.array([*self.counts, self.gaps, self.rows - sum(self.counts) - self.gaps])

    @cached_property
    def _one_hot(self) -> list[int] | None:
        """The codes with a column each, or None if they are too many or cover less than half of the rows."""
        counts = self._code_counts[: self.unseen]
        frequent = np.flatnonzero(counts >= max(2, FREQUENT * self.rows))
        suffices = 0 < len(frequent) <= FEW and 2 * counts[frequent].sum() >= self.rows
        return list(frequent.tolist()) if suffices or len(self.levels) <= FEW else None

    @cached_property
    def table(self) -> np.ndarray:
        if self._one_hot is None:  # -1 or 1 for each bit of a hash of the level; 0 for unseen ones
            hashes = [hashlib.blake2b(level.encode(), digest_size=1).digest() for level in (*self.levels, GAP)]
            bits = np.unpackbits(np.frombuffer(b"".join(hashes), np.uint8)[:, None], axis=1)
            encoded = np.vstack([bits * 2.0 - 1, np.zeros(HASHED)])
        else:
            encoded = np.zeros((self.unseen + 1, len(self._one_hot) + 1))
            encoded[:, -1] = 1
            encoded[self._one_hot] = np.eye(len(self._one_hot) + 1)[:-1]
        table = np.column_stack([encoded, self._rarities])
        if not self.gaps:
            table[self.gap] = table[self.unseen]
        return table

    @cached_property
    def _rarities(self) -> np.ndarray:
        counts, forgotten = self._code_counts[: self.unseen], self._code_counts[self.unseen]
        ascending = np.sort(counts)
        at_least_as_rare = np.cumsum(ascending)[np.searchsorted(ascending, counts, side="right") - 1]
        tails = (at_least_as_rare + forgotten) / self.rows
        # Good-Turing: the share of rows whose value occurs once estimates how often the next value is a new one.
        once = int(np.count_nonzero(counts[: self.gap] == 1) + forgotten)
        of_unseen = max(UNSEEN_AT_LEAST, float(rarity((once + 1) / (self.rows + 1))))
        return np.append(rarity(tails), 0.0 if once / self.rows > RARE else of_unseen)

    def read(self, column: pa.Array) -> np.ndarray:
        """The codes; values of other types are read as text."""
        column = plain(column)
        if pa.types.is_dictionary(column.type):
            return look_up(column, self.read(column.dictionary), self.gap)
        try:
            text = as_text(column)
        except pa.ArrowException as error:
            raise ValueError(f"column {self.name!r} is now of type {column.type}; give text, as in training") from error
        codes = np.array(pc.index_in(text, pa.array(self.levels, text.type)).fill_null(self.unseen))
        rows = np.flatnonzero(codes == self.unseen)
        codes[rows[are_blank(text.take(pa.array(rows)))]] = self.gap
        return codes

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        out[...] = self.table.take(values, axis=0, mode="clip")

    @property
    def shares(self) -> np.ndarray:
        """Shares of the commonest levels, of all others and of gaps."""
        return self._binned(self._code_counts) / self.rows

    def tally(self, values: np.ndarray) -> np.ndarray:
        return self._binned(np.bincount(values, minlength=self.unseen + 1))

    def _binned(self, counts: np.ndarray) -> np.ndarray:
        others = counts[FEW : self.gap].sum() + counts[self.unseen]
        return np.array([*counts[: min(FEW, self.gap)], others, counts[self.gap]], np.float64)

    def novel(self, values: np.ndarray) -> int:
        return int(np.count_nonzero(values == self.unseen))


FALSE_WORDS, TRUE_WORDS = ("false", "0", "no", "n", "f", "nein"), ("true", "1", "yes", "y", "t", "ja", "j")
TRUTHS = dict.fromkeys(FALSE_WORDS, 0) | dict.fromkeys(TRUE_WORDS, 1)


@dataclass(frozen=True)
class BooleanColumn(Column):
    """A column of booleans: 0 or 1, and how rare the value is if false or true is rare.

    Neither is standardised: by its deviation, a flag set in one row in a thousand would lie 30 deviations out.
    """

    name: str
    falses: int
    trues: int
    gaps: int

    kind = "boolean"
    levels = ("false", "true")
    counts = property(lambda self: (self.falses, self.trues))
    rows = property(lambda self: self.falses + self.trues + self.gaps)

    @property
    def specs(self) -> list[tuple[str, float, float]]:
        """The value, with false and true as far apart as two categories, and its rarity if one is rare."""
        value = (self.name, HALF / math.sqrt(2), float(self.trues > self.falses))
        return [value, (f"{self.name} (rarity)", 1.0, 0.0)] if self._rarities.any() else [value]

    @property
    def shares(self) -> np.ndarray:
        return np.asarray(np.array([*self.counts, self.gaps]) / self.rows)

    @cached_property
    def _rarities(self) -> np.ndarray:
        counts = np.array(self.counts)
        tails = np.where(counts <= counts[::-1], counts, counts.sum())
        return rarity(np.maximum(tails, 1) / (counts.sum() + (counts.min() == 0)))

    def read(self, column: pa.Array) -> np.ndarray:
        """0, 1 or NaN, from booleans, numbers or words."""
        column = plain(column)
        has_words = is_text(column.type) or pa.types.is_dictionary(column.type)
        values = _parse_booleans(as_text(column)) if has_words else read_numbers(column, self.name, None)
        wrong = ~((values == 0) | (values == 1) | np.isnan(values))
        if (row := first_true(wrong)) is not None:
            problem = f"is {shortened(repr(column[row].as_py()))}, but its values were true or false in training"
            raise CellError(self.name, row + 1, f"{problem}; correct it or leave it empty")
        return values

    def fill(self, values: np.ndarray, out: np.ndarray) -> None:
        out[:, 0] = values
        if self._rarities.any():
            of_false, of_true = self._rarities
            out[:, 1] = np.select([values == 1, values == 0], [of_true, of_false])

    def tally(self, values: np.ndarray) -> np.ndarray:
        falses, trues = np.count_nonzero(values == 0), np.count_nonzero(values == 1)
        return np.array([falses, trues, len(values) - falses - trues], np.float64)

    def novel(self, values: np.ndarray) -> int:
        falses, trues, _ = self.tally(values)
        return int(falses * (self.falses == 0) + trues * (self.trues == 0))


def _parse_booleans(text: pa.Array) -> np.ndarray:
    """Words as 0 or 1, gaps and blanks as NaN, other words as 2."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(text))
    codes = np.asarray(pc.index_in(words, pa.array(list(TRUTHS), words.type)).fill_null(len(TRUTHS)))
    values: np.ndarray = np.array([*TRUTHS.values(), 2.0])[codes]
    values[are_blank(text)] = np.nan
    return values
