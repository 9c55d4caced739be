"""Phrases about the values of many rows, made together and looked up by number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from addml.explain.phrases import PhraseGroup, as_values, figures, joined, no_number, taken
from addml.preprocessing.profile import ColumnProfile


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


GroupProfiles = tuple[Sequence[Sequence[ColumnProfile]], np.ndarray]  # of each group; the group of each row
How = Callable[[Sequence[ColumnProfile], np.ndarray, Any], Iterator[PhraseGroup]]  # unusual or unusual_together


class Phrasebook:
    """All phrases about the values of some rows, by number."""

    def __init__(
        self,
        profiles: Sequence[ColumnProfile],
        values: Mapping[str, Any],
        texts: Mapping[str, pa.Array] | None = None,
        within: GroupProfiles | None = None,
    ) -> None:
        """Raw values by column, None if missing; `texts` are those in columns of numbers, null elsewhere.

        Numbers are compared with the profiles of their groups, where there are groups.
        """
        self.columns = [one.column for one in profiles]
        self._texts = {self.columns.index(name): own for name, own in (texts or {}).items()}
        self._kinds = [_Kind(kind, profiles, values, within) for kind in dict.fromkeys(one.kind for one in profiles)]
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
            for group in kind.say(how, which[cells], rows[cells]) if len(cells) else ():
                chosen = cells[group.places]
                found[rows[chosen], places[chosen]] = self.add(group.words, group.summary, wanted[chosen])
        for column, texts in self._texts.items():
            cells = np.flatnonzero((wanted == column) & np.asarray(texts.is_valid())[rows])
            words = no_number(texts.take(pa.array(rows[cells])))
            found[rows[cells], places[cells]] = self.add(words, "{} is not a number", wanted[cells])
        return found

    def add_together(self, said: str, columns: np.ndarray) -> np.ndarray:
        """The numbers of new phrases about columns (n, k) together, -1 behind the last, in the place of {}."""
        alike, which = np.unique(columns, axis=0, return_inverse=True)
        names = [and_list([self.columns[one] for one in own if one >= 0]) for own in alike.tolist()]
        words = pa.array([said.replace("{}", one) for one in names], pa.string())
        return self.add(words.take(pa.array(which.ravel())), said, np.full(len(columns), -1))

    def add_led(self, phrases: np.ndarray, leaders: np.ndarray, rows: np.ndarray, led: np.ndarray) -> np.ndarray:
        """The numbers of phrases (n,) about leading columns that go on with those they lead (n, k), -1 for none."""
        if not len(phrases):
            return phrases
        said = pa.concat_arrays(self._words).take(pa.array(phrases))
        names = pa.array([f"{column} " for column in self.columns], pa.string())
        kind = next(one for one in self._kinds if one.kind == "number")
        for place, own in enumerate(led.T):
            cells = np.flatnonzero(own >= 0)
            numbers = figures(kind.values(kind.which[own[cells]], rows[cells]), 3)
            texts = joined(", and with it " if place == 0 else " and ", names.take(pa.array(own[cells])), numbers)
            places = np.full(len(own), -1)
            places[cells] = np.arange(len(cells))
            said = joined(said, texts.take(pa.array(places, mask=places < 0)).fill_null(""))
        new = np.empty(len(phrases), np.int64)
        summaries = np.array([self._summary(one) for one in phrases.tolist()], object)
        for summary in dict.fromkeys(summaries):
            own = np.flatnonzero(summaries == summary)
            new[own] = self.add(said.take(pa.array(own)), summary, leaders[own])
        return new

    def _summary(self, phrase: int) -> str:
        return self._summaries[bisect_right(self._ends, phrase)]

    @cached_property
    def words(self) -> pa.Array:
        """All phrases; none may be added from here on."""
        names = pa.array([*(f"{column} " for column in self.columns), ""], pa.string())
        columns = self._about % len(names)  # the last has no name
        return joined(names.take(pa.array(columns)), pa.concat_arrays(self._words))

    @cached_property
    def _about(self) -> np.ndarray:
        """The column that each phrase follows, -1 for none."""
        return np.concatenate(self._columns)

    def reason(self, columns: Sequence[int], share: float, phrase: int) -> Reason:
        """The reason of these columns, -1 for none; its summary is about the leading one, or names all in order."""
        named, about = [one for one in columns if one >= 0], self._about[phrase]
        own = sorted(named) if about < 0 else [about]
        summary = self._summary(phrase).replace("{}", and_list([self.columns[one] for one in own]))
        return Reason(tuple(self.columns[one] for one in named), share, self.words[phrase].as_py(), summary)


def and_list(names: Sequence[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


class _Kind:
    """The columns of one kind, their values one after another."""

    def __init__(
        self, kind: str, profiles: Sequence[ColumnProfile], values: Mapping[str, Any], within: GroupProfiles | None
    ) -> None:
        self.kind = kind
        groups: Sequence[Sequence[ColumnProfile]] = [profiles]
        self._group: np.ndarray | None = None  # of each row
        if within is not None and kind == "number":
            groups, self._group = within
        self._profiles = [one for own in groups for one in own if one.kind == kind]
        parts = [as_values(kind, values[one.column]) for one in profiles if one.kind == kind]
        self._columns = len(parts)
        self._rows = len(parts[0])
        self._values = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
        own = np.array([one.kind == kind for one in profiles])
        self.which = np.where(own, np.cumsum(own) - 1, -1)  # the place of each column among these, or -1

    def values(self, which: np.ndarray, rows: np.ndarray) -> Any:
        """The values of these columns in these rows."""
        return taken(self._values, which * self._rows + rows)

    def say(self, how: How, which: np.ndarray, rows: np.ndarray) -> Iterator[PhraseGroup]:
        """What there is to say of the values of these columns in these rows."""
        profiles = which if self._group is None else which + self._columns * self._group[rows]
        return how(self._profiles, profiles, self.values(which, rows))
