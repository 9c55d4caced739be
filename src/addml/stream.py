"""Score a series step by step as it arrives, in constant time and with the same bits as in a batch."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from addml import model_file
from addml.compute import blas_threads
from addml.encoders.recurrent import TILE, RecurrentNetwork, input_part, next_state
from addml.model import Model
from addml.preprocessing.scaling import FARTHEST, bend
from addml.recent_steps import RecentSteps
from addml.text import SERIES, counted

LARGE = 1e290  # means up to this size can be subtracted from any float64 without overflow
STEPS = 8  # a step is scored in a block of at least this many rows


def check_causal(model: Model) -> None:
    """Refuse a model that is not for series, or whose scores depend on later steps."""
    if model.kind != SERIES:
        raise ValueError("stream() is for series; fit with window=Window(16, causal=True)")
    if not model.row_shape.causal:
        raise ValueError("stream() cannot see future steps; fit with window=Window(..., causal=True)")


class Stream:
    """One series; `score(step)` gives the score of each step from the steps so far."""

    def __init__(self, model: Model, entity: str | None, adapt: int | None) -> None:
        """Begin a new series, of an entity if the detector was fitted with `by`."""
        check_causal(model)
        groups = model.vectorizer.groups
        if (entity is None) != (groups is None):
            fitted = f"with by={list(model.by)}: name the entity" if model.by else "without by: leave entity out"
            raise ValueError(f"entity={entity!r}, but the detector was fitted {fitted}")
        self._group = None if groups is None else np.array([groups.code(entity)])
        self.model, self.threshold = model, model.threshold
        self.names, self.entity = model.vectorizer.names, entity
        self.window, self.channels = model.row_shape.shape
        self.features = model.step_features
        self._ready = model.scorer_ready("cpu")
        encoder = model.encoder
        self._encoder = _Windows(encoder) if isinstance(encoder, RecurrentNetwork) else _Blocks(model)
        rows = 1 if model.scorer.tile == 1 else max(STEPS, model.scorer.tile)
        self._z = np.zeros((len(model.encoder.weights), rows, model.encoder.outputs), np.float32)
        self._past = np.zeros((2, self.window, self.channels), np.float32)  # twice, so that any window is contiguous
        self._last = self.features.median  # the last value of each channel, which replaces missing ones
        self._is_plain = abs(self.features.mean).max() < LARGE and not self.features.sides.any()
        bent = (self.features.knee[0], self.features.bent_mean, self.features.bent_scale)
        self._knee, self._bent_mean, self._bent_scale = map(np.float32, bent)
        self._steps = 0
        self._recent = None if adapt is None else RecentSteps(model, adapt, self._group)

    def score(self, step: Any) -> float:
        """The anomaly score of the next step (channels,). A missing value (NaN) is replaced by the one before it.

        If the channels have names, a step may be a dict or a row of a frame.
        """
        with np.errstate(over="ignore"):  # features are clipped
            prepared = self._prepared(step)
        with blas_threads(1):
            for _ in range(0 if self._steps else self.window - 1):
                self._push(prepared)
            score = self._scored(self._push(prepared))
        if self._recent is not None and self._recent.add(self._last, score > self.threshold):
            self._use(self._recent.model)
            self._steps -= self.window  # push the last window again, because its level may have moved
            for values in self._recent.last():
                self._push(self._features(values))
        return score

    def _use(self, model: Model) -> None:
        self.model, self._ready = model, model.scorer_ready("cpu")

    def is_anomaly(self, step: Any) -> bool:
        """Whether the next step scores above the threshold."""
        return self.score(step) > self.threshold

    def _prepared(self, step: Any) -> np.ndarray:
        if self.names is not None and type(step) not in (np.ndarray, list, tuple):
            step = _by_name(step, self.names)
        values = _numbers(step, "step").reshape(-1)
        if len(values) != self.channels:
            given = counted(len(values), "channel")
            raise ValueError(f"the step has {given}, but the detector was fitted to {self.channels}; give all of these")
        groups, code = self.model.vectorizer.groups, self._group
        if groups is not None and code is not None:
            values = values * groups.ratio[code[0]] + groups.shift[code[0]]
        if not math.isfinite(np.add.reduce(values)):
            if np.isinf(values).any():
                raise ValueError("the step holds infinity; give NaN (a gap) or a finite value")
            values = np.where(np.isnan(values), self._last, values)
        self._last = values
        return self._features(values)

    def _features(self, values: np.ndarray) -> np.ndarray:
        """The features (channels,) of a step without gaps."""
        if self._recent is not None:
            values = values + self._recent.shift
        if not self._is_plain:
            return np.asarray(self.features.transform(values[None])[0])
        features: np.ndarray = ((values - self.features.mean) / self.features.scale).astype(np.float32)
        np.maximum(features, -FARTHEST, out=features)  # the same as `transform`, in a sixth of the time
        np.minimum(features, FARTHEST, out=features)
        if self._knee:
            bend(features, self._knee)
            features -= self._bent_mean
            features /= self._bent_scale
        return features

    def _push(self, prepared: np.ndarray) -> np.ndarray:
        self._past[:, self._steps % self.window] = prepared
        self._steps += 1
        return self._encoder.push(prepared)

    def _scored(self, z: np.ndarray) -> float:
        model = self.model
        self._z[:, 0] = z
        located = None
        if model.scorer.on_columns:
            start = self._steps % self.window * self.channels
            row = self._past.reshape(1, -1)[:, start : start + self.window * self.channels]
            located = model.scorer.locate(row, self._ready)
        scores = model.scorer.score(self._z, self._ready, model.distance, located)[:, 0].astype(np.float64)
        if self._steps < 2 * self.window - 1:  # the window still holds copies of the first step
            scores = model.neutral_scores(scores[:, None], np.ones(1, bool))[:, 0]
        return float(model.divided(model.combine(scores[:, None]), self._group)[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state of the stream as a folder of JSON and safetensors files, for `restore`."""
        model_file.write(path, {"stream": _origin(self.model, self.entity, self._recent)}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Stream:
        """Continue a saved stream of the same model and entity, with the same bits."""
        state = self._state
        _restore(path, _origin(self.model, self.entity, self._recent), state)
        if self._recent is not None:
            self._use(self._recent.model)
        self._last, self._steps = state["last"], int(state["steps"][0])
        return self

    @property
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays that change with every step, by their names in a file; `restore` writes into them."""
        state = {f"encoder.{name}": array for name, array in self._encoder.state.items()}
        if self._recent is not None:
            state |= {f"recent.{name}": array for name, array in self._recent.state.items()}
        return state | {"past": self._past, "last": self._last.astype(np.float64), "steps": np.array([self._steps])}


def _by_name(step: Any, names: Sequence[str]) -> Any:
    """The values of a named step, or of a frame, in the order of the channels; a step without names is unchanged."""
    channels = list(step.keys() if hasattr(step, "keys") else getattr(step, "columns", ()))
    if not any(isinstance(name, str) for name in channels):
        return step
    if set(channels) != set(names):
        raise ValueError(f"the step has the channels {channels}, the detector {list(names)}; give the same ones")
    return [step[name] for name in names]


def _numbers(step: Any, argument: str) -> np.ndarray:
    """The step as a new float64 array, because the stream keeps it."""
    try:
        return np.array(step, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{argument}={step!r} does not hold one number for each channel ({error})") from None


class Streams:
    """One stream per entity; their next steps are scored as one batch, with the bits of `anomaly_score`."""

    def __init__(self, model: Model, entities: Sequence[str]) -> None:
        check_causal(model)
        if isinstance(entities, str) or len(set(entities)) < len(entities):
            raise ValueError("entities must be a list of different names")
        self.model, self.entities, self.names = model, list(entities), model.vectorizer.names
        groups, count = model.vectorizer.groups, len(self.entities)
        self._codes = None if groups is None else np.array([groups.code(entity) for entity in self.entities])
        self._features = model.step_features
        self._state = {
            "past": np.zeros((count, *model.row_shape.shape), np.float32),
            "last": np.tile(self._features.median, (count, 1)),
            "steps": np.zeros(count, np.int64),
        }

    def score(self, steps: Any, rows: Sequence[int] | None = None) -> np.ndarray:
        """The scores (k,) of the next steps (k, channels), a frame or dicts, of all entities or of those at `rows`."""
        all_rows = np.arange(len(self.entities))
        index = all_rows if rows is None else np.asarray(rows, np.int64)
        if rows is not None and (not np.isin(index, all_rows).all() or len(np.unique(index)) < len(index)):
            raise ValueError(f"rows={rows!r} must be different positions from 0 to {len(all_rows) - 1}")
        past, last, n_steps = self._state.values()
        if self.names is not None and hasattr(steps, "columns"):
            steps = np.transpose(_by_name(steps, self.names))
        elif self.names is not None and not isinstance(steps, np.ndarray):
            steps = [_by_name(step, self.names) for step in steps]
        values = _numbers(steps, "steps")
        if values.shape != (len(index), past.shape[2]):
            shape = (len(index), past.shape[2])
            raise ValueError(f"steps has shape {values.shape}; give one of {shape}, entities by channels")
        if np.isinf(values).any():
            raise ValueError("steps holds infinity; give NaN (a gap) or a finite value")
        codes, groups = None if self._codes is None else self._codes[index], self.model.vectorizer.groups
        if codes is not None and groups is not None:
            values = values * groups.ratio[codes] + groups.shift[codes]
        values = last[index] = np.where(np.isnan(values), last[index], values)
        features = self._features.transform(values)
        windows = np.concatenate([past[index, 1:], features[:, None]], axis=1)
        is_first = n_steps[index] == 0
        windows[is_first] = features[is_first, None]  # a first step fills its whole window
        past[index] = windows
        n_steps[index] += 1
        scores = self.model.member_scores(windows.reshape(len(index), -1), "cpu", 1)
        scores = self.model.combine(scores, n_steps[index] < past.shape[1])
        return self.model.divided(np.asarray(scores), codes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state of all streams as a folder of JSON and safetensors files, for `restore`."""
        model_file.write(path, {"stream": _origin(self.model, self.entities)}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Streams:
        """Continue saved streams of the same model and entities, with the same bits."""
        _restore(path, _origin(self.model, self.entities), self._state)
        return self


def _origin(model: Model, entity: Any, recent: RecentSteps | None = None) -> dict[str, Any]:
    """The model and the entity that a saved state belongs to, and the number of steps that it adapts to."""
    weights = hashlib.sha256(np.ascontiguousarray(model.encoder.weights).tobytes()).hexdigest()
    return {"encoder": weights, "entity": entity} | ({} if recent is None else {"adapt": recent.steps})


def _restore(path: str | os.PathLike[str], origin: dict[str, Any], state: dict[str, np.ndarray]) -> None:
    document, arrays = model_file.read(path)
    if document.get("stream") != origin or arrays.keys() != state.keys():
        raise ValueError(f"{path}: is not a stream of this model and entity; give the one saved with them")
    for name, array in arrays.items():
        if array.shape != state[name].shape or array.dtype != state[name].dtype:
            raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, not {state[name].shape}; save it again")
        state[name][...] = array


# Networks with a memory of the past: `push` takes the features (channels,) of a step and returns the embeddings (E, w)
# of the window that ends with it, as a view that is valid until the next step.


class _Blocks:
    """Any encoder: embeds the last window, in a block of the shape used for batches."""

    def __init__(self, model: Model) -> None:
        self.encoder, self.steps = model.encoder, np.zeros(model.row_shape.shape, np.float32)
        self.rows = np.zeros((1, 1, model.block("cpu"), model.row_shape.size), np.float32)

    @property
    def state(self) -> dict[str, np.ndarray]:
        return {"steps": self.steps, "rows": self.rows}

    def push(self, step: np.ndarray) -> np.ndarray:
        self.steps[:-1] = self.steps[1:].copy()
        self.steps[-1] = step
        self.rows[0, 0, 0] = self.steps.ravel()
        return np.asarray(self.encoder.embed(self.rows)[0, :, 0])


class _Windows:
    """A recurrent network, which starts afresh in every window.

    All windows that contain the next step advance together, each in its row of a tile, by a product of fixed shape.
    """

    def __init__(self, encoder: RecurrentNetwork) -> None:
        self.encoder, self.window = encoder, encoder.layout.window
        self.now = np.zeros(1, np.int64)  # the row of the window that begins with the next step
        self.layers = [  # for states in tiles (E, tiles, TILE, w); biases are repeated for every row of a tile
            [*(w[:, None] for w in parts[:2]), *(np.repeat(bias[:, None], TILE, axis=2) for bias in parts[2:])]
            for parts in encoder.layers
        ]
        members, dtype, tiles = len(encoder.weights), encoder.weights.dtype, -(-self.window // TILE)
        self.states = [np.zeros((members, tiles, TILE, width), dtype) for width in encoder.layout.layers]  # per layer
        self.totals = np.zeros_like(self.states[-1]) if encoder.mean else None
        self.step = np.zeros((1, 1, TILE, encoder.layout.channels), dtype)
        self.pooled = np.zeros((members, TILE, encoder.layout.layers[-1]), dtype)

    @property
    def state(self) -> dict[str, np.ndarray]:
        arrays = {f"states.{layer}": states for layer, states in enumerate(self.states)}
        arrays |= {} if self.totals is None else {"totals": self.totals}
        return arrays | {"now": self.now, "step": self.step, "pooled": self.pooled}

    def push(self, step: np.ndarray) -> np.ndarray:
        tile, row = divmod(int(self.now[0]), TILE)
        for states in self.states:
            states[:, tile, row] = 0  # of the window that begins with this step
        if self.totals is not None:
            self.totals[:, tile, row] = 0
        self._advance(step)
        self.now[0] = (self.now[0] + 1) % self.window  # the window there is complete
        tile, row = divmod(int(self.now[0]), TILE)
        if self.totals is None:
            self.pooled[:, 0] = self.states[-1][:, tile, row]
        else:
            self.totals += self.states[-1]
            np.divide(self.totals[:, tile, row], self.window, out=self.pooled[:, 0])
        return np.asarray(self.encoder.finish(self.pooled, 1)[:, 0])

    def _advance(self, step: np.ndarray) -> None:
        """Advance all layers by one step. The first one sees the same step in every window: one product serves all."""
        self.step[:] = step  # fills a tile, like the biases: adding long runs is faster than adding one row to many
        x = self.step
        for layer, parts in enumerate(self.layers):
            self.states[layer] = x = next_state(input_part(x, parts), self.states[layer], parts)
