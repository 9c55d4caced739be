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
from addml.encoders.encoder import Network
from addml.encoders.recurrent import TILE, RecurrentNetwork, next_state, seen_by
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

    def __init__(
        self, model: Model, threshold: float, names: Sequence[str] | None, entity: str | None, adapt: int | None
    ) -> None:
        """Begin a new series, of an entity if the detector was fitted with `by`."""
        check_causal(model)
        groups = model.vectorizer.groups
        if (entity is None) != (groups is None):
            how = f"with by={list(model.by)}: say whose series it is" if model.by else "without by: leave it out"
            raise ValueError(f"entity={entity!r}, but the detector was fitted {how}")
        self._group = None if groups is None else np.array([groups.code(entity)])
        self.model, self.threshold, self.names, self.entity = model, threshold, names, entity
        self.window, self.channels = model.row_shape.shape
        self.features = model.step_features
        self._ready = model.scorer_ready("cpu")
        encoder, shape = model.encoder, (self.window, self.channels)
        self._encoder = (
            _Windows(encoder) if isinstance(encoder, RecurrentNetwork) else _Blocks(encoder, *shape, model.block("cpu"))
        )
        rows = 1 if model.scorer.tile == 1 else max(STEPS, model.scorer.tile)
        self._z = np.zeros((len(model.encoder.weights), rows, model.encoder.outputs), np.float32)
        self._past = np.zeros((2, self.window, self.channels), np.float32)  # twice, so that the window is one piece
        self._last = self.features.median  # fills missing values until one is known
        self._is_plain = abs(self.features.mean).max() < LARGE and not self.features.sides.any()
        bent = (self.features.knee[0], self.features.bent_mean, self.features.bent_scale)
        self._knee, self._bent_mean, self._bent_scale = map(np.float32, bent)
        self._steps = 0
        self._recent = None if adapt is None else RecentSteps(model, threshold, adapt, self._group)

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
            self._steps -= self.window  # push the last window again: its level may have moved
            for values in self._recent.last():
                self._push(self._features(values))
        return score

    def _use(self, model: Model) -> None:
        """Score with a renewed model from now on."""
        self.model, self._ready = model, model.scorer_ready("cpu")

    def is_anomaly(self, step: Any) -> bool:
        """Whether the next step scores above the threshold."""
        return self.score(step) > self.threshold

    def _prepared(self, step: Any) -> np.ndarray:
        if self.names is not None and type(step) not in (np.ndarray, list, tuple):
            step = _by_name(step, self.names)
        values = _numbers(step, "step").reshape(-1)
        if len(values) != self.channels:
            raise ValueError(
                f"the step has {counted(len(values), 'channel')}, but the detector was fitted to {self.channels}"
            )
        if (groups := self.model.vectorizer.groups) is not None and self._group is not None:
            values = values * groups.ratio[self._group[0]] + groups.shift[self._group[0]]
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
        np.maximum(features, -FARTHEST, out=features)  # as `transform` does, in a sixth of its time
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
        """The score of the window that ends now, from its embeddings (E, w)."""
        model, located = self.model, None
        self._z[:, 0] = z
        if model.scorer.on_columns:
            begin = self._steps % self.window * self.channels
            row = self._past.reshape(1, -1)[:, begin : begin + self.window * self.channels]
            located = model.scorer.locate(row, self._ready)
        scores = model.scorer.score(self._z, self._ready, model.distance, located)[:, 0].astype(np.float64)
        if self._steps < 2 * self.window - 1:  # the window still holds copies of the first step
            scores = model.neutral_scores(scores[:, None], np.ones(1, bool))[:, 0]
        return float(model.divided(model.combine(scores[:, None]), self._group)[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state of the stream as a folder of JSON and safetensors files, for `restore`."""
        model_file.write(path, {"stream": self._origin}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Stream:
        """Continue a saved stream of the same model and entity, with the same bits."""
        own = self._state
        _restore(path, self._origin, own)
        if self._recent is not None:
            self._use(self._recent.model)
        self._last, self._steps = own["last"], int(own["steps"][0])
        return self

    @property
    def _origin(self) -> dict[str, Any]:
        return _about(self.model, self.entity) | ({} if self._recent is None else {"adapt": self._recent.steps})

    @property
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays that change with every step, by their names in a file; not copies."""
        steps = np.array([self._steps])
        own: dict[str, np.ndarray] = {"past": self._past, "last": self._last.astype(np.float64), "steps": steps}
        recent: dict[str, np.ndarray] = {} if self._recent is None else self._recent.state
        parts = {"recent": recent, "encoder": self._encoder.state}
        return own | {f"{part}.{name}": one for part, arrays in parts.items() for name, one in arrays.items()}


def _by_name(step: Any, names: Sequence[str]) -> Any:
    """The values of a named step, or of a frame, in the order of the channels; one without names as it is."""
    given = list(step.keys() if hasattr(step, "keys") else getattr(step, "columns", ()))
    if not any(isinstance(name, str) for name in given):
        return step
    if set(given) != set(names):
        raise ValueError(f"the step has the channels {given}, the detector {list(names)}; give the same ones")
    return [step[name] for name in names]


def _numbers(step: Any, what: str) -> np.ndarray:
    """A copy in float64, because it is kept."""
    try:
        return np.array(step, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{what}={step!r} does not hold one number for each channel ({error})") from None


class Streams:
    """One stream per entity; their next steps are scored as one batch, with the bits of `anomaly_score`."""

    def __init__(self, model: Model, threshold: float, entities: Sequence[str], names: Sequence[str] | None) -> None:
        check_causal(model)
        if isinstance(entities, str) or len(set(entities)) < len(entities):
            raise ValueError("entities must be a list of different names")
        self.model, self.threshold, self.entities, self.names = model, threshold, list(entities), names
        groups, (window, channels), count = model.vectorizer.groups, model.row_shape.shape, len(self.entities)
        self._codes = None if groups is None else np.array([groups.code(one) for one in self.entities])
        self._features = model.step_features
        self._state = {
            "past": np.zeros((count, window, channels), np.float32),
            "last": np.tile(self._features.median, (count, 1)),
            "steps": np.zeros(count, np.int64),
        }

    def score(self, steps: Any, rows: Sequence[int] | None = None) -> np.ndarray:
        """The scores (k,) of the next steps (k, channels), a frame or dicts, of all entities or of those at `rows`."""
        every = np.arange(len(self.entities))
        own = every if rows is None else np.asarray(rows, np.int64)
        if rows is not None and (not np.isin(own, every).all() or len(np.unique(own)) < len(own)):
            raise ValueError(f"rows={rows!r} must be different positions from 0 to {len(every) - 1}")
        past, last, seen = self._state.values()
        if self.names is not None and not isinstance(steps, np.ndarray):
            is_frame = hasattr(steps, "columns")
            steps = _by_name(steps, self.names) if is_frame else [_by_name(one, self.names) for one in steps]
            steps = np.transpose(steps) if is_frame else steps
        values = _numbers(steps, "steps")
        if values.shape != (len(own), past.shape[2]):
            raise ValueError(
                f"steps has shape {values.shape}; give one of {past.shape[2]} channels for each of {len(own)}"
            )
        if np.isinf(values).any():
            raise ValueError("steps holds infinity; give NaN (a gap) or a finite value")
        codes, groups = None if self._codes is None else self._codes[own], self.model.vectorizer.groups
        if codes is not None and groups is not None:
            values = values * groups.ratio[codes] + groups.shift[codes]
        values = last[own] = np.where(np.isnan(values), last[own], values)
        features = self._features.transform(values)
        windows = np.concatenate([past[own, 1:], features[:, None]], axis=1)
        windows[seen[own] == 0] = features[seen[own] == 0, None]  # a first step fills its whole window
        past[own] = windows
        seen[own] += 1
        scores = self.model.member_scores(windows.reshape(len(own), -1), "cpu", 1)
        scores = self.model.combine(scores, seen[own] < past.shape[1])
        return self.model.divided(np.asarray(scores), codes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state of all streams as a folder of JSON and safetensors files, for `restore`."""
        model_file.write(path, {"stream": _about(self.model, self.entities)}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Streams:
        """Continue saved streams of the same model and entities, with the same bits."""
        _restore(path, _about(self.model, self.entities), self._state)
        return self


def _about(model: Model, entity: Any) -> dict[str, Any]:
    """The model and the entity that a saved state belongs to."""
    weights = hashlib.sha256(np.ascontiguousarray(model.encoder.weights).tobytes()).hexdigest()
    return {"encoder": weights, "entity": entity}


def _restore(path: str | os.PathLike[str], about: dict[str, Any], own: dict[str, np.ndarray]) -> None:
    """Fill the arrays with those of a saved state."""
    document, arrays = model_file.read(path)
    if document.get("stream") != about or arrays.keys() != own.keys():
        raise ValueError(f"{path}: is not a stream of this model and entity; give the one saved with them")
    for name, array in arrays.items():
        if array.shape != own[name].shape or array.dtype != own[name].dtype:
            raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, not {own[name].shape}; save it again")
        own[name][...] = array


# Networks with a memory of the past: `push` takes the features (channels,) of a step and returns the embeddings (E, w)
# of the window that ends with it, as a view that is valid until the next step.


class _Blocks:
    """Any encoder: embeds the last window, in a block of the shape used for batches."""

    def __init__(self, encoder: Network, window: int, channels: int, block: int) -> None:
        self.encoder, self.steps = encoder, np.zeros((window, channels), np.float32)
        self.rows = np.zeros((1, 1, block, window * channels), np.float32)

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

    The windows over the next step advance together, each in its place of a few tiles, by one product of a fixed shape.
    """

    def __init__(self, encoder: RecurrentNetwork) -> None:
        self.encoder, self.window = encoder, encoder.layout.window
        self.now = np.zeros(1, np.int64)  # the place of the window that begins with the next step
        self.layers = [  # for states in tiles (E, tiles, TILE, w); biases are repeated for every row of a tile
            [*(one[:, None] for one in parts[:2]), *(np.repeat(one[:, None], TILE, axis=2) for one in parts[2:])]
            for parts in encoder.layers
        ]
        members, dtype, tiles = len(encoder.weights), encoder.weights.dtype, -(-self.window // TILE)
        self.states = [np.zeros((members, tiles, TILE, width), dtype) for width in encoder.layout.layers]  # per layer
        self.totals = np.zeros_like(self.states[-1]) if encoder.mean else None
        self.step = np.zeros((1, 1, TILE, encoder.layout.channels), dtype)
        self.pooled = np.zeros((members, TILE, encoder.layout.layers[-1]), dtype)

    @property
    def state(self) -> dict[str, np.ndarray]:
        found = {f"states.{layer}": states for layer, states in enumerate(self.states)}
        found |= {} if self.totals is None else {"totals": self.totals}
        return found | {"now": self.now, "step": self.step, "pooled": self.pooled}

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
        for place, parts in enumerate(self.layers):
            self.states[place] = x = next_state(seen_by(x, parts), self.states[place], parts)
