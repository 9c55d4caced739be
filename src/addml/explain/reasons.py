"""Which columns to name for a row, and rows that stand out for the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from addml.explain.contributions import explained, views_of
from addml.explain.phrases import Phrasebook, Reason, Reasons, UsualColumn, beside_others, unusual
from addml.explain.replacement import Replacement, features_by_column
from addml.model import MetricModel

LEADING = 3  # columns that are looked at, or as many as there may be reasons; a reason names so many together
MATTERS = 0.1  # of the score: less is not worth a word, unless all that matters carries less than half of it
HALF = 0.5
CLEAR = 0.5  # of the first reason: a second one that carries so much leads with it
NOT_SIMILAR, AS_A_WHOLE, EXTREME = "no similar row:", "unusual as a whole:", "somewhat extreme:"
SAID = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": AS_A_WHOLE, "tails": EXTREME}
TOGETHER, NOTHING = "unusual together:", "nothing unusual"
NO_NAME = np.array([-1])  # of a column before a phrase


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
    raw values of these rows by column; None is a gap. `texts` has those in columns of numbers, null elsewhere. What the
    views' scores are made of costs little. With other scorers all columns are tried for the rows of the highest scores
    alone, `closely` of them: of the others only those that lie farthest from the usual, `tried` of them.
    """
    views = views_of(model)
    if views is not None:
        found = explained(model, rows, origins, threads)
        said = np.array([SAID[view] for view in views.views], object)[found.view]
        cases = _Cases(found.contributions, found.scores, said, most)
    else:
        cases = _Cases(*_replaced(model, rows, baseline, origins, tried, closely, device, threads), most)
    return cases.reasons(Phrasebook(usual, values, texts))


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
    """What each column of rows brings (m, columns), how far they are from the usual row (m,), and what to say of it."""
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
        bare = AS_A_WHOLE.removesuffix(":")
        part[nobody], phrases[nobody] = self.apart[nobody], book.add(pa.array([bare]), bare, NO_NAME)
        alone = (chosen.sum(axis=1) == 1) & (self.said != EXTREME)
        phrases[alone] = book.say(beside_others, columns[:, :1], alone[:, None])[alone, 0]
        for said in (NOT_SIMILAR, AS_A_WHOLE, EXTREME, TOGETHER):
            own = np.flatnonzero(chosen.any(axis=1) & ~alone & (self.said == said))
            phrases[own] = book.add(book.names(columns[own], said), said, np.repeat(NO_NAME, len(own)))
        return columns, part, phrases


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
