"""What each column or channel adds to a score of the views: its part of the view that finds the row strangest.

Distances along columns, tails and residuals are sums over columns, so that these parts are exact. A distance in the
metric space is divided by its gradient times how much the row differs from its neighbours there. Contributions add up
to the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.arrays import to_numpy
from addml.compute import in_threads
from addml.encoders import MLPNetwork, Network
from addml.encoders.autoencoder import AutoencoderNetwork
from addml.inputs.array import patch_of
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.scoring.base import ViewScale
from addml.scoring.guidance import Guided
from addml.scoring.references import NO_ROWS, Overlaps, SelfMatches
from addml.scoring.views import NEIGHBOURS, ColumnDistances, Views, side_by_side, stride
from addml.scoring.windows import NEIGHBOURS as WINDOW_NEIGHBOURS
from addml.scoring.windows import WindowDistances, WindowViews

TINY = np.finfo(np.float64).tiny
WINDOWS_AT_ONCE = 64


def columns_of(model: Model) -> list[int]:
    """The column that each feature belongs to, by its place among those in use; a patch of an image, or a channel."""
    if model.form is not None:
        return model.form.channel_of().tolist() if model.form.is_series else patch_of(model.form)
    own: Any = range(len(model.features.median)) if model.columns is None else model.columns.origins
    return [*own, *(own[int(gap)] for gap in model.features.gaps)]  # flags of missing values come last


def features_by_column(origins: Sequence[int]) -> list[np.ndarray]:
    """The features of each column."""
    column = np.asarray(origins, np.int64)
    order = np.argsort(column, kind="stable")
    return np.split(order, np.searchsorted(column[order], np.arange(1, column.max(initial=0) + 1)))


def sums_by_column(values: np.ndarray, features: Sequence[np.ndarray]) -> np.ndarray:
    """The sums (m, columns) of values (m, d') over the features of each column."""
    starts, order = np.cumsum([0, *map(len, features)])[:-1], np.concatenate(features)
    return np.asarray(np.add.reduceat(values[:, order], starts, axis=1))


def shares_of(parts: np.ndarray) -> np.ndarray:
    """Parts (m, columns) as shares of their sums; equal ones where all parts are 0."""
    whole = parts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(whole > 0, parts / np.maximum(whole, TINY), 1 / parts.shape[1]))


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
        x = np.zeros((size, rows.shape[1]), np.float32)
        x[: len(rows[chosen])] = rows[chosen]
        result.scores[chosen], result.view[chosen], parts = _block(model, x, len(rows[chosen]), chosen, series)
        result.shares[chosen] = shares_of(sums_by_column(parts, features))

    in_threads(work, -(-len(rows) // size), min(threads, model.scorer.max_threads))
    return result


def _block(
    model: Model, x: np.ndarray, n: int, chosen: slice, series: SeriesContext | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (n,) of the first rows of a block x, their strangest view (n,), and the features' parts of it (n, d')."""
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
        if not len(own):
            continue
        if name == "tails":
            itself = np.flatnonzero(np.isin(own, located.self_matches[0]))
            parts[own] = 0
            parts[own[:, None], ready["tails"].counted] = ready["tails"].terms(x[own], itself).T
        elif name == "space":
            parts[own] = _in_space(model, x, z, ready, located, own)
        else:
            kept = ready["kept"] if name == "distilled" else len(ready["rows"])
            near, counted = _neighbours(located.distances[own, :kept], NEIGHBOURS[name])
            parts[own] = _mean(abs(x[own, None] - ready["rows"][near]), counted) * ready["column_weight"]
    return np.asarray(model.scale.combine(scores)), view, parts


def _neighbours(distances: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The references (k, neighbours) at the least of distances (k, R), and which of them count."""
    count = min(most, max(1, distances.shape[1] - 1))
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
    near, counted = _neighbours(distances, NEIGHBOURS["space"])
    away = _mean(abs(x[:, None] - ready["rows"][near * step]), counted)
    if not isinstance(model.encoder, MLPNetwork):
        return away
    apart = embedded[:, None] - references[near]  # (k, neighbours, E w)
    lengths = np.sqrt((apart**2).sum(axis=2, keepdims=True))
    grad = _mean(apart / np.maximum(lengths, TINY), counted).reshape(len(rows), len(z), -1).swapaxes(0, 1)
    if model.distance == "cosine":  # through the division by the length
        length = np.maximum(np.sqrt((z**2).sum(axis=2, keepdims=True)), TINY)
        unit = z / length
        grad = (grad - (grad * unit).sum(axis=2, keepdims=True) * unit) / length
    parts = abs(model.encoder.input_gradient(x, grad.astype(np.float32))) * away
    return np.where(parts.any(axis=1, keepdims=True), parts, away)


# Windows of series: parts are of channels. What whole windows say of a step is the mean over those it lies in.


def window_contributions(model: Model, rows: WindowRows, places: np.ndarray, device: str, threads: int) -> np.ndarray:
    """Contributions (m, channels) to the scores of the steps at these places: means over the steps around them."""
    around = [rows.windows.around(int(place), model.smoothing) for place in places]
    steps = np.unique(np.concatenate(around))
    parts = _step_contributions(model, rows, steps, device, threads)
    return np.stack([parts[np.searchsorted(steps, near)].mean(axis=0) for near in around])


def _step_contributions(model: Model, rows: WindowRows, places: np.ndarray, device: str, threads: int) -> np.ndarray:
    """Contributions (m, channels) to the scores of single steps."""
    context, views = SeriesContext.of(model, rows, places, device, threads), views_of(model)
    assert isinstance(views, WindowViews)
    assert isinstance(model.scale, ViewScale)
    assert model.form is not None
    strangest = model.scale.measured(context.scores).argmax(axis=0)
    shares = np.empty((len(places), model.form.channels))
    for number, view in enumerate(views.views):
        own = np.flatnonzero(strangest == number)
        if len(own):
            is_alone = model.form.causal or not views.embedded(1)[number]
            over = [_windows_over(rows, int(place), alone=is_alone) for place in places[own]]
            ends = np.unique(np.concatenate(over))
            parts = _window_parts(model, rows, ends, view, context.overlaps, threads)
            means = np.stack([parts[np.searchsorted(ends, windows)].mean(axis=0) for windows in over])
            shares[own] = shares_of(means)
    return np.asarray(model.scale.combine(context.scores))[:, None] * shares


def _windows_over(rows: WindowRows, place: int, *, alone: bool) -> np.ndarray:
    """The windows that count for a step: those that it lies in, whole ones where there are any."""
    windows = rows.windows
    if alone:
        return np.array([place])
    later = np.arange(place, min(len(windows), place + windows.window))
    later = later[windows.first[later] - windows.first[place] < windows.window]
    whole = later[windows.is_whole[later]]
    return np.asarray(whole if len(whole) else later)


def _window_parts(
    model: Model, rows: WindowRows, ends: np.ndarray, view: str, overlaps: Overlaps | None, threads: int
) -> np.ndarray:
    """What each channel adds to one view of the windows that end at these steps, (k, channels)."""
    ready, context = model.scorer_ready("cpu"), SeriesContext(ends, ends, overlaps)
    features = features_by_column(columns_of(model))
    result = np.empty((len(ends), len(features)))

    def work(part: int) -> None:
        chosen = slice(part * WINDOWS_AT_ONCE, (part + 1) * WINDOWS_AT_ONCE)
        x = rows.take(ends[chosen])
        located = model.scorer.locate(x, ready, context.matches(chosen))
        result[chosen] = sums_by_column(_window_features(view, model, x, ready, located), features)

    in_threads(work, -(-len(ends) // WINDOWS_AT_ONCE), min(threads, model.scorer.max_threads))
    return result


def _window_features(
    view: str, model: Model, x: np.ndarray, ready: dict[str, Any], located: WindowDistances
) -> np.ndarray:
    """What each feature adds to one view of windows x, (b, d). Every window is a product of its own, for equal bits."""
    network, metric = model.encoder, ready["metric"]
    if view == "residual":
        assert isinstance(network, AutoencoderNetwork)
        return _of_lengths((network.reconstructed(network.embed(x[None])[..., :-1]) - x).swapaxes(0, 1))
    if view == "linear":
        away = x.astype(np.float64) - metric.mean
        return _of_lengths((away - away @ metric.components.T @ metric.components)[:, None])
    distances, mapped = located.distances, x
    if view == "neighbours":  # squared, but for what is the same to all references
        mapped, _ = metric.mapped(x, singly=True)
        distances = np.asarray(ready["neighbours"].squares(mapped, singly=True))
        distances[located.self_matches] = np.inf
    near, known = _neighbours(distances, WINDOW_NEIGHBOURS[view])
    weight = known / np.maximum(known.sum(axis=1, keepdims=True), 1)
    if view == "step":
        away = np.einsum("bk,bkd->bd", weight, abs(x[:, None] - ready["rows"][near]))
        return np.asarray(away * ready["column_weight"])
    references, _ = metric.mapped(ready["rows"][near].reshape(-1, x.shape[1]), singly=True)
    return _of_lengths(mapped[:, None] - references.reshape(*near.shape, -1), weight)


def _of_lengths(vectors: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """What each number adds to the mean length (b,) of vectors (b, k, d), weighed by (b, k)."""
    squares = vectors.astype(np.float64) ** 2
    parts = squares / np.maximum(np.sqrt(squares.sum(axis=2, keepdims=True)), TINY)
    return np.asarray(parts.mean(axis=1) if weight is None else np.einsum("bk,bkd->bd", weight, parts))
