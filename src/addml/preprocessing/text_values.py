"""Texts among numbers: whether a column of text is one of numbers all the same, and which of its cells are not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_text
from addml.text import shortened
from addml.text_formats import PARTS, NumberFormat, are_codes, commonest_number_format

MIXED = r"^\s*(?:[A-Za-z]+[-./]?\d|\d+[-./]?[A-Za-z])[A-Za-z\d./-]*\s*$"  # V57, 85123A: a code among numbers
FEW = 50  # texts that suffice to say no
FEW_TEXTS = 0.05  # of the cells that hold something: so many texts among numbers are slips
LEAST_NUMBERS = 20  # cells, under which a text counts as much as the numbers
MOST_CODES = 2  # different texts of letters and digits among numbers, from which on more are no slips
NEARLY_ALL = 0.9  # of the rows, from which on other texts among numbers are more likely slips


def nearly_numbers(values: pa.Array, counts: np.ndarray) -> NumberFormat | None:
    """How the distinct texts, which occur in `counts` rows each, are written if all but a few are numbers."""
    if not _may_be_numbers(values):
        return None
    written, is_number = commonest_number_format(values, counts)
    numbers = int(is_number @ counts)
    if numbers < LEAST_NUMBERS or counts.sum() - numbers > FEW_TEXTS * counts.sum():
        return None
    texts = values.filter(pa.array(~is_number))
    codes = np.count_nonzero(np.asarray(pc.match_substring_regex(texts, MIXED)))
    return None if codes > MOST_CODES else written


def among_numbers(values: pa.Array, counts: np.ndarray) -> pa.Array | None:
    """The distinct texts, which occur in `counts` rows each, that are no numbers where nearly all others are."""
    if not _may_be_numbers(values):
        return None
    is_number = np.asarray(pc.match_substring_regex(values, PARTS))
    if is_number.all() or is_number @ counts < NEARLY_ALL * counts.sum():
        return None
    return values.filter(pa.array(~is_number))


def _may_be_numbers(values: pa.Array) -> bool:
    """A quick look at the first of the distinct texts, and whether none is a code."""
    first = np.asarray(pc.match_substring_regex(values[:FEW], PARTS))
    return bool(len(first)) and first.mean() >= 0.5 and not are_codes(values)


# Texts in columns of numbers: how many there are, and the first of them, to be listed.


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

    @property
    def earliest(self) -> TextCell:
        """The one in the first row."""
        return min((cells[0] for cells in self.first.values()), key=lambda cell: cell.row)

    def add(self, name: str, column: pa.Array, places: np.ndarray, before: int) -> None:
        """Take in the texts at these places of a column, some at least, with so many rows before it."""
        texts = as_text(column.take(pa.array(places[:LISTED]))).to_pylist()
        found = [TextCell(name, before + int(place) + 1, text) for place, text in zip(places, texts, strict=False)]
        self._extend(name, len(places), found)

    def join(self, other: TextCells, before: int) -> None:
        """Take in those of the next rows, with so many rows before them."""
        for name, cells in other.first.items():
            self._extend(name, other.counts[name], [cell._replace(row=cell.row + before) for cell in cells])

    def _extend(self, name: str, count: int, cells: list[TextCell]) -> None:
        self.counts[name] += count
        self.first[name] = (self.first.get(name, []) + cells)[:LISTED]

    def placed(self, places: np.ndarray | None) -> TextCells:
        """The same where the rows lie at these places of a larger table; None for all of it."""
        if places is None:
            return self
        moved = {
            name: [one._replace(row=int(places[one.row - 1]) + 1) for one in own] for name, own in self.first.items()
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
