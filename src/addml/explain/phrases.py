"""Reasons of many rows at once, and the phrases that they are made of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.explain.words import Alike, UsualColumn, as_values, taken
from addml.explain.written import no_number


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
