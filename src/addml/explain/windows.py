"""What each channel adds to the score of a step: its part of the view that finds the step strangest.

Distances and residuals are sums over channels, so that these parts are exact; a distance in the metric space is divided
by its gradient times how much the window differs from its neighbours there. What whole windows say of a step is the
mean over those that it lies in, and so are their parts. Contributions add up to the score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from addml.compute import in_threads
from addml.encoders import AutoencoderNetwork
from addml.explain.contributions import TINY, SeriesContext, features_by_column, sums_by_column, views_of
from addml.inputs.rows import WindowRows
from addml.model import Model
from addml.scoring.base import ViewScale
from addml.scoring.references import Overlaps
from addml.scoring.views import side_by_side
from addml.scoring.windows import WindowDistances, WindowViews, count

WINDOWS_AT_ONCE = 64


def window_contributions(model: Model, rows: WindowRows, places: np.ndarray, device: str, threads: int) -> np.ndarray:
    """Contributions (m, channels) to the scores of the steps at these places."""
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
            parts = _parts_of(model, rows, ends, view, context.overlaps, threads)
            means = np.stack([parts[np.searchsorted(ends, windows)].mean(axis=0) for windows in over])
            whole = means.sum(axis=1, keepdims=True)
            shares[own] = np.where(whole > 0, means / np.maximum(whole, TINY), 1 / means.shape[1])
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


def _parts_of(
    model: Model, rows: WindowRows, ends: np.ndarray, view: str, overlaps: Overlaps | None, threads: int
) -> np.ndarray:
    """What each channel adds to one view of the windows that end at these steps, (k, channels)."""
    assert model.form is not None
    views, ready, context = views_of(model), model.scorer_ready("cpu"), SeriesContext(ends, ends, overlaps)
    assert isinstance(views, WindowViews)
    features = features_by_column(model.form.channel_of().tolist())
    result = np.empty((len(ends), len(features)))

    def work(part: int) -> None:
        chosen = slice(part * WINDOWS_AT_ONCE, (part + 1) * WINDOWS_AT_ONCE)
        x = rows.take(ends[chosen])
        located = views.locate(x, ready, context.matches(chosen))
        result[chosen] = sums_by_column(_PARTS[view](model, x, ready, located), features)

    in_threads(work, -(-len(ends) // WINDOWS_AT_ONCE), min(threads, model.scorer.max_threads))
    return result


def _along_channels(model: Model, x: np.ndarray, ready: dict[str, Any], located: WindowDistances) -> np.ndarray:
    near, weight = _neighbours(located.distances, "step")
    away = np.einsum("bk,bkd->bd", weight, abs(x[:, None] - ready["rows"][near]))
    return np.asarray(away * ready["column_weight"])


def _from_neighbours(model: Model, x: np.ndarray, ready: dict[str, Any], located: WindowDistances) -> np.ndarray:
    near, weight = _neighbours(_apart(x, "neighbours", ready, located), "neighbours")
    squares = (x[:, None].astype(np.float64) - ready["rows"][near]) ** 2
    distances = np.sqrt(squares.sum(axis=2))
    return np.asarray(np.einsum("bk,bkd->bd", weight / np.maximum(distances, TINY), squares))


def _in_space(model: Model, x: np.ndarray, ready: dict[str, Any], located: WindowDistances) -> np.ndarray:
    network = model.encoder
    assert isinstance(network, AutoencoderNetwork)
    z = side_by_side(network.embed(x[None])[..., :-1], model.distance)
    near, weight = _neighbours(_apart(z, "space", ready, located), "space")
    apart = z[:, None] - side_by_side(ready["references"][..., :-1], model.distance)[near]
    weight = weight / np.maximum(np.sqrt((apart**2).sum(axis=2)), TINY)
    grad = np.einsum("bk,bkw->bw", weight, apart).reshape(len(x), len(network.weights), -1).swapaxes(0, 1)
    away = abs(x[:, None] - ready["rows"][near]).mean(axis=1)
    parts = abs(network.input_gradient(x, grad.astype(np.float32))) * away
    return np.asarray(np.where(parts.any(axis=1, keepdims=True), parts, away))


def _missed(model: Model, x: np.ndarray, ready: dict[str, Any], located: WindowDistances) -> np.ndarray:
    network = model.encoder
    assert isinstance(network, AutoencoderNetwork)
    missed = (network.reconstructed(network.embed(x[None])[..., :-1]) - x).astype(np.float64) ** 2  # (E, b, d)
    return np.asarray((missed / np.maximum(np.sqrt(missed.sum(axis=2, keepdims=True)), TINY)).mean(axis=0))


def _apart(x: np.ndarray, view: str, ready: dict[str, Any], located: WindowDistances) -> np.ndarray:
    """Squared distances (b, R) but for what is the same to all references; infinite where windows overlap."""
    apart = np.asarray(ready[view].squares(x, singly=False))
    apart[located.self_matches] = np.inf
    return apart


def _neighbours(distances: np.ndarray, view: str) -> tuple[np.ndarray, np.ndarray]:
    """The references (b, k) at the least of distances (b, R), and how much each of them counts."""
    near = np.argpartition(distances, count(distances, view) - 1, axis=1)[:, : count(distances, view)]
    known = np.isfinite(np.take_along_axis(distances, near, axis=1))
    return near, known / np.maximum(known.sum(axis=1, keepdims=True), 1)


_PARTS = {"neighbours": _from_neighbours, "space": _in_space, "residual": _missed, "step": _along_channels}
