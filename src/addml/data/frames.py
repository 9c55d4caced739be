"""Data frames of any library, told apart without importing it."""

from __future__ import annotations

from datetime import date, time, timedelta
from typing import Any

NO_FRAMES = ("builtins", "numpy", "scipy", "torch")  # whose objects need no closer look


def settled(X: Any) -> Any:
    """X itself, or a batch of pyarrow as a table; a lazy frame, which holds no rows yet, is refused."""
    kind = type(X).__name__
    if kind == "LazyFrame":
        raise TypeError("X is a lazy frame, which holds no rows yet; give its .collect()")
    if kind != "RecordBatch":
        return X
    import pyarrow as pa

    return pa.Table.from_batches([X])


def is_frame(X: Any) -> bool:
    """Whether X is a data frame or an Arrow table."""
    return _frame(X) is not None


def column_values(X: Any) -> Any:
    """The values of one column of a frame as an array, NaN for gaps; None where X is no such column."""
    if type(X).__module__.partition(".")[0] in NO_FRAMES:
        return None
    import narwhals as nw

    column = nw.from_native(X, series_only=True, pass_through=True)
    return None if column is X else column.to_numpy()


def has_other_than_numbers(X: Any) -> bool:
    """Whether X is a frame with text, categories or dates in it, or an Arrow table."""
    import narwhals as nw

    frame = _frame(X)
    if frame is None:
        return False
    kinds = (nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime, nw.Duration, nw.Time)
    return frame.implementation.is_pyarrow() or any(
        column.dtype in kinds or (column.dtype == nw.Object and _holds_others(column))
        for column in frame.iter_columns()
    )


def _holds_others(column: Any) -> bool:
    """Whether there are dates, times or texts among Python's own values, as pandas keeps those of a database."""
    return any(isinstance(value, (date, time, timedelta, str)) for value in column)


def _frame(X: Any) -> Any:
    """X as a narwhals frame, or None."""
    if type(X).__module__.partition(".")[0] in NO_FRAMES:
        return None
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        from addml.data.tables import check_names

        check_names([str(name) for name in X.columns])
        raise
    return None if frame is X else frame
