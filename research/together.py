"""Many detectors fitted in one training call, along the member axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from addml.compute import max_threads, resolve_device
from addml.config import Config
from addml.detector import ADDML
from addml.fit import Fit, fit_many
from addml.inputs import LazyRows
from addml.model import Model


@dataclass(frozen=True)
class Fitted:
    """One of the fits; it scores exactly like a detector fitted alone."""

    model: Model
    anomaly_scores_: np.ndarray
    device: str
    threads: int

    def anomaly_score(self, X: np.ndarray) -> np.ndarray:
        """How anomalous each row of X is."""
        return self.model.scores(LazyRows(X, self.model.vectorizer.prepare), self.device, self.threads)


def fit_together(detectors: Sequence[ADDML], tables: Sequence[np.ndarray]) -> list[Fitted]:
    """Fit detectors that differ only in `addml.fit.OWN`, each to its own numeric table."""
    configs = [Config.resolve(detector.get_params(deep=False)) for detector in detectors]
    models = fit_many([Fit(config, X) for config, X in zip(configs, tables, strict=True)])
    device, threads = resolve_device(detectors[0].device), max_threads(detectors[0].n_jobs)
    return [Fitted(model, model.training.values, device, threads) for model in models]
