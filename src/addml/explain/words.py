"""What is unusual about a value, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property, lru_cache
from typing import Any

RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
LONGEST = 40  # characters of a level in words
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Words = tuple[str, str]  # with the row's value, and without


@dataclass(frozen=True)
class UsualColumn:
    """What is usual in one column of the training rows, as plain values; the words of reasons compare with it."""

    column: str
    kind: str  # "number", "boolean", "date", "category"
    low: float | None = None  # the middle 90 % of a number
    middle: float | None = None
    high: float | None = None
    levels: Mapping[str, float] = field(default_factory=dict)  # shares of a category's levels, of "true" and "false"
    unlisted: float = 0.0  # share of the training rows whose level is not among them
    gaps: float = 0.0  # share of the training rows without a value
    earliest: date | None = None  # of a date
    latest: date | None = None
    hours: tuple[int, int] | None = None  # the middle 90 % of its hours, both included; (22, 4) goes over midnight
    weekdays: tuple[float, ...] = ()  # shares, Monday first

    @cached_property
    def commonest(self) -> float:
        """The share of the commonest level."""
        return max(self.levels.values(), default=0.0)


class Wording:
    """The words for columns of certain rows."""

    def __init__(self, usual: Sequence[UsualColumn], values: Mapping[str, Sequence[Any]]) -> None:
        self.usual, self.values = usual, [values[column.column] for column in usual]
        self._levels: dict[tuple[int, Any], Words | None] = {}  # few values of a category come again and again

    def alone(self, column: int, row: int) -> Words | None:
        """What is unusual about the value by itself, None where nothing is."""
        usual, value = self.usual[column], self.values[column][row]
        if usual.kind != "category":
            return column_words(usual, value)
        if (column, value) not in self._levels:
            self._levels[column, value] = column_words(usual, value)
        return self._levels[column, value]

    def beside_others(self, column: int, row: int) -> Words:
        """For an ordinary value that does not fit the rest of its row."""
        usual, value = self.usual[column], self.values[column][row]
        gist = f"{usual.column} unusual for such a row"
        return (gist if _is_gap(value) else f"{usual.column} {_shown(usual, value)} unusual for such a row"), gist

    def together(self, columns: Sequence[int]) -> Words:
        """For values that do not go together."""
        words = f"unusual together: {', '.join(self.usual[column].column for column in columns)}"
        return words, words


def column_words(usual: UsualColumn, value: Any) -> Words | None:
    """What is unusual about a value, with and without the value itself; None for an ordinary one."""
    if _is_gap(value):
        words = f"{usual.column} missing"
        return (words, words) if usual.gaps < 0.5 else None
    words_of_kind = {"number": _number_words, "date": _date_words}.get(usual.kind, _level_words)
    found = words_of_kind(usual, value)
    if found is None and usual.gaps > 0.5:
        return f"{usual.column} {_shown(usual, value)}, usually missing", f"{usual.column} present, usually missing"
    return found


def _is_gap(value: Any) -> bool:
    return value is None or bool(value != value)  # NaN and NaT differ from themselves


def _shown(usual: UsualColumn, value: Any) -> str:
    if usual.kind == "number":
        return _figures(float(value), 4)
    if usual.kind == "date":
        return f"{_moment(value):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    return _level(value).lower() if usual.kind == "boolean" else f"'{_level(value)}'"


def _number_words(usual: UsualColumn, value: Any) -> Words | None:
    name, low, middle, high, number = usual.column, usual.low, usual.middle, usual.high, float(value)
    if low is None or high is None or low <= number <= high:
        return None
    if number < 0 <= low:
        return f"{name} negative", f"{name} negative"
    gist = f"{name} {'above' if number > high else 'below'} the usual"
    if middle and low >= 0 and number > 0 and not 0.5 < number / middle < 2:  # only what has a zero has multiples
        ratio = number / middle
        times = f"{_figures(ratio, 2)}x the usual" if ratio >= 2 else f"1/{_figures(1 / ratio, 2)} of the usual"
        return f"{name} {times}", gist
    for digits in (3, 4, 6):
        shown, usually = _figures(number, digits), _bounds(low, high, digits)
        if shown not in usually:
            return f"{name} {shown}, usually {' to '.join(usually)}", gist
    return None


@lru_cache(maxsize=4096)
def _bounds(low: float, high: float, digits: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys([_figures(low, digits), _figures(high, digits)]))


def _figures(number: float, digits: int) -> str:
    """A number with so many significant digits, and all digits before the point: 97.3, 60, 1234567, 2.5e-09."""
    size = abs(number)
    if size and not 1e-4 <= size < 1e15:
        return f"{number:.{digits}g}"
    text = f"{number:.{max(0, digits - 1 - math.floor(math.log10(size or 1)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _level_words(usual: UsualColumn, value: Any) -> Words | None:
    share = usual.levels.get(str(value).lower() if usual.kind == "boolean" else str(value))
    if share is None:
        word, percent = "rare" if usual.unlisted else "unseen", ""
    elif share < UNCOMMON_BESIDE * usual.commonest:
        word, percent = (
            "rare" if _is_rare(share, usual.commonest) else "uncommon",
            f" ({_figures(100 * share, 2)}%)",
        )
    else:
        return None
    return f"{usual.column} {_shown(usual, value)} {word}{percent}", f"{usual.column} {word}"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


def _level(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _date_words(usual: UsualColumn, value: Any) -> Words | None:
    """A date by its place in time where that is far outside, else by its weekday and hour, else by its place."""
    moment = _moment(value)
    outside, is_far = _outside_words(usual, moment)
    return (outside if is_far else None) or _clock_words(usual, moment) or outside


def _outside_words(usual: UsualColumn, moment: datetime) -> tuple[Words | None, bool]:
    if usual.earliest is None or usual.latest is None:
        return None, False
    earliest, latest = _moment(usual.earliest), _moment(usual.latest)
    if earliest <= moment <= latest:
        return None, False
    side, nearest = ("after", latest) if moment > latest else ("before", earliest)
    when = f"in {moment.year}" if moment.year != nearest.year else f"on {moment:%Y-%m-%d}"
    gist = f"{usual.column} {side} all others"
    return (f"{usual.column} {when}, {side} all others", gist), abs(moment - nearest) > 0.1 * (latest - earliest)


def _clock_words(usual: UsualColumn, moment: datetime) -> Words | None:
    words, gists = [], []
    if usual.weekdays and _is_rare(usual.weekdays[moment.weekday()], max(usual.weekdays)):
        words.append(f"on a {WEEKDAYS[moment.weekday()]}")
        gists.append("on an unusual weekday")
    if usual.hours and not _is_between(moment.hour, *usual.hours):
        words.append(f"at {moment:%H:%M}, usually {usual.hours[0]:02} to {usual.hours[1]:02}")
        gists.append("at an unusual hour")
    return (f"{usual.column} {' '.join(words)}", f"{usual.column} {' '.join(gists)}") if words else None


def _is_between(hour: int, first: int, last: int) -> bool:
    return first <= hour <= last if first <= last else hour >= first or hour <= last


def _moment(value: date) -> datetime:
    """The clock's time at a date, whatever its time zone; midnight where it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
