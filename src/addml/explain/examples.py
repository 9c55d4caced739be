"""What a row is compared with: the usual row, and the kept training rows most like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from addml.explain.prepared import behind_features, columns_of
from addml.explain.replacement import usual_row
from addml.geometry import cross_distances
from addml.model import MetricModel

ROWS_AT_ONCE = 1024


class Nearest(NamedTuple):
    """Training rows most like each row, the most alike first: their places and how far they lie, (n, k) each."""

    rows: np.ndarray
    distances: np.ndarray


def kept_by_most(kept: list[np.ndarray], train: list[np.ndarray], rows: int) -> np.ndarray:
    """The training rows that at least half of the members which train on them keep at the end.

    Where there is no such row, as each member keeps a few, those that most keep.
    """
    votes, seen = (sum(np.bincount(ids, minlength=rows) for ids in lists) for lists in (kept, train))
    share = votes / np.maximum(seen, 1)
    return np.flatnonzero(share >= min(0.5, share.max()))


def baseline_of(model: MetricModel, kept: np.ndarray, scores: np.ndarray, ordinary: float) -> np.ndarray:
    """The features (d',) of the row that contributions are counted from, by kept training rows (m, d').

    That is the row of their medians, or, where it is stranger than an `ordinary` row (between two clusters, say), the
    one of the lowest score: a real row that nobody would ask about.
    """
    usual = usual_row(kept, columns_of(model))
    if behind_features(model).scores(usual[None], "cpu", 1)[0] <= ordinary:
        return usual
    return np.asarray(kept[int(scores.argmin())])


@dataclass(frozen=True)
class Examples:
    """A bounded set of kept training rows, prepared: their places in the training table, and their features."""

    rows: np.ndarray  # (R,)
    features: np.ndarray  # (R, d')

    def nearest(self, model: MetricModel, features: np.ndarray, k: int) -> Nearest:
        """The k examples nearest to each of the rows with these features, in the metric space of all members.

        A distance is the mean over members of the Euclidean one, in deviations of the examples from their middle.
        """
        own = _embedded(model, self.features)  # (E, R, w)
        middle = own.mean(axis=1, keepdims=True)
        spread = np.sqrt(((own - middle) ** 2).sum(axis=2).mean(axis=1))[:, None, None]
        spread, k = np.where(spread > 0, spread, 1.0), min(k, len(self.rows))
        rows, distances = np.empty((len(features), k), np.int64), np.empty((len(features), k))
        for start in range(0, len(features), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            z = (_embedded(model, features[part]) - middle) / spread
            away = cross_distances(z, (own - middle) / spread, "euclidean").mean(axis=0)
            order = np.argsort(away, axis=1, kind="stable")[:, :k]
            rows[part], distances[part] = self.rows[order], np.take_along_axis(away, order, axis=1)
        return Nearest(rows, distances)


def _embedded(model: MetricModel, features: np.ndarray) -> np.ndarray:
    """Embeddings (E, n, w) of prepared rows, float64."""
    z = behind_features(model).embeddings(features, "cpu", 1).astype(np.float64)
    return z.reshape(len(features), len(model.encoder.weights), -1).transpose(1, 0, 2)
