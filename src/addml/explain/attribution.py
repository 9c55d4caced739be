"""What each column contributes to a score; the training rows most like a row; what was expected of a series.

Scores by views are split exactly (contributions.py). Other scorers are explained by replacement: the columns of a row
take the values of a baseline one after the other, and each contributes the drop of the score at its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.arrays import to_numpy
from addml.distances import cross_distances
from addml.encoders import MLPNetwork, Network
from addml.explain.contributions import (
    SeriesContext,
    columns_of,
    explained,
    features_by_column,
    in_blocks,
    sums_by_column,
    views_of,
    window_contributions,
)
from addml.inputs import Rows
from addml.inputs.array import attribution_maps
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.scoring.patches import resized
from addml.scoring.scorer import Center, Dissimilarity
from addml.scoring.windows import WindowViews
from addml.text import IMAGE, TABLE

ROWS_AT_ONCE = 1024
SINGLE_COLUMNS = 6  # replaced one by one; the others are replaced in GROUPS, each larger than the one before
SINGLE_COLUMNS_CHEAP = 64  # with scorers that take constant time
SINGLE_PATCHES = 16  # of an image, where location matters more than time
GROUPS = 3
TINY = np.finfo(np.float32).tiny


class Nearest(NamedTuple):
    """The training rows most like each row, nearest first: their row numbers and distances, (n, k) each."""

    rows: np.ndarray
    distances: np.ndarray


def baseline_row(rows: np.ndarray, origins: Sequence[int]) -> np.ndarray:
    """The features (d',) of a typical row, from rows (n, d').

    A column of one feature takes its median. The medians of several features may belong to no value, as for a category
    without a majority level: such a column takes the values of the row nearest to its medians.
    """
    typical: np.ndarray = np.median(rows, axis=0).astype(np.float32)
    for features in features_by_column(origins):
        if len(features) > 1:
            squares = ((rows[:, features] - typical[features]) ** 2).sum(axis=1)
            typical[features] = rows[int(squares.argmin()), features]
    return typical


def distilled_by_most(kept: list[np.ndarray], train: list[np.ndarray], rows: int) -> np.ndarray:
    """Rows kept by at least half of the members that train on them; if there are none, those kept by the most."""
    keeping, training = (sum(np.bincount(ids, minlength=rows) for ids in members) for members in (kept, train))
    share = keeping / np.maximum(training, 1)
    return np.flatnonzero(share >= min(0.5, share.max()))


def baseline_of(model: Model, kept: np.ndarray, scores: np.ndarray, ordinary: float) -> np.ndarray:
    """The features (d',) of the baseline, from kept training rows (m, d') and their scores (m,).

    It is the typical row of these. If that scores above `ordinary`, as between two clusters, it is the row with the
    lowest score.
    """
    baseline = baseline_row(kept, columns_of(model))
    if model.scores(baseline[None], "cpu", 1)[0] <= ordinary:
        return baseline
    return np.asarray(kept[int(scores.argmin())])


def nearest(model: Model, features: np.ndarray, k: int) -> Nearest:
    """The k examples nearest to each row of features, by mean distance over members in units of their spread."""

    def embedded(rows: np.ndarray) -> np.ndarray:  # (E, n, w)
        z = model.embeddings(rows, "cpu", 1).astype(np.float64)
        return z.reshape(len(rows), len(model.encoder.weights), -1).transpose(1, 0, 2)

    references = embedded(model.examples.features)
    center = references.mean(axis=1, keepdims=True)
    deviation = np.sqrt(((references - center) ** 2).sum(axis=2).mean(axis=1))[:, None, None]
    spread, k = np.where(deviation > 0, deviation, 1.0), min(k, len(model.examples.rows))
    rows, distances = np.empty((len(features), k), np.int64), np.empty((len(features), k))
    for start in range(0, len(features), ROWS_AT_ONCE):
        batch = slice(start, start + ROWS_AT_ONCE)
        z = (embedded(features[batch]) - center) / spread
        means = cross_distances(z, (references - center) / spread, "euclidean").mean(axis=0)
        order = np.argsort(means, axis=1, kind="stable")[:, :k]
        rows[batch], distances[batch] = model.examples.rows[order], np.take_along_axis(means, order, axis=1)
    return Nearest(rows, distances)


def contributions_of(model: Model, rows: Rows, ids: np.ndarray, device: str, threads: int) -> np.ndarray:
    """Contributions (m, columns) to the scores of the rows with these ids (m,); maps (m, height, width) of images."""
    if model.scorer.on_patches:
        return np.stack([resized(one, model.row_shape.shape[1:]) for one in model.maps(rows.take(ids), threads)])
    views, series = views_of(model), None
    if isinstance(rows, WindowRows) and views is not None:
        if isinstance(views, WindowViews):
            return window_contributions(model, rows, ids, device, threads)
        series = SeriesContext.of(model, rows, ids, device, threads)
    incomplete = model.incomplete(rows)
    incomplete = None if incomplete is None else incomplete[ids]
    codes = None if rows.groups is None else rows.groups[ids]
    result = attributions(model, rows.take(ids), model.baseline, threads, incomplete, series, groups=codes)
    if codes is not None:  # contributions add up to the score within the group
        scores = result.sum(axis=1)
        within = model.divided(scores, codes)
        result *= np.divide(within, scores, where=scores != 0, out=np.ones(len(scores)))[:, None]
    return attribution_maps(result, model.row_shape) if model.kind == IMAGE else result


def attributions(
    model: Model,
    rows: np.ndarray,
    baseline: np.ndarray,
    threads: int = 1,
    incomplete: np.ndarray | None = None,
    series: SeriesContext | None = None,
    origins: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Contributions (m, columns), float64, of the columns in use to the scores of rows of features (m, d').

    Rows marked `incomplete` (m,) have neutral embeddings, and so does the baseline that they are compared with.
    Windows scored by views need their `series`. `origins` are the columns of the features (default: the model's).
    """
    origins = origins or columns_of(model)
    if views_of(model) is not None:
        return explained(model, rows, origins, threads, series, groups).contributions
    replacement = _Replacement(model, baseline, origins)
    result = np.empty((len(rows), len(replacement.features)))
    incomplete = np.zeros(len(rows), bool) if incomplete is None else incomplete

    def work(block: slice) -> None:
        result[block] = replacement.contributions(rows[block], incomplete[block])

    in_blocks(work, len(rows), replacement.block, model, threads)
    return result


def steps(columns: int, single: int) -> np.ndarray:
    """The edges of the steps of a replacement: `single` columns one by one, then groups of growing size."""
    single = min(columns, single)
    ends = single + np.round((columns - single) * np.arange(1, GROUPS + 1) ** 2 / GROUPS**2).astype(np.int64)
    return np.unique(np.concatenate([np.arange(single + 1), ends]))


def displacements(
    rows: np.ndarray, baseline: np.ndarray, network: Network, features: Sequence[np.ndarray]
) -> np.ndarray:
    """Roughly how far each column moves each row from the baseline, (m, columns): in the first layer and by itself."""
    weights, differences = np.ones(network.inputs, np.float32), abs(rows - baseline)
    if isinstance(network, MLPNetwork):
        weights = (np.asarray(network.layers[0][0], np.float32) ** 2).sum(axis=(0, 2))
    result = np.zeros((len(rows), len(features)))
    for by_feature in (differences**2 * weights, differences):
        by_column = sums_by_column(by_feature, features)
        result += by_column / np.maximum(by_column.sum(axis=1, keepdims=True), TINY)
    return result


class _Replacement:
    """Gives columns the values of the baseline, in blocks of one shape, so that rows do not affect each other."""

    def __init__(self, model: Model, baseline: np.ndarray, origins: Sequence[int]) -> None:
        self.model, self.ready, self.block = model, model.scorer_ready("cpu"), model.block("cpu")
        self.baseline, self.column = baseline, np.asarray(origins, np.int64)
        self.features = features_by_column(origins)
        single = SINGLE_COLUMNS if model.kind == TABLE else SINGLE_PATCHES
        if isinstance(model.scorer, (Center, Dissimilarity)):
            single = SINGLE_COLUMNS_CHEAP
        self.edges = steps(len(self.features), single)
        scores = self._member_scores(np.repeat(baseline[None], self.block, axis=0), None)[:, :1]
        self.complete, self.incomplete = (model.combine(scores, np.array([flag]))[0] for flag in (False, True))

    def contributions(self, rows: np.ndarray, incomplete: np.ndarray) -> np.ndarray:
        """The contributions (n, columns) of rows (n, d'), at most a block of them."""
        n, x = len(rows), np.repeat(self.baseline[None], self.block, axis=0)
        x[:n], incomplete = rows, np.append(incomplete, np.zeros(self.block - n, bool))
        original = self.model.scorer.locate(x, self.ready)
        moved = displacements(x, self.baseline, self.model.encoder, self.features)
        order = np.argsort(-moved, axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")[:, self.column]  # of the column of each feature

        def scores(x: np.ndarray) -> np.ndarray:
            return np.asarray(self.model.combine(self._member_scores(x, original), incomplete))

        own, inner_edges = scores(x), self.edges[1:-1]
        baseline = np.where(incomplete, self.incomplete, self.complete)
        down = [own, *(scores(np.where(rank < edge, self.baseline, x)) for edge in inner_edges), baseline]
        up = [baseline, *(scores(np.where(rank >= edge, self.baseline, x)) for edge in inner_edges), own]
        return _split(np.stack(down, axis=1), np.stack(up, axis=1), moved, order, self.edges)[:n]

    def _member_scores(self, x: np.ndarray, original: Any) -> np.ndarray:
        """Scores (E, b) of changed rows, which still match the references that the original rows match."""
        scorer, x = self.model.scorer, np.ascontiguousarray(x, np.float32)
        located = scorer.locate(x, self.ready)
        if located is not None and original is not None:
            located = located._replace(self_matches=original.self_matches)
        z = self.model.encoder.embed(x[None, None])[0]
        return to_numpy(scorer.score(z, self.ready, self.model.distance, located)).astype(np.float64)


def _split(down: np.ndarray, up: np.ndarray, moved: np.ndarray, order: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Contributions of columns from scores (b, steps + 1) in both directions; a group is split by displacement."""
    drops = (down[:, :-1] - down[:, 1:] + up[:, 1:] - up[:, :-1]) / 2
    ordered = np.take_along_axis(moved, order, axis=1)
    sizes = np.diff(edges)
    totals = np.repeat(np.add.reduceat(ordered, edges[:-1], axis=1), sizes, axis=1)
    shares = np.where(totals > 0, ordered / np.maximum(totals, TINY), 1 / np.repeat(sizes, sizes))
    result = np.empty_like(ordered)
    np.put_along_axis(result, order, np.repeat(drops, sizes, axis=1) * shares, axis=1)
    return result


NEAREST = 10  # windows whose middle 80% are the band
QUANTILES = (0.1, 0.5, 0.9)
CLIP = 3.0  # deviations: farther values are clipped, so that a broken channel does not choose the neighbours
MIN_DISTANCE = 0.05  # deviations of a channel from its neighbours
WINDOWS_AT_ONCE = 256


def expected_bands(model: Model, rows: WindowRows, steps: np.ndarray | None = None) -> np.ndarray | None:
    """Expected low end, median and high end (3, k, channels) at some or all steps; None without training windows."""
    expected = _expected(model, rows, np.arange(len(rows)) if steps is None else steps)
    return None if expected is None else expected[0]


def channel_distances(model: Model, rows: WindowRows, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Deviations from expected values at some steps, and these values, (k, channels); None without training windows."""
    expected = _expected(model, rows, steps)
    if expected is None:
        return None
    bands, medians = expected
    return abs(rows.windows.steps[steps] - medians), bands[1]


def _expected(model: Model, rows: WindowRows, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The bands (3, k, channels) of some steps (k,) in their units, and the medians (k, channels) as features.

    Windows laid end to end cover the series; a step's band comes from the window over it.
    """
    examples = model.examples
    if not len(examples.rows):
        return None
    windows, (length, channels) = rows.windows, model.row_shape.shape
    part, tile = np.cumsum(windows.age == 0), windows.age // length
    last = np.append(np.flatnonzero((np.diff(part) != 0) | (np.diff(tile) != 0)), len(windows) - 1)
    ends, owner = np.unique(last[np.searchsorted(last, steps)], return_inverse=True)
    offset = length - 1 - (windows.first[ends[owner]] - windows.first[steps])
    bands = np.empty((3, len(steps), channels))
    clipped = np.clip(examples.features, -CLIP, CLIP)
    for start in range(0, len(ends), WINDOWS_AT_ONCE):
        batch = np.clip(windows[ends[start : start + WINDOWS_AT_ONCE]], -CLIP, CLIP)
        neighbours = examples.features[_nearest_windows(batch, clipped)]
        quantiles = np.quantile(neighbours.reshape(len(batch), -1, length, channels), QUANTILES, axis=1)
        covered = np.flatnonzero((owner >= start) & (owner < start + WINDOWS_AT_ONCE))
        bands[:, covered] = quantiles[:, owner[covered] - start, offset[covered]]
    return _in_units(model, bands, None if rows.groups is None else rows.groups[steps]), bands[1]


def _nearest_windows(windows: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """The indices (k, NEAREST) of the examples (R, d) nearest to each of the windows (k, length, channels).

    Each round lowers the weights of channels that were far from the neighbours, as a broken channel is.
    """
    count, _, channels = windows.shape
    weights = np.ones((count, 1, channels), np.float32)
    for _ in range(1 if channels == 1 else 3):
        flat = np.broadcast_to(weights, windows.shape).reshape(count, -1)
        squares = flat @ (examples * examples).T - 2 * (flat * windows.reshape(count, -1)) @ examples.T
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :NEAREST]
        median = np.median(examples[nearest], axis=1).reshape(windows.shape)
        distances = np.sqrt(((windows - median) ** 2).mean(axis=1, keepdims=True)) + MIN_DISTANCE
        weights = np.minimum(1, (np.median(distances, axis=2, keepdims=True) / distances) ** 2).astype(np.float32)
    return np.asarray(nearest)


def _in_units(model: Model, values: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Features of steps (3, k, channels) in the units of their channels, and of their entities (k,)."""
    features = model.step_features
    if knee := float(features.knee[0]):
        values = values * features.bent_scale + features.bent_mean
        values = np.copysign(np.expm1(abs(values) / knee) * knee, values)
    values = values * features.scale + features.mean
    if groups is None or model.vectorizer.groups is None:
        return values
    entities = model.vectorizer.groups
    return np.asarray((values - entities.shift[groups]) / entities.ratio[groups])
