"""What each column adds to the score of the views: its part of the view that finds the row strangest.

Distances along columns and tails are sums over columns, so that these parts are exact. A distance in the metric space
is divided by its gradient times how much the row differs from its neighbours there. Contributions add up to the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.arrays import to_numpy
from addml.compute import in_threads
from addml.encoders import MLPNetwork, Network
from addml.inputs.image import patch_of
from addml.inputs.rows import WindowRows
from addml.model import Model
from addml.scoring.base import ViewScale
from addml.scoring.guidance import Guided
from addml.scoring.references import NO_ROWS, Overlaps, SelfMatches
from addml.scoring.views import NEIGHBOURS, ColumnDistances, Views, side_by_side, stride

TINY = np.finfo(np.float64).tiny


def columns_of(model: Model) -> list[int]:
    """The column that each feature belongs to, by its place among those in use; a patch of an image, or a channel."""
    if model.form is not None:
        return model.form.channel_of().tolist() if model.form.is_series else patch_of(model.form)
    own: Any = range(len(model.features.median)) if model.columns is None else model.columns.origins
    return feature_origins(own, model.features.gaps)


def feature_origins(origins: Sequence[int], gaps: Sequence[int] | np.ndarray) -> list[int]:
    """The column of every feature: flags of missing values come last and belong to their columns."""
    return [*origins, *(origins[int(gap)] for gap in gaps)]


def features_by_column(origins: Sequence[int]) -> list[np.ndarray]:
    """The features of each column."""
    column = np.asarray(origins, np.int64)
    order = np.argsort(column, kind="stable")
    return np.split(order, np.searchsorted(column[order], np.arange(1, column.max(initial=0) + 1)))


def sums_by_column(values: np.ndarray, features: Sequence[np.ndarray]) -> np.ndarray:
    """The sums (m, columns) of values (m, d') over the features of each column."""
    starts, order = np.cumsum([0, *map(len, features)])[:-1], np.concatenate(features)
    return np.asarray(np.add.reduceat(values[:, order], starts, axis=1))


def displacements(
    rows: np.ndarray, baseline: np.ndarray, network: Network, features: Sequence[np.ndarray]
) -> np.ndarray:
    """About how far each column takes each row from the baseline, (m, columns): in the first layer and by itself."""
    weights, away = np.ones(network.inputs, np.float32), abs(rows - baseline)
    if isinstance(network, MLPNetwork):
        weights = (np.asarray(network.layers[0][0], np.float32) ** 2).sum(axis=(0, 2))
    result = np.zeros((len(rows), len(features)))
    for moved in (away**2 * weights, away):
        totals = sums_by_column(moved, features)
        result += totals / np.maximum(totals.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return result


class Explained(NamedTuple):
    """Scores (m,), the share of each column in them (m, columns), and the view that found each row strangest, (m,)."""

    scores: np.ndarray
    shares: np.ndarray
    view: np.ndarray

    @property
    def contributions(self) -> np.ndarray:
        """What each column adds to the scores, (m, columns)."""
        return np.asarray(self.scores[:, None] * self.shares)


class SeriesContext(NamedTuple):
    """What windows have from their series."""

    scores: np.ndarray  # (V, m)
    places: np.ndarray  # (m,)
    overlaps: Overlaps | None  # with references

    @classmethod
    def of(cls, model: Model, rows: WindowRows, places: np.ndarray, device: str, threads: int) -> SeriesContext:
        """The context of the windows that end at these steps (m,); the embeddings of several count for a step."""
        scores, incomplete = model.member_scores(rows, device, threads), model.incomplete(rows)
        scores = scores if incomplete is None else model.neutral_scores(scores, incomplete)
        return cls(scores[:, places], places, model.overlaps(rows))

    def matches(self, rows: slice) -> SelfMatches | None:
        """Which of these rows share steps with which references; None where that does not count."""
        if self.overlaps is None:
            return None
        found = [self.overlaps.part(slice(place, place + 1), NO_ROWS)[1] for place in self.places[rows].tolist()]
        return np.repeat(np.arange(len(found)), [len(own) for own in found]), np.concatenate(found)


def views_of(model: Model) -> Views | None:
    """The views that a model scores by, guided by labels or not; None where it scores otherwise."""
    scorer = model.scorer.inner if isinstance(model.scorer, Guided) else model.scorer
    return scorer if isinstance(scorer, Views) else None


def explained(
    model: Model,
    rows: np.ndarray,
    origins: Sequence[int],
    threads: int = 1,
    series: SeriesContext | None = None,
    groups: np.ndarray | None = None,
) -> Explained:
    """The scores of rows of features (m, d') and what each column adds; origins are the columns of the features.

    In `groups` (m,) with references of their own these have their say, and the view is that of the stronger side.
    """
    found = _explained(model, rows, origins, threads, series)
    for model_of_group, at, weight in model.own_models(groups):
        own = _explained(model_of_group, rows[at], origins, threads, None)
        whole, mine = (1 - weight) * found.contributions[at], weight * own.contributions
        scores = (1 - weight) * found.scores[at] + weight * own.scores
        found.view[at] = np.where(whole.sum(axis=1) > mine.sum(axis=1), found.view[at], own.view)
        shares, found.scores[at] = found.shares[at], scores
        found.shares[at] = np.divide(whole + mine, scores[:, None], where=scores[:, None] != 0, out=shares)
    return found


def _explained(
    model: Model, rows: np.ndarray, origins: Sequence[int], threads: int, series: SeriesContext | None
) -> Explained:
    features = features_by_column(origins)
    result = Explained(np.empty(len(rows)), np.empty((len(rows), len(features))), np.empty(len(rows), np.int64))
    size = min(model.scorer.at_once, model.block("cpu"))

    def work(part: int) -> None:
        chosen = slice(part * size, (part + 1) * size)
        scores, parts, view = _block(model, rows[chosen], chosen, size, series)
        totals = sums_by_column(parts, features)
        whole = totals.sum(axis=1, keepdims=True)
        result.shares[chosen] = np.where(whole > 0, totals / np.maximum(whole, TINY), 1 / len(features))
        result.scores[chosen], result.view[chosen] = scores, view

    in_threads(work, -(-len(rows) // size), min(threads, model.scorer.max_threads))
    return result


def _block(
    model: Model, rows: np.ndarray, chosen: slice, size: int, series: SeriesContext | None
) -> tuple[np.ndarray, ...]:
    """The scores (n,) of at most `size` rows, what each feature adds to the strangest view (n, d'), and that view."""
    n, x = len(rows), np.zeros((size, rows.shape[1]), np.float32)
    x[:n] = rows
    scorer, ready, views = model.scorer, model.scorer_ready("cpu"), views_of(model)
    assert views is not None
    assert isinstance(model.scale, ViewScale)
    z = to_numpy(model.encoder.embed(x[None, None])[0])
    located = scorer.locate(x[:n], ready, None if series is None else series.matches(chosen))
    scores = scorer.score(z, ready, model.distance, located)[:, :n].astype(np.float64)
    scores = scores if series is None else series.scores[:, chosen]
    view = model.scale.measured(scores).argmax(axis=0)
    located = located.inner if isinstance(scorer, Guided) else located
    parts = np.empty((n, x.shape[1]))
    for place, name in enumerate(views.views):
        own = np.flatnonzero(view == place)
        if len(own):
            parts[own] = _parts(name, model, x, z, ready, located, own)
    return np.asarray(model.scale.combine(scores)), parts, view


def _parts(
    view: str,
    model: Model,
    x: np.ndarray,
    z: np.ndarray,
    ready: dict[str, Any],
    located: ColumnDistances,
    rows: np.ndarray,
) -> np.ndarray:
    """What each feature adds to a view of these rows (k,), (k, d')."""
    if view == "tails":
        parts = np.zeros((len(rows), x.shape[1]))
        own = np.flatnonzero(np.isin(rows, located.self_matches[0]))
        parts[:, ready["tails"].counted] = ready["tails"].terms(x[rows], own).T
        return parts
    if view == "space":
        return _in_space(model, x, z, ready, located, rows)
    kept = ready["kept"] if view == "distilled" else len(ready["rows"])
    near, counted = _neighbours(located.distances[rows, :kept], view)
    return np.asarray(_mean(abs(x[rows, None] - ready["rows"][near]), counted) * ready["column_weight"])


def _neighbours(distances: np.ndarray, view: str) -> tuple[np.ndarray, np.ndarray]:
    """The references (k, neighbours) at the least of distances (k, R), and which of them count."""
    count = min(NEIGHBOURS[view], max(1, distances.shape[1] - 1))
    near = np.argpartition(distances, count - 1, axis=1)[:, :count]
    return near, np.isfinite(np.take_along_axis(distances, near, axis=1))


def _mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean (k, d) of values (k, neighbours, d) over the neighbours that count."""
    total = np.where(counted[..., None], values, 0).sum(axis=1)
    return np.asarray(total / counted.sum(axis=1, keepdims=True).clip(1))


def _in_space(
    model: Model, x: np.ndarray, z: np.ndarray, ready: dict[str, Any], located: ColumnDistances, rows: np.ndarray
) -> np.ndarray:
    """The gradient of the distance in the metric space times what rows (k,) differ by from their neighbours there.

    Encoders that are not made of plain layers have a gradient of 1.
    """
    z, x = z[:, rows], x[rows]
    embedded, references = side_by_side(z, model.distance), side_by_side(ready["references"], model.distance)
    products = ready["products"]  # distances less what is the same to all references
    distances = (embedded - ready["origin"]) @ products[:, :-1].T + products[:, -1]
    step = stride(len(ready["rows"]))
    own = np.isin(located.self_matches[0], rows) & (located.self_matches[1] % step == 0)
    distances[np.searchsorted(rows, located.self_matches[0][own]), located.self_matches[1][own] // step] = np.inf
    near, counted = _neighbours(distances, "space")
    away = _mean(abs(x[:, None] - ready["rows"][near * step]), counted)
    if not isinstance(model.encoder, MLPNetwork):
        return away
    apart = embedded[:, None] - references[near]  # (k, neighbours, E w)
    lengths = np.sqrt((apart**2).sum(axis=2, keepdims=True))
    grad = _mean(apart / np.maximum(lengths, TINY), counted).reshape(len(rows), len(z), -1).swapaxes(0, 1)
    if model.distance == "cosine":
        grad = _through_length(z, grad)
    parts = abs(model.encoder.input_gradient(x, grad.astype(np.float32))) * away
    return np.where(parts.any(axis=1, keepdims=True), parts, away)


def _through_length(z: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """The gradient (E, k, w) by embeddings, where it is given by embeddings at length 1."""
    length = np.maximum(np.sqrt((z**2).sum(axis=2, keepdims=True)), TINY)
    unit = z / length
    return np.asarray((grad - (grad * unit).sum(axis=2, keepdims=True) * unit) / length)
