"""Where a table begins in the rows of a file: titles and notes above it, its header, cells that are values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from addml.text_formats import MISSING_MARKERS

Rows = Sequence[Sequence[str]]

MOST_ABOVE = 30  # rows above a table
AGREEMENT = 0.8  # the share of rows that must have equally many cells before they are a table
TYPED_SHARE = 0.9  # a column is of numbers or dates when nearly all its cells are: one may be a slip
MISSING = frozenset(MISSING_MARKERS)
NUMBER = re.compile(
    r"\(?[$€£¥]?\s?[+\-\u2212]?[$€£¥]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)?\s?[%$€£¥]?[)-]?|[+-]?inf(inity)?",
    re.IGNORECASE,
)
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?")
DATE_LIKE = re.compile(r"\d{1,4}([./-])\d{1,2}\1(\d{4}|\d{2})([ T]\d{1,2}:\d{2}.*)?")
CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[ap]m)?", re.IGNORECASE)


def is_missing(cell: str) -> bool:
    """Whether the cell is empty or marks a missing value."""
    return cell.strip() in MISSING


def filled_cells(cells: Iterable[str]) -> list[str]:
    """The cells that hold a value, without the spaces around them."""
    return [stripped for cell in cells if (stripped := cell.strip()) not in MISSING]


def is_typed(cell: str) -> bool:
    """Whether the cell looks like a number, a date, a time or a truth value: what column names are not."""
    return cell.lower() in ("true", "false") or any(one.fullmatch(cell) for one in (NUMBER, ISO_DATE, DATE_LIKE, CLOCK))


def usual_width(rows: Rows) -> tuple[int, int]:
    """The commonest number of cells, and how many rows have it."""
    counts = Counter(map(len, rows))
    return max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))


def table_start(rows: Rows) -> int:
    """How many rows stand above the names of the columns: titles, notes and dates of a report, titles of groups."""
    start = _first_full_row(rows)
    return start + _is_split_header(rows[start:])


def _first_full_row(rows: Rows) -> int:
    """How many rows at the top fill few columns of the table.

    Where the rows below have no clear header, only rows of a single cell are taken for such: a header that is too
    short or too long is an error to report, not a title.
    """
    width, _ = usual_width(rows)
    filled = [sum(1 for cell in row if cell.strip()) for row in rows[:MOST_ABOVE]]
    full = (place for place, count in enumerate(filled) if len(rows[place]) == width and 2 * count > width)
    start = next(full, 0)
    body, above = [row for row in rows[start:] if len(row) == width], rows[:start]
    if not start or width < 2 or len(body) < AGREEMENT * len(rows[start:]):
        return 0
    if any(len(row) == width and not row[0].strip() and all(cell.strip() for cell in row[1:]) for row in above):
        return 0  # a header whose first column, the index of a data frame, has no name
    if (votes := _votes(body)) > 0:
        return start
    apart = votes == 0 or not min(filled[:start]) or all(len(row) != width for row in above)
    is_title = apart and (max(filled[:start]) == 1 or all(row[0].startswith("#") for row in above))
    return start if is_title else 0


def _is_split_header(rows: Rows) -> bool:
    """Whether the first row holds titles over several columns, and the second their names, which repeat."""
    if len(rows) < 3 or any(len(row) != len(rows[0]) for row in rows):
        return False
    above, names = ([cell.strip() for cell in row] for row in rows[:2])
    is_text = not any(map(is_typed, (*above, *names)))
    return is_text and not all(above) and grouped_names(above, names) is not None and _votes(rows[1:]) > 0


def grouped_names(above: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Names that repeat, each after the title above it, which may span several columns; None where that is no help."""
    named = [name for name in names if name]
    if len(set(named)) == len(named) or sum(map(bool, above)) < 2:
        return None
    titles, joined = "", list[str]()
    for title, name in zip_longest(above[: len(names)], names, fillvalue=""):
        titles = title.strip() or titles
        joined.append(f"{titles} {name}".strip())
    return joined if len(set(joined)) == len(joined) else None


def has_header(rows: Rows) -> bool:
    """Whether the first row names the columns: text above numbers says so, numbers above numbers do not."""
    first = [cell.strip() for cell in rows[0]]
    if _counts_up(first):
        return True
    if len(rows) == 1:
        return not any(map(is_typed, first))
    votes = _votes(rows)
    unique = len(set(first)) == len(first) and not any(cell in MISSING or is_typed(cell) for cell in first)
    return votes > 0 or (votes == 0 and unique)


def _votes(rows: Rows) -> int:
    columns = [filled_cells(cells) for cells in zip(*rows[1:], strict=True)]
    return sum(map(_vote, [cell.strip() for cell in rows[0]], columns))


def _vote(name: str, cells: list[str]) -> int:
    if cells and sum(map(is_typed, cells)) >= TYPED_SHARE * len(cells):
        return -1 if is_typed(name) else int(name not in MISSING)
    return -1 if name in cells else 0


def _counts_up(names: list[str]) -> bool:
    """0, 1, 2, ... as arrays are written, or the years of a table that has one column for each."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < 3 or any(is_typed(name) for name in names if not name.isdecimal()):
        return False
    in_order = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    years = numbers[0] >= 1900 and numbers[-1] <= 2100 and len(numbers) < len(names)
    return in_order and (numbers[0] == 0 or years)
