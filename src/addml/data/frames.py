"""Data frames of any library, told apart without importing it."""

from __future__ import annotations

from typing import Any


def is_frame(X: Any) -> bool:
    """Whether X is a data frame or an Arrow table."""
    return _frame(X) is not None


def has_other_than_numbers(X: Any) -> bool:
    """Whether X is a frame with text, categories or dates in it, or an Arrow table."""
    import narwhals as nw

    frame = _frame(X)
    if frame is None:
        return False
    kinds = (nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime, nw.Duration, nw.Time)
    return frame.implementation.is_pyarrow() or any(dtype in kinds for dtype in frame.schema.values())


def _frame(X: Any) -> Any:
    """X as a narwhals frame, or None."""
    if type(X).__module__.partition(".")[0] in ("builtins", "numpy", "scipy", "torch"):
        return None
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return None if frame is X else frame
