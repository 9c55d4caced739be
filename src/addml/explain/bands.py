"""What the channels of a series should have done: the values of the nearest normal windows of training."""

from __future__ import annotations

import numpy as np

from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model

NEAREST = 10  # windows whose middle 80% are the band
QUANTILES = (0.1, 0.5, 0.9)
FAR = 3.0  # deviations: farther values count as so far, so that a broken channel does not choose the neighbours
LEAST = 0.05  # deviations that a channel is from its neighbours at least
WINDOWS_AT_ONCE = 256


def expected_bands(model: Model, rows: WindowRows, steps: np.ndarray | None = None) -> np.ndarray | None:
    """Low end, median and high end (3, k, channels) of what is expected at some steps, or at all; in their units.

    Steps are taken by windows, end to end; None where the model keeps no training windows.
    """
    steps = np.arange(len(rows)) if steps is None else steps
    return None if (found := _expected(model, rows, steps)) is None else found[0]


def channel_distances(model: Model, rows: WindowRows, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """How far each channel is from what is expected of it at some steps, (k, channels), in deviations; and what is.

    None where the model keeps no training windows.
    """
    found = _expected(model, rows, steps)
    return None if found is None else (abs(rows.windows.steps[steps] - found[1]), found[0][1])


def _expected(model: Model, rows: WindowRows, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The bands of some steps in their units, and the medians as features."""
    examples, form = model.examples, model.form
    if form is None or not len(examples.rows):
        return None
    windows, (length, channels) = rows.windows, form.shape
    part, tile = np.cumsum(windows.age == 0), windows.age // length
    last = np.append(np.flatnonzero((np.diff(part) != 0) | (np.diff(tile) != 0)), len(windows) - 1)
    ends, owner = np.unique(last[np.searchsorted(last, steps)], return_inverse=True)
    offset = length - 1 - (windows.first[ends[owner]] - windows.first[steps])
    found, order = np.empty((3, len(steps), channels)), np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(0, len(ends) + WINDOWS_AT_ONCE, WINDOWS_AT_ONCE))
    for place, start in enumerate(range(0, len(ends), WINDOWS_AT_ONCE)):
        seen = np.clip(windows[ends[start : start + WINDOWS_AT_ONCE]], -FAR, FAR)
        shapes = examples.features[_nearest(seen, np.clip(examples.features, -FAR, FAR))]
        bands = np.quantile(shapes.reshape(len(seen), -1, length, channels), QUANTILES, axis=1)
        chosen = order[bounds[place] : bounds[place + 1]]
        found[:, chosen] = bands[:, owner[chosen] - start, offset[chosen]]
    return _in_units(model, found, None if rows.groups is None else rows.groups[steps]), found[1]


def _nearest(seen: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """The examples (R, d) nearest to each window (k, length, channels), (k, NEAREST); broken channels count little.

    Channels weigh by how far the neighbours found before are from them, compared with the middle channel.
    """
    channels, weight = seen.shape[2], np.ones((len(seen), 1, seen.shape[2]), np.float32)
    for _ in range(1 if channels == 1 else 3):
        weighed = np.broadcast_to(weight, seen.shape).reshape(len(seen), -1)
        far = weighed @ (examples * examples).T - 2 * (weighed * seen.reshape(len(seen), -1)) @ examples.T
        nearest = np.argsort(far, axis=1, kind="stable")[:, :NEAREST]
        middle = np.median(examples[nearest], axis=1).reshape(seen.shape)
        rest = np.sqrt(((seen - middle) ** 2).mean(axis=1, keepdims=True)) + LEAST
        weight = np.minimum(1, (np.median(rest, axis=2, keepdims=True) / rest) ** 2).astype(np.float32)
    return np.asarray(nearest)


def _in_units(model: Model, found: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Features of steps (3, k, channels) in the units of their channels, and of their entities (k,)."""
    features = model.step_features
    if knee := float(features.knee[0]):
        found = found * features.reach + features.shift
        found = np.copysign(np.expm1(abs(found) / knee) * knee, found)
    found = found * features.scale + features.mean
    if groups is None or model.vectorizer.groups is None:
        return found
    entities = model.vectorizer.groups
    return np.asarray((found - entities.shift[groups]) / entities.ratio[groups])
