"""Data frames of any library as Arrow tables, through narwhals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow as pa

from addml.wording import listed


def as_table(X: Any) -> pa.Table:
    """The frame as an Arrow table; a pandas index is no column."""
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if isinstance(X, pa.Table):
        check_names(X.column_names)
        return X
    import narwhals as nw

    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("a lazy frame holds no rows yet; give its .collect()")
    if not nw.dependencies.is_into_dataframe(X):
        raise ValueError(f"{type(X).__name__} is no data frame; give one of pandas, polars or pyarrow")
    names = [str(name) for name in X.columns]
    check_names(names)
    frame = nw.from_native(X, eager_only=True)
    return pa.table([_arrow(frame[:, position], name) for position, name in enumerate(names)], names=names)


def check_names(names: Sequence[str]) -> None:
    """Columns go by their names, so that no two may share one."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        names = listed(list(map(repr, repeated)))
        raise ValueError(f"columns go by their names, but several are called {names}; rename them")


def _arrow(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """One column; a failure names it and the first value of another type than the first."""
    failures = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
    categories: Any = getattr(getattr(series.to_native(), "dtype", None), "categories", None)
    if hasattr(categories, "closed"):  # intervals, as of pandas.cut
        return pa.array(series.to_native().cat.rename_categories(list(map(str, categories))))
    try:
        return series.to_arrow()
    except failures as error:
        try:
            return pa.array(series.to_numpy(), from_pandas=True)  # a sparse column, written out
        except failures:
            if (texts := _numbers_as_text(series)) is not None:
                return texts
            raise ValueError(f"column {name!r} {_mixture(series, error)}; give all its values one type") from error


def _numbers_as_text(series: Any) -> pa.Array | None:
    """A column of numbers and texts as texts, as a file has it; None where there is anything else among them."""
    missing = series.is_null().to_list()
    values = [None if gap else value for gap, value in zip(missing, series.to_list(), strict=True)]
    if not all(value is None or isinstance(value, (str, Real, Decimal)) for value in values):
        return None
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _mixture(series: Any, error: Exception) -> str:
    values = [(row, value) for row, value in enumerate(series.to_list(), start=1) if not _is_gap(value)]
    types = list(dict.fromkeys(type(value).__name__ for _, value in values))
    if len(types) < 2:
        return f"cannot be read ({error})"
    row, value = next((row, value) for row, value in values if type(value).__name__ != types[0])
    return f"mixes {' and '.join(types)} (row {row:,} is {value!r})"


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)
