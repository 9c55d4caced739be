"""Columns of Python values as a table, names made unique, and a table in the columns and types asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import is_packed, plain_chunks
from addml.io.source import ReadError
from addml.text import did_you_mean, listed

QUOTED = re.compile(r"'(.*)'", re.DOTALL)


def table_from_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> tuple[pa.Table, list[str]]:
    """The table of these rows, each as long as `names`, and what had to be changed."""
    return table_from_columns(names, list(zip(*rows, strict=True)) or [()] * len(names))


def table_from_columns(names: Sequence[str], columns: Iterable[Sequence[Any]]) -> tuple[pa.Table, list[str]]:
    """The table of these columns, and what had to be changed."""
    unique, notes = unique_names(names)
    arrays = []
    for name, values in zip(unique, columns, strict=True):
        array, mixed = _array(values)
        arrays.append(array)
        if mixed:
            notes.append(f"column {name}: {mixed}")
    return pa.table(arrays, names=unique), notes


def _array(values: Sequence[Any]) -> tuple[pa.Array, str | None]:
    try:
        return pa.array(values), None
    except (pa.ArrowException, OverflowError):
        present = [value for value in values if value is not None]
    if all(isinstance(value, (int, float, Decimal)) for value in present):
        return pa.array([None if value is None else float(value) for value in values]), None
    kinds = sorted({type(value).__name__ for value in present})
    row = next((row for row, value in enumerate(values, start=1) if isinstance(value, str)), 0)
    mixed = f"holds {' and '.join(kinds)}" + (f" (row {row} is {values[row - 1]!r})" if row else "")
    return pa.array([None if value is None else str(value) for value in values]), mixed


# Column names -------------------------------------------------------------------------------------------------


def numbered_names(count: int) -> list[str]:
    """x0, x1, ...: the names of columns that have none."""
    return [f"x{position}" for position in range(count)]


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names made unique, `name` then `name_2`, a blank one after its position; and what was changed."""
    given = [name.strip() for name in names]
    taken, seen = set(given) - {""}, set[str]()
    result, changes = list[str](), list[str]()
    for position, name in enumerate(given):
        new, base = name, name or f"x{position}"
        if not name or name in seen:
            free = chain([] if name else [base], (f"{base}_{number}" for number in count(2)))
            new = next(one for one in free if one not in taken)
            changes.append(f"column {position + 1} {name!r} is called {new!r}")
        seen.add(new)
        taken.add(new)
        result.append(new)
    return result, [f"column names: repeated or blank, so {listed(changes, between='; ')}"] if changes else []


def check_columns(columns: Sequence[str] | None, names: Sequence[str], source: str) -> list[str] | None:
    """The columns asked for, each of which must be there."""
    if columns is None:
        return None
    for column in columns:
        if column not in names:
            hint = did_you_mean(column, names)
            raise ReadError(f"{source}: has no column {column!r}.{hint} It has: {listed(names, 20)}.")
    return list(dict.fromkeys(columns))


# Chosen columns, in the types of a schema ---------------------------------------------------------------------


def shaped(table: pa.Table, columns: Sequence[str] | None, source: str) -> tuple[pa.Table, list[str]]:
    """The table with nested columns spread out, unique names and the chosen columns; and what changed."""
    notes = []
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        nested = [one.name for one in table.schema if pa.types.is_struct(one.type)]
        notes.append(f"nested columns, spread out as name.part: {', '.join(nested[:8])}")
        table = table.flatten()
    names, renamed = unique_names(table.column_names)
    if names != table.column_names:
        table = table.rename_columns(names)
    if (chosen := check_columns(columns, names, source)) is not None:
        table = table.select(chosen)
    for position, one in enumerate(table.schema):
        if is_packed(one.type):  # in types that not every function of Arrow takes, such as the views of Polars
            table = table.set_column(position, one.name, plain_chunks(table.column(position)))
    return table, notes + renamed


def conformed(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    rows: int,
    source: str,
) -> Iterator[pa.RecordBatch]:
    """The batches shaped, in the types of `schema`, and at most `rows` rows each."""
    done = 0
    for batch in batches:
        table, _ = shaped(pa.Table.from_batches([batch]), columns, source)
        yield from _cast(table, schema, done, source).to_batches(max_chunksize=rows)
        done += batch.num_rows


def _cast(table: pa.Table, schema: pa.Schema | None, done: int, source: str) -> pa.Table:
    """The columns that `schema` names in its types; `done` rows came before."""
    for position, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if schema is None or name not in schema.names or (kind := schema.field(name).type) == column.type:
            continue
        try:
            table = table.set_column(position, name, column.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            place, value = f"rows {done + 1:,} to {done + len(column):,}", QUOTED.search(str(error))
            if value is not None and (row := pc.index(column.cast("string"), value[1]).as_py()) >= 0:
                place = f"row {done + row + 1:,}"
            problem = f"column {name!r} ({column.type}) cannot be read as {kind}: {error}."
            raise ReadError(f"{source}, {place}: {problem}") from error
    return table
