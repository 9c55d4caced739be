"""Which columns to name for a row, and rows that stand out for the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from addml.explain.phrases import Phrasebook, Reason, Reasons
from addml.explain.replacement import Replacement, features_by_column
from addml.explain.words import UsualColumn, beside_others, unusual
from addml.model import MetricModel

PAIRED = 5  # leading columns whose pairs are tried
MATTERS = 0.1  # of the leading column's contribution: less is not worth a word
CLEAR = 0.5  # of it: a column with words of its own that brings so much explains the row
LITTLE = 0.25  # of the row's distance from the usual row: where no column brings more, pairs are tried
AS_A_WHOLE = "unusual as a whole, no column by itself"
NO_NAME = np.array([-1])  # of a column before a phrase
PARTNER = 1.1  # times the leading column's contribution: what a pair must bring to be called one


def reasons(
    model: MetricModel,
    rows: np.ndarray,
    baseline: np.ndarray,
    origins: Sequence[int],
    usual: Sequence[UsualColumn],
    values: Mapping[str, Any],
    texts: Mapping[str, pa.Array] | None = None,
    *,
    most: int = 3,
    tried: int | None = None,
    closely: int | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> Reasons:
    """Why each row stands out, the most important reason first and at most so many.

    Rows, baseline and origins are as for `column_contributions`, `usual` has one entry a column, and `values` the
    raw values of these rows by column; None is a gap. `texts` has those in columns of numbers, null elsewhere. Where
    rows or columns are many it is faster to look closely at the rows of the highest scores alone, `closely` of them: of
    the others only the columns that lie farthest from the usual are tried, `tried` of them, and no pairs.
    """
    features = features_by_column(origins)
    scores, alone = Replacement(model, rows, baseline, device, threads).by_column(features, tried)
    if tried is not None and tried < len(features):
        highest = np.argsort(-scores, kind="stable")[:closely]
        alone[highest] = Replacement(model, rows[highest], baseline, device, threads).by_column(features)[1]
    apart = scores - Replacement(model, baseline[None], baseline, device, 1).by_column([])[0]
    cases, book = _Cases(alone, apart, most), Phrasebook(usual, values, texts)
    cases.name(book)
    doubtful = np.flatnonzero(cases.doubtful)
    if closely is not None:
        doubtful = doubtful[np.argsort(-apart[doubtful], kind="stable")[:closely]]
    replacement = Replacement(model, rows[doubtful], baseline, device, threads)
    cases.pairs[doubtful], cases.pair_falls[doubtful] = _best_pairs(replacement, features, alone[doubtful])
    return cases.reasons(book)


class _Cases:
    """Rows, each with its leading columns, their contributions, and its distance from the usual row."""

    def __init__(self, alone: np.ndarray, apart: np.ndarray, most: int) -> None:
        self.alone, self.apart, self.most = alone, apart, most
        self.columns = _leading(alone, max(most, PAIRED))  # (m, p)
        self.falls = np.take_along_axis(alone, self.columns, axis=1)
        self.pairs, self.pair_falls = np.full((len(alone), 2), -1), np.full(len(alone), -np.inf)  # where tried

    def name(self, book: Phrasebook) -> None:
        """Find columns that matter and whose values are unusual by themselves."""
        matters = (self.falls > 0) & (self.falls >= MATTERS * self.falls[:, :1])
        phrases = book.say(unusual, self.columns, matters)
        named = (phrases >= 0) & (np.cumsum(phrases >= 0, axis=1) <= self.most)
        self.phrases = np.where(named, phrases, -1)
        self.clear = (named & (self.falls >= CLEAR * self.falls[:, :1])).any(axis=1)  # such a column counts most

    @property
    def doubtful(self) -> np.ndarray:
        """Whether it takes more than one column to say why."""
        return ~self.clear | (self.falls[:, 0] < LITTLE * self.apart)

    def reasons(self, book: Phrasebook) -> Reasons:
        """First what no single column explains, then the columns with words of their own."""
        first_columns, first_falls, first_phrases = self._beyond_one(book)
        single = np.stack([self.columns, np.full(self.columns.shape, -1)], axis=2)
        columns = np.concatenate([first_columns[:, None], single], axis=1)
        falls, phrases = np.column_stack([first_falls, self.falls]), np.column_stack([first_phrases, self.phrases])
        said = np.argsort(phrases < 0, axis=1, kind="stable")[:, : self.most]
        columns = np.take_along_axis(columns, said[..., None], axis=1)
        falls, phrases = np.take_along_axis(falls, said, axis=1), np.take_along_axis(phrases, said, axis=1)
        largest = np.maximum(self.apart[:, None], falls)
        return Reasons(columns, np.divide(falls, largest, where=phrases >= 0, out=np.zeros_like(falls)), phrases, book)

    def _beyond_one(self, book: Phrasebook) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What to say first of rows that no single column explains: columns, their contribution, the phrase."""
        columns, falls, phrases = np.full((len(self.alone), 2), -1), self.apart.copy(), np.full(len(self.alone), -1)
        pair = self._is_pair()
        columns[pair], falls[pair] = self.pairs[pair], self.pair_falls[pair]
        phrases[pair] = _together(self.pairs[pair], book)
        top = self.falls[:, 0]
        lead = ~self.clear & ~pair & (top > 0)
        columns[lead, 0], falls[lead] = self.columns[lead, 0], top[lead]
        phrases[lead] = book.say(beside_others, self.columns[:, :1], lead[:, None])[lead, 0]
        whole = ~self.clear & ~pair & ~lead & (self.apart > 0)
        phrases[whole] = book.add(pa.array([AS_A_WHOLE]), AS_A_WHOLE, NO_NAME)
        return columns, falls, phrases

    def _is_pair(self) -> np.ndarray:
        """Whether replacing two columns explains a row much better than each of them does."""
        known = (self.columns[:, None] == self.pairs[..., None]) & (self.phrases >= 0)[:, None]
        each = np.take_along_axis(self.alone, self.pairs, axis=1).clip(0).sum(axis=1)
        beyond_named = ~known.any(axis=2).all(axis=1) & (self.pair_falls >= np.maximum(2 * each, LITTLE * self.apart))
        beyond_lead = self.pair_falls > np.maximum(PARTNER * self.falls[:, 0], 0)
        return (self.pair_falls > -np.inf) & np.where(self.clear, beyond_named, beyond_lead)


def _together(pairs: np.ndarray, book: Phrasebook) -> np.ndarray:
    """The phrases for values of two columns that do not go together."""
    distinct, number = np.unique(pairs, axis=0, return_inverse=True)
    phrases = np.empty(len(distinct), np.int64)
    for at, pair in enumerate(distinct.tolist()):
        words = f"unusual together: {', '.join(book.usual[column].column for column in pair)}"
        phrases[at : at + 1] = book.add(pa.array([words]), words, NO_NAME)
    return np.asarray(phrases[number.ravel()])


def _leading(alone: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-alone, axis=1, kind="stable")[:, :count]


def _best_pairs(
    replacement: Replacement, features: Sequence[np.ndarray], alone: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each row, the two of its leading columns that bring the score down most when both are replaced; by how much.

    Where there is only one column there is no pair, and minus infinity is what it brings.
    """
    count = len(features)
    places = np.array(list(combinations(range(min(PAIRED, count)), 2)), np.int64)
    if not len(places):
        return np.full((len(alone), 2), -1), np.full(len(alone), -np.inf)
    pairs = np.sort(_leading(alone, PAIRED)[:, places], axis=-1)  # (m, p, 2)
    falls = replacement.pair_falls(pairs, features)
    row, best = np.arange(len(alone)), falls.argmax(axis=1)
    return pairs[row, best], falls[row, best]


# Groups ---------------------------------------------------------------------------------------------------

Grouped = tuple[tuple[str, ...], str, tuple[int, ...]]  # columns, words, places of the rows


def groups(found: Sequence[Sequence[Reason]]) -> tuple[Grouped, ...]:
    """Rows that stand out for the same leading one or two columns, two rows at least, the largest group first."""
    leads = {row: _lead(of_row) for row, of_row in enumerate(found) if of_row and of_row[0].columns}
    sizes = Counter(frozenset(lead) for lead in leads.values())
    alike: dict[frozenset[str], list[int]] = {}
    for row, lead in leads.items():
        key = frozenset(lead if sizes[frozenset(lead)] > 1 else lead[:1])
        alike.setdefault(key, []).append(row)
    largest_first = sorted(alike.items(), key=lambda item: -len(item[1]))
    return tuple(_grouped(key, rows, leads[rows[0]], found) for key, rows in largest_first if len(rows) > 1)


def _grouped(key: frozenset[str], rows: list[int], lead: tuple[str, ...], found: Sequence[Sequence[Reason]]) -> Grouped:
    gists = Counter(reason.gist for row in rows for reason in found[row] if key.issuperset(reason.columns))
    most = [gist for gist, count in gists.items() if 2 * count > len(rows)]
    shared = [gist if gists[gist] >= len(rows) else f"mostly {gist}" for gist in most]
    columns = tuple(column for column in lead if column in key)
    return columns, "; ".join(shared) or ", ".join(columns), tuple(rows)


def _lead(of_row: Sequence[Reason]) -> tuple[str, ...]:
    """The columns of the first reason, and of the second where it counts nearly as much."""
    first, second = of_row[0], of_row[1] if len(of_row) > 1 else None
    if second and len(first.columns) == len(second.columns) == 1 and second.share >= CLEAR * first.share:
        return first.columns + second.columns
    return first.columns
