"""How much a row's score falls when a column takes its value of the baseline; for scorers other than views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from addml.arrays import index_like, to_numpy
from addml.compute import in_threads, on_device
from addml.encoders import MLPNetwork
from addml.explain.contributions import displacements
from addml.model import Model
from addml.scoring.guidance import LabelDistances
from addml.scoring.self_matches import SelfMatches

ROWS = 1024  # rows whose replacements are worked out together
CELLS = 2**22  # numbers held for them, at most

Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows (k,), by how much some features change (k, f), those (f,)


class Replacement:
    """Scores of rows of features (m, d') in which some take the values of the baseline (d',).

    Only the first layer sees the features, so taking a column out of its sums costs a product as thin as the
    column. The other layers take blocks of one fixed shape.
    """

    def __init__(self, model: Model, rows: np.ndarray, baseline: np.ndarray, device: str, threads: int) -> None:
        self.model, self.rows, self.device = model, rows, device
        self.threads = min(threads, model.scorer.max_threads) if device == "cpu" else 1
        self.baseline = baseline.astype(np.float64)  # what is taken out of a float32 sum leaves its rounding behind
        assert isinstance(model.encoder, MLPNetwork)  # of a table
        matrix, bias = model.encoder.first_layer
        self.matrix, self.bias = matrix.astype(np.float64), bias.astype(np.float64)
        self.encoder: MLPNetwork = model.encoder.with_weights(on_device(model.encoder.weights, device))
        self.ready = model.scorer_ready(device)
        self.block = model.block(device)

    def by_column(self, features: Sequence[np.ndarray], tried: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The scores (m,), and by how much they fall (m, columns) when one column is replaced.

        With `tried`, only so many columns of each row are replaced, those that move it farthest; the others have 0.
        """
        columns = np.broadcast_to(np.arange(len(features)), (len(self.rows), len(features)))
        if tried is None or tried >= len(features):
            return self._all_falls(columns, features)
        out = displacements(self.rows, self.baseline.astype(np.float32), self.model.encoder, features)
        sets = np.argpartition(-out, tried, axis=1)[:, :tried]
        scores, falls = self._all_falls(sets, features)
        every = np.zeros(columns.shape)
        np.put_along_axis(every, sets, falls, axis=1)
        return scores, every

    def _all_falls(self, sets: np.ndarray, features: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The scores (m,), and by how much they fall (m, p) when each of columns (m, p) is replaced."""
        scores, falls = np.empty(len(self.rows)), np.empty(sets.shape)
        members, d, h = self.matrix.shape
        size = max(1, min(ROWS, CELLS // max(d, members * h, members * sets.shape[1])))

        def work(part: int) -> None:
            chosen = slice(part * size, (part + 1) * size)
            scores[chosen], falls[chosen] = self._falls(self.rows[chosen], sets[chosen], features)

        in_threads(work, -(-len(self.rows) // size), self.threads)
        return scores, falls

    def _falls(
        self, rows: np.ndarray, sets: np.ndarray, features: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        n, away = len(rows), self.baseline - rows
        wanted = sets.T.ravel()  # the i-th replacement is of row i % n
        order = np.argsort(wanted, kind="stable")
        ids, ends = order % n, np.flatnonzero(np.diff(wanted[order], append=-1)) + 1
        pieces, changed = [_as_they_are(n)], []
        for start, end in pairwise([0, *ends.tolist()]):
            own = features[int(wanted[order[start]])]
            change = away[ids[start:end, None], own]
            moved = change.any(axis=1)
            changed.append(order[start:end][moved])
            pieces.append((ids[start:end][moved], change[moved], own))
        scores = self.model.combine(self._member_scores(rows, pieces))
        falls, places = np.zeros(len(wanted)), np.concatenate([np.empty(0, np.int64), *changed])
        falls[places] = scores[places % n] - scores[n:]
        return scores[:n], falls.reshape(-1, n).T

    def _member_scores(self, rows: np.ndarray, pieces: list[Piece]) -> np.ndarray:
        """Scores (E, k) of the rows of all pieces, one after another, from every view of the scorer."""
        scorer, ready, x = self.model.scorer, self.ready, on_device(rows, self.device)
        result = np.empty((scorer.count(len(self.matrix)), sum(len(ids) for ids, _, _ in pieces)))
        located, done = scorer.locate(x, ready), 0
        for block, parts in self._blocks(rows, pieces):
            z = self.encoder.embed_from_first(on_device(block, self.device))
            moved = None if located is None else self._relocated(rows, located, parts)
            scores = to_numpy(scorer.score(z, ready, self.model.distance, moved))
            filled = sum(len(ids) for ids, _, _ in parts)
            result[:, done : done + filled] = scores[:, :filled]
            done += filled
        return result

    def _relocated(self, rows: np.ndarray, located: LabelDistances, parts: list[Piece]) -> LabelDistances:
        """Where the rows of a block lie after their changes; they still match the references that they matched before.

        What lies behind the rows of the parts is padding, and there the first row stands.
        """
        ids = np.concatenate([some for some, _, _ in parts])
        ids = np.concatenate([ids, np.zeros(self.block - len(ids), np.int64)])
        after, done = rows[ids], 0
        for some, change, features in parts:
            block = slice(done, done + len(some))
            after[block, features] = rows[some[:, None], features] + change  # in float64, as the change is
            done = block.stop
        found: LabelDistances = self.model.scorer.locate(on_device(after, self.device), self.ready)
        return found._replace(self_matches=_chosen(located.self_matches, ids))

    def _blocks(self, rows: np.ndarray, pieces: list[Piece]) -> Iterator[tuple[np.ndarray, list[Piece]]]:
        """What the first layer gives for the rows of all pieces, in blocks (E, block, h), and what fills each."""
        sums = rows @ self.matrix + self.bias
        block, filled, parts = np.zeros((len(sums), self.block, sums.shape[2]), np.float32), 0, []
        for ids, change, features in pieces:
            start, weights = 0, self.matrix[:, features]
            while start < len(ids):
                some = slice(start, start + self.block - filled)
                first = _first_layer(sums, ids[some], change[some], weights)
                block[:, filled : filled + first.shape[1]] = first
                parts.append((ids[some], change[some], features))
                start, filled = start + first.shape[1], filled + first.shape[1]
                if filled == self.block:
                    yield block, parts
                    filled, parts = 0, []
        if filled:
            yield block, parts


def _chosen(matches: SelfMatches, ids: np.ndarray) -> SelfMatches:
    """The self-matches of rows that are chosen, any number of times, from those of the matches."""
    rows, references = map(to_numpy, matches)
    first = np.searchsorted(rows, ids)
    counts = np.searchsorted(rows, ids, "right") - first
    places = np.repeat(np.arange(len(ids)), counts)
    steps = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    like = matches[0]
    return index_like(places, like), index_like(references[np.repeat(first, counts) + steps], like)


def _as_they_are(n: int) -> Piece:
    """So many rows with nothing changed."""
    return np.arange(n), np.empty((n, 0)), np.empty(0, np.int64)


def _first_layer(sums: np.ndarray, ids: np.ndarray, change: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The first layer's sums (E, k, h) of the rows with these ids after features of these weights changed so much."""
    if not change.shape[1]:
        return sums.take(ids, axis=1)
    if change.shape[1] == 1:  # a product as thin as that is slow, and one with nothing beside it is not
        change, weights = change * [1.0, 0.0], np.repeat(weights, 2, axis=1)
    moved: np.ndarray = change @ weights
    moved += sums.take(ids, axis=1)
    return moved
