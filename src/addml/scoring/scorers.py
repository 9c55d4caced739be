"""Scorers: how far an embedding lies from the normal rows. Higher is more anomalous.

A scorer is fitted to the metric space of the best networks, keeps plain arrays with the member axis first, and
maps embeddings (E, b, w), or a stack of such blocks, to scores (E, b), each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from addml.arrays import Array, namespace
from addml.geometry import Distance, center_distances, cross_distances

REFERENCES_AT_ONCE = 4096
Shapes = dict[str, tuple[int | None, ...]]  # names and shapes of a scorer's arrays, None for any length


class MetricSpace(NamedTuple):
    """What a scorer is fitted to: the centre of M, the distances of M to it, the rows kept, and any embedding."""

    center: np.ndarray  # (E, w)
    scores: np.ndarray  # (E, n)
    kept: list[np.ndarray]  # places in M that distillation keeps, one list a member
    embed: Callable[[np.ndarray], np.ndarray]  # places (E, k) in M -> embeddings (E, k, w)
    distance: Distance
    random: np.random.Generator


class Scorer(Protocol):
    """A way to score; `fit` gives its arrays, `score` uses them, `shapes` says what they are."""

    name: ClassVar[str]

    def settings(self) -> dict[str, Any]: ...
    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]: ...
    def score(self, z: Array, arrays: dict[str, Array], distance: Distance) -> Array: ...
    def shapes(self, distance: Distance, members: int, w: int) -> Shapes: ...


@dataclass(frozen=True)
class Center:
    """The distance to the centre of the training rows: constant time and memory."""

    name: ClassVar[str] = "center"

    def settings(self) -> dict[str, Any]:
        """What a user may choose: nothing here."""
        return asdict(self)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep the centre."""
        return {"center": space.center}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance) -> Array:
        """Distances (E, b) of embeddings (E, b, w) to the centre."""
        return center_distances(z, arrays["center"], distance)[0]

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """One centre a member."""
        return {"center": (members, w)}


@dataclass(frozen=True)
class Dissimilarity:
    """The mean distance to all training rows.

    With squared distances that is the distance to the centre plus the spread of the training rows, in constant
    time. With others the embeddings of all training rows are kept and their distances added up.
    """

    name: ClassVar[str] = "dissimilarity"

    def settings(self) -> dict[str, Any]:
        """What a user may choose: nothing here."""
        return asdict(self)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep the centre and the spread, or every embedding."""
        if space.distance == "sqeuclidean":
            spread = space.scores.mean(axis=1, keepdims=True, dtype=np.float64)
            return {"center": space.center, "spread": spread.astype(space.center.dtype)}
        members, n = space.scores.shape
        return {"references": space.embed(np.broadcast_to(np.arange(n), (members, n)))}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance) -> Array:
        """Mean distances (E, b) of embeddings (E, b, w) to the training rows."""
        if "spread" in arrays:
            return center_distances(z, arrays["center"], distance)[0] + arrays["spread"]
        return _one_by_one(self._mean, z, arrays["references"], distance)

    def _mean(self, z: Array, references: Array, distance: Distance) -> Array:
        total = 0.0
        for start in range(0, references.shape[1], REFERENCES_AT_ONCE):
            total = total + cross_distances(z, references[:, start : start + REFERENCES_AT_ONCE], distance).sum(axis=-1)
        return total / references.shape[1]

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """One centre and one spread a member, or any number of references."""
        if distance == "sqeuclidean":
            return {"center": (members, w), "spread": (members, 1)}
        return {"references": (members, None, w)}


@dataclass(frozen=True)
class Neighbors:
    """The mean distance to the k nearest of a bounded set of training rows that distillation keeps."""

    k: int = 20
    references: int = 2048
    name: ClassVar[str] = "knn"

    def __post_init__(self) -> None:
        for argument, value in asdict(self).items():
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Neighbors({argument}={value!r}): give a whole number of at least 1")

    def settings(self) -> dict[str, Any]:
        """k and the number of references."""
        return {name: int(value) for name, value in asdict(self).items()}

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Draw the references among the kept rows and keep their embeddings."""
        size = min(self.references, *(len(kept) for kept in space.kept))
        chosen = [np.sort(space.random.choice(kept, size, replace=False)) for kept in space.kept]
        return {"references": space.embed(np.stack(chosen))}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance) -> Array:
        """Mean distances (..., b) of embeddings (..., b, w) to their k nearest references."""
        return _one_by_one(self._nearest, z, arrays["references"], distance)

    def _nearest(self, z: Array, references: Array, distance: Distance) -> Array:
        distances, k = cross_distances(z, references, distance), min(self.k, references.shape[1])
        if isinstance(distances, np.ndarray):
            nearest = np.sort(np.partition(distances, k - 1, axis=-1)[..., :k], axis=-1)
        else:
            nearest = namespace(distances).topk(distances, k, largest=False).values
        return nearest.mean(axis=-1)

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """Any number of references."""
        return {"references": (members, None, w)}


def _one_by_one(
    score: Callable[[Array, Array, Distance], Array], z: Array, references: Array, distance: Distance
) -> Array:
    """Scores of a stack of blocks (s, E, b, w), block by block: distances to references fill memory soon."""
    if z.ndim == 3:
        return score(z, references, distance)
    return namespace(z).stack([score(block, references, distance) for block in z])


SCORERS: dict[str, type[Center] | type[Dissimilarity] | type[Neighbors]] = {
    scorer.name: scorer for scorer in (Center, Dissimilarity, Neighbors)
}
