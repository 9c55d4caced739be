"""Reasons in words: the columns that make a row unusual, phrases for their values, and rows with the same reasons."""

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
GROSS = 6.0  # half widths: a value this far out is named before others that add more
MAX_NAMED = 3  # columns in one reason
MIN_SHARE = 0.1  # of the score: columns that add less are not named
NEARLY_FIRST = 0.5  # of the first reason's share: a second one that adds this much is nearly as important
MAX_CANDIDATES = 24  # columns of a row considered for a reason
MIN_CORRELATION = 0.6  # of columns that are named together
MIN_ROWS, MAX_COLUMNS = 20, 2000  # for correlations
NOT_SIMILAR, AS_A_WHOLE = "no other row has similar values of {}", "unusual as a whole, mostly in {}"
UNCOMMON, TOGETHER = "somewhat uncommon values of {}", "unusual combination of {}"
BY_VIEW = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": AS_A_WHOLE, "tails": UNCOMMON}
WHOLE, NOTHING = "unusual as a whole", "nothing unusual"

GroupProfiles = tuple[Sequence[Sequence[ColumnProfile]], np.ndarray]  # of each group; the group of each row
Phrase = tuple[str, str]  # with the value and without it: "1230, far above the usual 30", "unusually high"
Describe = Callable[[ColumnProfile, Any], Phrase | None]


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
        scores, shares, highest = explained(model, rows, origins, threads, groups=groups)
        templates = [BY_VIEW[views.views[view]] for view in highest]
    else:
        contributions = attributions(model, rows, baseline, threads, origins=origins)
        scores = contributions.sum(axis=1)  # above that of the baseline
        above = scores[:, None]
        shares = np.divide(contributions, above, where=above > 0, out=np.zeros(contributions.shape))
        templates = [TOGETHER] * len(rows)
    within = within or ([profiles], np.zeros(len(rows), np.int64))
    table = _Table(shares.clip(0), scores > 0, templates, *within, values, texts or {}, correlated(model, origins))
    far_out_first = np.lexsort((-shares, table.distance <= FAR_OUTSIDE), axis=1)[:, : max(MAX_CANDIDATES, most)]
    return [table.reasons(row, columns, most) for row, columns in enumerate(far_out_first.tolist())]


def reason_texts(reasons_by_row: Sequence[Sequence[Reason]]) -> pa.Array:
    """The reasons of each row as one text; empty without reasons."""
    return pa.array(["; ".join(reason.words for reason in of_row) for of_row in reasons_by_row], pa.string())


def correlated(model: Model, origins: Sequence[int]) -> np.ndarray:
    """The signs of strong correlations (columns, columns) among the examples, 0 for weak ones or too few examples."""
    first = [int(features[0]) for features in features_by_column(origins)]
    examples = model.examples.features
    if len(examples) < MIN_ROWS or examples.shape[1] != len(origins) or len(first) > MAX_COLUMNS:
        return np.zeros((len(first), len(first)), np.int8)
    X = examples[:, first].astype(np.float64)
    X -= X.mean(axis=0)
    X /= np.maximum(np.sqrt((X**2).sum(axis=0)), np.finfo(np.float64).tiny)
    correlation = X.T @ X
    return np.where(abs(correlation) >= MIN_CORRELATION, np.sign(correlation), 0).astype(np.int8)


class _Candidate(NamedTuple):
    """Columns that one reason may name."""

    leader: int  # the column that is described
    columns: list[int]  # the leader first
    share: float  # of the columns that would be named
    largest: float  # share of a single column
    distance: float  # of the farthest column


@dataclass
class _Table:
    """Rows with their values, the share of each column in their scores, and how values compare with the profiles."""

    shares: np.ndarray  # (m, columns)
    is_unusual: np.ndarray  # (m,)
    templates: Sequence[str]  # of each row, for columns that are unusual together
    profiles: Sequence[Sequence[ColumnProfile]]  # of each group
    group: np.ndarray  # (m,)
    values: Mapping[str, Any]
    texts: Mapping[str, pa.Array]
    correlated: np.ndarray

    def __post_init__(self) -> None:
        self.names = [profile.column for profile in self.profiles[0]]
        self.side = np.zeros(self.shares.shape, np.int64)  # of the middle 90 %: 1 above, -1 below, 0 within
        self.distance = np.zeros(self.shares.shape)  # from the centre of the middle 90 %, in half widths of it
        for column, profile in enumerate(self.profiles[0]):
            if profile.kind == "number" and not profile.form:
                ends = np.array([(of_group[column].low, of_group[column].high) for of_group in self.profiles], float)
                low, high = ends[self.group].T
                numbers = np.asarray(self.values[profile.column], np.float64)
                self.side[:, column] = (numbers > high).astype(np.int64) - (numbers < low)
                half = np.where(high > low, (high - low) / 2, np.inf)
                self.distance[:, column] = np.nan_to_num(abs(numbers - (high + low) / 2) / half)

    def reasons(self, row: int, columns: Sequence[int], most: int) -> tuple[Reason, ...]:
        """One reason for each unusual value, by share, then one for the ordinary values that matter."""
        candidates = self._candidates(row, columns)
        important = [one for one in candidates if self.is_unusual[row] and one.share >= MIN_SHARE]
        as_a_whole = bool(self.is_unusual[row]) and not important  # no column stands out
        always = [one for one in candidates if one.distance > FAR_OUTSIDE or len(one.columns) >= MAX_NAMED]
        named = [one for one in candidates if one in important or one in always]
        unusual_values = {}  # by leader
        for candidate in sorted(named, key=lambda one: -one.largest):
            if phrase := self._phrase(row, candidate.leader, unusual):
                unusual_values[candidate.leader] = self._unusual(row, candidate, phrase)
        pool = [one for one in candidates if self.shares[row, one.leader] > 0] if as_a_whole else named
        ordinary = sorted((one for one in pool if one.leader not in unusual_values), key=lambda one: -one.share)
        ranked = list(unusual_values.values())
        if ordinary:
            ranked.append(self._together(row, ordinary[:MAX_NAMED], AS_A_WHOLE if as_a_whole else self.templates[row]))
        elif as_a_whole and not ranked:
            return (Reason((), 1.0, WHOLE, WHOLE),)
        farthest = max(candidates, key=lambda one: one.distance)
        if farthest.distance > FAR_OUTSIDE and farthest.leader in unusual_values:
            reason, largest = unusual_values[farthest.leader], max(one.largest for one in candidates)
            if farthest.distance > GROSS and farthest.largest >= NEARLY_FIRST * largest:
                ranked = [reason, *(other for other in ranked if other is not reason)]
            elif most > 1 and reason not in ranked[:most]:
                ranked = [*ranked[: most - 1], reason]
        return tuple(ranked[:most]) or (Reason((), 0.0, NOTHING, NOTHING),)

    def _candidates(self, row: int, columns: Sequence[int]) -> list[_Candidate]:
        """The columns, in order, joined if they moved together; of ordinary ones that add little, the first three."""
        side, shares, distance = (array[row].tolist() for array in (self.side, self.shares, self.distance))
        joined, n_small = dict[int, list[int]](), 0  # columns by leader
        for column in columns:
            leader = column
            if side[column]:
                leaders = (other for other in joined if self.correlated[other, column] * side[other] * side[column] > 0)
                leader = next(leaders, column)
            elif shares[column] < MIN_SHARE:
                n_small += 1
            if n_small <= MAX_NAMED or side[column]:
                joined.setdefault(leader, []).append(column)
        result = []
        for leader, members in joined.items():
            parts, farthest = [shares[column] for column in members], max(distance[column] for column in members)
            result.append(_Candidate(leader, members, sum(parts[:MAX_NAMED]), max(parts), farthest))
        return result

    def _phrase(self, row: int, column: int, describe: Describe) -> Phrase | None:
        """The description of a value, after the column's name; None if there is nothing to say."""
        name = self.names[column]
        text = self.texts[name][row].as_py() if name in self.texts else None
        if text is not None:
            return f'{name} is "{_on_one_line(text)}", not a number', f"{name} is not a number"
        phrase = describe(self.profiles[self.group[row]][column], self.values[name][row])
        return phrase and (f"{name} {phrase[0]}", f"{name} {phrase[1]}")

    def _unusual(self, row: int, candidate: _Candidate, phrase: Phrase) -> Reason:
        words, summary = phrase
        names = tuple(self.names[column] for column in candidate.columns[:MAX_NAMED])
        others = [f"{name} {figure(float(self.values[name][row]), 3)}" for name in names[1:]]
        words = f"{words}, and with it {' and '.join(others)}" if others else words
        return Reason(names, min(candidate.share, 1.0), words, summary)

    def _together(self, row: int, candidates: Sequence[_Candidate], template: str) -> Reason:
        columns, share = [one.leader for one in candidates], min(sum(one.share for one in candidates), 1.0)
        names = tuple(self.names[column] for column in columns)
        if len(columns) > 1:
            in_order = [self.names[column] for column in sorted(columns)]
            return Reason(names, share, *(template.replace("{}", and_list(listed)) for listed in (names, in_order)))
        describe = partial(unusual_together, summary="somewhat uncommon") if template == UNCOMMON else unusual_together
        phrase = self._phrase(row, columns[0], describe)
        assert phrase is not None
        return Reason(names, share, *phrase)


def and_list(names: Sequence[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


Grouped = tuple[tuple[str, ...], str, tuple[int, ...]]  # columns, words, indices of the rows


def groups(reasons_by_row: Sequence[Sequence[Reason]]) -> tuple[Grouped, ...]:
    """Groups of rows with the same first reason, and the same second one if nearly as important; the largest first."""
    summaries = {
        row: [reason.summary for reason in of_row[:2] if reason.share >= NEARLY_FIRST * of_row[0].share]
        for row, of_row in enumerate(reasons_by_row)
        if of_row and of_row[0].columns
    }
    sizes = Counter(map(frozenset, summaries.values()))
    rows_by_key: dict[frozenset[str], list[int]] = {}
    for row, leading in summaries.items():
        key = frozenset(leading if sizes[frozenset(leading)] > 1 else leading[:1])
        rows_by_key.setdefault(key, []).append(row)
    result = []
    for key, rows in sorted(rows_by_key.items(), key=lambda item: -len(item[1])):
        if len(rows) > 1:
            shared = [reason for reason in reasons_by_row[rows[0]] if reason.summary in key]
            columns = dict.fromkeys(column for reason in shared for column in reason.columns)
            result.append((tuple(columns), "; ".join(reason.summary for reason in shared), tuple(rows)))
    return tuple(result)


RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon level has under a quarter of it
FAR_RATIO = 2.0  # times the usual number, or 1 / FAR_RATIO of it
LONGEST = 40  # characters of a level
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def unusual(profile: ColumnProfile, value: Any) -> Phrase | None:
    """What is unusual about a value by itself; None for an ordinary value."""
    value = _none_if_nan(value)
    if value is None:
        return ("is missing", "is missing") if profile.gaps < 0.5 else None
    describe: dict[str, Describe] = {"number": _number_phrase, "date": _date_phrase}
    phrase = describe.get(profile.kind, _level_phrase)(profile, value)
    if phrase is None and profile.gaps > 0.5:
        return f"{_formatted(profile, value)}, usually missing", "present, usually missing"
    return phrase


def unusual_together(profile: ColumnProfile, value: Any, summary: str = "unusual given the other columns") -> Phrase:
    """The phrase for an ordinary value that does not fit the rest of its row."""
    value = _none_if_nan(value)
    return f"{'missing' if value is None else _formatted(profile, value)}, {summary}", summary


def _none_if_nan(value: Any) -> Any:
    value = python_value(value)
    return None if value != value else value


def _formatted(profile: ColumnProfile, value: Any) -> str:
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
        is_far = abs(number - (low + high) / 2) > FAR_OUTSIDE * (high - low) / 2
        if is_far or ratio >= FAR_RATIO or ratio <= 1 / FAR_RATIO:
            return f"{figure(number, 3)}, far {side} the usual {figure(middle, 3)}", summary
    for digits in (3, 4, 6):  # until the number differs from the ends of the range
        text, lowest, highest = (figure(value, digits) for value in (number, low, high))
        if text not in (lowest, highest):
            usual = f"{side} the usual {lowest} to {highest}"
            return f"{text}, {usual if lowest != highest else f'{lowest} in over {MOST:.0%} of rows'}", summary
    return None


def _level(profile: ColumnProfile, value: Any) -> str:
    return str(value).lower() if profile.kind == "boolean" else str(value)


def _level_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    share, text = profile.levels.get(_level(profile, value)), _formatted(profile, value)
    if share is None and profile.unlisted:
        return f"{text}, rare", "with a rare value"
    if share is None:
        return f"{text}, never seen in training", "with a new value"
    if share >= UNCOMMON_BESIDE * profile.commonest:
        return None
    rarity, article = ("rare", "a") if _is_rare(share, profile.commonest) else ("uncommon", "an")
    return f"{text}, {rarity} ({figure(100 * share, 2)}% of rows)", f"with {article} {rarity} value"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


def _date_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    """A date far outside the training range; else its weekday and hour; else a date just outside the range."""
    moment = _moment(value)
    if profile.earliest is None or profile.latest is None:
        return _clock_phrase(profile, moment)
    earliest, latest = _moment(profile.earliest), _moment(profile.latest)
    if earliest <= moment <= latest:
        return _clock_phrase(profile, moment)
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
