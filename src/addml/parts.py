"""The parts that a detector is made of, such as its encoder and its loss, and the checks of their parameters."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

WIDEST = 2**16  # of a layer


class Part:
    """Parameters that scikit-learn can copy and set; a subclass is a dataclass.

    The constructor only stores; `check` validates when the detector is fitted.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return dict(vars(self))

    def set_params(self, **changes: Any) -> Self:
        """Change some parameters."""
        for name, value in changes.items():
            if name not in vars(self):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; use one of {', '.join(vars(self))}")
            setattr(self, name, value)
        return self

    def check(self) -> None:
        """Raise ValueError for a parameter that has no meaning."""


def check_one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """The value must be one of these words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, allowed))}")


def check_whole(name: str, value: Any, most: int = WIDEST) -> None:
    """The value must be a whole number from 1 to `most`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    if int(value) > most:
        raise ValueError(f"{name}={value!r} is too large; give a whole number of at most {most}")


def check_positive(name: str, value: Any, most: float = math.inf) -> None:
    """The value must be a finite number above 0, up to `most`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most or not math.isfinite(value):
        raise ValueError(f"{name}={value!r} must be a number in (0, {most:g}{']' if math.isfinite(most) else ')'}")


def check_flag(name: str, value: Any) -> None:
    """The value must be True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_widths(name: str, value: Any) -> None:
    """The value must be a list of layer widths, which may be empty."""
    is_list = isinstance(value, (tuple, list, np.ndarray))
    if not is_list or not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) > 0 for n in value):
        raise ValueError(f"{name}={value!r} must be a tuple of layer widths of at least 1, such as (64,) or ()")
    for width in value:
        check_whole(name, width)
