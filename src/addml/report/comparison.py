"""A row's values beside the usual ones of their columns."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from addml.findings import Finding, Usual
from addml.text import MISSING, plain, raw, share, text

MOST_COLUMNS = 30  # compared for one row: its reasons, then what lies farthest outside


@dataclass(frozen=True)
class Comparison:
    """One value of a row beside the usual values of its column."""

    column: str
    value: str
    usual: str
    where: str  # "above the usual"
    offset: float | None = None  # of a number: -1 and 1 are the ends of the usual range, 0 its middle
    common: float | None = None  # of a category: the share of usual rows that have it
    reason: float | None = None  # the share of the row's score that this column contributes


def comparisons(finding: Finding, usual: dict[str, Usual]) -> list[Comparison]:
    """The columns that made a row stand out, then those that lie farthest outside, MOST_COLUMNS at most."""
    shares: dict[str, float] = {}
    for reason in finding.reasons:
        column = owner(reason.column, finding.values)
        shares[column] = shares.get(column, 0.0) + reason.share

    def importance(item: tuple[str, Any]) -> tuple[bool, float, float]:
        column, value = item
        return column in shares, shares.get(column, 0.0), _outside(plain(value), usual.get(column))

    first = heapq.nlargest(MOST_COLUMNS, finding.values.items(), key=importance)
    return [_compare(column, plain(value), usual.get(column), shares) for column, value in first]


def _compare(column: str, value: Any, one: Usual | None, shares: dict[str, float]) -> Comparison:
    offset = None if one is None else _offset(value, one)
    return Comparison(
        column=text(column),
        value=raw(value),
        usual=text(one.words if one else ""),
        where=direction(value, one),
        offset=offset,
        common=None if one is None else _common(value, one),
        reason=shares.get(column),
    )


def _outside(value: Any, one: Usual | None) -> float:
    """How unusual a value is by itself: over 1 for a number outside its usual range."""
    if one is None:
        return 0.0
    offset, common = _offset(value, one), _common(value, one)
    return abs(offset) if offset is not None else 1 - common if common is not None else 0.0


def owner(column: str, columns: Collection[str]) -> str:
    """The column of the table behind a feature such as `country=DE`, whose name holds a value."""
    if column in columns or "=" not in column:
        return column
    owners = [one for one in columns if column.startswith(f"{one}=")]
    return max(owners, key=len, default=column.partition("=")[0])


def direction(value: Any, one: Usual | None) -> str:
    """Where a value lies, in words that do not tell the value; empty where that is not known."""
    value = plain(value)
    if raw(value) == MISSING:
        return ""
    offset = None if one is None else _offset(value, one)
    if offset is not None:
        return "above the usual" if offset > 1 else "below the usual" if offset < -1 else "within the usual"
    common = None if one is None else _common(value, one)
    if common is None:
        return ""
    return "rare or unseen" if common == 0 else "a common value" if common >= 0.05 else "an uncommon value"


def _offset(value: Any, one: Usual) -> float | None:
    """How far a number lies from the middle, in half usual ranges; None where that has no meaning."""
    number, middle = _float(value), _float(one.middle)
    if number is None or middle is None or one.low is None or one.high is None:
        return None
    if number == middle:
        return 0.0
    reach = one.high - middle if number > middle else middle - one.low
    offset = (number - middle) / reach if reach > 0 else math.copysign(math.inf, number - middle)
    return None if math.isnan(offset) else offset


def _float(value: Any) -> float | None:
    if isinstance(value, bool | str | None):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _common(value: Any, one: Usual) -> float | None:
    """The share of usual rows with this category; 0 where it is none of the common ones."""
    if not one.common or raw(value) == MISSING:
        return None
    names = {name.lower() if isinstance(value, bool) else name: part for name, part in one.common}
    return names.get(str(value).lower() if isinstance(value, bool) else str(value), 0.0)


def common_words(part: float) -> str:
    """How many usual rows share a category."""
    return f"in {share(part)} of usual rows" if part else "rare or unseen"
