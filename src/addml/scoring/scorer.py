"""The contract of scorers, scoring in blocks, combining scores into one per row; and the scorers of embeddings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from addml.arrays import Array, as_like, namespace, to_numpy
from addml.compute import in_threads, on_device
from addml.distances import Distance, center_distances, cross_distances
from addml.parameters import Part, check_whole, to_json
from addml.scoring.references import Overlaps, SelfMatches


class MetricSpace(NamedTuple):
    """What scorers are fitted to: the metric space of the best networks. M are the rows they were trained on."""

    center: np.ndarray  # (E, w), mean embedding of M
    scores: np.ndarray  # (E, n), distances of M to the centre
    train: list[np.ndarray]  # rows of M, one list per member
    kept: list[np.ndarray]  # rows of M that distillation keeps, one list per member
    not_anomalous: np.ndarray  # rows not labelled as anomalies
    column_weight: np.ndarray  # (d,) 1 for features that count as columns, 0 for others
    norms: np.ndarray  # of those rows: their distance from the middle along the columns
    prepared: Callable[[np.ndarray], np.ndarray]  # rows (k,) -> their features (k, d)
    embed: Callable[[list[np.ndarray]], np.ndarray]  # k rows of every member -> embeddings (E, k, w)
    distance: Distance
    random: np.random.Generator
    anomalies: np.ndarray = np.empty(0, np.int64)  # rows labelled as such
    normals: np.ndarray = np.empty(0, np.int64)  # rows labelled normal
    patches: Callable[[np.ndarray], np.ndarray] | None = None  # images (k,) -> features of all patches, flat
    levels: tuple[tuple[int, int, int], ...] = ()  # channels, height and width of each block of patches


class Scorer(Part, ABC):
    """Maps embeddings (E, b, w) to scores (E, b), each row by itself; higher is more anomalous.

    `fit` returns plain arrays for the model to keep; `ready` derives from them what scoring needs. The defaults suit
    scorers of embeddings. With `on_columns`, `locate` first finds where rows lie along the columns, and there may be
    several views, each a row of scores, which `scale` combines.
    """

    name: ClassVar[str]
    on_columns: ClassVar[bool] = False
    on_patches: ClassVar[bool] = False  # takes the features of all patches of an image, not their mean
    scale: Any = property(lambda self: EnsembleScale)  # combines the rows of scores; or ViewScale
    tile: Any = 256  # rows per matrix product: fixed, so that a score does not depend on the batch
    at_once: Any = 2**30  # rows of a block scored together
    max_threads: Any = 2**30  # threads that score at a time
    smoothing: Any = 1  # steps of a series over which scores are averaged

    def settings(self) -> dict[str, Any]:
        return dict(to_json(vars(self)))

    def count(self, members: int) -> int:
        """Number of rows of scores."""
        return members

    def embedded(self, members: int) -> np.ndarray:
        """Which rows of scores are distances of embeddings."""
        return np.ones(members, bool)

    def fit_scale(self, scores: np.ndarray) -> Any:
        """The scale that combines scores, fitted to those of training rows (E, n)."""
        return self.scale.fit(scores)

    @abstractmethod
    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """The arrays to keep."""

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """The arrays, and what scoring derives from them."""
        return arrays

    def locate(self, x: Array, ready: dict[str, Any], matches: SelfMatches | None = None) -> Any:
        """Where features x (b, d) lie along the columns; `matches` are looked up unless given."""
        return None

    @abstractmethod
    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        """Scores of embeddings z, with what `locate` found."""


def score_rows(
    scorer: Scorer,
    x: Array,
    z: Array,
    ready: dict[str, Any],
    distance: Distance,
    rows: slice,
    overlaps: Overlaps | None = None,
) -> Array:
    """Scores (s, views, b) of a stack of blocks of features x (s, 1, b, d) with embeddings z (s, E, b, w).

    The stack holds the `rows`, then padding.
    """
    if not scorer.on_columns:
        return scorer.score(z, ready, distance)
    stack, members, block, _ = z.shape
    if block == 1 and scorer.at_once > 1:  # one row per product, but scored together
        located = scorer.locate(x[:, 0, 0], ready, None if overlaps is None else overlaps.part(rows, x))
        return scorer.score(z[:, :, 0].swapaxes(0, 1), ready, distance, located).T[..., None]
    scores = as_like(np.zeros((stack, scorer.count(members), block)), z)
    size, count = min(scorer.at_once, block) if isinstance(z, np.ndarray) else block, rows.stop - rows.start
    for start in range(0, count, size):
        one, first, filling = start // block, start % block, min(size, count - start)
        part, filled = slice(first, first + size), slice(first, first + filling)
        whole = slice(rows.start + start, rows.start + start + filling)
        matches = None if overlaps is None else overlaps.part(whole, x)
        located = scorer.locate(x[one, 0, filled], ready, matches)
        scores[one, :, filled] = scorer.score(z[one, :, part], ready, distance, located)
    return scores


# A matrix product may round a row differently at another position or in a batch of another size. So every product gets
# blocks of one fixed shape, padded with zeros, on one thread. One call takes a stack of blocks; threads take different
# stacks.

BLOCK = {"cpu": 256, "accelerator": 16384}  # rows per product
PIXELS = {"cpu": 2**18, "accelerator": 2**28}  # per block of images
LEAST_IMAGES = 8
STACK = {"cpu": 32, "accelerator": 1}  # blocks per call: with few calls, threads seldom wait for each other


def block_of_images(size: int, device: str) -> int:
    """Images per block, for images of `size` numbers."""
    kind = "cpu" if device == "cpu" else "accelerator"
    return int(min(BLOCK[kind], max(LEAST_IMAGES, 2 ** int(np.log2(PIXELS[kind] / size)))))


def in_blocks(
    rows: Any,
    compute: Callable[[Any, slice], Any],
    write: Callable[[slice, np.ndarray], None],
    device: str,
    threads: int,
    block: int | None = None,
) -> None:
    """Compute the results of rows (inputs.Rows) stack by stack, in blocks of one size.

    `compute` maps s blocks (s, 1, b, d), the rows of a slice and padding, to (s, E, b, ...); `write` gets the slice and
    the results (E, rows, ...).
    """
    kind = "cpu" if device == "cpu" else "accelerator"
    block = block or BLOCK[kind]
    numbers = max(block * math.prod(rows.shape[1:]), 1)
    size = block * min(STACK[kind], max(1, STACK[kind] * PIXELS[kind] // numbers))  # fewer blocks of large rows

    def work(stack: int) -> None:
        part = rows.slice(stack * size, size)
        own = slice(stack * size, stack * size + len(part))
        filled = np.zeros((-(-len(part) // block) * block, part.shape[1]), part.dtype)
        filled[: len(part)] = part
        result = to_numpy(compute(on_device(filled.reshape(-1, 1, block, part.shape[1]), device), own))
        result = np.moveaxis(result, 1, 0).reshape(result.shape[1], -1, *result.shape[3:])
        write(own, result[:, : len(part)])

    stacks = -(-rows.shape[0] // size)
    in_threads(work, stacks, min(threads, stacks) if device == "cpu" else 1)


ROUNDING = 1e-12  # standard deviation of logarithms that is only rounding
LEAST = 1e-12  # of the median score: the floor for logarithms
FLAT = 1e-6  # of a view's median: a smaller unit is only rounding
HIGH = 0.9  # a view's unit is the distance from the median to this quantile of the training scores
STRONGEST = 88.0  # exp of more overflows float32
LARGEST = float(np.finfo(np.float32).max) / 4  # sums of these stay finite


def _finite(combined: Array) -> Array:
    if not bool(namespace(combined).isfinite(combined).all()):
        raise ValueError("scores are not finite: the model or your encoder has too large or small numbers; fit again")
    return combined


@dataclass(frozen=True)
class EnsembleScale:
    """The mean of the members' standardised log scores; the score of a single member stays as it is."""

    floor: np.ndarray  # (E, 1)
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray) -> Self:
        middle = np.median(scores, axis=1, keepdims=True)
        middle = np.where(middle > 0, middle, scores.mean(axis=1, keepdims=True))
        lowest = np.maximum(LEAST * middle, np.finfo(float).tiny)
        logs = np.log(np.maximum(scores, lowest))
        deviation = logs.std(axis=1, keepdims=True)
        return cls(lowest, logs.mean(axis=1, keepdims=True), np.where(deviation > ROUNDING, deviation, 1.0))

    neutral = property(lambda self: np.exp(self.mean))  # member scores (E, 1) that leave the mean as it is

    def raised(self, scores: Array, by: Array) -> Array:
        """Scores (E, n) whose combined score is higher by `by` (n,); with a single member, its logarithm is."""
        xp, deviation = namespace(scores), as_like(self.deviation, scores) if len(scores) > 1 else 1.0
        with np.errstate(over="ignore"):
            return (scores.clip(0) * xp.exp((deviation * by).clip(-STRONGEST, STRONGEST))).clip(0, LARGEST)

    def combine(self, scores: Array) -> Array:
        """One score per row (n,) from scores (E, n)."""
        if len(scores) == 1:
            return _finite(scores[0])
        xp = namespace(scores)
        logs = xp.log(xp.maximum(scores, as_like(self.floor, scores)))
        logs = (logs - as_like(self.mean, scores)) / as_like(self.deviation, scores)
        return _finite(sum(logs) / len(logs))  # in order: `mean` may add up a single row in another


@dataclass(frozen=True)
class ViewScale:
    """The highest view, each as (score - median) / (0.9 quantile - median) of its training scores.

    So one view is enough to make a row anomalous. The result is compressed: sign(z) log(1 + |z|).
    """

    median: np.ndarray  # (V, 1)
    unit: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, high: Sequence[float] | None = None) -> Self:
        """Fit to training scores (V, n); `high` replaces the quantiles that units come from."""
        median = np.median(scores, axis=1, keepdims=True)
        views = zip(scores, median[:, 0], high or (HIGH,) * len(scores), strict=True)
        return cls(median, np.array([[_unit(*view)] for view in views]))

    neutral = property(lambda self: self.median)  # view scores (V, 1) that count as ordinary

    def raised(self, scores: Array, by: Array) -> Array:
        """Scores (V, n) whose combined score is higher by `by` (n,)."""
        xp = namespace(scores)
        higher = (_compressed(self.measured(scores)) + by).clip(-STRONGEST, STRONGEST)
        with np.errstate(over="ignore"):
            away = as_like(self.unit, scores) * xp.copysign(xp.expm1(abs(higher)), higher)
        return as_like(self.median, scores) + away.clip(-LARGEST, LARGEST)

    def measured(self, scores: Array) -> Array:
        """Scores (V, n) as distances from their medians, in their units."""
        return (scores - as_like(self.median, scores)) / as_like(self.unit, scores)

    def combine(self, scores: Array) -> Array:
        """One score per row (n,) from scores (V, n)."""
        return _finite(_compressed(namespace(scores).amax(self.measured(scores), 0)))


def _compressed(x: Array) -> Array:
    xp = namespace(x)
    return xp.copysign(xp.log1p(abs(x)), x)


def _unit(scores: np.ndarray, median: float, high: float) -> float:
    """The distance from the median of scores (n,) to a high quantile.

    If that is 0, as when most rows have duplicates, it is the quantile of the scores above the median; without such
    scores it is 1.
    """
    least = max(FLAT * abs(median), np.finfo(float).tiny)
    unit = float(np.quantile(scores, high)) - median
    if unit <= least:
        above = scores[scores > median + least]
        unit = float(np.quantile(above, high)) - median if len(above) else 1.0
    return unit


REFERENCES_AT_ONCE = 4096


def mean_of_nearest(distances: Array, k: int) -> Array:
    """The mean (...) of the k smallest of distances (..., R), or of all if there are fewer; infinity if R is 0."""
    k = min(k, distances.shape[-1])
    if not k:
        return namespace(distances).full_like(distances.sum(-1), np.inf)
    if not isinstance(distances, np.ndarray):
        return namespace(distances).topk(distances, k, largest=False).values.mean(axis=-1)
    return np.asarray(np.sort(np.partition(distances, k - 1, axis=-1)[..., :k], axis=-1).mean(axis=-1))


@dataclass(repr=False)
class Center(Scorer):
    """The distance to the centre of the training rows: constant time and memory."""

    name: ClassVar[str] = "center"
    tile = 1

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        return {"center": space.center}

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        return center_distances(z, ready["center"], distance)[0]


@dataclass(repr=False)
class Dissimilarity(Scorer):
    """The mean distance to all training rows.

    For squared distances that is the distance to the centre plus the spread of the training rows, in constant time. For
    others, the embeddings of all training rows are kept.
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
        if z.ndim > 3:  # block by block, to save memory
            return namespace(z).stack([self.score(block, ready, distance) for block in z])
        total, references = 0.0, ready["references"]
        for start in range(0, references.shape[1], REFERENCES_AT_ONCE):
            total = total + cross_distances(z, references[:, start : start + REFERENCES_AT_ONCE], distance).sum(axis=-1)
        return total / references.shape[1]


@dataclass(repr=False)
class KNN(Scorer):
    """The mean distance to the k nearest of at most `references` training rows that distillation keeps."""

    k: int = 20
    references: int = 2048
    name: ClassVar[str] = "knn"

    def check(self) -> None:
        check_whole("k", self.k)
        check_whole("references", self.references)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        size = min(self.references, *(len(kept) for kept in space.kept))
        chosen = [np.sort(space.random.choice(kept, size, replace=False)) for kept in space.kept]
        return {"references": space.embed(chosen)}

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        if z.ndim > 3:
            return namespace(z).stack([self.score(block, ready, distance) for block in z])
        return mean_of_nearest(cross_distances(z, ready["references"], distance), self.k)
