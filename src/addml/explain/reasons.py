"""Why rows are flagged, in words: which columns to name for a row, and rows with the same reasons."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.explain.contributions import explained, features_by_column, views_of
from addml.explain.phrases import (
    ColumnProfile,
    PhraseGroup,
    as_values,
    joined,
    no_number,
    taken,
    unusual,
    unusual_together,
)
from addml.explain.replacement import Replacement
from addml.model import MetricModel

LEADING = 3  # columns that are looked at, or as many as there may be reasons; a reason names so many together
MATTERS = 0.1  # of the score: less is not worth a word, unless all that matters carries less than half of it
HALF = 0.5
CLEAR = 0.5  # of the first reason: a second one that carries so much leads with it
NOT_SIMILAR, AS_A_WHOLE = "no other row has similar values of {}", "unusual as a whole, mostly in {}"
EXTREME, TOGETHER = "somewhat extreme values of {}", "unusual combination of {}"
BY_VIEW = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": AS_A_WHOLE, "tails": EXTREME}
WHOLE, NOTHING = "unusual as a whole", "nothing unusual"
NO_NAME = np.array([-1])  # of a column before a phrase


class Reason(NamedTuple):
    """Columns that make a row unusual: one, or up to three that are ordinary alone; none where nothing is unusual."""

    columns: tuple[str, ...]  # the one that contributes most first
    share: float  # of the row's score
    words: str  # "amount 1230, far above the usual 30"
    summary: str  # the same without the row's values: "amount unusually high"

    @property
    def column(self) -> str:
        """The names in one text."""
        return ", ".join(self.columns)


class Reasons(Sequence[tuple[Reason, ...]]):
    """The reasons of many rows; objects and texts are made when they are asked for."""

    def __init__(self, columns: np.ndarray, shares: np.ndarray, phrases: np.ndarray, book: Phrasebook) -> None:
        """Columns (m, p, 3), -1 for none; shares (m, p); numbers of phrases (m, p), -1 behind the last reason."""
        self.columns, self.shares, self.phrases, self.book = columns, shares, phrases, book

    @classmethod
    def none(cls, rows: int) -> Reasons:
        """Rows without reasons."""
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


How = Callable[[Sequence[ColumnProfile], np.ndarray, Any], Iterator[PhraseGroup]]  # unusual or unusual_together


class Phrasebook:
    """All phrases about the values of some rows, by number."""

    def __init__(
        self, profiles: Sequence[ColumnProfile], values: Mapping[str, Any], texts: Mapping[str, pa.Array] | None = None
    ) -> None:
        """Raw values by column, None if missing; `texts` are those in columns of numbers, null elsewhere."""
        self.columns = [one.column for one in profiles]
        self._texts = {self.columns.index(name): own for name, own in (texts or {}).items()}
        self._kinds = [_Kind(kind, profiles, values) for kind in dict.fromkeys(one.kind for one in profiles)]
        self._words, self._columns = [pa.array([], pa.string())], [np.empty(0, np.int64)]
        self._summaries, self._ends = list[str](), list[int]()  # of phrases that share a summary

    def add(self, words: pa.Array, summary: str, columns: np.ndarray) -> np.ndarray:
        """The numbers of new phrases, which follow the names of these columns; -1 for no name."""
        start = self._ends[-1] if self._ends else 0
        self._words.append(words)
        self._columns.append(columns)
        self._summaries.append(summary)
        self._ends.append(start + len(words))
        return np.arange(start, self._ends[-1])

    def say(self, how: How, columns: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The numbers of the phrases about the cells of columns (m, p) that the mask marks; -1 for none."""
        found, (rows, places) = np.full(columns.shape, -1), np.nonzero(mask)
        wanted = columns[rows, places]
        for kind in self._kinds:
            which = kind.which[wanted]
            cells = np.flatnonzero(which >= 0)
            for group in how(kind.profiles, which[cells], kind.values(which[cells], rows[cells])) if len(cells) else ():
                chosen = cells[group.places]
                found[rows[chosen], places[chosen]] = self.add(group.words, group.summary, wanted[chosen])
        for column, texts in self._texts.items():
            cells = np.flatnonzero((wanted == column) & np.asarray(texts.is_valid())[rows])
            words = no_number(texts.take(pa.array(rows[cells])))
            found[rows[cells], places[cells]] = self.add(words, "{} is not a number", wanted[cells])
        return found

    def add_together(self, said: str, columns: np.ndarray) -> np.ndarray:
        """The numbers of new phrases about columns (n, k) together, -1 behind the last, in the place of {}."""
        names, last = pa.array(self.columns, pa.string()), (columns >= 0).sum(axis=1) - 1
        before, after = said.split("{}")
        texts = [pa.repeat(before, len(columns))]
        for place, own in enumerate(columns.T):
            if place:
                texts.append(pc.if_else(pa.array(place == last), " and ", ", "))
                texts[-1] = pc.if_else(pa.array(own >= 0), texts[-1], "")
            texts.append(names.take(pa.array(own, mask=own < 0)).fill_null(""))
        return self.add(joined(*texts, after), said, np.full(len(columns), -1))

    @cached_property
    def words(self) -> pa.Array:
        """All phrases; none may be added from here on."""
        names = pa.array([*(f"{column} " for column in self.columns), ""], pa.string())
        columns = np.concatenate(self._columns) % len(names)  # the last has no name
        return joined(names.take(pa.array(columns)), pa.concat_arrays(self._words))

    def reason(self, columns: Sequence[int], share: float, phrase: int) -> Reason:
        """The reason of these columns, -1 for none; its summary names them in the order of the table."""
        named = [one for one in columns if one >= 0]
        said = self._summaries[bisect_right(self._ends, phrase)]
        summary = said.replace("{}", and_list([self.columns[one] for one in sorted(named)]))
        return Reason(tuple(self.columns[one] for one in named), share, self.words[phrase].as_py(), summary)


def and_list(names: Sequence[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


class _Kind:
    """The columns of one kind, their values one after another."""

    def __init__(self, kind: str, profiles: Sequence[ColumnProfile], values: Mapping[str, Any]) -> None:
        self.profiles = [one for one in profiles if one.kind == kind]
        parts = [as_values(kind, values[one.column]) for one in self.profiles]
        self._rows = len(parts[0])
        self._values = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
        own = np.array([one.kind == kind for one in profiles])
        self.which = np.where(own, np.cumsum(own) - 1, -1)  # the place of each column among these, or -1

    def values(self, which: np.ndarray, rows: np.ndarray) -> Any:
        """The values of these columns in these rows."""
        return taken(self._values, which * self._rows + rows)


def reasons(
    model: MetricModel,
    rows: np.ndarray,
    baseline: np.ndarray,
    origins: Sequence[int],
    profiles: Sequence[ColumnProfile],
    values: Mapping[str, Any],
    texts: Mapping[str, pa.Array] | None = None,
    *,
    most: int = 3,
    tried: int | None = None,
    closely: int | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> Reasons:
    """Why each row is unusual: the most important reasons first, at most so many.

    Rows (m, d') and baseline (d',) are features, origins the column of each feature, and `profiles` has one entry for
    each column. `values` are the raw values of the rows by column, None if missing, and `texts` those in columns of
    numbers, null elsewhere. With scorers other than views, the `closely` rows of the highest scores are tried with all
    columns, and the others with the `tried` columns that lie farthest from the baseline.
    """
    views = views_of(model)
    if views is not None:
        found = explained(model, rows, origins, threads)
        said = np.array([BY_VIEW[view] for view in views.views], object)[found.view]
        cases = _Cases(found.contributions, found.scores, said, most)
    else:
        cases = _Cases(*_replaced(model, rows, baseline, origins, tried, closely, device, threads), most)
    return cases.reasons(Phrasebook(profiles, values, texts))


def _replaced(
    model: MetricModel,
    rows: np.ndarray,
    baseline: np.ndarray,
    origins: Sequence[int],
    tried: int | None,
    closely: int | None,
    device: str,
    threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each column contributes (m, columns), how far scores lie above the baseline's (m,), and what to say."""
    features = features_by_column(origins)
    scores, alone = Replacement(model, rows, baseline, device, threads).by_column(features, tried)
    if tried is not None and tried < len(features):
        highest = np.argsort(-scores, kind="stable")[:closely]
        alone[highest] = Replacement(model, rows[highest], baseline, device, threads).by_column(features)[1]
    apart = scores - Replacement(model, baseline[None], baseline, device, 1).by_column([])[0]
    return alone, apart, np.full(len(rows), TOGETHER, object)


class _Cases:
    """Rows with the contributions of their leading columns (m, p), and the amount that all columns explain (m,)."""

    def __init__(self, contributions: np.ndarray, apart: np.ndarray, said: np.ndarray, most: int) -> None:
        self.apart, self.most = apart, most
        self.columns = np.argsort(-contributions, axis=1, kind="stable")[:, : max(LEADING, most)]
        self.parts = np.take_along_axis(contributions, self.columns, axis=1).clip(0)
        adds = (self.parts > 0) & (apart > 0)[:, None]
        matters = adds & (self.parts >= MATTERS * apart[:, None])
        self.whole = ~matters.any(axis=1) & (apart > 0)  # no column by itself
        little = ~self.whole & (np.where(matters, self.parts, 0).sum(axis=1) < HALF * apart)
        self.matters = matters | (adds & little[:, None] & (np.arange(adds.shape[1]) < LEADING))
        self.said = np.where(self.whole, AS_A_WHOLE, said)

    def reasons(self, book: Phrasebook) -> Reasons:
        """Columns whose values are unusual by themselves, by their share, then the others that matter in one reason."""
        phrases = book.say(unusual, self.columns, self.matters)
        together, part, phrase = self._together(phrases < 0, book)
        single = np.full((*self.columns.shape, LEADING), -1)
        single[..., 0] = self.columns
        columns = np.concatenate([single, together[:, None]], axis=1)
        parts, phrases = np.column_stack([self.parts, part]), np.column_stack([phrases, phrase])
        shares = np.divide(parts, self.apart[:, None], where=phrases >= 0, out=np.zeros(parts.shape))
        said = np.argsort(phrases < 0, axis=1, kind="stable")[:, : self.most]
        columns = np.take_along_axis(columns, said[..., None], axis=1)
        shares, phrases = (np.take_along_axis(one, said, axis=1) for one in (shares, phrases))
        nothing = (phrases < 0).all(axis=1)
        phrases[nothing, 0] = book.add(pa.array([NOTHING]), NOTHING, NO_NAME)
        columns[nothing, 0] = -1
        return Reasons(columns, shares.clip(0, 1), phrases, book)

    def _together(self, ordinary: np.ndarray, book: Phrasebook) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One reason for the columns that matter and whose values are ordinary: columns (m, 3), part and phrase (m,).

        Where no column matters, for the three largest.
        """
        chosen = np.where(self.whole[:, None], self.parts > 0, self.matters & ordinary)
        chosen &= np.cumsum(chosen, axis=1) <= LEADING
        first = np.argsort(~chosen, axis=1, kind="stable")[:, :LEADING]
        named = np.take_along_axis(chosen, first, axis=1)
        columns = np.full((len(chosen), LEADING), -1)
        columns[:, : first.shape[1]] = np.where(named, np.take_along_axis(self.columns, first, axis=1), -1)
        part, phrases = np.where(chosen, self.parts, 0).sum(axis=1), np.full(len(chosen), -1)
        nobody = self.whole & ~chosen.any(axis=1)
        part[nobody], phrases[nobody] = self.apart[nobody], book.add(pa.array([WHOLE]), WHOLE, NO_NAME)
        alone = (chosen.sum(axis=1) == 1) & (self.said != EXTREME)
        phrases[alone] = book.say(unusual_together, columns[:, :1], alone[:, None])[alone, 0]
        for said in (NOT_SIMILAR, AS_A_WHOLE, EXTREME, TOGETHER):
            own = np.flatnonzero(chosen.any(axis=1) & ~alone & (self.said == said))
            phrases[own] = book.add_together(said, columns[own])
        return columns, part, phrases


# Groups ---------------------------------------------------------------------------------------------------

Grouped = tuple[tuple[str, ...], str, tuple[int, ...]]  # columns, words, places of the rows


def groups(found: Sequence[Sequence[Reason]]) -> tuple[Grouped, ...]:
    """Rows with the same one or two leading columns, at least two rows each, the largest group first."""
    leads = {row: _lead(of_row) for row, of_row in enumerate(found) if of_row and of_row[0].columns}
    sizes = Counter(frozenset(lead) for lead in leads.values())
    alike: dict[frozenset[str], list[int]] = {}
    for row, lead in leads.items():
        key = frozenset(lead if sizes[frozenset(lead)] > 1 else lead[:1])
        alike.setdefault(key, []).append(row)
    largest_first = sorted(alike.items(), key=lambda item: -len(item[1]))
    return tuple(_grouped(key, rows, leads[rows[0]], found) for key, rows in largest_first if len(rows) > 1)


def _grouped(key: frozenset[str], rows: list[int], lead: tuple[str, ...], found: Sequence[Sequence[Reason]]) -> Grouped:
    summaries = Counter(reason.summary for row in rows for reason in found[row] if key.issuperset(reason.columns))
    most = [summary for summary, count in summaries.items() if 2 * count > len(rows)]
    shared = [summary if summaries[summary] >= len(rows) else f"mostly {summary}" for summary in most]
    columns = tuple(column for column in lead if column in key)
    return columns, "; ".join(shared) or ", ".join(columns), tuple(rows)


def _lead(of_row: Sequence[Reason]) -> tuple[str, ...]:
    """The columns of the first reason, and of the second where it counts nearly as much."""
    first, second = of_row[0], of_row[1] if len(of_row) > 1 else None
    if second and len(first.columns) == len(second.columns) == 1 and second.share >= CLEAR * first.share:
        return first.columns + second.columns
    return first.columns
