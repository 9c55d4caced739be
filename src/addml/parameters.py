"""The checks of what a user passes: parameters, labels, tables. Level 1.

Each check names the argument, the value it got and what to give instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np


def one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """A word out of a list."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, allowed))}")


def whole(name: str, value: Any, least: int = 1) -> None:
    """A whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")


def number(
    name: str, value: Any, low: float, high: float = math.inf, *, with_low: bool, with_high: bool = True
) -> None:
    """A number in a range, whose ends belong to it or not."""
    inside = _is_number(value) and low <= value <= high and math.isfinite(value)
    if not inside or (value == low and not with_low) or (value == high and not with_high):
        opening, closing = "[" if with_low else "(", "]" if with_high and math.isfinite(high) else ")"
        raise ValueError(f"{name}={value!r} must be a number in {opening}{low:g}, {high:g}{closing}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_)) and not math.isnan(value)


def widths(name: str, value: Any) -> tuple[int, ...]:
    """The widths of the hidden layers, none for no hidden layer."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        raise ValueError(f"{name}={value!r} must be a tuple of layer widths, such as (64,) or ()")
    for width in value:
        whole(f"each width in {name}", width)
    return tuple(int(width) for width in value)


def read_labels(labels: Any, rows: int) -> np.ndarray | None:
    """Labels as an int array (n,): 0 normal, 1 anomaly, -1 unknown."""
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (rows,):
        raise ValueError(f"labels has shape {array.shape}, X has {rows} rows; give one label for each row")
    strange = [value for value in np.unique(array[array == array]) if value not in (-1, 0, 1)]
    if array.dtype.kind not in "biuf" or strange or (array != array).any():
        shown = strange[:3] if array.dtype.kind in "biuf" and strange else f"{array.dtype} values"
        raise ValueError(f"labels holds {shown}; use 0 for normal, 1 for anomaly, -1 for unknown")
    marks = array.astype(np.int64)
    if (marks != 1).sum() < 2:
        raise ValueError("labels marks all rows but one, or all, as anomalies; at least two must be normal or unknown")
    return marks


def generator_seed(random_state: Any) -> np.random.SeedSequence:
    """Entropy for the members' generators; numpy's global state is neither read nor changed."""
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(random_state.randint(0, 2**32, 4, dtype=np.uint32).tolist())
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(0, 2**32, 4, dtype=np.uint32).tolist())
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.SeedSequence(int(random_state))
    raise ValueError(
        f"random_state={random_state!r} must be None, a whole number of at least 0, a RandomState or a Generator"
    )


def finite(X: np.ndarray, names: list[str]) -> None:
    """No infinity, and no integer that float64 cannot tell from its neighbour; NaN is a gap and allowed."""
    if X.dtype.kind in "iu":
        if X.size and (X.dtype.itemsize == 8) and max(int(X.max()), -int(X.min())) > 2**53:
            column = int(np.flatnonzero((np.abs(X.astype(float)) >= 2**53).any(axis=0))[0])
            raise ValueError(
                f"column {names[column]!r} holds integers over 2**53, which double precision cannot tell apart; "
                "leave the column out if it is an identifier, or subtract an offset first"
            )
        return
    if X.dtype.kind == "f" and not math.isfinite(float(X.sum(dtype=np.float64))):
        infinite = np.flatnonzero(np.isinf(X).any(axis=0))
        if len(infinite):
            raise ValueError(
                f"column {names[infinite[0]]!r} holds infinity; replace it by NaN (a gap) or by a finite value"
            )
