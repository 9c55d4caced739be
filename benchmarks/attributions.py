"""The rivals of `explain`: attribution by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from addml import ADDML
from addml.scoring.views import ColumnDistances

STEPS = 50


def score_in_torch(detector: ADDML) -> Callable[[Any], Any]:
    """The score of prepared rows (n, d) in torch, with gradients; float32 columns in place of small integers."""
    import torch

    model = detector.model_
    encoder = model.encoder.with_weights(torch.from_numpy(model.encoder.weights.copy()))
    arrays = {name: torch.from_numpy(np.array(array)) for name, array in model.scorer_arrays.items()}
    ready, scale = model.scorer.ready(arrays, model.distance), model.scale
    assert scale is not None
    nobody = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)

    def score(x: Any) -> Any:
        located = None
        if model.scorer.name == "views":  # the tails are made of steps, which have no gradient
            away = (abs(x[:, None] - ready["rows"]) * arrays["column_weight"]).sum(-1)
            located = ColumnDistances(nobody, away, torch.zeros(len(x)), ready["tails"].score(x.detach(), nobody[0]))
        z = x[None]
        for matrix, bias in encoder.layers:  # embed() works in place, which has no gradient
            z = torch.tanh(z @ matrix + bias)
        return scale.combine(model.scorer.score(z, ready, model.distance, located).double())

    return score


def relocated_one_by_one(detector: ADDML, rows: np.ndarray) -> np.ndarray:
    """How far the score falls when one column takes its usual value."""
    features, model = detector.model_.vectorizer.prepare(rows), detector.model_
    scores, falls = model.scores(features, "cpu", 1), np.empty(rows.shape)
    for column in range(rows.shape[1]):
        relocated = features.copy()
        relocated[:, column] = detector.baseline_[column]
        falls[:, column] = scores - model.scores(relocated, "cpu", 1)
    return falls


def gradient_times_input(detector: ADDML, rows: np.ndarray) -> np.ndarray:
    """The gradient at each row times its difference from the usual row."""
    import torch

    features, score, parts = detector.model_.vectorizer.prepare(rows), score_in_torch(detector), []
    for start in range(0, len(features), 256):
        x = torch.from_numpy(features[start : start + 256].copy()).requires_grad_()
        (gradient,) = torch.autograd.grad(score(x).sum(), x)
        parts.append(gradient.numpy() * (features[start : start + 256] - detector.baseline_))
    return np.concatenate(parts)


def integrated_gradients(detector: ADDML, rows: np.ndarray) -> np.ndarray:
    """captum's integrated gradients from the usual row, in 50 steps."""
    import torch
    from captum.attr import IntegratedGradients

    features, baseline = detector.model_.vectorizer.prepare(rows), torch.from_numpy(detector.baseline_.copy())[None]
    method, parts = IntegratedGradients(score_in_torch(detector)), []
    for start in range(0, len(features), 64):
        x = torch.from_numpy(features[start : start + 64].copy())
        parts.append(method.attribute(x, baseline, n_steps=STEPS, internal_batch_size=256).detach().numpy())
    return np.concatenate(parts)


__all__ = ["gradient_times_input", "integrated_gradients", "relocated_one_by_one", "score_in_torch"]
