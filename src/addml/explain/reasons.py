"""Reasons in words: which columns make a row unusual, what to say of their values, and rows with the same reasons."""

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
from addml.text import figure, python_value, shortened

FAR_OUTSIDE = 2.0  # half widths of the middle 90 % of a column from its centre
GROSS = 6.0  # half widths: a value so far out is named before others that add more
MAX_NAMED = 3  # columns in one reason
MIN_SHARE = 0.1  # of the score: columns that add less are not named
CLEAR = 0.5  # of the first reason's share: a second one that adds so much is nearly as important
MAX_CANDIDATES = 24  # columns of a row considered for a reason
CORRELATED = 0.6  # least correlation of columns that are named together
FEWEST, WIDEST = 20, 2000  # at least so many rows and at most so many columns for correlations
NOT_SIMILAR, AS_A_WHOLE = "no other row has similar values of {}", "unusual as a whole, mostly in {}"
UNCOMMON, TOGETHER = "somewhat uncommon values of {}", "unusual combination of {}"
BY_VIEW = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": AS_A_WHOLE, "tails": UNCOMMON}
WHOLE, NOTHING = "unusual as a whole", "nothing unusual"

GroupProfiles = tuple[Sequence[Sequence[ColumnProfile]], np.ndarray]  # of each group; the group of each row
Phrase = tuple[str, str]  # with the value and without it: "1230, far above the usual 30", "unusually high"


class Reason(NamedTuple):
    """Columns that make a row unusual: one, or up to three that are named together; none if nothing is unusual."""

    columns: tuple[str, ...]  # largest contribution first
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
    """Why each row is unusual: at most `most` reasons, the most important ones first.

    Rows (m, d') and baseline (d',) are features, `origins` holds the column of each feature, `profiles` one entry for
    each column. `values` are the raw values by column, None if missing; `texts` are the texts in number columns, null
    elsewhere. Rows of groups are compared with the profiles of their groups, `within`.
    """
    views = views_of(model)
    if views is not None:
        found = explained(model, rows, origins, threads, groups=groups)
        shares, strange = found.shares, found.scores > 0
        templates = [BY_VIEW[views.views[view]] for view in found.view]
    else:
        added = attributions(model, rows, baseline, threads, origins=origins)
        above = added.sum(axis=1, keepdims=True)  # the score minus that of the baseline
        shares, strange = np.divide(added, above, where=above > 0, out=np.zeros(added.shape)), above[:, 0] > 0
        templates = [TOGETHER] * len(rows)
    within = within or ([profiles], np.zeros(len(rows), np.int64))
    table = _Table(shares.clip(0), strange, templates, *within, values, texts or {}, correlated(model, origins))
    order = np.lexsort((-shares, table.away <= FAR_OUTSIDE), axis=1)[:, : max(MAX_CANDIDATES, most)]  # far out first
    return [table.reasons(row, columns, most) for row, columns in enumerate(order.tolist())]


def reason_texts(found: Sequence[Sequence[Reason]]) -> pa.Array:
    """The reasons of each row as one text; empty without reasons."""
    return pa.array(["; ".join(reason.words for reason in of_row) for of_row in found], pa.string())


def correlated(model: Model, origins: Sequence[int]) -> np.ndarray:
    """The signs of strong correlations (columns, columns) among the examples, 0 for weak ones or too few examples."""
    first = [int(own[0]) for own in features_by_column(origins)]
    known = model.examples.features
    if len(known) < FEWEST or known.shape[1] != len(origins) or len(first) > WIDEST:
        return np.zeros((len(first), len(first)), np.int8)
    X = known[:, first].astype(np.float64)
    X -= X.mean(axis=0)
    X /= np.maximum(np.sqrt((X**2).sum(axis=0)), np.finfo(np.float64).tiny)
    together = X.T @ X
    return np.where(abs(together) >= CORRELATED, np.sign(together), 0).astype(np.int8)


class _Candidate(NamedTuple):
    """Columns that one reason may name."""

    columns: list[int]  # the leading one first
    share: float  # of those that would be named
    largest: float  # share of a single column
    away: float  # of the farthest column


@dataclass
class _Table:
    """Rows with their values, the share of each column in their scores, and how values compare with the profiles."""

    shares: np.ndarray  # (m, columns)
    strange: np.ndarray  # (m,)
    templates: Sequence[str]  # of each row, for columns that are unusual together
    profiles: Sequence[Sequence[ColumnProfile]]  # of each group
    group: np.ndarray  # (m,)
    values: Mapping[str, Any]
    texts: Mapping[str, pa.Array]
    correlated: np.ndarray

    def __post_init__(self) -> None:
        self.names = [one.column for one in self.profiles[0]]
        self.side = np.zeros(self.shares.shape, np.int64)  # of the middle 90 %: 1 above, -1 below, 0 within
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
        """One reason for each unusual value, by share, then one for the ordinary values that matter."""
        candidates, is_strange = self._candidates(row, columns), bool(self.strange[row])
        enough = [one for one in candidates if is_strange and one.share >= MIN_SHARE]
        as_a_whole = is_strange and not enough  # no column stands out
        always = [one for one in candidates if one.away > FAR_OUTSIDE or len(one.columns) >= MAX_NAMED]
        named = [one for one in candidates if one in enough or one in always]
        found = {}
        for one in sorted(named, key=lambda one: -one.largest):
            if phrase := self._phrase(row, one.columns[0], unusual):
                found[one.columns[0]] = self._unusual(row, one, phrase)
        chosen = [one for one in candidates if self.shares[row, one.columns[0]] > 0] if as_a_whole else named
        ordinary = sorted((one for one in chosen if one.columns[0] not in found), key=lambda one: -one.share)
        ranked = list(found.values())
        if ordinary:
            ranked.append(self._together(row, ordinary[:MAX_NAMED], AS_A_WHOLE if as_a_whole else self.templates[row]))
        elif as_a_whole and not found:
            return (Reason((), 1.0, WHOLE, WHOLE),)
        farthest = max(candidates, key=lambda one: one.away)
        if farthest.away > FAR_OUTSIDE and farthest.columns[0] in found:
            is_first = farthest.away > GROSS and farthest.largest >= CLEAR * max(one.largest for one in candidates)
            ranked = _promoted(ranked, found[farthest.columns[0]], most, is_first=is_first)
        return tuple(ranked[:most]) or (Reason((), 0.0, NOTHING, NOTHING),)

    def _candidates(self, row: int, columns: Sequence[int]) -> list[_Candidate]:
        """Columns in this order, joined if they moved together; of ordinary ones that add little, the first three."""
        side, shares, away = (of[row].tolist() for of in (self.side, self.shares, self.away))
        joined, within = dict[int, list[int]](), 0  # by the leading column
        for column in columns:
            leader = column
            if side[column]:
                leaders = (own for own in joined if self.correlated[own, column] * side[own] * side[column] > 0)
                leader = next(leaders, column)
            elif shares[column] < MIN_SHARE:
                within += 1
            if within <= MAX_NAMED or side[column]:
                joined.setdefault(leader, []).append(column)
        found = []
        for own in joined.values():
            parts = [shares[column] for column in own]
            found.append(_Candidate(own, sum(parts[:MAX_NAMED]), max(parts), max(away[column] for column in own)))
        return found

    def _phrase(self, row: int, column: int, how: Callable[[ColumnProfile, Any], Phrase | None]) -> Phrase | None:
        """What there is to say of a value, after the column's name; None for nothing."""
        name = self.names[column]
        text = self.texts[name][row].as_py() if name in self.texts else None
        profile = self.profiles[self.group[row]][column]
        not_a_number = (f'is "{_on_one_line(text or "")}", not a number', "is not a number")
        found = how(profile, self.values[name][row]) if text is None else not_a_number
        return found and (f"{name} {found[0]}", f"{name} {found[1]}")

    def _unusual(self, row: int, candidate: _Candidate, phrase: Phrase) -> Reason:
        words, summary = phrase
        names = tuple(self.names[one] for one in candidate.columns[:MAX_NAMED])
        others = [f"{name} {figure(float(self.values[name][row]), 3)}" for name in names[1:]]
        words = f"{words}, and with it {' and '.join(others)}" if others else words
        return Reason(names, min(candidate.share, 1.0), words, summary)

    def _together(self, row: int, candidates: Sequence[_Candidate], template: str) -> Reason:
        """One reason for columns whose values are ordinary by themselves."""
        columns, share = [one.columns[0] for one in candidates], min(sum(one.share for one in candidates), 1.0)
        names = tuple(self.names[one] for one in columns)
        if len(columns) > 1:
            in_order = [self.names[one] for one in sorted(columns)]
            return Reason(names, share, *(template.replace("{}", and_list(own)) for own in (names, in_order)))
        how = partial(unusual_together, summary="somewhat uncommon") if template == UNCOMMON else unusual_together
        phrase = self._phrase(row, columns[0], how)
        assert phrase is not None
        return Reason(names, share, *phrase)


def _promoted(ranked: list[Reason], reason: Reason, most: int, *, is_first: bool) -> list[Reason]:
    """The reasons with one of them moved to the front, or at least among the first `most`."""
    if is_first:
        return [reason, *(one for one in ranked if one is not reason)]
    if most > 1 and reason not in ranked[:most]:
        return [*ranked[: most - 1], reason]
    return ranked


def and_list(names: Sequence[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


Grouped = tuple[tuple[str, ...], str, tuple[int, ...]]  # columns, words, places of the rows


def groups(found: Sequence[Sequence[Reason]]) -> tuple[Grouped, ...]:
    """Groups of rows with the same first reason, and the same second one if nearly as important; the largest first."""
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
        shared = [reason for reason in found[rows[0]] if reason.summary in key]
        columns = dict.fromkeys(column for reason in shared for column in reason.columns)
        grouped.append((tuple(columns), "; ".join(reason.summary for reason in shared), tuple(rows)))
    return tuple(one for one in grouped if len(one[2]) > 1)


RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
FAR = 2.0  # times the usual number, or that fraction of it
LONGEST = 40  # characters of a level
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def unusual(profile: ColumnProfile, value: Any) -> Phrase | None:
    """What is unusual about a value by itself; None for an ordinary one."""
    value = _known(value)
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


def unusual_together(profile: ColumnProfile, value: Any, summary: str = "unusual given the other columns") -> Phrase:
    """The phrase for an ordinary value that does not fit the rest of its row."""
    value = _known(value)
    return f"{'missing' if value is None else _shown(profile, value)}, {summary}", summary


def _known(value: Any) -> Any:
    """The Python value; None for NaN and NaT, which differ from themselves."""
    value = python_value(value)
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
        ratio = number / middle if middle and low >= 0 and number > 0 else 1.0  # multiples need a natural zero
        outside = abs(number - (low + high) / 2) > FAR_OUTSIDE * (high - low) / 2
        if outside or ratio >= FAR or ratio <= 1 / FAR:
            return f"{figure(number, 3)}, far {side} the usual {figure(middle, 3)}", summary
    for digits in (3, 4, 6):  # until the number differs from the ends of the range
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
    """A date far outside the training range; else its weekday and hour; else a date just outside the range."""
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
    """The local time of a date, without its time zone; midnight if it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
