"""The stages that all detectors for tables share: features, embeddings, one score of many, its probability."""

from __future__ import annotations

import numpy as np

from addml.decisions.probability import Probability
from addml.encoders.base import LEAK
from addml.encoders.mlp import MLPNetwork
from addml.export.graph import DOUBLE, FIRST, FLOAT, INT64, LAST, Graph
from addml.preprocessing.scaling import FARTHEST, Features
from addml.scoring.base import EnsembleScale, ViewScale

ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {  # as operators with their attributes
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": LEAK}),
    "elu": ("Elu", {}),
    "linear": ("Identity", {}),
}


def prepared(g: Graph, X: str, features: Features) -> str:
    """Features (n, width), float32, of numbers (n, d), float64 with NaN for gaps."""
    missing = g.IsNaN(X)
    values = g.Where(missing, features.median, X)
    lowest = np.where(features.sides > 0, features.median, -np.inf)
    highest = np.where(features.sides < 0, features.median, np.inf)
    values = g.Min(g.Max(values, lowest), highest)
    values = g.Concat(values, g.Cast(g.Gather(missing, features.gaps, axis=1), to=DOUBLE), axis=1)
    half = np.float64(0.5)  # of all three, for the same quotient: the difference of two numbers may be beyond float64
    values = g.Div(g.Sub(g.Mul(values, half), half * features.mean), half * features.scale)
    x = g.Clip(g.Cast(values, to=FLOAT), np.float32(-FARTHEST), np.float32(FARTHEST))
    return _bent(g, x, features) if features.knee[0] else x


def _bent(g: Graph, x: str, features: Features) -> str:
    """Robust features, which grow like a logarithm and are then standardised."""
    knee, shift, reach = (part.astype(np.float32) for part in (features.knee, features.shift, features.reach))
    size = g.Cast(g.Div(g.Abs(x), knee), to=DOUBLE)  # ONNX has no log1p, whose small numbers float32 would lose
    size = g.Mul(g.Cast(g.Log(g.Add(size, np.float64(1))), to=FLOAT), knee)
    return g.Div(g.Sub(g.Mul(g.Sign(x), size), shift), reach)


def embedded(g: Graph, x: str, encoder: MLPNetwork) -> str:
    """Embeddings (E, n, w) of features (n, width)."""
    for (matrix, bias), name in zip(encoder.layers, encoder.activations, strict=True):
        operator, attributes = ACTIVATIONS[name]
        x = getattr(g, operator)(g.Add(g.MatMul(x, matrix), bias), **attributes)
    return x


def combined(g: Graph, scores: str, scale: EnsembleScale | ViewScale) -> str:
    """One score (n,), float64, from those of all members or views (E, n)."""
    scores = g.Cast(scores, to=DOUBLE)
    if isinstance(scale, ViewScale):
        strangest = g.ReduceMax(g.Div(g.Sub(scores, scale.median), scale.unit), FIRST, keepdims=0)
        return g.Mul(g.Sign(strangest), g.Log(g.Add(g.Abs(strangest), np.float64(1))))
    if len(scale.floor) == 1:
        return g.Squeeze(scores, FIRST)
    logs = g.Div(g.Sub(g.Log(g.Max(scores, scale.floor)), scale.mean), scale.deviation)
    return g.ReduceMean(logs, FIRST, keepdims=0)


def probability(g: Graph, score: str, curve: Probability) -> str:
    """The curve's value (n,) at each score (n,): straight between its points, level beyond them."""
    steps, rises = np.append(np.diff(curve.scores), 1.0), np.append(np.diff(curve.values), 0.0)
    score = g.Max(score, curve.scores[0])
    passed = g.Cast(g.GreaterOrEqual(g.Unsqueeze(score, LAST), curve.scores), to=FLOAT)
    last = g.Sub(g.Cast(g.ReduceSum(passed, LAST, keepdims=0), to=INT64), np.int64(1))
    share = g.Div(g.Sub(score, g.Gather(curve.scores, last)), g.Gather(steps, last))
    return g.Add(g.Gather(curve.values, last), g.Mul(share, g.Gather(rises, last)))
