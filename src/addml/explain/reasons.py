"""Why rows are flagged, in words: which columns to name for a row, and rows with the same reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.explain.attribution import attributions
from addml.explain.contributions import explained, features_by_column, views_of
from addml.explain.phrasebook import GroupProfiles, Phrasebook, Reason
from addml.explain.phrases import FAR_OUTSIDE, sides, uncommon, unusual, unusual_together
from addml.model import Model
from addml.preprocessing.profile import ColumnProfile

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
NO_NAME = np.array([-1])  # of a column before a phrase


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
    device: str = "cpu",
    threads: int = 1,
) -> Reasons:
    """Why each row is unusual: the most important reasons first, at most so many.

    Rows (m, d') and baseline (d',) are features, origins the column of each feature, and `profiles` has one entry for
    each column. `values` are the raw values of the rows by column, None if missing, and `texts` those in columns of
    numbers, null elsewhere.
    """
    views = views_of(model)
    if views is not None:
        found = explained(model, rows, origins, threads, groups=groups)
        said = np.array([BY_VIEW[view] for view in views.views], object)[found.view]
        parts = (found.shares, found.scores > 0, said)
    else:
        added = attributions(model, rows, baseline, device, threads, origins=origins)
        above = added.sum(axis=1, keepdims=True)  # the score of the baseline
        shares = np.divide(added, above, where=above > 0, out=np.zeros(added.shape))
        parts = (shares, above[:, 0] > 0, np.full(len(rows), TOGETHER, object))
    within = within or ([profiles], np.zeros(len(rows), np.int64))
    book = Phrasebook(profiles, values, texts, within)
    return _Cases(*parts, most, *sides(*within, values), correlated(model, origins)).reasons(book)


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


class _Cases:
    """Rows with the shares of their leading columns (m, p) in the score, correlated ones counted together.

    A column leads those after it that correlate with it and lie beyond their usual values as it does: they share a
    reason. A number far out and three columns that are led together are always named, others from a tenth of
    the score on.
    """

    def __init__(
        self,
        shares: np.ndarray,
        strange: np.ndarray,
        said: np.ndarray,
        most: int,
        side: np.ndarray,
        away: np.ndarray,
        correlated: np.ndarray,
    ) -> None:
        self.most, far = most, away > FAR_OUTSIDE
        by_share = np.argsort(-shares, axis=1, kind="stable")
        first = np.argsort(~np.take_along_axis(far, by_share, axis=1), axis=1, kind="stable")[:, : max(WIDE, most)]
        self.columns = np.take_along_axis(by_share, first, axis=1)  # those far out, then the largest
        self.shares = np.take_along_axis(shares, self.columns, axis=1).clip(0)
        side, far, away = (np.take_along_axis(one, self.columns, axis=1) for one in (side, far, away))
        self.leader = self._leaders(side, correlated)
        out = np.where(far, away, 0).argmax(axis=1, keepdims=True)
        self.farthest = np.where(far.any(axis=1), np.take_along_axis(self.leader, out, axis=1)[:, 0], -1)
        self.is_gross = np.take_along_axis(away, out, axis=1)[:, 0] > GROSS
        self.sums, self.largest = np.zeros(self.shares.shape), np.zeros(self.shares.shape)
        named = np.zeros(far.shape, bool)
        for place in range(self.shares.shape[1]):
            own = self.leader == place
            counted = own & (np.cumsum(own, axis=1) <= LEADING)
            self.sums[:, place] = (self.shares * counted).sum(axis=1)
            self.largest[:, place] = (self.shares * own).max(axis=1)
            named[:, place] = (far & own).any(axis=1) | (own.sum(axis=1) >= LEADING)
        enough = (self.sums >= MATTERS) & strange[:, None]
        self.whole = strange & ~enough.any(axis=1)  # no column by itself
        self.matters = enough | named
        self.said = np.where(self.whole, AS_A_WHOLE, said)

    def _leaders(self, side: np.ndarray, correlated: np.ndarray) -> np.ndarray:
        """The place of the column (m, p) that each leading column is named with, mostly its own."""
        leader = np.tile(np.arange(side.shape[1]), (len(side), 1))
        for place in range(side.shape[1]):
            pairs = correlated[self.columns[:, place, None], self.columns] * side[:, place, None] * side > 0
            leads = (leader[:, place] == place)[:, None] & pairs
            leads &= (leader == np.arange(side.shape[1])) & (np.arange(side.shape[1]) > place)
            leader[leads] = place
        return leader

    def reasons(self, book: Phrasebook) -> Reasons:
        """Columns whose values are unusual by themselves, by their share, then the others that matter in one reason."""
        phrases = book.say(unusual, self.columns, self.matters)
        together, part, phrase = self._together(phrases < 0, book)
        columns = np.full((*self.columns.shape, LEADING), -1)
        columns[..., 0] = self.columns
        self._join(columns, phrases, book)
        columns = np.concatenate([columns, together[:, None]], axis=1)
        shares = np.column_stack([self.sums, part])
        order = np.column_stack([self._order(), np.ones(len(part))])  # what is said together comes last
        phrases = np.column_stack([phrases, phrase])
        said = np.argsort(np.where(phrases < 0, 2, order), axis=1, kind="stable")[:, : self.most]
        self._name_farthest(said, phrases)
        columns = np.take_along_axis(columns, said[..., None], axis=1)
        shares, phrases = (np.take_along_axis(one, said, axis=1) for one in (shares, phrases))
        nothing = (phrases < 0).all(axis=1)
        phrases[nothing, 0] = book.add(pa.array([NOTHING]), NOTHING, NO_NAME)
        columns[nothing, 0], shares[phrases < 0], shares[nothing] = -1, 0, 0
        return Reasons(columns, shares.clip(0, 1), phrases, book)

    def _order(self) -> np.ndarray:
        """Places by which reasons are sorted (m, p): the largest share first, or a gross value with nearly as much."""
        order, rows = -self.largest, np.arange(len(self.largest))
        leads = self.is_gross & (self.largest[rows, self.farthest] >= CLEAR * self.largest.max(axis=1))
        order[rows[leads], self.farthest[leads]] = -np.inf
        return order

    def _name_farthest(self, said: np.ndarray, phrases: np.ndarray) -> None:
        """Put the number that lies farthest out last among the reasons to be said, if it is not among them."""
        missing = (self.farthest >= 0) & ~(said == self.farthest[:, None]).any(axis=1)
        rows = np.flatnonzero(missing & (phrases[np.arange(len(phrases)), self.farthest] >= 0))
        if self.most > 1 and said.shape[1] > 1:
            said[rows, -1] = self.farthest[rows]

    def _join(self, columns: np.ndarray, phrases: np.ndarray, book: Phrasebook) -> None:
        """Name the columns that others lead, two at most, in the reason of their leader."""
        for place in range(self.columns.shape[1]):
            led = (self.leader == place) & (np.arange(self.columns.shape[1]) != place)
            rows = np.flatnonzero(led.any(axis=1) & (phrases[:, place] >= 0))
            first = np.argsort(~led[rows], axis=1, kind="stable")[:, : LEADING - 1]
            named = np.take_along_axis(led[rows], first, axis=1)
            own = np.where(named, np.take_along_axis(self.columns[rows], first, axis=1), -1)
            columns[rows, place, 1 : 1 + own.shape[1]] = own
            phrases[rows, place] = book.add_led(phrases[rows, place], self.columns[rows, place], rows, own)

    def _together(self, ordinary: np.ndarray, book: Phrasebook) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One reason for the columns that matter and whose values are ordinary: columns (m, 3), share and phrase (m,).

        Where no column matters, for the three largest.
        """
        largest = (self.shares > 0) & (self.leader == np.arange(self.leader.shape[1]))
        chosen = np.where(self.whole[:, None], largest & ordinary, self.matters & ordinary)
        by_share = np.argsort(np.where(chosen, -self.sums, 1), axis=1, kind="stable")[:, :LEADING]
        named = np.take_along_axis(chosen, by_share, axis=1)
        columns = np.full((len(chosen), LEADING), -1)
        columns[:, : by_share.shape[1]] = np.where(named, np.take_along_axis(self.columns, by_share, axis=1), -1)
        part = np.where(named, np.take_along_axis(self.sums, by_share, axis=1), 0).sum(axis=1)
        count, phrases = named.sum(axis=1), np.full(len(chosen), -1)
        nobody = self.whole & (count == 0) & ordinary.all(axis=1)
        part[nobody], phrases[nobody] = 1.0, book.add(pa.array([WHOLE]), WHOLE, NO_NAME)
        for how, alone in ((uncommon, self.said == UNCOMMON), (unusual_together, self.said != UNCOMMON)):
            own = (count == 1) & alone
            phrases[own] = book.say(how, columns[:, :1], own[:, None])[own, 0]
        for said in (NOT_SIMILAR, AS_A_WHOLE, UNCOMMON, TOGETHER):
            several = np.flatnonzero((count > 1) & (self.said == said))
            phrases[several] = book.add_together(said, columns[several])
        return columns, part, phrases


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
