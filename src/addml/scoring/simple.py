"""Scorers of embeddings alone: the distance to the centre, to all training rows, or to the nearest of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, namespace
from addml.distances import Distance, center_distances, cross_distances
from addml.parameters import check_whole
from addml.scoring.base import MetricSpace, Scorer, Shapes

REFERENCES_AT_ONCE = 4096


@dataclass(repr=False)
class Center(Scorer):
    """The distance to the centre of the training rows: constant time and memory."""

    name: ClassVar[str] = "center"
    tile = 1

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        return {"center": space.center}

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        return center_distances(z, ready["center"], distance)[0]

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        return {"center": (members, w)}


@dataclass(repr=False)
class Dissimilarity(Scorer):
    """The mean distance to all training rows.

    With squared distances that is the distance to the centre plus the spread of the training rows, in constant
    time. With others the embeddings of all training rows are kept and their distances added up.
    """

    name: ClassVar[str] = "dissimilarity"

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        if space.distance == "sqeuclidean":
            spread = space.scores.mean(axis=1, keepdims=True, dtype=np.float64)
            return {"center": space.center, "spread": spread.astype(space.center.dtype)}
        return {"references": space.embed(space.train)}

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        if "spread" in ready:
            return center_distances(z, ready["center"], distance)[0] + ready["spread"]
        return _one_by_one(self._mean, z, ready["references"], distance)

    def _mean(self, z: Array, references: Array, distance: Distance) -> Array:
        total = 0.0
        for start in range(0, references.shape[1], REFERENCES_AT_ONCE):
            total = total + cross_distances(z, references[:, start : start + REFERENCES_AT_ONCE], distance).sum(axis=-1)
        return total / references.shape[1]

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        if distance == "sqeuclidean":
            return {"center": (members, w), "spread": (members, 1)}
        return {"references": (members, None, w)}


@dataclass(repr=False)
class KNN(Scorer):
    """The mean distance to the k nearest of a bounded set of training rows that distillation keeps."""

    k: int = 20
    references: int = 2048
    name: ClassVar[str] = "knn"

    def check(self) -> None:
        """Raise ValueError for a parameter that has no meaning."""
        check_whole("k", self.k)
        check_whole("references", self.references)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        size = min(self.references, *(len(kept) for kept in space.kept))
        chosen = [np.sort(space.random.choice(kept, size, replace=False)) for kept in space.kept]
        return {"references": space.embed(chosen)}

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        return _one_by_one(self._nearest, z, ready["references"], distance)

    def _nearest(self, z: Array, references: Array, distance: Distance) -> Array:
        distances, k = cross_distances(z, references, distance), min(self.k, references.shape[1])
        if isinstance(distances, np.ndarray):
            nearest = np.sort(np.partition(distances, k - 1, axis=-1)[..., :k], axis=-1)
        else:
            nearest = namespace(distances).topk(distances, k, largest=False).values
        return nearest.mean(axis=-1)

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        return {"references": (members, None, w)}


def _one_by_one(
    score: Callable[[Array, Array, Distance], Array], z: Array, references: Array, distance: Distance
) -> Array:
    """Scores of a stack of blocks (s, E, b, w), block by block: distances to references fill memory soon."""
    if z.ndim == 3:
        return score(z, references, distance)
    return namespace(z).stack([score(block, references, distance) for block in z])
