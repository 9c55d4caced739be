"""The parts of a detector that have parameters of their own, and the checks of user arguments."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from numbers import Integral, Rational, Real
from typing import Any, Self, TypeVar

import numpy as np

LEAST_MEMORY = 2**20  # bytes
LARGEST = 2**63 - 1  # the largest int64
WIDEST = 2**16  # most units of a layer, and most members


class Part:
    """A dataclass of parameters that scikit-learn can clone and set.

    As in scikit-learn, the constructor only stores; `fit` calls `check`.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(vars(self))

    def set_params(self, **changes: Any) -> Self:
        for name, value in changes.items():
            if name not in vars(self):
                names = ", ".join(vars(self)) or "none"
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; its parameters: {names}")
            setattr(self, name, value)
        return self

    def check(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def __repr__(self) -> str:
        """Only the parameters that differ from their defaults."""
        defaults = {field.name: field.default for field in fields(self)}  # type: ignore[arg-type]
        changed = [f"{name}={value!r}" for name, value in vars(self).items() if repr(value) != repr(defaults.get(name))]
        return f"{type(self).__name__}({', '.join(changed)})"


P = TypeVar("P", bound=Part)


def as_part(argument: str, value: Any, kinds: Mapping[str, type[P]], also: Collection[str] = ()) -> P:
    """A checked copy of the user's part, or the default part of that name."""
    if isinstance(value, str) and value in kinds:
        return kinds[value]()
    if not isinstance(value, tuple(kinds.values())):
        example = next(iter(kinds.values())).__name__
        names = ", ".join(map(repr, (*also, *kinds)))
        raise ValueError(f"{argument}={value!r} is not known; use one of {names}, or a part such as {example}()")
    part = copy.copy(value)
    try:
        part.check()  # type: ignore[attr-defined]
    except ValueError as error:
        raise ValueError(f"{argument}={part!r}: {error}") from None
    return part  # type: ignore[return-value]


def to_json(value: Any) -> Any:
    """A parameter as a JSON value; raises TypeError for any other object."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, np.ndarray)):
        return [to_json(item) for item in value]
    if isinstance(value, Rational) and not isinstance(value, Integral):
        return float(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{value!r} has no JSON form")


def check_one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, allowed))}")


def check_whole(name: str, value: Any, least: int = 1, most: int = LARGEST) -> None:
    if not _is_whole(value, least):
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
    if value > most:
        raise ValueError(f"{name}={value!r} is too large; give a whole number of at most {most}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, with_low: bool, with_high: bool = True
) -> None:
    """Check for a finite number from low to high, which are allowed themselves with `with_low` and `with_high`."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    is_inside = low <= number <= high and math.isfinite(number)
    if not is_inside or (number == low and not with_low) or (number == high and not with_high):
        opening = "[" if with_low else "("
        closing = "]" if with_high and math.isfinite(high) else ")"
        raise ValueError(f"{name}={value!r} must be a number in {opening}{low:g}, {high:g}{closing}")


THRESHOLDS = ("auto", "events")  # methods that find the share of flagged rows


def threshold_method(method: Any, contamination: Any) -> tuple[Any, float | None]:
    """The threshold method (a name or a PyThresh object) and its share, from a user's two arguments."""
    if method is not None and contamination is not None:
        raise ValueError(f"method={method!r} estimates the share; leave out contamination={contamination!r}")
    choice = contamination if method is None else method
    if hasattr(choice, "eval") and not isinstance(choice, (str, type)):
        return choice, None
    if method is not None:
        check_one_of("method", method, THRESHOLDS)
    if isinstance(choice, str) and choice in THRESHOLDS:
        return choice, None
    check_number("contamination", contamination, 0, 0.5, with_low=False)
    return "quantile", float(contamination)


def size(name: str, value: Any) -> int:
    """A memory size in bytes, from a whole number or a text such as "2GiB" or "500 MB"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", value) if isinstance(value, str) else None
    if match:
        power = "KMGT".index(match[2][0]) + 1
        value = int(float(match[1]) * (1024 if "i" in match[2] else 1000) ** power)
    if not _is_whole(value, LEAST_MEMORY):
        raise ValueError(f"{name}={value!r} must be a memory size of at least 1 MiB, such as '2GiB' or '500MB'")
    return int(value)


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_widths(name: str, value: Any) -> None:
    """Check the widths of hidden layers; an empty tuple means no hidden layer."""
    if not isinstance(value, (tuple, list, np.ndarray)) or not all(_is_whole(width, 1) for width in value):
        raise ValueError(f"{name}={value!r} must be a tuple of layer widths of at least 1, such as (64,) or ()")
    for width in value:
        check_whole(name, width, most=WIDEST)


def read_labels(labels: Any, rows: int) -> np.ndarray | None:
    """Labels as an int array (n,): 0 normal, 1 anomaly, -1 unknown."""
    if labels is None:
        return None
    try:
        array = np.asarray(labels.tolist() if np.ma.is_masked(labels) else labels)  # masked values become None
        array = np.array(array.tolist()) if array.dtype.kind == "O" else array  # unpacks an object array of numbers
    except ValueError:
        raise ValueError("labels holds lists of different lengths; give one label for each row") from None
    if array.shape != (rows,):
        raise ValueError(f"labels has shape {array.shape}, X has {rows} rows; give one label for each row")
    is_valid = [isinstance(value, Real) and value in (-1, 0, 1) for value in array.tolist()]
    if not all(is_valid):
        invalid = array[is_valid.index(False)]
        raise ValueError(f"labels holds {invalid!s} ({array.dtype}); use 0 for normal, 1 for anomaly, -1 for unknown")
    array = array.astype(np.int64)
    if (array != 1).sum() < 2:
        raise ValueError("labels marks all rows, or all but one, as anomalies; at least two must be normal or unknown")
    return array


def selected_rows(name: str, value: Any, rows: int) -> np.ndarray:
    """Row numbers from a list of numbers, a mask or a slice; None means all rows."""
    index = slice(None) if value is None else list(value) if isinstance(value, tuple) else value
    try:
        selected = np.arange(rows)[index]
    except IndexError as error:
        raise ValueError(f"{name}={value!r} does not select from {rows} rows ({error})") from None
    if np.ndim(selected) != 1:
        raise ValueError(f"{name}={value!r} must be a list of row numbers from 0 to {rows - 1}, such as [0]")
    return np.asarray(selected)


def generator_seed(random_state: Any) -> np.random.SeedSequence:
    """Entropy for the members' generators; leaves NumPy's global state alone."""
    if isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        draw = random_state.randint if isinstance(random_state, np.random.RandomState) else random_state.integers
        return np.random.SeedSequence(draw(0, 2**32, 4, dtype=np.uint32).tolist())
    if random_state is None:
        return np.random.SeedSequence()
    if not isinstance(random_state, Integral) or isinstance(random_state, bool) or random_state < 0:
        allowed = "None, a whole number of at least 0, a RandomState or a Generator"
        raise ValueError(f"random_state={random_state!r} must be {allowed}")
    return np.random.SeedSequence(int(random_state))
