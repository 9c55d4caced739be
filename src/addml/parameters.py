"""The checks of what a user passes: parameters, labels, tables.

Each check names the argument, the value it got and what to give instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np

LEAST_MEMORY = 2**20
LARGEST = 2**63 - 1  # whole number of an array
WIDEST = 2**16  # layer; and networks at most
LONGEST = 2**20  # window


def one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """A word out of a list."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, allowed))}")


def whole(name: str, value: Any, least: int = 1, most: int = LARGEST) -> None:
    """A whole number of at least `least`, and at most `most`."""
    if not _is_whole(value, least):
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
    if value > most:
        raise ValueError(f"{name}={value!r} is too large; give a whole number of at most {most}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def number(
    name: str, value: Any, low: float, high: float = math.inf, *, with_low: bool, with_high: bool = True
) -> None:
    """A number in a range, whose ends belong to it or not."""
    size = _as_float(value)
    inside = low <= size <= high and math.isfinite(size)
    if not inside or (size == low and not with_low) or (size == high and not with_high):
        opening, closing = "[" if with_low else "(", "]" if with_high and math.isfinite(high) else ")"
        raise ValueError(f"{name}={value!r} must be a number in {opening}{low:g}, {high:g}{closing}")


def _as_float(value: Any) -> float:
    """The number as a float; NaN, which is in no range, for what is none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def threshold_method(
    method: Any, contamination: Any, methods: Collection[str], with_share: Collection[str]
) -> tuple[Any, float | None]:
    """The method of a threshold (a name, or a thresholder of PyThresh) and its share, from what a user says of both."""
    for given in (method, contamination):
        if hasattr(given, "eval") and not isinstance(given, (str, type)):
            if method is not None and contamination is not None:
                raise ValueError(f"{type(given).__name__} finds the share by itself; give nothing else with it")
            return given, None
    if method is not None:
        one_of("method", method, methods)
    if isinstance(contamination, str) and contamination == "auto":
        if method not in (None, "auto"):
            raise ValueError(f"contamination='auto' is a method of its own; leave out method={method!r}")
        return "auto", None
    if method is not None and contamination is None:
        if method == "quantile":
            raise ValueError("method='quantile' needs a share; give contamination=0.1, for example")
        return method, None
    if method is not None and method not in with_share:
        raise ValueError(f"method={method!r} finds the share by itself; leave out contamination={contamination!r}")
    number("contamination", contamination, 0, 0.5, with_low=False)
    return method or "quantile", float(contamination)


def size(name: str, value: Any) -> int:
    """Bytes of memory: a whole number, or a text such as "2GiB" or "500 MB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", value) if isinstance(value, str) else None
    if found:
        power = "KMGT".index(found[2][0]) + 1
        value = int(float(found[1]) * (1024 if "i" in found[2] else 1000) ** power)
    if not _is_whole(value, LEAST_MEMORY):
        raise ValueError(f"{name}={value!r} must be a size of memory of at least 1 MiB, such as '2GiB' or '500MB'")
    return int(value)


def flag(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False")


def widths(name: str, value: Any) -> tuple[int, ...]:
    """The widths of the hidden layers, none for no hidden layer."""
    listed = isinstance(value, (tuple, list, np.ndarray))
    if not listed or not all(_is_whole(width, 1) for width in value):
        raise ValueError(f"{name}={value!r} must be a tuple of layer widths of at least 1, such as (64,) or ()")
    for width in value:
        whole(name, width, most=WIDEST)
    return tuple(int(width) for width in value)


def read_labels(labels: Any, rows: int) -> np.ndarray | None:
    """Labels as an int array (n,): 0 normal, 1 anomaly, -1 unknown."""
    if labels is None:
        return None
    array = _label_array(labels)
    if array.shape != (rows,):
        raise ValueError(f"labels has shape {array.shape}, X has {rows} rows; give one label for each row")
    known = np.isin(array, (-1, 0, 1)) if array.dtype.kind in "biuf" else _numbers_among(array, (-1, 0, 1))
    if not known.all():
        strange = array[np.flatnonzero(~known)[0]]
        raise ValueError(f"labels holds {strange!s} ({array.dtype}); use 0 for normal, 1 for anomaly, -1 for unknown")
    marks = array.astype(np.int64)
    if (marks != 1).sum() < 2:
        raise ValueError("labels marks all rows but one, or all, as anomalies; at least two must be normal or unknown")
    return marks


def _numbers_among(array: np.ndarray, allowed: tuple[int, ...]) -> np.ndarray:
    """Which values of an array of another kind are numbers that are allowed."""
    return np.array([isinstance(value, Real) and value in allowed for value in array.tolist()])


def _label_array(labels: Any) -> np.ndarray:
    try:
        if np.ma.is_masked(labels):
            return np.array(labels.tolist())  # what is hidden is None there
        array = np.asarray(labels)
        return np.array(array.tolist()) if array.dtype.kind == "O" else array  # numbers in an object array are numbers
    except ValueError:
        raise ValueError("labels holds lists of different lengths; give one label for each row") from None


def places(name: str, value: Any, rows: int) -> np.ndarray:
    """The places of the rows that are asked for, as whole numbers, a mask or a slice; None is all."""
    index = slice(None) if value is None else list(value) if isinstance(value, tuple) else value
    try:
        chosen = np.arange(rows)[index]
    except IndexError as error:
        raise ValueError(f"{name}={value!r} are no places of {rows} rows ({error})") from None
    if np.ndim(chosen) != 1:
        raise ValueError(f"{name}={value!r} must be a list of places from 0 to {rows - 1}, such as [0]")
    return np.asarray(chosen)


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
