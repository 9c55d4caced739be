"""The scorers: scores of every member or view, (E, n), of features (n, width) and of their embeddings (E, n, w)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from addml.distances import normalised
from addml.export.graph import LAST, ONE, ZERO, Graph
from addml.export.views import unit, views
from addml.model import MetricModel
from addml.scoring.simple import KNN, Center, Dissimilarity
from addml.scoring.views import Views


def _center(g: Graph, x: str, z: str, model: MetricModel) -> str:
    """Distances to the centre of the training rows."""
    center = model.scorer_arrays["center"][:, None]
    if model.distance == "cosine":
        return g.Sub(ONE, g.ReduceSum(g.Mul(unit(g, z), normalised(center)), LAST, keepdims=0))
    squared = g.ReduceSumSquare(g.Sub(z, center), LAST, keepdims=0)
    return squared if model.distance == "sqeuclidean" else g.Sqrt(squared)


def _dissimilarity(g: Graph, x: str, z: str, model: MetricModel) -> str:
    """Mean distances to all training rows."""
    if "spread" in model.scorer_arrays:
        return g.Add(_center(g, x, z, model), model.scorer_arrays["spread"])
    return g.ReduceMean(_to_references(g, z, model), LAST, keepdims=0)


def _neighbors(g: Graph, x: str, z: str, model: MetricModel) -> str:
    """Mean distances to the k nearest references."""
    k = min(model.scorer.settings()["k"], model.scorer_arrays["references"].shape[1])
    nearest = g.TopK(_to_references(g, z, model), np.array([k]), largest=0, unused=1)
    return g.ReduceMean(nearest, LAST, keepdims=0)


def _to_references(g: Graph, z: str, model: MetricModel) -> str:
    """Distances (E, n, R) to every reference."""
    references = model.scorer_arrays["references"]
    if model.distance == "cosine":
        return g.Sub(ONE, g.MatMul(unit(g, z), normalised(references).mT))
    origin = references.mean(1, keepdims=True)
    z, references = g.Sub(z, origin), references - origin
    products = g.Add(g.MatMul(z, -2 * references.mT), (references**2).sum(-1)[:, None])
    squared = g.Max(g.Add(products, g.ReduceSumSquare(z, LAST)), ZERO)
    return squared if model.distance == "sqeuclidean" else g.Sqrt(squared)


SCORES: dict[type[Any], Callable[[Graph, str, str, MetricModel], str]] = {
    Views: views,
    Center: _center,
    Dissimilarity: _dissimilarity,
    KNN: _neighbors,
}
