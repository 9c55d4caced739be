"""A table as asked for: flat, its columns uniquely named, chosen, and in the types of a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from addml.data.files.column_names import check_columns, unique_names
from addml.data.files.origin import ReadError

if TYPE_CHECKING:
    import pyarrow as pa

QUOTED = re.compile(r"'(.*)'", re.DOTALL)


def shaped(table: pa.Table, columns: Sequence[str] | None, source: str) -> tuple[pa.Table, list[str]]:
    """The table with nested columns spread out, unique names and the chosen columns; and what changed."""
    import pyarrow as pa

    notes = []
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        nested = [one.name for one in table.schema if pa.types.is_struct(one.type)]
        notes.append(f"nested columns, spread out as name.part: {', '.join(nested[:8])}")
        table = table.flatten()
    names, renamed = unique_names(table.column_names)
    if names != table.column_names:
        table = table.rename_columns(names)
    chosen = check_columns(columns, names, source)
    return _unpacked(table if chosen is None else table.select(chosen)), notes + renamed


def _unpacked(table: pa.Table) -> pa.Table:
    """The table in types that every function of Arrow takes; Polars writes text as views."""
    from addml.data.preparation.arrow_values import is_packed, plain_chunks

    for position, one in enumerate(table.schema):
        if is_packed(one.type):
            table = table.set_column(position, one.name, plain_chunks(table.column(position)))
    return table


def conformed(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    rows: int,
    source: str,
) -> Iterator[pa.RecordBatch]:
    """The batches shaped, in the types of `schema`, and at most `rows` rows each."""
    import pyarrow as pa

    done = 0
    for batch in batches:
        table, _ = shaped(pa.Table.from_batches([batch]), columns, source)
        yield from _cast(table, schema, done, source).to_batches(max_chunksize=rows)
        done += batch.num_rows


def _cast(table: pa.Table, schema: pa.Schema | None, done: int, source: str) -> pa.Table:
    """The columns that `schema` names in its types; `done` rows came before."""
    import pyarrow as pa

    for position, name in enumerate(table.column_names):
        if schema is None or name not in schema.names or schema.field(name).type == table[name].type:
            continue
        kind = schema.field(name).type
        try:
            table = table.set_column(position, name, table[name].cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _uncastable(table[name], name, kind, done, source, error) from error
    return table


def _uncastable(
    column: pa.ChunkedArray, name: str, kind: pa.DataType, done: int, source: str, error: Exception
) -> ReadError:
    import pyarrow.compute as pc

    place = f"{source}, rows {done + 1:,} to {done + len(column):,}"
    value = QUOTED.search(str(error))
    if value is not None and (row := pc.index(column.cast("string"), value[1]).as_py()) >= 0:
        place = f"{source}, row {done + row + 1:,}"
    return ReadError(f"{place}: column {name!r} ({column.type}) cannot be read as {kind}: {error}.")
