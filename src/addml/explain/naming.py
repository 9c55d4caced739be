"""Which columns to name for a row, and rows that stand out for the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from addml.explain.replacement import Replacement, features_by_column
from addml.explain.words import UsualColumn, Wording, Words
from addml.model import MetricModel

PAIRED = 5  # leading columns whose pairs are tried
MATTERS = 0.1  # of the leading column's contribution: less is not worth a word
CLEAR = 0.5  # of it: a column with words of its own that brings so much explains the row
LITTLE = 0.25  # of the row's distance from the usual row: where no column brings more, pairs are tried
PARTNER = 1.1  # times the leading column's contribution: what a pair must bring to be called one


class Reason(NamedTuple):
    """Columns that made a row stand out: one, two that do not go together, or none where it is the row as a whole."""

    columns: tuple[str, ...]
    share: float  # of the score's distance from the usual row's, that goes when they take their usual values
    words: str  # "amount 41x the usual"
    gist: str  # the same without the row's values: "amount above the usual"

    @property
    def column(self) -> str:
        """The names in one text."""
        return ", ".join(self.columns)


Part = tuple[tuple[int, ...], float, Words]  # of an explanation: columns, their contribution, words


class _Case(NamedTuple):
    """One row: its leading columns with their contributions, its distance from the usual row, what words there are."""

    row: int
    columns: list[int]
    falls: list[float]
    apart: float
    named: list[Part]  # columns whose value is unusual by itself

    @property
    def is_clear(self) -> bool:
        """Whether a column with words of its own is among those that count most."""
        return any(fall >= CLEAR * self.falls[0] for _, fall, _ in self.named)

    @property
    def is_doubtful(self) -> bool:
        """Whether it takes more than one column to say why."""
        return not self.is_clear or self.falls[0] < LITTLE * self.apart


class _Pair(NamedTuple):
    """Two columns, what replacing both brings, and what replacing each brings by itself, added up."""

    columns: tuple[int, int]
    fall: float
    alone: float


def reasons(
    model: MetricModel,
    rows: np.ndarray,
    baseline: np.ndarray,
    origins: Sequence[int],
    usual: Sequence[UsualColumn],
    values: Mapping[str, Sequence[Any]],
    *,
    most: int = 3,
    tried: int | None = None,
    paired: int | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> list[tuple[Reason, ...]]:
    """Why each row stands out, the most important reason first and at most so many.

    Rows, baseline and origins are as for `column_contributions`, `usual` has one entry a column, and `values` the
    raw values of these rows by column; None is a gap. With `tried`, only the columns of a row that lie farthest
    from the usual, so many of them, are looked at; with `paired`, pairs of columns are tried for the farthest rows
    only, so many of them: both are faster where rows or columns are many.
    """
    features = features_by_column(origins)
    scores, alone = Replacement(model, rows, baseline, device, threads).by_column(features, tried)
    usual_score = Replacement(model, baseline[None], baseline, device, 1).by_column([])[0]
    wording = Wording(usual, values)
    cases = list(_cases(alone, scores - usual_score, wording, most))
    doubtful = [case.row for case in cases if case.is_doubtful]
    if paired is not None:
        doubtful = sorted(doubtful, key=lambda row: -cases[row].apart)[:paired]
    replacement = Replacement(model, rows[doubtful], baseline, device, threads)
    pairs = dict(zip(doubtful, _best_pairs(replacement, features, alone[doubtful]), strict=True))
    found = []
    for case in cases:
        first = _beyond_one(case, pairs.get(case.row), wording) if case.is_doubtful else []
        found.append(tuple(_reason(part, case.apart, usual) for part in [*first, *case.named][:most]))
    return found


def _cases(alone: np.ndarray, apart: np.ndarray, wording: Wording, most: int) -> Iterator[_Case]:
    leading = _leading(alone, max(most, PAIRED))
    falls = np.take_along_axis(alone, leading, axis=1)
    for row, (columns, fall, far) in enumerate(zip(leading.tolist(), falls.tolist(), apart.tolist(), strict=True)):
        named: list[Part] = []
        for column, brings in zip(columns, fall, strict=True):
            if brings <= 0 or brings < MATTERS * fall[0] or len(named) == most:
                break
            words = wording.alone(column, row)
            if words:
                named.append(((column,), brings, words))
        yield _Case(row, columns, fall, far, named)


def _leading(alone: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-alone, axis=1, kind="stable")[:, :count]


def _best_pairs(replacement: Replacement, features: Sequence[np.ndarray], alone: np.ndarray) -> list[_Pair | None]:
    """For each row, the two of its leading columns that bring the score down most when both are replaced."""
    count = len(features)
    places = np.array(list(combinations(range(min(PAIRED, count)), 2)), np.int64)
    if not len(places):
        return [None] * len(alone)
    pairs = np.sort(_leading(alone, PAIRED)[:, places], axis=-1)  # (m, p, 2)
    numbers = pairs[..., 0] * count + pairs[..., 1]
    _, falls = replacement.falls(numbers, lambda pair: np.concatenate([features[c] for c in divmod(pair, count)]))
    row, best = np.arange(len(alone)), falls.argmax(axis=1)
    chosen = pairs[row, best]
    each = np.take_along_axis(alone, chosen, axis=1).clip(0).sum(axis=1)
    found = zip(chosen.tolist(), falls[row, best].tolist(), each.tolist(), strict=True)
    return [_Pair((first, second), fall, by_each) for (first, second), fall, by_each in found]


def _beyond_one(case: _Case, pair: _Pair | None, wording: Wording) -> list[Part]:
    """What to say first of a row that no single column explains."""
    top, lead = case.falls[0], case.columns[0]
    if case.is_clear:
        own = {column for columns, _, _ in case.named for column in columns}
        if pair and not own.issuperset(pair.columns) and pair.fall >= max(2 * pair.alone, LITTLE * case.apart):
            return [(pair.columns, pair.fall, wording.together(pair.columns))]
        return []
    if pair and pair.fall > max(PARTNER * top, 0):
        return [(pair.columns, pair.fall, wording.together(pair.columns))]
    if top > 0:
        return [((lead,), top, wording.beside_others(lead, case.row))]
    return [((), case.apart, ("unusual as a whole, no column by itself",) * 2)] if case.apart > 0 else []


def _reason(part: Part, apart: float, usual: Sequence[UsualColumn]) -> Reason:
    columns, fall, words = part
    return Reason(tuple(usual[column].column for column in columns), fall / max(apart, fall), *words)


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
    shared = [gist for gist, count in gists.items() if 2 * count > len(rows)]
    columns = tuple(column for column in lead if column in key)
    return columns, "; ".join(shared) or ", ".join(columns), tuple(rows)


def _lead(of_row: Sequence[Reason]) -> tuple[str, ...]:
    """The columns of the first reason, and of the second where it counts nearly as much."""
    first, second = of_row[0], of_row[1] if len(of_row) > 1 else None
    if second and len(first.columns) == len(second.columns) == 1 and second.share >= CLEAR * first.share:
        return first.columns + second.columns
    return first.columns
