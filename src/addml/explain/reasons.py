"""Why rows are flagged, in words: which columns to name for a row, and rows with the same reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from addml.explain.attribution import attributions
from addml.explain.contributions import explained, features_by_column, views_of
from addml.explain.phrases import FAR_OUTSIDE, Phrase, not_a_number, uncommon, unusual, unusual_together
from addml.model import Model
from addml.preprocessing.profile import ColumnProfile
from addml.text import figure

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
        """The names in one text."""
        return ", ".join(self.columns)


Reasons = list[tuple[Reason, ...]]  # of each row
How = Callable[[ColumnProfile, Any], Phrase | None]  # unusual, uncommon or unusual_together


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
    explainer = _Rows(shares.clip(0), strange, said, within, values, texts or {}, correlated(model, origins))
    order = explainer.leading(np.argsort(-shares, axis=1, kind="stable"), max(WIDE, most))
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


class _Rows:
    """Rows with the share of each column in their scores, their values, and how these compare with the profiles."""

    def __init__(
        self,
        shares: np.ndarray,
        strange: np.ndarray,
        said: Sequence[str],
        within: GroupProfiles,
        values: Mapping[str, Any],
        texts: Mapping[str, pa.Array],
        correlated: np.ndarray,
    ) -> None:
        self.shares, self.strange, self.said = shares, strange, said
        self.profiles, self.group = within
        self.values, self.texts, self.correlated = values, texts, correlated
        self.names = [one.column for one in self.profiles[0]]
        self.side = np.zeros(shares.shape, np.int64)  # 1 for a number above the middle 90 % of its column, -1 below it
        self.away = np.zeros(shares.shape)  # from the centre of the middle 90 %, in half widths of it
        for column, profile in enumerate(self.profiles[0]):
            if profile.kind == "number" and not profile.form:
                ends = np.array([(own[column].low, own[column].high) for own in self.profiles], float)
                low, high = ends[self.group].T
                numbers = np.asarray(values[profile.column], np.float64)
                self.side[:, column] = (numbers > high).astype(np.int64) - (numbers < low)
                half = np.where(high > low, (high - low) / 2, np.inf)
                self.away[:, column] = np.nan_to_num(abs(numbers - (high + low) / 2) / half)

    def leading(self, order: np.ndarray, most: int) -> np.ndarray:
        """At most so many columns of each row: those far out, then the others, in this order."""
        far = np.take_along_axis(self.away > FAR_OUTSIDE, order, axis=1)
        return np.take_along_axis(order, np.argsort(~far, axis=1, kind="stable")[:, :most], axis=1)

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
        phrases = {first: phrase for first in named if (phrase := self._phrase(row, first))}
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

    def _phrase(self, row: int, column: int, how: How = unusual) -> Phrase | None:
        """What there is to say of a value, behind the column's name; None for nothing."""
        name = self.names[column]
        text = self.texts[name][row].as_py() if name in self.texts else None
        profile = self.profiles[self.group[row]][column]
        found = how(profile, self.values[name][row]) if text is None else not_a_number(text)
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
        phrase = self._phrase(row, columns[0], uncommon if said == UNCOMMON else unusual_together)
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
