"""What each column adds to the score of the views: the parts of the view that finds the row strangest.

Distances along columns and tails are sums over columns, so that their parts are exact. A distance in the metric space
is shared by its gradient times what the row differs by from its neighbours there. All are scaled to add up to the
row's score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from addml.arrays import to_numpy
from addml.compute import in_threads
from addml.encoders import MLP
from addml.explain.prepared import columns_of
from addml.explain.replacement import features_by_column
from addml.model import MetricModel
from addml.scoring.guided import Guided
from addml.scoring.scale import ViewScale
from addml.scoring.views import NEIGHBOURS, Placed, Views, side_by_side

TINY = np.finfo(np.float64).tiny


class Explained(NamedTuple):
    """Scores (m,), what each column adds to them (m, columns), and the view that found each row strangest, (m,)."""

    scores: np.ndarray
    contributions: np.ndarray
    view: np.ndarray


def views_of(model: MetricModel) -> Views | None:
    """The views that a model scores by, guided by labels or not; None where it scores otherwise."""
    scorer = model.scorer.inner if isinstance(model.scorer, Guided) else model.scorer
    return scorer if isinstance(scorer, Views) else None


def explained(
    model: MetricModel, rows: np.ndarray, threads: int = 1, incomplete: np.ndarray | None = None
) -> Explained:
    """The scores of prepared rows (m, d') and what each column of theirs adds.

    Embeddings do not judge the rows marked in `incomplete` (m,).
    """
    features = features_by_column(columns_of(model))
    result = Explained(np.empty(len(rows)), np.empty((len(rows), len(features))), np.empty(len(rows), np.int64))
    incomplete = np.zeros(len(rows), bool) if incomplete is None else incomplete
    size = model.scorer.at_once
    order, starts = np.concatenate(features), np.cumsum([0, *map(len, features)])[:-1]

    def work(part: int) -> None:
        chosen = slice(part * size, (part + 1) * size)
        scores, parts, view = _block(model, rows[chosen], incomplete[chosen], size)
        totals = np.add.reduceat(parts[:, order], starts, axis=1)
        shares = totals / np.maximum(totals.sum(axis=1, keepdims=True), TINY)
        result.scores[chosen], result.contributions[chosen], result.view[chosen] = scores, scores[:, None] * shares, view

    in_threads(work, -(-len(rows) // size), min(threads, model.scorer.most_threads))
    return result


def _block(model: MetricModel, rows: np.ndarray, incomplete: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """The scores (n,) of at most `size` rows, what each feature adds to the strangest view (n, d'), and that view."""
    n, x = len(rows), np.zeros((size, rows.shape[1]), np.float32)
    x[:n] = rows
    scorer, ready, views = model.scorer, model.scorer_ready("cpu"), views_of(model)
    assert views is not None
    assert isinstance(model.scale, ViewScale)
    z = to_numpy(model.encoder.embed(x[None, None])[0])
    placed = scorer.place(x[:n], ready)
    scores = scorer.score(z, ready, model.distance, placed)[:, :n].astype(np.float64)
    scores = model.neutral_scores(scores, incomplete)
    view = model.scale.measured(scores).argmax(axis=0)
    placed = placed.inner if isinstance(scorer, Guided) else placed
    parts = np.empty((n, x.shape[1]))
    for place, name in enumerate(views.views):
        own = np.flatnonzero(view == place)
        if len(own):
            parts[own] = _parts(name, model, x, z, ready, placed, own)
    return np.asarray(model.scale.combine(scores)), parts, view


def _parts(
    view: str, model: MetricModel, x: np.ndarray, z: np.ndarray, ready: dict[str, Any], placed: Placed, rows: np.ndarray
) -> np.ndarray:
    """What each feature adds to a view of these rows (k,), (k, d')."""
    weight = ready["column_weight"]
    if view == "tails":
        parts = np.zeros((len(rows), x.shape[1]))
        own = np.flatnonzero(np.isin(rows, placed.own[0]))
        parts[:, ready["tails"].counted] = ready["tails"].terms(x[rows], own).T
        return parts
    if view == "space":
        return _in_space(model, x, z, ready, placed, rows)
    kept = ready["kept"] if view == "distilled" else len(ready["rows"])
    return abs(x[rows, None] - _neighbours(placed.distances[rows, :kept], ready["rows"], view)).mean(axis=1) * weight


def _neighbours(distances: np.ndarray, references: np.ndarray, view: str) -> np.ndarray:
    """The references (k, neighbours, ...) at the least distances (k, R)."""
    count = min(NEIGHBOURS[view], max(1, distances.shape[1] - 1))
    return np.asarray(references[np.argpartition(distances, count - 1, axis=1)[:, :count]])


def _in_space(
    model: MetricModel, x: np.ndarray, z: np.ndarray, ready: dict[str, Any], placed: Placed, rows: np.ndarray
) -> np.ndarray:
    """The gradient of the distance in the metric space times what rows (k,) differ by from their neighbours there.

    Encoders that are not made of plain layers have a gradient of 1.
    """
    embedded, references = side_by_side(z, model.distance), side_by_side(ready["references"], model.distance)
    distances = ((embedded[rows, None] - references[None]) ** 2).sum(axis=2)
    is_own = np.isin(placed.own[0], rows)
    distances[np.searchsorted(rows, placed.own[0][is_own]), placed.own[1][is_own]] = np.inf
    near = _neighbours(distances, np.arange(len(references)), "space")
    away = abs(x[rows] - ready["rows"][near].mean(axis=1))
    if not isinstance(model.encoder, MLP):
        return away
    apart = embedded[rows, None] - references[near]  # (k, neighbours, E w)
    lengths = np.maximum(np.sqrt((apart**2).sum(axis=2, keepdims=True)), TINY)
    grad = (apart / lengths).mean(axis=1).reshape(len(rows), len(z), -1).swapaxes(0, 1)
    parts = abs(model.encoder.input_gradient(x[rows], grad.astype(np.float32))) * away
    return np.where(parts.any(axis=1, keepdims=True), parts, away)
