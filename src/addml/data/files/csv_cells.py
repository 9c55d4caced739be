"""What the cells of a delimited text mean: gaps, numbers in the writing of a country, dates, a header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GAPS = (
    *("", "NA", "N/A", "n/a", "na", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "?", "-"),
    *("#N/A", "#N/A N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
GAP_SET = frozenset(GAPS)
TYPED_SHARE = 0.9  # a column is of numbers or dates when nearly all its cells are: one may be a slip

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
NUMBER_LIKE = re.compile(r"[+-]?[\d.,][\d.,'\u2019 \u00a0\u202f]*([eE][+-]?\d+)?")
COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
POINT_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
EITHER_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # 1,234: one and a bit, or over a thousand
TIME = r"(?:(?P<gap>[ T])(?P<hour>\d{1,2}):\d{2}(?P<seconds>:\d{2})?(?P<half> ?[AaPp][Mm])?)?"
DAY_FIRST = re.compile(r"(?P<a>\d{1,2})(?P<mark>[./-])(?P<b>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + TIME)
YEAR_FIRST = re.compile(r"\d{4}(?P<mark>[./])\d{1,2}(?P=mark)\d{1,2}" + TIME)
CODE = re.compile(r"0\d{2,}")  # of two digits it is more likely a month, an hour or an age
HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")  # which Arrow takes for a whole number, and for no other
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?")
PADDED_DATE = re.compile(r"(\s+\d{4}-\d{2}-\d{2}.*|\d{4}-\d{2}-\d{2}.*\s+)")  # Arrow takes it as a day, and as no time
ZONED_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T][\d:.,]+ ?(?:Z|[+-]\d{2}(?::?\d{2})?)")
ODD_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[ T][\d:]+(?:[.,]\d{7,}|,\d|\.?\d* [Z+-]).*")  # Arrow's microseconds take none


@dataclass(frozen=True)
class NumberStyle:
    """How the numbers of a column are written: the mark between thousands, if any, and the decimal mark."""

    thousands: str
    decimal: str

    @property
    def pattern(self) -> str:
        """The whole-cell expression of such numbers, understood alike by Python and by Arrow."""
        mark, decimal = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(\d+|[1-9]\d{{0,2}}({mark}\d{{3}})+)" if self.thousands else r"\d+"
        return rf"^[+-]?{whole}({decimal}\d*)?([eE][+-]?\d+)?$"


STYLES = tuple(
    NumberStyle(thousands, decimal)
    for thousands in (",", ".", "'", "\u2019", " ", "\u00a0", "\u202f", "")
    for decimal in ".,"
    if thousands != decimal
)


def is_gap(cell: str) -> bool:
    """Whether the cell stands for a missing value."""
    return cell.strip() in GAP_SET


def filled(cells: Iterable[str]) -> list[str]:
    """The cells that hold a value, without the spaces around them."""
    return [stripped for cell in cells if (stripped := cell.strip()) not in GAP_SET]


def are_codes(cells: Iterable[str]) -> bool:
    """Whether the cells are digits with zeros or 0x before them, which say something: 00501 and 0x1F are no numbers."""
    values = filled(cells)
    if all(map(HEXADECIMAL.fullmatch, values)):
        return bool(values)
    return all(value.isdecimal() for value in values) and any(CODE.fullmatch(value) for value in values)


def is_typed(cell: str) -> bool:
    """Whether the cell is a number, a date or a truth value: what column names are not."""
    if NUMBER.fullmatch(cell) or ISO_DATE.fullmatch(cell) or cell.lower() in ("true", "false"):
        return True
    return bool(DAY_FIRST.fullmatch(cell) or YEAR_FIRST.fullmatch(cell))


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: text above numbers says so, numbers above numbers do not."""
    first = [cell.strip() for cell in rows[0]]
    if _counts_up(first):
        return True
    if len(rows) == 1:
        return not any(is_typed(cell) for cell in first)
    columns = [filled(cells) for cells in zip(*rows[1:], strict=True)]
    votes = sum(_vote(cell, cells) for cell, cells in zip(first, columns, strict=True))
    return votes > 0 or (votes == 0 and _like_names(first))


def _vote(name: str, cells: list[str]) -> int:
    typed = sum(map(is_typed, cells))
    if cells and typed >= TYPED_SHARE * len(cells):
        return -1 if is_typed(name) else int(not is_gap(name))
    return -1 if name in cells else 0


def _counts_up(names: list[str]) -> bool:
    """0, 1, 2, ... as arrays are written, or the years of a table that has one column for each."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < 3 or any(is_typed(name) for name in names if not name.isdecimal()):
        return False
    in_order = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    years = numbers[0] >= 1900 and numbers[-1] <= 2100 and len(numbers) < len(names)
    return in_order and (numbers[0] == 0 or years)


def _like_names(cells: list[str]) -> bool:
    return len(set(cells)) == len(cells) and not any(is_gap(cell) or is_typed(cell) for cell in cells)


def decimal_mark(cells: Iterable[str], delimiter: str) -> str:
    """The decimal mark of most numbers; 1,234 alone is one and a bit only where commas part no cells."""
    commas = points = unclear = 0
    for cell in filled(cells):
        if EITHER_NUMBER.fullmatch(cell):
            unclear += "," in cell
        elif "," in cell or "." in cell:
            commas += bool(COMMA_NUMBER.fullmatch(cell))
            points += bool(POINT_NUMBER.fullmatch(cell))
    if commas == points == 0:
        return "," if unclear and delimiter != "," else "."
    return "," if commas > points else "."


def number_style(cells: Iterable[str], decimal: str) -> NumberStyle | None:
    """How a column of numbers is written where Arrow would take it for text; None where it would not."""
    values = filled(cells)
    if not values or not all(NUMBER_LIKE.fullmatch(value) for value in values):
        return None
    plain = re.compile(NumberStyle("", decimal).pattern.replace("[+-]?", "-?", 1))
    if all(plain.match(value) or value.startswith((decimal, "-" + decimal)) for value in values):
        return None
    likely = sorted(STYLES, key=lambda style: style.decimal != decimal)
    return next((style for style in likely if all(re.match(style.pattern, value) for value in values)), None)


def says_zone(cells: Sequence[str]) -> bool | None:
    """Whether the dates of a column say their zone; None where some do, or are not written as Arrow takes them."""
    values = filled(cells)
    zoned = sum(ZONED_DATE.fullmatch(value) is not None for value in values)
    is_padded = any(map(PADDED_DATE.fullmatch, cells))
    if is_padded or 0 < zoned < len(values) or any(map(ODD_DATE.fullmatch, values)):
        return None
    return zoned > 0


def date_formats(columns: Iterable[Sequence[str]], decimal: str) -> tuple[list[str], str | None]:
    """The strptime formats of dates that are not ISO 8601, and the order of day and month if guessed."""
    dates = [match for cells in columns for match in _date_matches(filled(cells))]
    day_first, guessed = _day_first([match for match in dates if "a" in match.groupdict()], decimal)
    if day_first is None:
        return [], None
    formats = list(dict.fromkeys(_date_format(match, day_first) for match in dates))
    return formats, ("day first" if day_first else "month first") if guessed else None


def _date_matches(cells: list[str]) -> list[re.Match[str]]:
    matches = []
    for cell in cells:
        match = DAY_FIRST.fullmatch(cell) or YEAR_FIRST.fullmatch(cell)
        if match is None:
            return []
        matches.append(match)
    return matches


def _day_first(dates: list[re.Match[str]], decimal: str) -> tuple[bool | None, bool]:
    """Whether the day comes first (None: contradicting), and whether that had to be guessed."""
    if not dates:
        return True, False
    first = any(int(match["a"]) > 12 or match["mark"] == "." for match in dates)
    second = any(int(match["b"]) > 12 for match in dates)
    if first and second:
        return None, False
    return (first, False) if first or second else (decimal == ",", True)


def _date_format(match: re.Match[str], day_first: bool) -> str:
    mark = match["mark"]
    if "a" not in match.groupdict():
        return f"%Y{mark}%m{mark}%d{_time_format(match)}"
    year = "%Y" if len(match["year"]) == 4 else "%y"
    order = ["%d", "%m", year] if day_first else ["%m", "%d", year]
    return mark.join(order) + _time_format(match)


def _time_format(match: re.Match[str]) -> str:
    if match["hour"] is None:
        return ""
    half = match["half"] or ""
    seconds = ":%S" if match["seconds"] else ""
    return f"{match['gap']}{'%I' if half else '%H'}:%M{seconds}{half[:-2]}{'%p' if half else ''}"
