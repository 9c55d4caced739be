"""Adapt a stream to its recent steps: renew its level, its references and, if necessary, its scale.

Flagged steps are left out until they are more than half of the recent ones. So faults stay anomalous, and a new level
becomes normal. Channels whose level moved are shifted back to the level of training, which the networks know. If most
steps are still flagged, the views get a wider scale. Half of the references remain those of training.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from addml.arrays import evenly_spaced
from addml.compute import blas_threads
from addml.inputs.series import Windows
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.parameters import check_whole
from addml.scoring.scorer import ViewScale
from addml.scoring.windows import WindowViews

RENEWALS = 4  # during as many steps as are recent
LEAST_WINDOWS = 4  # the recent steps must fill at least so many windows
MOVED = 1.0  # the level of a channel is new if it moved by more deviations of training than this
MOST = 0.5  # if more than this share of the recent steps is flagged, they are a new normal instead of faults


class RecentSteps:
    """The last `steps` steps of a stream, whether each is flagged, and the parts of the model that follow them."""

    def __init__(self, trained: Model, steps: int, code: np.ndarray | None) -> None:
        self.window, channels = trained.row_shape.shape
        check_whole("adapt", steps, least=LEAST_WINDOWS * self.window)
        if not isinstance(trained.scorer, WindowViews) or not isinstance(trained.scale, ViewScale):
            raise ValueError(
                f"adapt={steps}: the encoder {trained.encoder.name!r} with the scorer {trained.scorer.name!r} cannot "
                "adapt; fit with encoder='auto' and scorer='views', and without labels"
            )
        self.trained, self.threshold, self.steps, self.code = trained, trained.threshold, steps, code
        self.features, self.scale = trained.step_features, trained.scale
        self.state: dict[str, np.ndarray] = {
            "values": np.zeros((steps, channels)),  # a ring buffer: step n is in row n % steps
            "flagged": np.zeros(steps, np.uint8),
            "seen": np.zeros(1, np.int64),  # number of steps so far
            "shift": np.zeros(channels),  # is added to the values of a step
            "rows": trained.scorer_arrays["rows"].copy(),
            "median": trained.scale.median.copy(),
            "unit": trained.scale.unit.copy(),
        }
        self.shift = self.state["shift"]  # the same array

    def add(self, values: np.ndarray, flagged: bool) -> bool:
        """Add the values (channels,) of the next step, and return whether this renewed the model."""
        count = int(self.state["seen"][0])
        self.state["values"][count % self.steps] = values
        self.state["flagged"][count % self.steps] = flagged
        self.state["seen"][0] = count = count + 1
        is_due = count >= self.steps and count % max(1, self.steps // RENEWALS) == 0
        if is_due:
            with blas_threads(1):
                self._renew()
        return is_due

    def last(self) -> np.ndarray:
        """The values (window, channels) of the last window."""
        return np.asarray(self.state["values"][self._order[-self.window :]])

    @property
    def model(self) -> Model:
        """The trained model with the references and the scale of the last renewal."""
        arrays = self.trained.scorer_arrays | {"rows": self.state["rows"].copy()}
        scale = ViewScale(self.state["median"].copy(), self.state["unit"].copy())
        return replace(self.trained, scorer_arrays=arrays, scale=scale)

    @property
    def _order(self) -> np.ndarray:
        return np.asarray((np.arange(self.steps) + self.state["seen"][0]) % self.steps)

    def _renew(self) -> None:
        order, rows = self._order, self._rows(self.shift)
        flagged = self.state["flagged"][order] > 0
        whole = rows.usable(1)  # the steps that end a complete window
        normal = whole[~flagged[whole]]
        is_new = flagged[whole].mean() > MOST
        is_wider = (self.state["unit"] > self.scale.unit).any()
        if is_new or self.shift.any() or is_wider:  # a new level, or one that can be measured better now
            shifted = self._at_level(whole[flagged[whole]] if is_new else normal)
            rows, normal = shifted or (rows, whole if is_new else normal)
        self._take_references(rows.take(evenly_spaced(normal, len(self.state["rows"]) // 2)))
        scores = self.model.member_scores(rows, "cpu", 1, learned=True)
        self._take_scale(scores[:, normal])
        self.state["flagged"][order[whole]] = self._flagged(self.model, scores[:, whole])

    def _rows(self, shift: np.ndarray) -> WindowRows:
        features = self.features.transform(self.state["values"][self._order] + shift)
        return WindowRows(Windows.of([features], self.window))

    def _at_level(self, steps: np.ndarray) -> tuple[WindowRows, np.ndarray] | None:
        """Shift the level of these steps (k,) back to that of training; return all windows, and the steps now normal.

        If most of the steps are still flagged, nothing is shifted, and the result is None.
        """
        offset = self.features.median - np.median(self.state["values"][self._order[steps]], axis=0)
        shift = np.where(abs(offset) > MOVED * self.features.scale, offset, 0.0)
        rows = self._rows(shift)
        scores = self.model.member_scores(rows, "cpu", 1)[:, steps]
        normal = steps[~self._flagged(self.trained, scores)]
        if len(normal) < (1 - MOST) * len(steps):
            return None
        self.shift[:] = shift
        return rows, normal

    def _take_references(self, fresh: np.ndarray) -> None:
        """Replace half of the training references by fresh ones."""
        trained = self.trained.scorer_arrays["rows"]
        self.state["rows"][:] = np.concatenate([evenly_spaced(trained, len(trained) - len(fresh)), fresh])

    def _flagged(self, model: Model, scores: np.ndarray) -> np.ndarray:
        """Which steps (n,) score above the threshold, from their scores (V, n) by view."""
        codes = None if self.code is None else np.repeat(self.code, scores.shape[1])
        return model.divided(np.asarray(model.combine(scores)), codes) > self.threshold

    def _take_scale(self, scores: np.ndarray) -> None:
        """Use the scale of training, or a wider one if it flags most of these normal steps with scores (V, n)."""
        is_narrow = self._flagged(self.trained, scores).mean() > MOST
        recent = self.trained.scorer.fit_scale(scores) if is_narrow else self.scale
        self.state["median"][:] = np.maximum(self.scale.median, recent.median)
        self.state["unit"][:] = np.maximum(self.scale.unit, recent.unit)
