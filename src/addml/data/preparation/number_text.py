"""Numbers written as text: with thousands marks, a decimal comma, a per cent or currency sign; and texts among them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.data.files.csv_cells import GAPS, STYLES, NumberStyle
from addml.data.preparation import plain_values

SIGN = r"[€$£¥₹]|USD|EUR|GBP|CHF|JPY|%"
PARTS = (
    rf"^\s*(?P<minus>[+-]?)\s*(?P<before>{SIGN})?\s*(?P<number>[+-]?[\d.,](?:[\d.,'’ \x{{a0}}\x{{202f}}]*[\d.,])?"
    rf"(?:[eE][+-]?\d+)?)\s*(?P<after>{SIGN})?\s*$"
)
PLAIN = r"^\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf(?:inity)?))\s*$"  # as Arrow reads numbers
CODE = r"^\s*[+-]?0\d"  # 00501 is a code, whose zeros say something, and no number
MIXED = r"^\s*(?:[A-Za-z]+[-./]?\d|\d+[-./]?[A-Za-z])[A-Za-z\d./-]*\s*$"  # V57, 85123A: a code among numbers
FEW = 50  # texts that suffice to say no
FEW_TEXTS = 0.05  # of the cells that hold something: so many texts among numbers are slips
LEAST_NUMBERS = 20  # cells, under which a text says as much as the numbers
MOST_CODES = 2  # different texts of letters and digits among numbers, from which on more are no slips
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


def nearly_numbers(values: pa.Array, counts: np.ndarray) -> WrittenNumber | None:
    """How the distinct texts, which stand in `counts` rows each, are written where all but a few are numbers."""
    if not _may_be_numbers(values):
        return None
    style, is_number = _commonest_style(values, counts)
    numbers = int(is_number @ counts)
    if numbers < LEAST_NUMBERS or counts.sum() - numbers > FEW_TEXTS * counts.sum():
        return None
    texts = values.filter(pa.array(~is_number))
    codes = np.count_nonzero(np.asarray(pc.match_substring_regex(texts, MIXED)))
    return None if codes > MOST_CODES else style


def among_numbers(values: pa.Array, counts: np.ndarray) -> pa.Array | None:
    """The distinct texts, which stand in `counts` rows each, that are no numbers, where nearly all others are some."""
    if not _may_be_numbers(values):
        return None
    is_number = np.asarray(pc.match_substring_regex(values, PARTS))
    if is_number.all() or is_number @ counts < NEARLY_ALL * counts.sum():
        return None
    return values.filter(pa.array(~is_number))


def are_gaps(values: pa.Array) -> pa.Array:
    """Which texts stand for a missing value, as in a CSV: NA, null, -."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.is_in(trimmed, pa.array(GAPS, trimmed.type))


def parse_numbers(column: pa.Array, style: WrittenNumber) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a text column, NaN for gaps and blanks and other texts; and which are such texts."""
    column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    numbers, wrong = _plainly(column) if style == WrittenNumber() else None, np.zeros(len(column), bool)
    if numbers is None:
        column = pc.if_else(are_gaps(column), pa.scalar(None, column.type), column)
        is_number = _is_number(column, style)
        wrong = np.asarray(pc.and_(pc.is_valid(column), pc.invert(is_number)))
        column = pc.if_else(is_number, column, pa.scalar(None, column.type))
        numbers = column.cast(pa.float64()) if style == WrittenNumber() else _styled(column, style)
    return np.array(numbers.to_numpy(zero_copy_only=False), np.float64), wrong


def _may_be_numbers(values: pa.Array) -> bool:
    """A quick look at the first of the distinct texts, and whether none is a code."""
    first = np.asarray(pc.match_substring_regex(values[:FEW], PARTS))
    return bool(len(first)) and first.mean() >= 0.5 and not _any(pc.match_substring_regex(values, CODE))


def _commonest_style(values: pa.Array, counts: np.ndarray) -> tuple[WrittenNumber, np.ndarray]:
    """The style that reads the most rows, the plain one if it is no worse, and which of the texts it reads."""
    parts = pc.extract_regex(values, PARTS)
    between = pa.scalar("\n", values.type)
    signs = pc.binary_join_element_wise(parts.field("before"), parts.field("after"), between).dictionary_encode()
    known = np.asarray(signs.is_valid())
    codes = np.asarray(signs.indices.fill_null(0))
    commonest = int(np.bincount(codes, weights=counts * known).argmax())
    before, after = signs.dictionary[commonest].as_py().split("\n")
    styles = [WrittenNumber(before, after, style.thousands, style.decimal) for style in STYLES]
    read = {style: np.asarray(_is_number(values, style)) for style in (WrittenNumber(), *styles)}
    best = max(read, key=lambda style: int(read[style] @ counts))
    return best, read[best]


def _is_number(column: pa.Array, style: WrittenNumber) -> pa.Array:
    """Which texts are numbers of a style; a gap is none."""
    if style == WrittenNumber():
        return pc.fill_null(pc.match_substring_regex(column, PLAIN), False)
    parts = pc.extract_regex(column, PARTS)
    known = pc.and_(pc.equal(parts.field("before"), style.before), pc.equal(parts.field("after"), style.after))
    known = pc.and_(known, _matches(parts.field("number"), NumberStyle(style.thousands, style.decimal)))
    return pc.fill_null(pc.if_else(pc.is_valid(parts), known, False), False)


def _styled(column: pa.Array, style: WrittenNumber) -> pa.Array:
    """Texts that are all numbers of the style, or gaps."""
    parts = pc.extract_regex(column, PARTS)
    digits, minus = pc.utf8_ltrim(parts.field("number"), characters="+"), parts.field("minus")
    if style.thousands:
        digits = pc.replace_substring(digits, style.thousands, "")
    digits = pc.replace_substring(digits, style.decimal, ".")
    numbers = pc.if_else(pc.is_valid(column), digits, pa.scalar(None, digits.type)).cast(pa.float64())
    return pc.if_else(pc.equal(minus, "-"), pc.negate(numbers), numbers)


def _plainly(values: pa.Array) -> pa.Array | None:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _matches(digits: pa.Array, style: NumberStyle) -> pa.Array:
    return pc.match_substring_regex(digits, style.pattern)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
