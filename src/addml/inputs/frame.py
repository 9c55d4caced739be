"""Data frames of any library as Arrow tables, without importing the library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow as pa

from addml.arrays import to_numpy
from addml.text import listed

NO_FRAMES = ("builtins", "numpy", "scipy", "torch")  # libraries without data frames: no need to import narwhals


def is_frame(X: Any) -> bool:
    return _frame(X) is not None


def is_pandas(X: Any) -> bool:
    return _library(X) == "pandas" and getattr(X, "ndim", 0) == 2


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def column_values(X: Any) -> Any:
    """A column of a frame as an array, NaN for missing values; None if X is not a column."""
    if _library(X) in NO_FRAMES:
        return None
    import narwhals as nw

    column = nw.from_native(X, series_only=True, pass_through=True)
    return None if column is X else column.to_numpy()


def has_other_than_numbers(X: Any) -> bool:
    """Whether X is a frame with text, categories or dates, or an Arrow table."""
    import narwhals as nw

    frame = _frame(X)
    if frame is None:
        return False
    dtypes = (nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime, nw.Duration, nw.Time)
    types = (date, time, timedelta, str)  # Python objects, which pandas uses for values from a database
    return frame.implementation.is_pyarrow() or any(
        column.dtype in dtypes or (column.dtype == nw.Object and any(isinstance(value, types) for value in column))
        for column in frame.iter_columns()
    )


def _frame(X: Any) -> Any:
    if _library(X) in NO_FRAMES:
        return None
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        check_names([str(name) for name in X.columns])
        raise
    return None if frame is X else frame


def collected(X: Any) -> Any:
    """X, with a pyarrow batch as a table and a torch tensor as an array; refuses a lazy frame."""
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a lazy frame, which has no rows yet; pass X.collect()")
    if _library(X) == "torch":
        return to_numpy(X)
    return as_table(X) if isinstance(X, pa.RecordBatch) else X


def as_table(X: Any) -> pa.Table:
    """The frame as an Arrow table, without a pandas index."""
    if isinstance(X, pa.RecordBatch | pa.Table):
        check_names(X.schema.names)
        return X if isinstance(X, pa.Table) else pa.Table.from_batches([X])
    import narwhals as nw

    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("a lazy frame has no rows yet; give its .collect()")
    if not nw.dependencies.is_into_dataframe(X):
        raise ValueError(f"{type(X).__name__} is not a data frame; give one of pandas, polars or pyarrow")
    names = [str(name) for name in X.columns]
    check_names(names)
    frame = nw.from_native(X, eager_only=True)
    return pa.table([_arrow(frame[:, position], name) for position, name in enumerate(names)], names=names)


def check_names(names: Sequence[str]) -> None:
    """Refuse repeated names: columns are matched by name."""
    if repeated := [repr(name) for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"column names must be unique, but several columns are called {listed(repeated)}; rename them")


def _arrow(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """One column; a mix of numbers and texts becomes text, as in a file."""
    failures = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
    categories: Any = getattr(getattr(series.to_native(), "dtype", None), "categories", None)
    if hasattr(categories, "closed"):  # intervals from pandas.cut
        return pa.array(series.to_native().cat.rename_categories(list(map(str, categories))))
    try:
        return series.to_arrow()
    except failures:
        pass
    try:
        return pa.array(series.to_numpy(), from_pandas=True)  # a sparse column
    except failures as error:
        missing = series.is_null().to_list()
        values = [None if gap else value for gap, value in zip(missing, series.to_list(), strict=True)]
        present = [value for value in values if value is not None]
        if all(isinstance(value, (str, Real, Decimal)) for value in present):
            return pa.array([None if value is None else str(value) for value in values], pa.string())
        other = next((value for value in present if type(value) is not type(present[0])), None)
        problem = f"cannot be read ({error})"
        if other is not None:
            row = next(row for row, value in enumerate(values, start=1) if value is other)
            problem = f"mixes {type(present[0]).__name__} and {type(other).__name__} (row {row:,} is {other!r})"
        raise ValueError(f"column {name!r} {problem}; give all its values one type") from error
