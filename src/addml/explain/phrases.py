"""What is unusual about values, in words: for many values of many columns at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.explain.written import (
    clock,
    day_and_minute,
    figure,
    figures,
    joined,
    level_text,
    no_number,
    shown_as,
    year_or_day,
)

RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Words = tuple[str, str]  # with the row's value, and without
Values = Any  # of one kind: float64 for numbers, datetime64[us] for dates, Arrow's text for levels


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


class Alike(NamedTuple):
    """Values of which the same is to be said; words and gist come behind the name of the column."""

    places: np.ndarray  # among all values
    words: pa.Array  # one text a place: "41x the usual"
    gist: str  # the same without the values: "above the usual"


def column_words(usual: UsualColumn, value: Any) -> Words | None:
    """What is unusual about a value, with and without the value itself; None for an ordinary one."""
    groups = unusual([usual], np.zeros(1, np.int64), as_values(usual.kind, [value]))
    name = usual.column
    return next(((f"{name} {alike.words[0]}", f"{name} {alike.gist}") for alike in groups), None)


def as_values(kind: str, values: Any) -> Values:
    """Values of a column of this kind as the functions here take them; None, NaN and NaT are gaps."""
    if kind == "number":
        return np.asarray(values, np.float64)
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, pa.Array):
        return values.cast(pa.string())
    if kind == "date":
        return np.array([None if _is_gap(value) else _moment(value) for value in values], "datetime64[us]")
    texts = [None if _is_gap(value) else str(value) for value in values]
    return pa.array(texts if kind == "category" else [text and text.lower() for text in texts], pa.string())


def taken(values: Values, places: np.ndarray) -> Values:
    """The values at these places."""
    return values[places] if isinstance(values, np.ndarray) else values.take(pa.array(places))


def unusual(usual: Sequence[UsualColumn], which: np.ndarray, values: Values) -> Iterator[Alike]:
    """What is unusual about values by themselves; each stands in one group at most.

    The columns are of one kind, and the i-th value is of `usual[which[i]]`.
    """
    kind, gaps, share = usual[0].kind, _gaps(values), np.array([one.gaps for one in usual])[which]
    yield from _same(np.flatnonzero(gaps & (share < 0.5)), "missing")
    ordinary = ~gaps
    known = np.flatnonzero(ordinary)
    for alike in KINDS[kind](usual, which[known], taken(values, known)):
        places = known[alike.places]
        ordinary[places] = False
        yield alike._replace(places=places)
    rest = np.flatnonzero(ordinary & (share > 0.5))
    if len(rest):
        yield Alike(rest, joined(shown_as(kind, taken(values, rest)), ", usually missing"), "present, usually missing")


def beside_others(usual: Sequence[UsualColumn], which: np.ndarray, values: Values) -> Iterator[Alike]:
    """As `unusual`, of ordinary values that do not fit the rest of their rows."""
    words, gaps = "unusual for such a row", _gaps(values)
    yield from _same(np.flatnonzero(gaps), words)
    known = np.flatnonzero(~gaps)
    if len(known):
        yield Alike(known, joined(shown_as(usual[0].kind, taken(values, known)), f" {words}"), words)


def _is_gap(value: Any) -> bool:
    return value is None or bool(value != value)  # NaN and NaT differ from themselves


def _gaps(values: Values) -> np.ndarray:
    return np.asarray(values.is_null()) if isinstance(values, pa.Array) else np.asarray(values != values)


def _same(places: np.ndarray, words: str) -> Iterator[Alike]:
    """Values of which the same is said, whatever they are."""
    if len(places):
        yield Alike(places, pa.repeat(words, len(places)), words)


# Numbers ----------------------------------------------------------------------------------------------------


def _number_words(usual: Sequence[UsualColumn], which: np.ndarray, numbers: np.ndarray) -> Iterator[Alike]:
    low, middle, high = np.array([_middle_ninety(one) for one in usual], np.float64).T[:, which]
    negative = (numbers < 0) & (low >= 0)
    yield from _same(np.flatnonzero(negative), "negative")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where((low >= 0) & (middle != 0) & (numbers > 0), numbers / middle, 1)  # of what has a zero
        parts = 1 / ratios
    many, few = ratios >= 2, (ratios <= 0.5) & np.isfinite(parts)  # next to nothing is no part of anything
    for gist, beyond in (("below the usual", (numbers < low) & ~negative), ("above the usual", numbers > high)):
        for mask, shown, before, after in ((many, ratios, "", "x the usual"), (few, parts, "1/", " of the usual")):
            places = np.flatnonzero(beyond & mask)
            if len(places):
                yield Alike(places, joined(before, figures(shown[places], 2), after), gist)
        yield from _beside_bounds(usual, which, numbers, np.flatnonzero(beyond & ~many & ~few), gist)


def _middle_ninety(usual: UsualColumn) -> tuple[float | None, float | None, float | None]:
    """The ends and the middle, or nothing, beyond which no number lies."""
    known = usual.low is not None and usual.high is not None
    return (usual.low, usual.middle, usual.high) if known else (None, None, None)


def _beside_bounds(
    usual: Sequence[UsualColumn], which: np.ndarray, numbers: np.ndarray, places: np.ndarray, gist: str
) -> Iterator[Alike]:
    """Numbers beside the usual ones, with as many digits as it takes to tell them apart."""
    for digits in (3, 4, 6):
        shown = figures(numbers[places], digits)
        low, high, usually = (texts.take(pa.array(which[places])) for texts in _bounds(usual, digits))
        apart = np.asarray(pc.and_(pc.not_equal(shown, low), pc.not_equal(shown, high)), bool)
        if apart.any():
            yield Alike(places[apart], joined(shown, ", usually ", usually).filter(pa.array(apart)), gist)
        places = places[~apart]
        if not len(places):
            return


def _bounds(usual: Sequence[UsualColumn], digits: int) -> list[pa.Array]:
    """For each column its low and high end as text, and both in one."""
    ends = [[figure(end or 0.0, digits) for end in (one.low, one.high)] for one in usual]
    return [pa.array(one) for one in zip(*((*both, " to ".join(dict.fromkeys(both))) for both in ends), strict=True)]


# Levels -----------------------------------------------------------------------------------------------------


def _level_words(usual: Sequence[UsualColumn], which: np.ndarray, texts: pa.Array) -> Iterator[Alike]:
    """Of the few levels that come again and again each is judged once."""
    encoded = texts.dictionary_encode()
    levels, codes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
    numbers, codes = np.unique(which * len(levels) + codes, return_inverse=True)
    judged = [_level_word(usual[number // len(levels)], levels[number % len(levels)]) for number in numbers.tolist()]
    for gist in ("unseen", "rare", "uncommon"):
        words = pa.array([words if word == gist else None for word, words in judged], pa.string())
        found = words.take(pa.array(codes))
        places = np.flatnonzero(np.asarray(found.is_valid()))
        if len(places):
            yield Alike(places, found.drop_null(), gist)


def _level_word(usual: UsualColumn, level: str) -> tuple[str, str]:
    """How rare a level is in a word, and that of it in words; nothing of a usual one."""
    share = usual.levels.get(level)
    if share is None:
        word, percent = "rare" if usual.unlisted else "unseen", ""
    elif share < UNCOMMON_BESIDE * usual.commonest:
        word = "rare" if _is_rare(share, usual.commonest) else "uncommon"
        percent = f" ({figure(100 * share, 2)}%)"
    else:
        return "", ""
    return word, f"{level_text(usual.kind, level)} {word}{percent}"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


# Dates ------------------------------------------------------------------------------------------------------


def _date_words(usual: Sequence[UsualColumn], which: np.ndarray, moments: np.ndarray) -> Iterator[Alike]:
    """Dates by their place in time where that is far outside, else by weekday and hour, else by their place."""
    on, at = _by_clock(usual, which, moments)
    ends = [_ends(one) for one in usual]
    far = np.array([0.1 * (late - early) if early and late else None for early, late in ends], "timedelta64[us]")
    earliest, latest = np.array(ends, "datetime64[us]").T[:, which]
    for side, end, away in (("before", earliest, earliest - moments), ("after", latest, moments - latest)):
        is_far = away > far[which]
        places = np.flatnonzero((away > np.timedelta64(0)) & (is_far | ~(on | at)))
        on, at = on & ~is_far, at & ~is_far
        if len(places):
            words = joined(year_or_day(moments[places], end[places]), f", {side} all others")
            yield Alike(places, words, f"{side} all others")
    yield from _clock_words(usual, which, moments, on, at)


def _by_clock(usual: Sequence[UsualColumn], which: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which moments are on a rare weekday, and which at an unusual hour."""
    days, minutes = day_and_minute(moments)
    shares = [one.weekdays or (1.0,) * 7 for one in usual]
    rare = np.array([[_is_rare(share, max(of_week)) for share in of_week] for of_week in shares])
    first, last = np.array([one.hours or (0, 23) for one in usual]).T[:, which]
    after, before = minutes // 60 >= first, minutes // 60 <= last
    return rare[which, _weekday(days)], ~np.where(first <= last, after & before, after | before)


def _clock_words(
    usual: Sequence[UsualColumn], which: np.ndarray, moments: np.ndarray, on: np.ndarray, at: np.ndarray
) -> Iterator[Alike]:
    days, minutes = day_and_minute(moments)
    for mask, has_day, has_hour in ((on & ~at, True, False), (at & ~on, False, True), (on & at, True, True)):
        places = np.flatnonzero(mask)
        if not len(places):
            continue
        words, gists = [], []
        if has_day:
            words.append(joined("on a ", pa.array(WEEKDAYS).take(pa.array(_weekday(days[places])))))
            gists.append("on an unusual weekday")
        if has_hour:
            hours = [one.hours or (0, 23) for one in usual]
            usually = pa.array([f", usually {first:02} to {last:02}" for first, last in hours])
            words.append(joined("at ", clock().take(pa.array(minutes[places])), usually.take(pa.array(which[places]))))
            gists.append("at an unusual hour")
        yield Alike(places, pc.binary_join_element_wise(*words, " "), " ".join(gists))


def _weekday(days: np.ndarray) -> np.ndarray:
    return np.asarray((days.astype(np.int64) + 3) % 7)  # 1970 began on a Thursday


def _ends(usual: UsualColumn) -> tuple[datetime | None, datetime | None]:
    """The first and the last moment of training, if both are known."""
    known = usual.earliest is not None and usual.latest is not None
    return (_moment(usual.earliest), _moment(usual.latest)) if known else (None, None)


def _moment(value: Any) -> datetime:
    """The clock's time at a date, whatever its time zone; midnight where it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


KINDS: dict[str, Callable[[Sequence[UsualColumn], np.ndarray, Any], Iterator[Alike]]] = {
    "number": _number_words,
    "boolean": _level_words,
    "category": _level_words,
    "date": _date_words,
}


# Reasons of many rows at once, and the phrases that they are made of.


class Reason(NamedTuple):
    """Columns that made a row stand out: one, or up to three that are ordinary alone; none where nothing is unusual."""

    columns: tuple[str, ...]  # the one that contributes most first
    share: float  # of the row's score, that they contribute
    words: str  # "amount 41x the usual"
    gist: str  # the same without the row's values: "amount above the usual"

    @property
    def column(self) -> str:
        """The names in one text."""
        return ", ".join(self.columns)


class Reasons(Sequence[tuple[Reason, ...]]):
    """The reasons of many rows, column by column; they become objects and texts where they are asked for."""

    def __init__(self, columns: np.ndarray, shares: np.ndarray, phrases: np.ndarray, book: Phrasebook) -> None:
        """Columns (m, p, 3), -1 for none; shares (m, p); numbers of phrases (m, p), -1 behind the last reason."""
        self.columns, self.shares, self.phrases, self.book = columns, shares, phrases, book

    @classmethod
    def none(cls, rows: int) -> Reasons:
        """Rows of which nothing is said."""
        return cls(np.empty((rows, 0, 3), int), np.empty((rows, 0)), np.empty((rows, 0), int), Phrasebook((), {}))

    def __len__(self) -> int:
        return len(self.phrases)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    @overload
    def __getitem__(self, row: int) -> tuple[Reason, ...]: ...
    @overload
    def __getitem__(self, row: slice) -> list[tuple[Reason, ...]]: ...
    def __getitem__(self, row: int | slice) -> tuple[Reason, ...] | list[tuple[Reason, ...]]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        if row >= len(self):
            raise IndexError(row)
        count = int((self.phrases[row] >= 0).sum())
        cells = zip(self.columns[row].tolist(), self.shares[row].tolist(), self.phrases[row].tolist(), strict=True)
        return tuple(self.book.reason(*cell) for cell in islice(cells, count))

    def texts(self) -> pa.Array:
        """The words of each row in one text, empty where there are none."""
        words = [self.book.words.take(pa.array(one, mask=one < 0)) for one in self.phrases.T]
        if not words:
            return pa.repeat("", len(self))
        silent = pa.array((self.phrases < 0).all(axis=1))  # Arrow leaves out rows in which all is skipped
        words[0] = pc.if_else(silent, "", words[0])
        return pc.binary_join_element_wise(*words, "; ", null_handling="skip")


How = Callable[[Sequence[UsualColumn], np.ndarray, Any], Iterator[Alike]]  # `unusual` or `beside_others`


class Phrasebook:
    """The phrases said of the values of certain rows, by number."""

    def __init__(
        self, usual: Sequence[UsualColumn], values: Mapping[str, Any], texts: Mapping[str, pa.Array] | None = None
    ) -> None:
        """Raw values by column, of all rows; None is a gap. `texts` are those in columns of numbers, null elsewhere."""
        self.usual = usual
        places = {one.column: place for place, one in enumerate(usual)}
        self._texts = {places[name]: own for name, own in (texts or {}).items()}
        self._kinds = [_Kind(kind, usual, values) for kind in dict.fromkeys(column.kind for column in usual)]
        self._words, self._columns = [pa.array([], pa.string())], [np.empty(0, np.int64)]
        self._gists, self._ends = list[str](), list[int]()  # of phrases that share a gist

    def add(self, words: pa.Array, gist: str, columns: np.ndarray) -> np.ndarray:
        """The numbers of new phrases, which come behind the names of these columns; -1 for no name."""
        start = self._ends[-1] if self._ends else 0
        self._words.append(words)
        self._columns.append(columns)
        self._gists.append(gist)
        self._ends.append(start + len(words))
        return np.arange(start, self._ends[-1])

    def say(self, how: How, columns: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The numbers of what `how` says of the cells of columns (m, p) that the mask marks; -1 for nothing."""
        found, (rows, places) = np.full(columns.shape, -1), np.nonzero(mask)
        wanted = columns[rows, places]
        for kind in self._kinds:
            which = kind.which[wanted]
            cells = np.flatnonzero(which >= 0)
            for group in how(kind.usual, which[cells], kind.values(which[cells], rows[cells])) if len(cells) else ():
                chosen = cells[group.places]
                found[rows[chosen], places[chosen]] = self.add(group.words, group.gist, wanted[chosen])
        for column, texts in self._texts.items():
            cells = np.flatnonzero((wanted == column) & np.asarray(texts.is_valid())[rows])
            words = no_number(texts.take(pa.array(rows[cells])))
            found[rows[cells], places[cells]] = self.add(words, "is not a number", wanted[cells])
        return found

    def names(self, columns: np.ndarray, before: str) -> pa.Array:
        """The names of columns (n, k), -1 for none, in one text a row, behind the same words."""
        names = pa.array([column.column for column in self.usual], pa.string())
        texts = [names.take(pa.array(own, mask=own < 0)) for own in columns.T]
        return pc.binary_join_element_wise(before, pc.binary_join_element_wise(*texts, ", ", null_handling="skip"), " ")

    @cached_property
    def words(self) -> pa.Array:
        """All phrases; no more are added from here on."""
        names = pa.array([*(f"{column.column} " for column in self.usual), ""], pa.string())
        columns = np.concatenate(self._columns) % len(names)  # the last has no name
        return pc.binary_join_element_wise(names.take(pa.array(columns)), pa.concat_arrays(self._words), "")

    def reason(self, columns: Sequence[int], share: float, phrase: int) -> Reason:
        """The reason of these columns, -1 for none; a gist that ends in a colon comes before their names."""
        names, gist = tuple(self.usual[one].column for one in columns if one >= 0), bisect_right(self._ends, phrase)
        said = self._gists[gist]
        if said.endswith(":"):  # the same of the same columns, whichever contributes most
            said = f"{said} {', '.join(self.usual[one].column for one in sorted(columns) if one >= 0)}"
        elif names:
            said = f"{names[0]} {said}"
        return Reason(names, share, self.words[phrase].as_py(), said)


class _Kind:
    """The columns of one kind, their values one after another."""

    def __init__(self, kind: str, usual: Sequence[UsualColumn], values: Mapping[str, Any]) -> None:
        self.usual = [one for one in usual if one.kind == kind]
        parts = [as_values(kind, values[one.column]) for one in self.usual]
        self._rows = len(parts[0])
        self._values = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
        own = np.array([one.kind == kind for one in usual])
        self.which = np.where(own, np.cumsum(own) - 1, -1)  # the place of each column among these, or -1

    def values(self, which: np.ndarray, rows: np.ndarray) -> Any:
        """The values of these columns in these rows."""
        return taken(self._values, which * self._rows + rows)
