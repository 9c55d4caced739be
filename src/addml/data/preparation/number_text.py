"""Numbers written as text: with thousands marks, a decimal comma, a per cent or currency sign."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.files.csv_cells import STYLES, NumberStyle
from addml.data.preparation import plain_values
from addml.data.preparation.arrow_values import first_of

SIGN = r"[€$£¥₹]|USD|EUR|GBP|CHF|JPY|%"
PARTS = (
    rf"^\s*(?P<minus>[+-]?)\s*(?P<before>{SIGN})?\s*(?P<number>[+-]?[\d.,](?:[\d.,'’ \x{{a0}}\x{{202f}}]*[\d.,])?"
    rf"(?:[eE][+-]?\d+)?)\s*(?P<after>{SIGN})?\s*$"
)
CODE = r"^\s*[+-]?0\d"  # 00501 is a code, whose zeros say something, and no number
FEW = 50  # texts that suffice to say no
NEARLY_ALL = 0.9  # of the rows, from which on other texts among numbers are more likely slips


@dataclass(frozen=True)
class WrittenNumber:
    """How the numbers of a text column are written."""

    before: str = ""
    after: str = ""
    thousands: str = ""
    decimal: str = "."

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_plain(cls, document: plain_values.Document) -> WrittenNumber:
        """Back from `to_plain`."""
        return cls(**{key: plain_values.text(document, key) for key in cls.__dataclass_fields__})


def written_numbers(values: pa.Array) -> WrittenNumber | None:
    """How the distinct, non-null texts are written where all of them are numbers of one style."""
    if _any(pc.match_substring_regex(values, CODE)):
        return None
    if _plainly(values) is not None:
        return WrittenNumber()
    parts = pc.extract_regex(values, PARTS)
    if parts.null_count:
        return None
    before, after = (pc.unique(parts.field(part)).to_pylist() for part in ("before", "after"))
    if len(before) > 1 or len(after) > 1:
        return None  # 5 and 5 % are not numbers of one kind
    digits = parts.field("number")
    style = next((style for style in STYLES if not _any(pc.invert(_matches(digits, style)))), None)
    return None if style is None else WrittenNumber(before[0], after[0], style.thousands, style.decimal)


def among_numbers(values: pa.Array, counts: np.ndarray) -> pa.Array | None:
    """The distinct texts, which stand in `counts` rows each, that are no numbers, where nearly all others are some."""
    if np.asarray(pc.match_substring_regex(values[:FEW], PARTS)).mean() < 0.5:
        return None
    is_number = np.asarray(pc.match_substring_regex(values, PARTS))
    is_code = _any(pc.match_substring_regex(values, CODE))
    if is_code or is_number.all() or is_number @ counts < NEARLY_ALL * counts.sum():
        return None
    return values.filter(pa.array(~is_number))


def parse_numbers(column: pa.Array, style: WrittenNumber) -> np.ndarray:
    """The numbers of a text column, NaN for gaps and blanks; the first other text is a ValueError with its row."""
    column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    numbers = _plainly(column) if style == WrittenNumber() else None
    if numbers is None:
        numbers = _styled(column, style)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _styled(column: pa.Array, style: WrittenNumber) -> pa.Array:
    parts = pc.extract_regex(column, PARTS)
    digits, minus = parts.field("number"), parts.field("minus")
    known = pc.and_(pc.equal(parts.field("before"), style.before), pc.equal(parts.field("after"), style.after))
    known = pc.and_(known, _matches(digits, NumberStyle(style.thousands, style.decimal)))
    known = pc.if_else(pc.is_valid(parts), known, False)
    wrong = np.asarray(pc.and_(pc.is_valid(column), pc.invert(known)))
    if (row := first_of(wrong)) is not None:
        raise NotANumberError(row, column[row].as_py())
    digits = pc.utf8_ltrim(digits, characters="+")
    if style.thousands:
        digits = pc.replace_substring(digits, style.thousands, "")
    digits = pc.replace_substring(digits, style.decimal, ".")
    numbers = pc.if_else(pc.is_valid(column), digits, pa.scalar(None, digits.type)).cast(pa.float64())
    return pc.if_else(pc.equal(minus, "-"), pc.negate(numbers), numbers)


class NotANumberError(ValueError):
    """A text that is no number, with its row counted from 0."""

    def __init__(self, row: int, value: str) -> None:
        super().__init__(f"row {row} is {value!r}")
        self.row, self.value = row, value


def _plainly(values: pa.Array) -> pa.Array | None:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _matches(digits: pa.Array, style: NumberStyle) -> pa.Array:
    return pc.match_substring_regex(digits, style.pattern)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
