"""A series scored step by step as it arrives: constant time, the same bits as in a batch. Level 4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from addml.compute import blas_threads
from addml.data.features import FARTHEST
from addml.encoders import Recurrent
from addml.encoders.products import TILE
from addml.encoders.under_way import under_way
from addml.model import MetricModel
from addml.scoring.blocks import BLOCK
from addml.scoring.scale import ViewScale
from addml.scoring.scorers import OfEmbeddings
from addml.wording import counted

SMALL = 2**18  # multiplications of one product, up to which no library of products takes a second thread
LARGE = 1e290  # mean, up to which no difference from it is beyond float64
STEPS = 8  # rows of the block that a step is scored in, at least


class Stream:
    """One series under way; `score(step)` gives the score of each step from the steps so far."""

    def __init__(self, model: MetricModel, threshold: float, names: Sequence[str] | None = None) -> None:
        assert model.form is not None
        self.model, self.threshold, self.names = model, threshold, names
        self.window, self.channels = model.form.shape
        self.features = model.step_features
        self._ready, self._views = model.scorer_ready("cpu"), not isinstance(model.scorer, OfEmbeddings)
        self._encoder = under_way(model.encoder, self.window, self.channels, BLOCK["cpu"])
        self._z = np.zeros(
            (len(model.encoder.weights), max(STEPS, model.scorer.tile), model.encoder.outputs), np.float32
        )
        self._past = np.zeros((2, self.window, self.channels), np.float32)  # twice: the window is always in one piece
        self._last = self.features.median  # what stands for a missing value before any is known
        self._is_small = _largest_product(model) <= SMALL
        exact = abs(self.features.mean).max() < LARGE
        self._is_plain = exact and not self.features.knee[0] and not self.features.sides.any()
        self._steps = 0

    @classmethod
    def of(cls, model: MetricModel, threshold: float, names: Sequence[str] | None = None) -> Stream:
        """A new series; the detector must have been fitted to series, by their past alone."""
        if model.form is None or not model.form.is_series:
            raise ValueError("stream() is for series; fit with encoder='recurrent', window=... and causal=True")
        if not model.form.causal:
            raise ValueError("stream() knows the past alone, as causal=True does; fit with causal=True")
        return cls(model, threshold, names)

    def score(self, step: Any) -> float:
        """How anomalous the next step (channels,) is; NaN for a missing value, which takes the one before.

        Where the channels have names, so may those of the step: a dict, or a row of a frame.
        """
        with np.errstate(over="ignore"):  # what is beyond all numbers is as far as anything
            prepared = self._prepared(step)
        if self._is_small:
            return self._next(prepared)
        with blas_threads(1):
            return self._next(prepared)

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
        if not math.isfinite(np.add.reduce(values)):
            if np.isinf(values).any():
                raise ValueError("the step holds infinity; give NaN (a gap) or a finite value")
            values = np.where(np.isnan(values), self._last, values)
        self._last = values
        if not self._is_plain:
            return np.asarray(self.features.transform(values[None])[0])
        far = values - self.features.mean  # as `transform` does, in fewer calls
        far /= self.features.scale
        features: np.ndarray = far.astype(np.float32)
        np.maximum(features, -FARTHEST, out=features)
        np.minimum(features, FARTHEST, out=features)
        return features

    def _by_name(self, step: Any) -> Any:
        """The values of a step with names in the order of the channels; a step without names as it is."""
        given = list(step.keys() if hasattr(step, "keys") else getattr(step, "columns", ()))
        if not any(isinstance(name, str) for name in given):
            return step
        if set(given) != set(self.names or ()):
            raise ValueError(f"the step has the channels {given}, the detector {self.names}; give the same ones")
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
        model, placed = self.model, None
        self._z[:, 0] = z
        if self._views:
            begin = self._steps % self.window * self.channels
            row = self._past.reshape(1, -1)[:, begin : begin + self.window * self.channels]
            placed = model.scorer.place(row, self._ready)
        scores = model.scorer.score(self._z, self._ready, model.distance, placed)[:, 0].astype(np.float64)
        if self._steps < 2 * self.window - 1:  # of which window - 1 were filled up
            scores = model.neutral_scores(scores[:, None], np.ones(1, bool))[:, 0]
        assert model.scale is not None
        return model.scale.combine_one(scores)


def _largest_product(model: MetricModel) -> float:
    """Multiplications of the largest product that a step takes, about."""
    encoder, scorer = model.encoder, model.scorer
    rows = TILE if isinstance(encoder, Recurrent) else BLOCK["cpu"] * encoder.inputs
    encoding = rows * encoder.operations / (2 * len(encoder.weights) * (model.form.shape[0] if model.form else 1))
    references = model.scorer_arrays.get("references", np.empty((0, 0, 0)))  # (E, R, w), of all members side by side
    numbers = references.size if scorer.scale is ViewScale else references[:1].size
    return float(max(encoding, max(STEPS, scorer.tile) * (numbers + references.shape[1])))
