"""A series scored step by step as it arrives, in constant time and with the same bits as in a batch.

A recurrent network starts anew for every window. The windows over the next step advance together, each in its place of
a few tiles, by one product of a fixed shape.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np

from addml import model_file
from addml.compute import blas_threads
from addml.encoders.base import Network
from addml.encoders.recurrent import TILE, Parts, RecurrentNetwork, next_state, seen_by
from addml.model import Model
from addml.preprocessing.scaling import FARTHEST, bend
from addml.recent_steps import RecentSteps
from addml.scoring.base import BLOCK, ViewScale
from addml.text import counted

SMALL = 2**18  # multiplications of one product, up to which no library of products takes a second thread
LARGE = 1e290  # mean, up to which no difference from it is beyond float64
STEPS = 8  # rows of the block that a step is scored in, at least


def check_causal(model: Model) -> None:
    """A stream needs a detector that was fitted to series, by their past alone."""
    if model.form is None or not model.form.is_series:
        raise ValueError("stream() is for series; fit with window=Window(16, causal=True)")
    if not model.form.causal:
        raise ValueError("stream() knows the past alone, as Window(..., causal=True) does; fit with that")


class Stream:
    """One series; `score(step)` gives the score of each step from the steps so far."""

    def __init__(
        self,
        model: Model,
        threshold: float,
        names: Sequence[str] | None = None,
        entity: str | None = None,
        adapt: int | None = None,
    ) -> None:
        assert model.form is not None
        self.entity, groups = entity, model.vectorizer.groups
        self._code = None if groups is None else np.array([groups.code(entity)])
        self._map = None if groups is None else (groups.ratio[groups.code(entity)], groups.shift[groups.code(entity)])
        self.model, self.threshold, self.names = model, threshold, names
        self.window, self.channels = model.form.shape
        self.features = model.step_features
        self._ready, self._on_columns = model.scorer_ready("cpu"), model.scorer.on_columns
        self._encoder = step_encoder(model.encoder, self.window, self.channels, model.block("cpu"))
        rows = 1 if model.scorer.tile == 1 else max(STEPS, model.scorer.tile)
        self._z = np.zeros((len(model.encoder.weights), rows, model.encoder.outputs), np.float32)
        self._past = np.zeros((2, self.window, self.channels), np.float32)  # twice: the window is always in one piece
        self._last = self.features.median  # what stands for a missing value before any is known
        self._is_small = _largest_product(model) <= SMALL
        exact = abs(self.features.mean).max() < LARGE
        self._is_plain = exact and not self.features.sides.any()
        bent = (self.features.knee[0], self.features.shift, self.features.reach)
        self._bent = [np.float32(one) for one in bent] if self.features.knee[0] else None
        self._steps = 0
        self._recent = None if adapt is None else RecentSteps(model, threshold, adapt, self._code)

    @classmethod
    def of(
        cls,
        model: Model,
        threshold: float,
        names: Sequence[str] | None = None,
        entity: str | None = None,
        adapt: int | None = None,
    ) -> Stream:
        """A new series, of an entity where there are some; the detector must have been fitted by the past alone."""
        check_causal(model)
        if (entity is None) != (model.vectorizer.groups is None):
            told = f"by={list(model.by)}: say whose series it is" if model.by else "without by: leave it out"
            raise ValueError(f"entity={entity!r}, and the detector was fitted {told}")
        return cls(model, threshold, names, entity, adapt)

    def score(self, step: Any) -> float:
        """How anomalous the next step (channels,) is; NaN for a missing value, which takes the one before.

        Where the channels have names, so may those of the step: a dict, or a row of a frame.
        """
        with np.errstate(over="ignore"):  # what is beyond all numbers is as far as anything
            prepared = self._prepared(step)
        with nullcontext() if self._is_small else blas_threads(1):
            score = self._next(prepared)
        if self._recent is not None and self._recent.add(self._last, score > self.threshold):
            self._use(self._recent.model)
            self._steps -= self.window  # the last window once more: its level may have moved
            for values in self._recent.last():
                self._push(self._features(values))
        return score

    def _use(self, model: Model) -> None:
        """Score by a renewed model from now on."""
        self.model, self._ready = model, model.scorer_ready("cpu")

    def is_anomaly(self, step: Any) -> bool:
        """Whether the next step scores above the threshold."""
        return self.score(step) > self.threshold

    def _prepared(self, step: Any) -> np.ndarray:
        if self.names is not None and type(step) not in (np.ndarray, list, tuple):
            step = self._by_name(step)
        try:
            values = np.array(step, np.float64).reshape(-1)  # a copy, which is kept
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"step={step!r} does not hold one number for each channel ({error})") from None
        if len(values) != self.channels:
            raise ValueError(
                f"the step has {counted(len(values), 'channel')}, the detector was fitted to {self.channels}"
            )
        if self._map is not None:
            values = values * self._map[0] + self._map[1]
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
        far = values - self.features.mean  # as `transform` does, in fewer calls
        far /= self.features.scale
        features: np.ndarray = far.astype(np.float32)
        np.maximum(features, -FARTHEST, out=features)
        np.minimum(features, FARTHEST, out=features)
        if self._bent is not None:
            knee, shift, reach = self._bent
            bend(features, knee)
            features -= shift
            features /= reach
        return features

    def _by_name(self, step: Any) -> Any:
        """The values of a step with names in the order of the channels; a step without names as it is."""
        given = list(step.keys() if hasattr(step, "keys") else getattr(step, "columns", ()))
        if not any(isinstance(name, str) for name in given):
            return step
        if set(given) != set(self.names or ()):
            raise ValueError(
                f"the step has the channels {given}, the detector {list(self.names or ())}; give the same ones"
            )
        return [step[name] for name in self.names or ()]

    def _next(self, prepared: np.ndarray) -> float:
        if not self._steps:
            for _ in range(self.window - 1):
                self._push(prepared)
        return self._scored(self._push(prepared))

    def _push(self, prepared: np.ndarray) -> np.ndarray:
        self._past[:, self._steps % self.window] = prepared
        self._steps += 1
        return self._encoder.push(prepared)

    def _scored(self, z: np.ndarray) -> float:
        """The score of the window that ends now, from its embeddings (E, w)."""
        model, located = self.model, None
        self._z[:, 0] = z
        if self._on_columns:
            begin = self._steps % self.window * self.channels
            row = self._past.reshape(1, -1)[:, begin : begin + self.window * self.channels]
            located = model.scorer.locate(row, self._ready)
        scores = model.scorer.score(self._z, self._ready, model.distance, located)[:, 0].astype(np.float64)
        if self._steps < 2 * self.window - 1:  # of which window - 1 were filled up
            scores = model.neutral_scores(scores[:, None], np.ones(1, bool))[:, 0]
        return float(model.divided(model.combine(scores[:, None]), self._code)[0])

    # The steps so far, on disk ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the stream knows of the steps so far as a folder of JSON and safetensors, for `restore`."""
        model_file.write(path, {"stream": self._origin}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Stream:
        """Go on where a saved stream of the same model and entity stopped, with the same bits."""
        own = self._state
        _restore(path, self._origin, own)
        if self._recent is not None:
            self._use(self._recent.model)
        self._last, self._steps = own["last"], int(own["steps"][0])
        if "encoder.now" in own:
            self._encoder.now = int(own["encoder.now"][0])  # type: ignore[attr-defined]
        return self

    @property
    def _origin(self) -> dict[str, Any]:
        return _about(self.model, self.entity) | ({} if self._recent is None else {"adapt": self._recent.steps})

    @property
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays that change with every step, themselves."""
        found: dict[str, np.ndarray] = {"past": self._past, "last": self._last.astype(np.float64)}
        found |= {} if self._recent is None else {f"recent.{name}": one for name, one in self._recent.state.items()}
        found["steps"] = np.array([self._steps])
        for name, value in vars(self._encoder).items():
            parts: dict[str, Any] = {name: value}
            if isinstance(value, list):
                parts = {f"{name}.{place}": one for place, one in enumerate(value)}
            found |= {f"encoder.{key}": one for key, one in parts.items() if isinstance(one, np.ndarray)}
            found |= {f"encoder.{name}": np.array([value])} if name == "now" else {}
        return found


class Streams:
    """One stream for each of many entities, whose next steps are scored as one batch, with the bits of `anomaly_score`.

    Each keeps the features of its last window.
    """

    def __init__(self, model: Model, threshold: float, entities: Sequence[str]) -> None:
        check_causal(model)
        assert model.form is not None
        self.model, self.threshold, self.entities = model, threshold, list(entities)
        groups, (window, channels), count = model.vectorizer.groups, model.form.shape, len(self.entities)
        self._codes = None if groups is None else np.array([groups.code(one) for one in self.entities])
        self._features = model.step_features
        self._state = {
            "past": np.zeros((count, window, channels), np.float32),
            "last": np.tile(self._features.median, (count, 1)),
            "steps": np.zeros(count, np.int64),
        }

    def score(self, steps: Any, rows: Sequence[int] | None = None) -> np.ndarray:
        """The scores (k,) of the next steps (k, channels) of all entities, or of those in some places."""
        own = np.arange(len(self.entities)) if rows is None else np.asarray(rows, np.int64)
        past, last, seen = self._state.values()
        values = np.array(steps, np.float64)
        if values.shape != (len(own), past.shape[2]) or len(np.unique(own)) < len(own):
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
        windows[seen[own] == 0] = features[seen[own] == 0, None]  # before its first step a series stands still
        past[own] = windows
        seen[own] += 1
        scores = self.model.member_scores(windows.reshape(len(own), -1), "cpu", 1)
        scores = self.model.combine(scores, seen[own] < past.shape[1])
        return self.model.divided(np.asarray(scores), codes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the streams know of the steps so far as a folder of JSON and safetensors, for `restore`."""
        model_file.write(path, {"stream": _about(self.model, self.entities)}, self._state)

    def restore(self, path: str | os.PathLike[str]) -> Streams:
        """Go on where saved streams of the same model and entities stopped, with the same bits."""
        _restore(path, _about(self.model, self.entities), self._state)
        return self


def _about(model: Model, entity: Any) -> dict[str, Any]:
    """What a saved state belongs to."""
    weights = hashlib.sha256(np.ascontiguousarray(model.encoder.weights).tobytes()).hexdigest()
    return {"encoder": weights, "entity": entity}


def _restore(path: str | os.PathLike[str], about: dict[str, Any], own: dict[str, np.ndarray]) -> None:
    """Fill arrays by those of a saved state."""
    document, arrays = model_file.read(path)
    if document.get("stream") != about or arrays.keys() != own.keys():
        raise ValueError(f"{path}: is no stream of this model and entity; give the one that was saved with them")
    for name, array in arrays.items():
        if array.shape != own[name].shape or array.dtype != own[name].dtype:
            raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, not {own[name].shape}; save it again")
        own[name][...] = array


def _largest_product(model: Model) -> float:
    """Multiplications of the largest product that a step takes, about."""
    encoder, scorer = model.encoder, model.scorer
    rows = TILE if isinstance(encoder, RecurrentNetwork) else BLOCK["cpu"] * encoder.inputs
    encoding = rows * encoder.operations / (2 * len(encoder.weights) * (model.form.shape[0] if model.form else 1))
    arrays = model.scorer_arrays
    references = arrays.get("references", arrays.get("rows", np.empty((0, 0))))  # (E, R, w) or (R, d)
    numbers = references[:1].size if references.ndim == 3 and scorer.scale is not ViewScale else references.size
    return float(max(encoding, max(STEPS, scorer.tile) * (numbers + references.shape[-2])))


# Networks that carry what they need of the past. ----------------------------------------------------------------


class StepEncoder(Protocol):
    """Takes the features (channels,) of a step and gives the embeddings (E, w) of the window that ends with it."""

    def push(self, step: np.ndarray) -> np.ndarray: ...  # a view that holds until the next step


def step_encoder(network: Network, window: int, channels: int, block: int) -> StepEncoder:
    """A new series for this network; one that is not made for steps takes blocks of `block` windows."""
    if not isinstance(network, RecurrentNetwork):
        return _Blocks(network, window, channels, block)
    return _Windows(network)


class _Blocks:
    """Any encoder: the window that ends now, in a block of the shape that it takes."""

    def __init__(self, encoder: Network, window: int, channels: int, block: int) -> None:
        self.encoder, self.steps = encoder, np.zeros((window, channels), np.float32)
        self.rows = np.zeros((1, 1, block, window * channels), np.float32)

    def push(self, step: np.ndarray) -> np.ndarray:
        self.steps[:-1] = self.steps[1:].copy()
        self.steps[-1] = step
        self.rows[0, 0, 0] = self.steps.ravel()
        return np.asarray(self.encoder.embed(self.rows)[0, :, 0])


class _Windows:
    """A recurrent network: the states of all windows over this step, (E, tiles, TILE, states) for each layer."""

    def __init__(self, encoder: RecurrentNetwork) -> None:
        self.encoder, self.window, self.now = encoder, encoder.layout.window, 0
        self.layers = [_for_tiles(parts) for parts in encoder.layers]
        members, dtype, tiles = len(encoder.weights), encoder.weights.dtype, -(-self.window // TILE)
        self.states = [np.zeros((members, tiles, TILE, width), dtype) for width in encoder.layout.layers]
        self.totals = np.zeros_like(self.states[-1]) if encoder.mean else None
        self.step = np.zeros((1, 1, TILE, encoder.layout.channels), dtype)
        self.pooled = np.zeros((members, TILE, encoder.layout.layers[-1]), dtype)

    def push(self, step: np.ndarray) -> np.ndarray:
        tile, row = divmod(self.now, TILE)
        for states in self.states:
            states[:, tile, row] = 0  # of the window that begins with this step
        if self.totals is not None:
            self.totals[:, tile, row] = 0
        self._advance(step)
        self.now = (self.now + 1) % self.window  # the window there ends with this step, and gives way to the next one
        tile, row = divmod(self.now, TILE)
        if self.totals is None:
            self.pooled[:, 0] = self.states[-1][:, tile, row]
        else:
            self.totals += self.states[-1]
            np.divide(self.totals[:, tile, row], self.window, out=self.pooled[:, 0])
        return np.asarray(self.encoder.finish(self.pooled, 1)[:, 0])

    def _advance(self, step: np.ndarray) -> None:
        """All layers one step on: the first one sees the same step in every window, and it is multiplied once."""
        self.step[:] = step  # a whole tile of it, as of biases: long runs add up quicker than one row to many
        x = self.step
        for place, parts in enumerate(self.layers):
            self.states[place] = x = next_state(seen_by(x, parts), self.states[place], parts)


def _for_tiles(parts: Parts) -> Parts:
    """The matrices of a layer for states in tiles (E, tiles, TILE, w), and its biases for every row of one."""
    matrices, biases = parts[:2], parts[2:]
    return [*(one[:, None] for one in matrices), *(np.repeat(one[:, None], TILE, axis=2) for one in biases)]
