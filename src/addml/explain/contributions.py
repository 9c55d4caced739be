"""Contributions of columns or channels to scores by views.

A row's score comes from its highest view, so its contributions are the parts of that view. Column distances, tails and
residuals are sums over columns: these parts are exact. A distance in the metric space is split by its gradient times
the row's differences from its neighbours there. Contributions add up to the score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.arrays import to_numpy
from addml.compute import in_threads
from addml.encoders import MLPNetwork
from addml.encoders.mlp import AutoencoderNetwork
from addml.inputs.array import patch_of
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.scoring.guidance import Guided
from addml.scoring.references import NO_ROWS, Overlaps, SelfMatches
from addml.scoring.scorer import Ready, ViewScale
from addml.scoring.views import NEIGHBOURS, ColumnDistances, Views, side_by_side, stride
from addml.scoring.windows import NEIGHBOURS as WINDOW_NEIGHBOURS
from addml.scoring.windows import ShapeMetric, WindowDistances, WindowViews
from addml.text import SERIES, TABLE

TINY = np.finfo(np.float64).tiny
WINDOWS_AT_ONCE = 64


def columns_of(model: Model) -> list[int]:
    """The index of the column in use that each feature belongs to; the patch of an image, the channel of a series."""
    if model.kind != TABLE:
        return model.row_shape.channel_of().tolist() if model.kind == SERIES else patch_of(model.row_shape)
    origins: Any = range(len(model.features.median)) if model.columns is None else model.columns.origins
    return [*origins, *(origins[int(gap)] for gap in model.features.gaps)]  # flags of missing values come last


def features_by_column(origins: Sequence[int]) -> list[np.ndarray]:
    column = np.asarray(origins, np.int64)
    order = np.argsort(column, kind="stable")
    return np.split(order, np.searchsorted(column[order], np.arange(1, column.max(initial=0) + 1)))


def sums_by_column(values: np.ndarray, features: Sequence[np.ndarray]) -> np.ndarray:
    """The sums (m, columns) of values (m, d') over the features of each column."""
    starts, order = np.cumsum([0, *map(len, features)])[:-1], np.concatenate(features)
    return np.asarray(np.add.reduceat(values[:, order], starts, axis=1))


def shares_of(parts: np.ndarray) -> np.ndarray:
    """Each row of parts (m, columns) divided by its sum; equal shares if all parts are 0."""
    total = parts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, parts / np.maximum(total, TINY), 1 / parts.shape[1]))


def in_blocks(work: Callable[[slice], None], rows: int, size: int, model: Model, threads: int) -> None:
    """Call `work` once for each block of rows, on as many threads as the scorer can use."""
    blocks = [slice(start, start + size) for start in range(0, rows, size)]
    in_threads(lambda index: work(blocks[index]), len(blocks), min(threads, model.scorer.max_threads))


class Explained(NamedTuple):
    """Scores (m,), each column's share of them (m, columns), and each row's highest view (m,)."""

    scores: np.ndarray
    shares: np.ndarray
    view: np.ndarray

    @property
    def contributions(self) -> np.ndarray:
        """What each column adds to the scores, (m, columns)."""
        return np.asarray(self.scores[:, None] * self.shares)


class SeriesContext(NamedTuple):
    """What windows need from the rest of their series."""

    scores: np.ndarray  # (V, m)
    steps: np.ndarray  # (m,)
    overlaps: Overlaps | None  # with references

    @classmethod
    def of(cls, model: Model, rows: WindowRows, steps: np.ndarray, device: str, threads: int) -> SeriesContext:
        """The context of some steps; scores the whole series, since all windows over a step contribute to its score."""
        scores, incomplete = model.member_scores(rows, device, threads), model.incomplete(rows)
        scores = scores if incomplete is None else model.neutral_scores(scores, incomplete)
        return cls(scores[:, steps], steps, model.overlaps(rows))


def overlapping(overlaps: Overlaps | None, steps: np.ndarray) -> SelfMatches | None:
    """Pairs of windows, which end at these steps, and references that share steps; None if overlaps do not matter."""
    if overlaps is None:
        return None
    references = [overlaps.part(slice(step, step + 1), NO_ROWS)[1] for step in steps.tolist()]
    return np.repeat(np.arange(len(references)), list(map(len, references))), np.concatenate(references)


def views_of(model: Model) -> Views | None:
    """The views that score a model's rows, with or without guidance by labels; None for other scorers."""
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
    """The scores of rows of features (m, d') and what each column adds; `origins` holds each feature's column.

    The scores of groups (m,) with references of their own mix two models; the view comes from the one that adds more.
    """
    result = _explained(model, rows, origins, threads, series)
    for group_model, index, weight in model.group_models(groups):
        group = _explained(group_model, rows[index], origins, threads, None)
        by_all, by_group = (1 - weight) * result.contributions[index], weight * group.contributions
        scores = ((1 - weight) * result.scores[index] + weight * group.scores)[:, None]
        result.view[index] = np.where(by_all.sum(axis=1) > by_group.sum(axis=1), result.view[index], group.view)
        result.scores[index] = scores[:, 0]
        result.shares[index] = np.divide(by_all + by_group, scores, where=scores != 0, out=result.shares[index])
    return result


def _explained(
    model: Model, rows: np.ndarray, origins: Sequence[int], threads: int, series: SeriesContext | None
) -> Explained:
    features = features_by_column(origins)
    result = Explained(np.empty(len(rows)), np.empty((len(rows), len(features))), np.empty(len(rows), np.int64))
    size = min(model.scorer.at_once, model.block("cpu"))

    def work(block: slice) -> None:
        x = np.zeros((size, rows.shape[1]), np.float32)
        x[: len(rows[block])] = rows[block]
        result.scores[block], result.view[block], parts = _block(model, x, len(rows[block]), block, series)
        result.shares[block] = shares_of(sums_by_column(parts, features))

    in_blocks(work, len(rows), size, model, threads)
    return result


def _block(
    model: Model, x: np.ndarray, n: int, block: slice, series: SeriesContext | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (n,) of the first n rows of x, their highest views (n,), and the features' parts of these (n, d')."""
    scorer, ready, views = model.scorer, model.scorer_ready("cpu"), views_of(model)
    assert views is not None
    assert isinstance(model.scale, ViewScale)
    z = to_numpy(model.encoder.embed(x[None, None])[0])
    matches = None if series is None else overlapping(series.overlaps, series.steps[block])
    located = scorer.locate(x[:n], ready, matches)
    scores = scorer.score(z, ready, model.distance, located)[:, :n].astype(np.float64)
    scores = scores if series is None else series.scores[:, block]
    view = model.scale.measured(scores).argmax(axis=0)
    located = located.inner if isinstance(scorer, Guided) else located
    parts = np.empty((n, x.shape[1]))
    for number, name in enumerate(views.views):
        index = np.flatnonzero(view == number)
        if len(index):
            parts[index] = _view_parts(name, model, x, z, ready, located, index)
    return np.asarray(model.scale.combine(scores)), view, parts


def _view_parts(
    view: str, model: Model, x: np.ndarray, z: np.ndarray, ready: Ready, located: ColumnDistances, rows: np.ndarray
) -> np.ndarray:
    if view == "tails":
        references = np.flatnonzero(np.isin(rows, located.self_matches[0]))
        parts = np.zeros((len(rows), x.shape[1]))
        parts[:, ready["tails"].counted] = ready["tails"].terms(x[rows], references).T
        return parts
    if view == "space":
        return _space_parts(model, x, z, ready, located, rows)
    count = ready["kept"] if view == "distilled" else len(ready["rows"])
    nearest, finite = _neighbours(located.distances[rows, :count], NEIGHBOURS[view])
    return np.asarray(_mean(abs(x[rows, None] - ready["rows"][nearest]), finite) * ready["column_weight"])


def _neighbours(distances: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest references (k, neighbours) by distances (k, R), and which of them are at a finite distance."""
    count = min(most, max(1, distances.shape[1] - 1))
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    return nearest, np.isfinite(np.take_along_axis(distances, nearest, axis=1))


def _mean(values: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """The mean (k, d) of values (k, neighbours, d) over the neighbours at a finite distance."""
    total = np.where(finite[..., None], values, 0).sum(axis=1)
    return np.asarray(total / finite.sum(axis=1, keepdims=True).clip(1))


def _space_parts(
    model: Model, x: np.ndarray, z: np.ndarray, ready: Ready, located: ColumnDistances, rows: np.ndarray
) -> np.ndarray:
    """The gradient of the distance (1 without an MLP) times the differences of rows (k,) from their neighbours."""
    z, x = z[:, rows], x[rows]
    embedded, references = side_by_side(z, model.distance), side_by_side(ready["references"], model.distance)
    products = ready["products"]  # squared distances, without the term that all references share
    distances = (embedded - ready["origin"]) @ products[:, :-1].T + products[:, -1]
    step = stride(len(ready["rows"]))
    matched, matches = located.self_matches
    mask = np.isin(matched, rows) & (matches % step == 0)
    distances[np.searchsorted(rows, matched[mask]), matches[mask] // step] = np.inf
    nearest, finite = _neighbours(distances, NEIGHBOURS["space"])
    differences = _mean(abs(x[:, None] - ready["rows"][nearest * step]), finite)
    if not isinstance(model.encoder, MLPNetwork):
        return differences
    vectors = embedded[:, None] - references[nearest]  # (k, neighbours, E w)
    lengths = np.sqrt((vectors**2).sum(axis=2, keepdims=True))
    grad = _mean(vectors / np.maximum(lengths, TINY), finite).reshape(len(rows), len(z), -1).swapaxes(0, 1)
    if model.distance == "cosine":  # through the normalisation of z
        length = np.maximum(np.sqrt((z**2).sum(axis=2, keepdims=True)), TINY)
        unit = z / length
        grad = (grad - (grad * unit).sum(axis=2, keepdims=True) * unit) / length
    parts = abs(model.encoder.input_gradient(x, grad.astype(np.float32))) * differences
    return np.where(parts.any(axis=1, keepdims=True), parts, differences)


def window_contributions(model: Model, rows: WindowRows, steps: np.ndarray, device: str, threads: int) -> np.ndarray:
    """Contributions (m, channels) to the smoothed scores of steps (m,): means over the steps around each."""
    if not len(steps):
        return np.empty((0, model.row_shape.channels))
    around = [rows.windows.around(int(step), model.smoothing) for step in steps]
    explained_steps = np.unique(np.concatenate(around))
    contributions = _step_contributions(model, rows, explained_steps, device, threads)
    return np.stack([contributions[np.searchsorted(explained_steps, near)].mean(axis=0) for near in around])


def _step_contributions(model: Model, rows: WindowRows, steps: np.ndarray, device: str, threads: int) -> np.ndarray:
    context, views = SeriesContext.of(model, rows, steps, device, threads), views_of(model)
    assert isinstance(views, WindowViews)
    assert isinstance(model.scale, ViewScale)
    highest = model.scale.measured(context.scores).argmax(axis=0)
    shares = np.empty((len(steps), model.row_shape.channels))
    for number, view in enumerate(views.views):
        index = np.flatnonzero(highest == number)
        if len(index):
            is_single = model.row_shape.causal or not views.embedded(1)[number]
            covering = [np.array([step]) if is_single else _windows_over(rows, step) for step in steps[index].tolist()]
            ends = np.unique(np.concatenate(covering))
            parts = _window_parts(model, rows, ends, view, context.overlaps, threads)
            means = np.stack([parts[np.searchsorted(ends, windows)].mean(axis=0) for windows in covering])
            shares[index] = shares_of(means)
    return np.asarray(model.scale.combine(context.scores))[:, None] * shares


def _windows_over(rows: WindowRows, step: int) -> np.ndarray:
    """The windows that score a step together: those that cover it, and only the whole ones if there are any."""
    windows = rows.windows
    covering = np.arange(step, min(len(windows), step + windows.window))
    covering = covering[windows.first[covering] - windows.first[step] < windows.window]
    whole = covering[windows.is_whole[covering]]
    return np.asarray(whole if len(whole) else covering)


def _window_parts(
    model: Model, rows: WindowRows, ends: np.ndarray, view: str, overlaps: Overlaps | None, threads: int
) -> np.ndarray:
    """What each channel adds to one view of the windows that end at these steps (k,), (k, channels)."""
    ready, features = model.scorer_ready("cpu"), features_by_column(columns_of(model))
    result = np.empty((len(ends), len(features)))

    def work(block: slice) -> None:
        x = rows.take(ends[block])
        located = model.scorer.locate(x, ready, overlapping(overlaps, ends[block]))
        result[block] = sums_by_column(_window_features(view, model, x, ready, located), features)

    in_blocks(work, len(ends), WINDOWS_AT_ONCE, model, threads)
    return result


def _window_features(view: str, model: Model, x: np.ndarray, ready: Ready, located: WindowDistances) -> np.ndarray:
    """What each feature adds to one view of windows x (b, d); each window is multiplied alone, for equal bits."""
    network, metric = model.encoder, ready["metric"]
    if view == "residual":
        assert isinstance(network, AutoencoderNetwork)
        x = x[:, None, None]
        return _length_parts((network.reconstructed(network.embed(x)[..., :-1]) - x)[:, :, 0])
    if view == "neighbours" and isinstance(metric, ShapeMetric):
        return np.ones_like(x)  # all of it comes from the only channel
    if view == "linear":
        centred = x.astype(np.float64) - metric.mean
        return _length_parts((centred - centred @ metric.components.T @ metric.components)[:, None])
    distances, mapped = located.distances, x
    if view == "neighbours":  # squared, without the term that all references share
        mapped, _ = metric.mapped(x, singly=True)
        distances = np.asarray(ready["neighbours"].squares(mapped, singly=True))
        distances[located.self_matches] = np.inf
    nearest, finite = _neighbours(distances, WINDOW_NEIGHBOURS[view])
    weight = finite / np.maximum(finite.sum(axis=1, keepdims=True), 1)
    if view == "step":
        differences = np.einsum("bk,bkd->bd", weight, abs(x[:, None] - ready["rows"][nearest]))
        return np.asarray(differences * ready["column_weight"])
    references, _ = metric.mapped(ready["rows"][nearest].reshape(-1, x.shape[1]), singly=True)
    return _length_parts(mapped[:, None] - references.reshape(*nearest.shape, -1), weight)


def _length_parts(vectors: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """What each component adds to the mean length (b,) of vectors (b, k, d), weighted by (b, k)."""
    squares = vectors.astype(np.float64) ** 2
    parts = squares / np.maximum(np.sqrt(squares.sum(axis=2, keepdims=True)), TINY)
    return np.asarray(parts.mean(axis=1) if weight is None else np.einsum("bk,bkd->bd", weight, parts))
