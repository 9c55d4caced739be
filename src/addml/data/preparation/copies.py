"""Columns that say what another column says already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np

LOOKED_AT = 1000  # rows that tell which pairs are worth a full comparison
TOLERANCE = 1e-9  # of a column's range: rounding of the copy


def sample_rows(rows: int) -> np.ndarray:
    """The rows that marks are taken from, the same for all columns of a table."""
    return np.random.default_rng(0).integers(0, rows, min(rows, LOOKED_AT)) if rows > LOOKED_AT else np.arange(rows)


def number_mark(values: np.ndarray) -> float:
    """A number that does not change when the sampled values are scaled or shifted, and hardly ever meets another's."""
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    filled = _within_one(np.where(known, values, 0.0).astype(np.float64))
    weights = np.random.default_rng(1).normal(size=(2, len(values)))
    centred = np.where(known, filled - filled.sum() / max(1, known.sum()), 0.0)
    largest = np.abs(centred).max(initial=0.0)
    if largest == 0:
        return float(weights[1] @ known)
    centred /= largest
    shape = weights[0] @ centred / np.sqrt(centred @ centred)
    return float(abs(shape) + weights[1] @ known)


def code_mark(codes: np.ndarray) -> bytes:
    """The same for columns whose values stand for each other one to one; codes count in order of first occurrence."""
    return hashlib.blake2b(np.ascontiguousarray(codes, np.int64).tobytes(), digest_size=16).digest()


def number_copies(marks: Mapping[str, float], read: Callable[[str], np.ndarray]) -> dict[str, str]:
    """Copy -> original among columns of numbers, up to scale and shift; the first in `marks` is the original."""
    order = {name: position for position, name in enumerate(marks)}
    found: dict[str, str] = {}
    for group in _neighbours(marks):
        originals: list[str] = []
        for name in sorted(group, key=order.__getitem__):
            original = next((other for other in originals if is_affine(read(other), read(name))), None)
            if original is None:
                originals.append(name)
            else:
                found[name] = original
    return found


def _neighbours(marks: Mapping[str, float]) -> Iterator[list[str]]:
    """Groups of two or more columns whose marks are the same but for rounding."""
    names = sorted(marks, key=marks.__getitem__)
    group = names[:1]
    for before, name in pairwise(names):
        if marks[name] - marks[before] > 1e-6:
            if len(group) > 1:
                yield group
            group = []
        group.append(name)
    if len(group) > 1:
        yield group


def is_affine(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether y = a x + b in every row, gaps and texts included."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    missing = ~np.isfinite(x)
    if not np.array_equal(np.where(missing, x, 0), np.where(np.isfinite(y), 0, y), equal_nan=True):
        return False
    x, y = (_within_one(values[~missing]) for values in (x, y))
    low, high = int(np.argmin(x)), int(np.argmax(x))
    if x[low] == x[high] or y[low] == y[high]:
        return bool(x[low] == x[high] and np.ptp(y) == 0)
    share = (x - x[low]) / (x[high] - x[low])
    return bool((np.abs(y[low] + share * (y[high] - y[low]) - y) <= TOLERANCE * abs(y[high] - y[low])).all())


def _within_one(values: np.ndarray) -> np.ndarray:
    """Scaled into -1 to 1, where differences cannot overflow."""
    return np.asarray(values / (np.abs(values).max(initial=0.0) or 1.0))


def code_copies(marks: Mapping[str, bytes]) -> dict[str, str]:
    """Copy -> original among columns of categories."""
    first: dict[bytes, str] = {}
    found: dict[str, str] = {}
    for name, mark in marks.items():
        original = first.setdefault(mark, name)
        if original != name:
            found[name] = original
    return found
