"""Rows of an array of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any, Self

import numpy as np

from addml.arrays import evenly_spaced
from addml.errors import warn_of_columns
from addml.inputs.rows import LazyRows, Rows
from addml.inputs.vectorizer import Settings, Vectorizer, names_or_places, sides_of
from addml.preprocessing.profile import ColumnProfile, number_profile
from addml.preprocessing.scaling import NEW_GAPS, Features

PROFILED = 10_000  # training rows whose quantiles are those of all
LARGEST_EXACT = 2**53  # integers that float64 tells from their neighbours


@dataclass(frozen=True, kw_only=True)
class ArrayVectorizer(Vectorizer):
    """An array (n, d) of numbers with NaN for missing values."""

    @classmethod
    def fit(cls, X: np.ndarray, settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Self, LazyRows]:
        labels = names_or_places(names, X.shape[1])
        check_finite(X, labels)
        features = Features.fit(X, sides_of(settings.one_sided, labels), robust=settings.robust)
        warn_of_columns("columns without a single value tell nothing", features.empty, labels)
        one = cls(features=features, columns_in=X.shape[1], names=names)
        return one, LazyRows(X, one.prepare, one.prepare(X))

    def read(self, X: np.ndarray) -> LazyRows:
        check_finite(X, self.labels)
        warn_of_columns(NEW_GAPS, self.features.new_gaps(X), self.labels)
        return LazyRows(np.asarray(X), self.prepare)

    def prepare(self, values: np.ndarray) -> np.ndarray:
        return self.features.transform(values)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        """The profiles of the columns in normal training rows, some of them where there are many."""
        if not isinstance(rows, LazyRows):
            return ()
        some = np.asarray(rows.values[evenly_spaced(np.flatnonzero(normal), PROFILED)], np.float64)
        known = [column[~np.isnan(column)] for column in some.T]
        return tuple(
            number_profile(name, own, 1 - len(own) / len(some)) if len(own) else ColumnProfile(name, "number", gaps=1.0)
            for name, own in zip(self.labels, known, strict=True)
        )


def check_finite(X: np.ndarray, names: list[str]) -> None:
    """No infinity, and no integer that float64 cannot tell from its neighbour; NaN is a missing value."""
    if X.dtype.kind in "iu":
        if X.size and (X.dtype.itemsize == 8) and max(int(X.max()), -int(X.min())) > LARGEST_EXACT:
            largest = np.maximum(X.max(axis=0).astype(float), -X.min(axis=0).astype(float))
            raise _inexact(names[np.flatnonzero(largest >= LARGEST_EXACT)[0]])
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(X.sum())  # one quick pass; the slow look follows only where it is not finite
    if not math.isfinite(total) and len(infinite := np.flatnonzero(np.isinf(X).any(axis=0))):
        raise ValueError(
            f"column {names[infinite[0]]!r} holds infinity; replace it by NaN (a gap) or by a finite value"
        )


def check_exact(given: Any, X: np.ndarray, names: list[str]) -> None:
    """No integer over 2**53 in the table that was given, where X, made from it, holds floats."""
    if X.dtype.kind != "f" or (type(given) is np.ndarray and given.dtype.kind != "O"):
        return
    largest = np.maximum(np.fmax.reduce(X, axis=0), -np.fmin.reduce(X, axis=0))  # NaN is not looked at
    for column in np.flatnonzero(largest.astype(np.float64) >= LARGEST_EXACT):
        values = _columns(given)[column][1]()
        if any(isinstance(value, Integral) and abs(int(value)) > LARGEST_EXACT for value in values):
            raise _inexact(names[column])


def _inexact(name: str) -> ValueError:
    return ValueError(
        f"column {name!r} holds integers over 2**53, which double precision cannot tell apart; "
        "leave the column out if it is an identifier, or subtract an offset first"
    )


def is_plain(X: Any, columns: int) -> bool:
    """Whether X is an array that needs none of scikit-learn's checks, which cost more than scoring a row."""
    plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
    return bool(plain and X.shape[1] == columns)


def as_numbers(given: Any, validate: Callable[[Any], np.ndarray]) -> np.ndarray:
    """A table of numbers as an array of at most float64; `validate` makes the array, or says what is wrong."""
    if isinstance(given, np.ma.MaskedArray):
        given = np.ma.filled(given.astype(object), np.nan)
    try:
        X = validate(given)
        X = X.astype(np.float64) if X.dtype.kind == "O" else X  # of a frame of Python objects
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X has dtype {X.dtype}")
    except (TypeError, ValueError) as error:
        raise _not_numbers(given, error) from None
    if X.dtype.kind == "b":
        return X.astype(np.float32)
    with np.errstate(over="ignore"):
        return X.astype(np.float64) if X.dtype.itemsize > 8 else X


def _not_numbers(given: Any, error: Exception) -> Exception:
    """The error of a table that could not be read as numbers, with the column and the value that are to blame."""
    if getattr(given, "ndim", 2) == 3:
        return ValueError(f"{str(error).rstrip('.')}; grey images need their one channel, X[:, None]")
    if isinstance(given, (list, tuple)):
        lengths = {len(row) for row in given if isinstance(row, (list, tuple))}
        if len(lengths) > 1:
            few, many = min(lengths), max(lengths)
            return ValueError(f"X has rows of {few} and of {many} values; give all rows the same columns")
    for name, values in _columns(given):
        for value in values():
            if value is not None and not isinstance(value, (Number, np.number, np.bool_)):
                kind = TypeError if isinstance(error, TypeError) else ValueError
                return kind(
                    f"column {name!r} holds {value!r}, which is not a number: "
                    f"turn it into numbers or leave the column out ({error})"
                )
    return error


def _columns(given: Any) -> list[tuple[str, Callable[[], list[Any]]]]:
    """Names of the columns of a frame, an array or a list of rows, and ways to their values; none of no table."""
    import narwhals as nw

    frame = nw.from_native(given, eager_only=True, pass_through=True)
    if frame is not given:
        return [(column.name, column.to_list) for column in frame.iter_columns()]
    table = np.array(given, dtype=object) if isinstance(given, (list, tuple)) else np.asarray(given)
    return [(str(place), column.tolist) for place, column in enumerate(table.T)] if table.ndim == 2 else []
