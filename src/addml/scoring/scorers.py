"""Scorers: how far an embedding lies from the normal rows. Higher is more anomalous.

A scorer is fitted to the metric space of the best networks, keeps plain arrays, and maps embeddings (E, b, w), or a
stack of such blocks, to scores (E, b), each row by itself. One that looks at the rows before their encoding too, or
from several views, gives as many rows of scores as it has views; `scale` says how they become one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral
from types import EllipsisType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from addml.arrays import Array, as_like, namespace
from addml.distances import Distance, center_distances, cross_distances
from addml.scoring.scale import MemberScale, ViewScale
from addml.scoring.self_matches import Overlaps, Own
from addml.scoring.views import Views

REFERENCES_AT_ONCE = 4096
Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows (k,), by how much some features change (k, f), those (f,)
# Names and shapes of a scorer's arrays: None is any length of at least one, ... any at all, a name always the same one,
# "inputs" those of the encoder.
Shapes = dict[str, tuple[int | str | EllipsisType | None, ...]]


class MetricSpace(NamedTuple):
    """What a scorer is fitted to: the centre of M, the distances of M to it, the rows kept, and any embedding."""

    center: np.ndarray  # (E, w)
    scores: np.ndarray  # (E, n)
    train: list[np.ndarray]  # rows of M, one list a member
    kept: list[np.ndarray]  # rows of M that distillation keeps, one list a member
    usual: np.ndarray  # rows not known to be anomalies
    column_weight: np.ndarray  # (d,) 1 for features that count by themselves, 0 for others
    norms: np.ndarray  # of the usual rows: how far they lie from the middle along their columns
    prepared: Callable[[np.ndarray], np.ndarray]  # rows (k,) -> their features (k, d)
    embed: Callable[[list[np.ndarray]], np.ndarray]  # k rows of every member -> embeddings (E, k, w)
    distance: Distance
    random: np.random.Generator
    anomalies: np.ndarray = np.empty(0, np.int64)  # rows labelled as such
    normals: np.ndarray = np.empty(0, np.int64)  # rows labelled normal


class Scorer(Protocol):
    """A way to score; `fit` gives its arrays, `score` uses them, `shapes` says what they are."""

    name: ClassVar[str]

    @property
    def scale(self) -> type[MemberScale] | type[ViewScale]: ...  # how its rows of scores become one
    @property
    def at_once(self) -> int: ...  # rows of a block that are scored together
    @property
    def most_threads(self) -> int: ...  # that score at a time
    def settings(self) -> dict[str, Any]: ...
    @property
    def tile(self) -> int: ...  # rows from which on a row's score is the same in any number of them
    def count(self, members: int) -> int: ...  # rows of scores
    def embedded(self, members: int) -> np.ndarray: ...  # which rows of scores are of embeddings, not of plain columns
    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]: ...
    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]: ...
    def place(self, x: Array, ready: dict[str, Any], own: Own | None = None) -> Any: ...
    def moved(self, placed: Any, x: Array, parts: list[Piece], ready: dict[str, Any], size: int) -> Any: ...
    def score(self, z: Array, ready: dict[str, Any], distance: Distance, placed: Any = None) -> Array: ...
    def shapes(self, distance: Distance, members: int, w: int) -> Shapes: ...


class OfEmbeddings:
    """A scorer that looks at the embeddings alone, through one view."""

    scale: ClassVar[type[MemberScale]] = MemberScale
    tile: ClassVar[int] = 256
    at_once: ClassVar[int] = 2**30  # all of them
    most_threads: ClassVar[int] = 2**30

    def settings(self) -> dict[str, Any]:
        """What a user may choose: nothing, unless a subclass says so."""
        return {}

    def count(self, members: int) -> int:
        """Rows of scores: one a member."""
        return members

    def embedded(self, members: int) -> np.ndarray:
        """All rows of scores."""
        return np.ones(members, bool)

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """The arrays as they are."""
        return arrays

    def place(self, x: Array, ready: dict[str, Any], own: Own | None = None) -> None:
        """Nothing: the rows before their encoding do not count."""

    def moved(self, placed: Any, x: Array, parts: list[Piece], ready: dict[str, Any], size: int) -> None:
        """Nothing either."""


def score_rows(
    scorer: Scorer,
    x: Array,
    z: Array,
    ready: dict[str, Any],
    distance: Distance,
    rows: slice,
    overlaps: Overlaps | None = None,
) -> Array:
    """Scores (s, views, b) of a stack of blocks of prepared rows (s, 1, b, d) and of their embeddings (s, E, b, w).

    They are those of all rows that the slice says; what lies behind these in the stack is filling.
    """
    if isinstance(scorer, OfEmbeddings):
        return scorer.score(z, ready, distance)
    (stack, members, block, _) = z.shape
    scores = as_like(np.zeros((stack, scorer.count(members), block)), z)
    size, count = min(scorer.at_once, block) if isinstance(z, np.ndarray) else block, rows.stop - rows.start
    for start in range(0, count, size):
        one, first, filling = start // block, start % block, min(size, count - start)
        part, filled = slice(first, first + size), slice(first, first + filling)
        whole = slice(rows.start + start, rows.start + start + filling)
        own = None if overlaps is None else overlaps.part(whole, x)
        placed = scorer.place(x[one, 0, filled], ready, own)
        scores[one, :, filled] = scorer.score(z[one, :, part], ready, distance, placed)
    return scores


@dataclass(frozen=True)
class Center(OfEmbeddings):
    """The distance to the centre of the training rows: constant time and memory."""

    name: ClassVar[str] = "center"
    tile: ClassVar[int] = 1

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep the centre."""
        return {"center": space.center}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance, placed: Any = None) -> Array:
        """Distances (E, b) of embeddings (E, b, w) to the centre."""
        return center_distances(z, arrays["center"], distance)[0]

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """One centre a member."""
        return {"center": (members, w)}


@dataclass(frozen=True)
class Dissimilarity(OfEmbeddings):
    """The mean distance to all training rows.

    With squared distances that is the distance to the centre plus the spread of the training rows, in constant
    time. With others the embeddings of all training rows are kept and their distances added up.
    """

    name: ClassVar[str] = "dissimilarity"

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep the centre and the spread, or every embedding."""
        if space.distance == "sqeuclidean":
            spread = space.scores.mean(axis=1, keepdims=True, dtype=np.float64)
            return {"center": space.center, "spread": spread.astype(space.center.dtype)}
        return {"references": space.embed(space.train)}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance, placed: Any = None) -> Array:
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
class Neighbors(OfEmbeddings):
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
        return {"references": space.embed(chosen)}

    def score(self, z: Array, arrays: dict[str, Array], distance: Distance, placed: Any = None) -> Array:
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


SCORERS: dict[str, type[Center] | type[Dissimilarity] | type[Neighbors] | type[Views]] = {
    scorer.name: scorer for scorer in (Views, Center, Dissimilarity, Neighbors)
}
