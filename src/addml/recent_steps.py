"""The recent steps of a stream, from which its references are renewed and, where need be, the scale of its views.

Flagged steps are left out until they are more than half of the recent ones: faults stay strange, a new level becomes
normal. Half of the references remain those of training, and no view becomes stricter than training left it, so that
what was normal then still is.
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
from addml.scoring.base import ViewScale
from addml.scoring.windows import WindowViews

RENEWALS = 4  # while all recent steps pass
LEAST_WINDOWS = 4  # of recent steps


class RecentSteps:
    """The last `steps` steps of a stream and whether each is flagged; `state` is what changes with them."""

    def __init__(self, trained: Model, threshold: float, steps: int, code: np.ndarray | None) -> None:
        assert trained.form is not None
        window, channels = trained.form.shape
        check_whole("adapt", steps, least=LEAST_WINDOWS * window)
        if not isinstance(trained.scorer, WindowViews) or not isinstance(trained.scale, ViewScale):
            raise ValueError(
                f"adapt={steps}: the scorer {trained.scorer.name!r} cannot be renewed; fit with scorer='auto'"
            )
        self.trained, self.threshold, self.steps, self.code = trained, threshold, steps, code
        self.state: dict[str, np.ndarray] = {
            "features": np.zeros((steps, channels), np.float32),  # the step at place n % steps is the n-th
            "flagged": np.zeros(steps, np.uint8),
            "seen": np.zeros(1, np.int64),
            "rows": trained.scorer_arrays["rows"].copy(),
            "median": trained.scale.median.copy(),
            "unit": trained.scale.unit.copy(),
        }

    def add(self, features: np.ndarray, flagged: bool) -> bool:
        """Take the next step (channels,); whether the model was renewed."""
        seen = self.state["seen"]
        place = int(seen[0]) % self.steps
        self.state["features"][place], self.state["flagged"][place] = features, flagged
        seen += 1
        due = seen[0] >= self.steps and seen[0] % max(1, self.steps // RENEWALS) == 0
        if due:
            with blas_threads(1):
                self._renew()
        return bool(due)

    @property
    def model(self) -> Model:
        """The trained model with the references and the scale of the last renewal."""
        arrays = self.trained.scorer_arrays | {"rows": self.state["rows"].copy()}
        scale = ViewScale(self.state["median"].copy(), self.state["unit"].copy())
        return replace(self.trained, scorer_arrays=arrays, scale=scale)

    def _renew(self) -> None:
        """Take new references at even steps of the normal recent ones, and the scale from the scores of these."""
        order = (np.arange(self.steps) + self.state["seen"][0]) % self.steps
        flagged = self.state["flagged"][order] > 0
        assert self.trained.form is not None
        rows = WindowRows(Windows.of([self.state["features"][order]], self.trained.form.shape[0]))
        whole = rows.usable(1)
        normal = whole if flagged[whole].mean() > 0.5 else whole[~flagged[whole]]
        old = self.trained.scorer_arrays["rows"]
        fresh = rows.take(evenly_spaced(normal, len(old) // 2))
        kept = evenly_spaced(np.arange(len(old)), len(old) - len(fresh))
        self.state["rows"][:] = np.concatenate([old[kept], fresh])
        scores = self.model.member_scores(rows, "cpu", 1, learned=True)[:, whole]
        self._take_scale(scores, np.isin(whole, normal))
        self.state["flagged"][order[whole]] = self._flagged(self.model, scores)

    def _flagged(self, model: Model, scores: np.ndarray) -> np.ndarray:
        """Which steps are above the threshold by their scores (V, n) from every view."""
        codes = None if self.code is None else np.repeat(self.code, scores.shape[1])
        return model.divided(np.asarray(model.combine(scores)), codes) > self.threshold

    def _take_scale(self, scores: np.ndarray, normal: np.ndarray) -> None:
        """The scale of training, and a wider one where by that most of the recent steps would be flagged."""
        fresh, old = self.trained.scorer.fit_scale(scores[:, normal]), self.trained.scale
        assert isinstance(fresh, ViewScale)
        assert isinstance(old, ViewScale)
        if self._flagged(self.trained, scores).mean() <= 0.5:
            fresh = old
        self.state["median"][:] = np.maximum(old.median, fresh.median)
        self.state["unit"][:] = np.maximum(old.unit, fresh.unit)
