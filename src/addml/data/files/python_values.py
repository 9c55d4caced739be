"""Columns of Python values, as a workbook, a database or a JSON list gives them, to Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from addml.data.files.column_names import unique_names

if TYPE_CHECKING:
    import pyarrow as pa

ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def table_from_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> tuple[pa.Table, list[str]]:
    """The table of these rows, each as long as `names`, and what had to be changed."""
    import pyarrow as pa

    unique, notes = unique_names(names)
    columns = list(zip(*rows, strict=True)) or [()] * len(unique)
    arrays = []
    for name, values in zip(unique, columns, strict=True):
        array, mixed = _array(values)
        arrays.append(array)
        if mixed:
            notes.append(f"column {name}: {mixed}")
    return pa.table(arrays, names=unique), notes


def _array(values: Sequence[Any]) -> tuple[pa.Array, str | None]:
    import pyarrow as pa

    try:
        return _dates(pa.array(values)), None
    except (pa.ArrowException, OverflowError):
        pass
    present = [value for value in values if value is not None]
    if all(isinstance(value, (int, float, Decimal)) for value in present):
        return pa.array([None if value is None else float(value) for value in values]), None
    return pa.array([None if value is None else str(value) for value in values]), _mixture(values)


def _mixture(values: Sequence[Any]) -> str:
    kinds = sorted({type(value).__name__ for value in values if value is not None})
    texts = (row for row, value in enumerate(values, start=1) if isinstance(value, str))
    where = f" (row {row} is {values[row - 1]!r})" if (row := next(texts, None)) else ""
    return f"holds {' and '.join(kinds)}{where}"


def _dates(array: pa.Array) -> pa.Array:
    """The column as dates where it is text of ISO 8601 throughout."""
    import pyarrow as pa

    if not pa.types.is_string(array.type):
        return array
    first = next((value.as_py() for value in array.slice(0, 1000) if value.is_valid), None)
    if first is None or not ISO_DAY.match(first):
        return array
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return array
