"""Why rows are flagged, in words: which columns to name for a row, and rows with the same reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from addml.explain.attribution import attributions
from addml.explain.contributions import explained, features_by_column, views_of
from addml.model import Model
from addml.preprocessing.profile import CLOCK, CODE, MOST, ColumnProfile
from addml.text import figure, shortened

FAR_OUTSIDE = 2.0  # half widths of the middle 90 % of a column from its centre
LEADING = 3  # columns that a reason names together, at most
MATTERS = 0.1  # of the score: less is not worth a word
WIDE = 24  # columns of a row that are looked at for a reason
CORRELATED = 0.6  # at least, of columns that are named together
FEWEST, WIDEST = 20, 2000  # rows and columns of which correlations are looked at
GROSS = 6.0  # half widths of the middle 90 % from its centre, from which a value is named before others that add more
CLEAR = 0.5  # of the first reason: a second one that carries so much leads with it
NOT_SIMILAR, AS_A_WHOLE = "no other row has similar values of {}", "unusual as a whole, mostly in {}"
UNCOMMON, TOGETHER = "somewhat uncommon values of {}", "unusual combination of {}"
BY_VIEW = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": AS_A_WHOLE, "tails": UNCOMMON}
WHOLE, NOTHING = "unusual as a whole", "nothing unusual"

GroupProfiles = tuple[Sequence[Sequence[ColumnProfile]], np.ndarray]  # of each group; the group of each row


class Reason(NamedTuple):
    """Columns that make a row unusual: one, or up to three that are named together; none if nothing is unusual."""

    columns: tuple[str, ...]  # the one that contributes most first
    share: float  # of the row's score
    words: str  # "amount 1230, far above the usual 30"
    summary: str  # the same without the row's values: "amount unusually high"

    @property
    def column(self) -> str:
        return ", ".join(self.columns)


Reasons = list[tuple[Reason, ...]]  # of each row


def reasons(
    model: Model,
    rows: np.ndarray,
    baseline: np.ndarray,
    origins: Sequence[int],
    profiles: Sequence[ColumnProfile],
    values: Mapping[str, Any],
    texts: Mapping[str, pa.Array] | None = None,
    *,
    within: GroupProfiles | None = None,
    groups: np.ndarray | None = None,
    most: int = 3,
    threads: int = 1,
) -> Reasons:
    """Why each row is unusual: the most important reasons first, at most so many.

    Rows (m, d') and baseline (d',) are features, origins the column of each feature, and `profiles` has one entry for
    each column. `values` are the raw values of the rows by column, None if missing, and `texts` those in columns of
    numbers, null elsewhere. Numbers are compared with the profiles of their groups, `within`, if there are groups.
    """
    views = views_of(model)
    if views is not None:
        found = explained(model, rows, origins, threads, groups=groups)
        shares, strange = found.shares, found.scores > 0
        said = [BY_VIEW[views.views[view]] for view in found.view]
    else:
        added = attributions(model, rows, baseline, threads, origins=origins)
        above = added.sum(axis=1, keepdims=True)  # the score of the baseline
        shares, strange = np.divide(added, above, where=above > 0, out=np.zeros(added.shape)), above[:, 0] > 0
        said = [TOGETHER] * len(rows)
    within = within or ([profiles], np.zeros(len(rows), np.int64))
    explainer = _Rows(shares.clip(0), strange, said, *within, values, texts or {}, correlated(model, origins))
    order = np.lexsort((-shares, explainer.away <= FAR_OUTSIDE), axis=1)[:, : max(WIDE, most)]  # those far out first
    return [explainer.reasons(row, columns, most) for row, columns in enumerate(order.tolist())]


def reason_texts(found: Sequence[Sequence[Reason]]) -> pa.Array:
    """The words of each row in one text, empty if there are none."""
    return pa.array(["; ".join(reason.words for reason in of_row) for of_row in found], pa.string())


def correlated(model: Model, origins: Sequence[int]) -> np.ndarray:
    """Which columns go up and down together (columns, columns): 1, or -1 where one goes down as the other goes up.

    Among the training rows that the model keeps, by the first feature of each column; 0 where it keeps none.
    """
    first = [int(own[0]) for own in features_by_column(origins)]
    known = model.examples.features
    if len(known) < FEWEST or known.shape[1] != len(origins) or len(first) > WIDEST:
        return np.zeros((len(first), len(first)), np.int8)
    X = known[:, first].astype(np.float64)
    X -= X.mean(axis=0)
    X /= np.maximum(np.sqrt((X**2).sum(axis=0)), np.finfo(np.float64).tiny)
    together = X.T @ X
    return np.where(abs(together) >= CORRELATED, np.sign(together), 0).astype(np.int8)


@dataclass
class _Rows:
    """Rows with the share of each column in their scores, their values, and how these compare with the profiles."""

    shares: np.ndarray  # (m, columns)
    strange: np.ndarray  # (m,)
    said: Sequence[str]  # of each row about columns that are unusual together
    profiles: Sequence[Sequence[ColumnProfile]]  # of each group
    group: np.ndarray  # (m,)
    values: Mapping[str, Any]
    texts: Mapping[str, pa.Array]
    correlated: np.ndarray

    def __post_init__(self) -> None:
        self.names = [one.column for one in self.profiles[0]]
        self.side = np.zeros(
            self.shares.shape, np.int64
        )  # 1 for a number above the middle 90 % of its column, -1 below it
        self.away = np.zeros(self.shares.shape)  # from the centre of the middle 90 %, in half widths of it
        for column, profile in enumerate(self.profiles[0]):
            if profile.kind == "number" and not profile.form:
                ends = np.array([(own[column].low, own[column].high) for own in self.profiles], float)
                low, high = ends[self.group].T
                numbers = np.asarray(self.values[profile.column], np.float64)
                self.side[:, column] = (numbers > high).astype(np.int64) - (numbers < low)
                half = np.where(high > low, (high - low) / 2, np.inf)
                self.away[:, column] = np.nan_to_num(abs(numbers - (high + low) / 2) / half)

    def reasons(self, row: int, columns: Sequence[int], most: int) -> tuple[Reason, ...]:
        """Columns whose values are unusual by themselves, by their share, then the others that matter in one reason.

        A number far out and three columns that are led together are always named, others from a tenth of the score on.
        """
        shares, away = self.shares[row].tolist(), self.away[row].tolist()
        led = self._led(row, columns, shares)
        part = {first: sum([shares[one] for one in own[:LEADING]]) for first, own in led.items()}
        largest = {first: max([shares[one] for one in own]) for first, own in led.items()}
        out = {first: max([away[one] for one in own]) for first, own in led.items()}
        enough = [first for first in led if self.strange[row] and part[first] >= MATTERS]
        as_a_whole = bool(self.strange[row]) and not enough  # no column by itself
        named = [one for one in led if one in enough or out[one] > FAR_OUTSIDE or len(led[one]) >= LEADING]
        phrases = {first: phrase for first in named if (phrase := self._phrase(row, first, unusual))}
        found = {
            first: self._unusual(row, led[first][:LEADING], part[first], phrases[first])
            for first in sorted(phrases, key=lambda one: -largest[one])
        }
        chosen = [first for first in led if shares[first] > 0] if as_a_whole else named
        ordinary = sorted((first for first in chosen if first not in found), key=lambda one: -part[one])[:LEADING]
        ranked = list(found.values())
        if ordinary:
            said = AS_A_WHOLE if as_a_whole else self.said[row]
            ranked.append(self._together(row, ordinary, sum(part[one] for one in ordinary), said))
        elif as_a_whole and not found:
            return (Reason((), 1.0, WHOLE, WHOLE),)
        farthest = max(out, key=out.__getitem__)
        if farthest in found and out[farthest] > FAR_OUTSIDE:
            reason = found[farthest]  # first if it is gross, else last if it is not among those to be said
            if out[farthest] > GROSS and largest[farthest] >= CLEAR * max(largest.values()):
                ranked = [reason, *(one for one in ranked if one is not reason)]
            elif most > 1 and reason not in ranked[:most]:
                ranked[most - 1] = reason
        return tuple(ranked[:most]) or (Reason((), 0.0, NOTHING, NOTHING),)

    def _led(self, row: int, columns: Sequence[int], shares: Sequence[float]) -> dict[int, list[int]]:
        """The columns that share a reason, by the first of them.

        A column leads those after it that correlate with it and lie beyond their usual values as it does. Of those
        that lie within and add little, the first three may be named.
        """
        side, found, within = self.side[row].tolist(), dict[int, list[int]](), 0
        for column in columns:
            leader = column
            if side[column]:
                leaders = (own for own in found if self.correlated[own, column] * side[own] * side[column] > 0)
                leader = next(leaders, column)
            elif shares[column] < MATTERS:
                within += 1
            if within <= LEADING or side[column]:
                found.setdefault(leader, []).append(column)
        return found

    def _phrase(self, row: int, column: int, how: Callable[[ColumnProfile, Any], Phrase | None]) -> Phrase | None:
        """What there is to say of a value, behind the column's name; None for nothing."""
        name = self.names[column]
        text = self.texts[name][row].as_py() if name in self.texts else None
        profile = self.profiles[self.group[row]][column]
        not_a_number = (f'is "{_on_one_line(text or "")}", not a number', "is not a number")
        found = how(profile, self.values[name][row]) if text is None else not_a_number
        return found and (f"{name} {found[0]}", f"{name} {found[1]}")

    def _unusual(self, row: int, columns: Sequence[int], share: float, phrase: Phrase) -> Reason:
        """The reason of a column, which goes on with those it leads."""
        words, summary = phrase
        names = tuple(self.names[one] for one in columns)
        others = [f"{name} {figure(float(self.values[name][row]), 3)}" for name in names[1:]]
        words = f"{words}, and with it {' and '.join(others)}" if others else words
        return Reason(names, min(share, 1.0), words, summary)

    def _together(self, row: int, columns: Sequence[int], share: float, said: str) -> Reason:
        """One reason for columns whose values are ordinary by themselves."""
        names, share = tuple(self.names[one] for one in columns), min(share, 1.0)
        if len(columns) > 1:
            in_order = [self.names[one] for one in sorted(columns)]
            return Reason(names, share, said.replace("{}", and_list(names)), said.replace("{}", and_list(in_order)))
        how = partial(unusual_together, said="somewhat uncommon") if said == UNCOMMON else unusual_together
        phrase = self._phrase(row, columns[0], how)
        assert phrase is not None
        return Reason(names, share, *phrase)


def and_list(names: Sequence[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


# Groups ---------------------------------------------------------------------------------------------------

Grouped = tuple[tuple[str, ...], str, tuple[int, ...]]  # columns, words, places of the rows


def groups(found: Sequence[Sequence[Reason]]) -> tuple[Grouped, ...]:
    """Rows of which the same is said first, at least two rows each, the largest group first.

    That is the first reason, and the second where it counts nearly as much.
    """
    leads = {
        row: [reason.summary for reason in of_row[:2] if reason.share >= CLEAR * of_row[0].share]
        for row, of_row in enumerate(found)
        if of_row and of_row[0].columns
    }
    sizes = Counter(map(frozenset, leads.values()))
    alike: dict[frozenset[str], list[int]] = {}
    for row, lead in leads.items():
        key = frozenset(lead if sizes[frozenset(lead)] > 1 else lead[:1])
        alike.setdefault(key, []).append(row)
    grouped = []
    for key, rows in sorted(alike.items(), key=lambda one: -len(one[1])):
        said = [reason for reason in found[rows[0]] if reason.summary in key]
        columns = dict.fromkeys(column for reason in said for column in reason.columns)
        grouped.append((tuple(columns), "; ".join(reason.summary for reason in said), tuple(rows)))
    return tuple(one for one in grouped if len(one[2]) > 1)


# Phrases: what is unusual about one value of a column --------------------------------------------------------

RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
FAR = 2.0  # times the usual number, or a part as small
LONGEST = 40  # characters of a level
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


# Texts that follow the column's name, with the value and without it: "1230, far above the usual 30", "unusually high".
Phrase = tuple[str, str]


def unusual(profile: ColumnProfile, value: Any) -> Phrase | None:
    """What is unusual about a value by itself; None for an ordinary one."""
    value = _plain(value)
    if value is None:
        return ("is missing", "is missing") if profile.gaps < 0.5 else None
    if profile.kind == "number":
        found = _number_phrase(profile, value)
    elif profile.kind == "date":
        found = _date_phrase(profile, value)
    else:
        found = _level_phrase(profile, value)
    if found is None and profile.gaps > 0.5:
        return f"{_shown(profile, value)}, usually missing", "present, usually missing"
    return found


def unusual_together(profile: ColumnProfile, value: Any, said: str = "unusual given the other columns") -> Phrase:
    """The phrase about an ordinary value that does not fit the rest of its row."""
    value = _plain(value)
    return f"{'missing' if value is None else _shown(profile, value)}, {said}", said


def _plain(value: Any) -> Any:
    """NumPy's and Arrow's scalars as Python's own; None for NaN and NaT, which differ from themselves."""
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    return None if value != value else value


def _shown(profile: ColumnProfile, value: Any) -> str:
    if profile.kind == "number":
        return {CODE: "{:.0f}", CLOCK: "{:04.0f}"}[profile.form].format(value) if profile.form else figure(value, 4)
    if profile.kind == "date":
        moment = _moment(value)
        return f"{moment:%H:%M}" if profile.form == CLOCK else f"{moment:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    text = _on_one_line(_level(profile, value))
    return text if profile.kind == "boolean" else f"'{text}'"


def _on_one_line(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST)


def _number_phrase(profile: ColumnProfile, number: float) -> Phrase | None:
    low, middle, high = profile.low, profile.middle, profile.high
    if profile.form or low is None or high is None or low <= number <= high:
        return None
    if number < 0 <= low:
        return f"{figure(number, 3)}, usually not negative", "negative"
    side, summary = ("above", "unusually high") if number > high else ("below", "unusually low")
    if high > low and middle is not None:
        ratio = number / middle if middle and low >= 0 and number > 0 else 1.0  # only what has a zero has multiples
        outside = abs(number - (low + high) / 2) > FAR_OUTSIDE * (high - low) / 2
        if outside or ratio >= FAR or ratio <= 1 / FAR:
            return f"{figure(number, 3)}, far {side} the usual {figure(middle, 3)}", summary
    for digits in (3, 4, 6):  # as many as it takes to tell the number from the ends of the range
        shown, ends = figure(number, digits), dict.fromkeys((figure(low, digits), figure(high, digits)))
        if shown not in ends:
            beside = f"{side} the usual {' to '.join(ends)}"
            usual = beside if len(ends) > 1 else f"{figure(low, digits)} in over {MOST:.0%} of rows"
            return f"{shown}, {usual}", summary
    return None


def _level(profile: ColumnProfile, value: Any) -> str:
    return str(value).lower() if profile.kind == "boolean" else str(value)


def _level_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    share, shown = profile.levels.get(_level(profile, value)), _shown(profile, value)
    if share is None:
        rare, new = (f"{shown}, rare", "with a rare value"), (f"{shown}, never seen in training", "with a new value")
        return rare if profile.unlisted else new
    if share >= UNCOMMON_BESIDE * profile.commonest:
        return None
    rarity, article = ("rare", "a") if _is_rare(share, profile.commonest) else ("uncommon", "an")
    return f"{shown}, {rarity} ({figure(100 * share, 2)}% of rows)", f"with {article} {rarity} value"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


def _date_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    """A date by its place in time if that is far outside, else by its weekday and hour, else by its place."""
    moment, outside, is_far = _moment(value), None, False
    if profile.earliest is not None and profile.latest is not None:
        earliest, latest = _moment(profile.earliest), _moment(profile.latest)
        if not earliest <= moment <= latest:
            side, end = ("later", latest) if moment > latest else ("earlier", earliest)
            when = f"on {moment:%Y-%m-%d}" if moment.year == end.year else f"in {moment.year}"
            outside = f"{when}, {side} than all others", f"{side} than all others"
            is_far = abs(moment - end) > 0.1 * (latest - earliest)
    return outside if is_far else _clock_phrase(profile, moment) or outside


def _clock_phrase(profile: ColumnProfile, moment: datetime) -> Phrase | None:
    day, (first, last) = moment.weekday(), profile.hours or (0, 23)
    rare_day = bool(profile.weekdays) and _is_rare(profile.weekdays[day], max(profile.weekdays))
    after, before = moment.hour >= first, moment.hour <= last
    odd_hour = not (after and before if first <= last else after or before)
    words, summaries = list[str](), list[str]()
    if rare_day:
        words.append(f"on a {WEEKDAYS[day]}" + ("" if odd_hour else ", a rare weekday"))
        summaries.append("on a rare weekday")
    if odd_hour:
        words.append(f"at {moment:%H:%M}, usually {first:02}:00 to {last:02}:59")
        summaries.append("at an unusual hour")
    return (" ".join(words), " ".join(summaries)) if words else None


def _moment(value: Any) -> datetime:
    """The clock's time at a date, whatever its time zone; midnight if it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
