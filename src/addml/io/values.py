"""Cells as a table: its first row, header, column names and types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, count
from typing import Any

import pyarrow as pa

from addml.arrow import MISSING_MARKERS, plain_chunks
from addml.io.source import ReadError
from addml.text import did_you_mean, listed


def table_from_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> tuple[pa.Table, list[str]]:
    """The table of these rows, each as long as `names`, and notes on what was changed."""
    unique, notes = unique_names(names)
    arrays = list(map(_array, list(zip(*rows, strict=True)) or [()] * len(names)))
    notes += [f"column {name}: {note}" for name, (_, note) in zip(unique, arrays, strict=True) if note]
    return pa.table([array for array, _ in arrays], names=unique), notes


def _array(values: Sequence[Any]) -> tuple[pa.Array, str | None]:
    """The values as an array; if Arrow has no type for all of them, as text, with a note."""
    try:
        return pa.array(values), None
    except (pa.ArrowException, OverflowError):
        present = [value for value in values if value is not None]
    if all(isinstance(value, (int, float, Decimal)) for value in present):
        return pa.array([None if value is None else float(value) for value in values]), None
    kinds = sorted({type(value).__name__ for value in present})
    row = next((row for row, value in enumerate(values, start=1) if isinstance(value, str)), 0)
    note = f"holds {' and '.join(kinds)}" + (f" (row {row} is {values[row - 1]!r})" if row else "")
    return pa.array([None if value is None else str(value) for value in values]), note


def numbered_names(count: int) -> list[str]:
    """x0, x1, ...: names for columns without a header."""
    return [f"x{position}" for position in range(count)]


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names, repeated ones numbered (`name_2`) and blank ones filled in (`x3`), and notes on the changes."""
    stripped = [name.strip() for name in names]
    taken = set(stripped) - {""}
    unique, changes = dict[str, None](), list[str]()
    for position, name in enumerate(stripped):
        new = name
        if not name or name in unique:
            base = name or f"x{position}"
            candidates = chain([] if name else [base], (f"{base}_{number}" for number in count(2)))
            new = next(candidate for candidate in candidates if candidate not in taken)
            changes.append(f"column {position + 1} {name!r} is called {new!r}")
        taken.add(new)
        unique[new] = None
    return list(unique), [f"column names: repeated or blank, so {listed(changes, between='; ')}"] if changes else []


def check_columns(columns: Sequence[str] | None, names: Sequence[str], source: str) -> list[str] | None:
    """The requested columns without repetitions; raises for one that does not exist."""
    for column in columns or ():
        if column not in names:
            hint = did_you_mean(column, names)
            raise ReadError(f"{source}: has no column {column!r}.{hint} It has: {listed(names, 20)}.")
    return None if columns is None else list(dict.fromkeys(columns))


def shaped(table: pa.Table, columns: Sequence[str] | None, source: str) -> tuple[pa.Table, list[str]]:
    """The chosen columns, with nested ones flattened and unique names, and notes on what was changed."""
    notes = []
    while nested := [field.name for field in table.schema if pa.types.is_struct(field.type)]:
        notes.append(f"nested columns, flattened to name.part: {', '.join(nested[:8])}")
        table = table.flatten()
    names, renamed = unique_names(table.column_names)
    table = table.rename_columns(names)
    if (chosen := check_columns(columns, names, source)) is not None:
        table = table.select(chosen)
    return pa.table([plain_chunks(column) for column in table.columns], names=table.column_names), notes + renamed


def conformed(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None, schema: pa.Schema | None, rows: int, source: str
) -> Iterator[pa.RecordBatch]:
    """The batches after `shaped`, cast to `schema`, with at most `rows` rows each."""
    rows_before = 0
    for batch in batches:
        table, _ = shaped(pa.Table.from_batches([batch]), columns, source)
        yield from _cast(table, schema, rows_before, source).to_batches(max_chunksize=rows)
        rows_before += batch.num_rows


def _cast(table: pa.Table, schema: pa.Schema | None, rows_before: int, source: str) -> pa.Table:
    """Cast the columns that `schema` names; `rows_before` rows precede the table."""
    for position, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if schema is None or name not in schema.names or (kind := schema.field(name).type) == column.type:
            continue
        try:
            table = table.set_column(position, name, column.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            rows = f"rows {rows_before + 1:,} to {rows_before + len(column):,}"
            problem = f"column {name!r} ({column.type}) cannot be read as {kind}: {error}."
            raise ReadError(f"{source}, {rows}: {problem}") from error
    return table


Rows = Sequence[Sequence[str]]

MOST_ABOVE = 30  # rows above a table
AGREEMENT = 0.8  # the share of a table's rows with the usual number of cells
TYPED_SHARE = 0.9  # of the cells in a column of numbers or dates; the others may be typing errors
MISSING = frozenset(MISSING_MARKERS)
NUMBER = re.compile(
    r"\(?[$€£¥]?\s?[+\-\u2212]?[$€£¥]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)?\s?[%$€£¥]?[)-]?|[+-]?inf(inity)?",
    re.IGNORECASE,
)
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?")
DATE_LIKE = re.compile(r"\d{1,4}([./-])\d{1,2}\1(\d{4}|\d{2})([ T]\d{1,2}:\d{2}.*)?")
CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[ap]m)?", re.IGNORECASE)
TYPED_FORMS = (NUMBER, ISO_DATE, DATE_LIKE, CLOCK)


def is_missing(cell: str) -> bool:
    """Whether the cell is empty or marks a missing value."""
    return cell.strip() in MISSING


def filled_cells(cells: Iterable[str]) -> list[str]:
    """The stripped cells, without missing ones."""
    return [stripped for cell in cells if (stripped := cell.strip()) not in MISSING]


def is_typed(cell: str) -> bool:
    """Whether the cell looks like a number, date, time or boolean, and so not like a column name."""
    return cell.lower() in ("true", "false") or any(form.fullmatch(cell) for form in TYPED_FORMS)


def usual_width(rows: Rows) -> tuple[int, int]:
    """The most common number of cells, and how many rows have it."""
    counts = Counter(map(len, rows))
    return max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))


def table_start(rows: Rows) -> int:
    """The number of rows above the header: titles, notes and dates, which fill few columns.

    Without a clear header below them, only rows with a single cell count as such: a header that is too short or too
    long must be reported, not skipped.
    """
    width, _ = usual_width(rows)
    n_filled = [sum(1 for cell in row if cell.strip()) for row in rows[:MOST_ABOVE]]
    candidates = (row for row, count in enumerate(n_filled) if len(rows[row]) == width and 2 * count > width)
    start = next(candidates, 0)
    above = rows[:start]
    body = [row for row in rows[start:] if len(row) == width]
    if not start or width < 2 or len(body) < AGREEMENT * len(rows[start:]):
        return 0
    if any(len(row) == width and not row[0].strip() and all(cell.strip() for cell in row[1:]) for row in above):
        return 0  # the header of a data frame, whose index has no name
    votes = _votes(body)
    if votes > 0:
        return start
    is_separate = votes == 0 or not min(n_filled[:start]) or all(len(row) != width for row in above)
    is_title = max(n_filled[:start]) == 1 or all(row[0].startswith("#") for row in above)
    return start if is_separate and is_title else 0


def has_header(rows: Rows) -> bool:
    """Whether the first row names the columns: text above numbers does, numbers above numbers do not."""
    first = [cell.strip() for cell in rows[0]]
    if _counts_up(first):
        return True
    if len(rows) == 1:
        return not any(map(is_typed, first))
    votes = _votes(rows)
    unique = len(set(first)) == len(first) and not any(cell in MISSING or is_typed(cell) for cell in first)
    return votes > 0 or (votes == 0 and unique)


def _votes(rows: Rows) -> int:
    """The number of columns that the first row names, minus those in which it is like the other rows."""
    votes = 0
    for first, *others in zip(*rows, strict=True):
        name, cells = first.strip(), filled_cells(others)
        if cells and sum(map(is_typed, cells)) >= TYPED_SHARE * len(cells):
            votes += -1 if is_typed(name) else int(name not in MISSING)
        elif name in cells:
            votes -= 1
    return votes


def _counts_up(names: list[str]) -> bool:
    """Whether the names are 0, 1, 2, ... (an array written as CSV) or contain consecutive years."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < 3 or any(is_typed(name) for name in names if not name.isdecimal()):
        return False
    in_order = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    years = numbers[0] >= 1900 and numbers[-1] <= 2100 and len(numbers) < len(names)
    return in_order and (numbers[0] == 0 or years)
