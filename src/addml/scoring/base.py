"""What all scorers share: their contract, blocks of rows, one score a row from several; and scorers of embeddings."""

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
    """What a scorer is fitted to: the metric space of the best networks, M being the rows they were trained on."""

    center: np.ndarray  # (E, w), mean embedding of M
    scores: np.ndarray  # (E, n), distances of M to the centre
    train: list[np.ndarray]  # rows of M, one list a member
    kept: list[np.ndarray]  # rows of M that distillation keeps, one list a member
    not_anomalous: np.ndarray  # rows that are not labelled as anomalies
    column_weight: np.ndarray  # (d,) 1 for features that count by themselves, 0 for others
    norms: np.ndarray  # of those rows: how far they lie from the middle along their columns
    prepared: Callable[[np.ndarray], np.ndarray]  # rows (k,) -> their features (k, d)
    embed: Callable[[list[np.ndarray]], np.ndarray]  # k rows of every member -> embeddings (E, k, w)
    distance: Distance
    random: np.random.Generator
    anomalies: np.ndarray = np.empty(0, np.int64)  # rows labelled as such
    normals: np.ndarray = np.empty(0, np.int64)  # rows labelled normal
    patches: Callable[[np.ndarray], np.ndarray] | None = None  # images (k,) -> features of all their places, flat
    levels: tuple[tuple[int, int, int], ...] = ()  # channels, height and width of each block of them


class Scorer(Part, ABC):
    """Maps embeddings (E, b, w) to scores (E, b), each row by itself; higher is more anomalous.

    `fit` gives plain arrays, which the model keeps, and `ready` what scoring derives from them once. The defaults are
    those of a scorer that looks at embeddings alone. One that looks at the columns of a row too, `on_columns`, is told
    by `locate` where they lie; it may give several views, each a row of scores, which `scale` turns into one.
    """

    name: ClassVar[str]
    on_columns: ClassVar[bool] = False
    on_patches: ClassVar[bool] = False  # whether it takes the features of all places of an image, not their mean
    scale: Any = property(lambda self: EnsembleScale)  # how the rows of scores become one, or ViewScale
    tile: Any = property(lambda self: 256)  # rows of one product, so that a row's score is the same among any others
    at_once: Any = property(lambda self: 2**30)  # rows of a block that are scored together
    max_threads: Any = property(lambda self: 2**30)  # threads that score at a time
    smoothing: Any = property(lambda self: 1)  # steps of a series over which scores are averaged

    def settings(self) -> dict[str, Any]:
        return dict(to_json(vars(self)))

    def count(self, members: int) -> int:
        """Rows of scores."""
        return members

    def embedded(self, members: int) -> np.ndarray:
        """Which rows of scores are distances of embeddings."""
        return np.ones(members, bool)

    def fit_scale(self, scores: np.ndarray) -> Any:
        """How scores (E, n) of training rows become one a row."""
        return self.scale.fit(scores)

    @abstractmethod
    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """The arrays to keep."""

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """What scoring derives from the arrays once."""
        return arrays

    def locate(self, x: Array, ready: dict[str, Any], matches: SelfMatches | None = None) -> Any:
        """Where features x (b, d) lie along the columns; `matches`, where they are known, are not looked up."""
        return None

    @abstractmethod
    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        """Scores of embeddings z and of where their rows lie."""


def score_rows(
    scorer: Scorer,
    x: Array,
    z: Array,
    ready: dict[str, Any],
    distance: Distance,
    rows: slice,
    overlaps: Overlaps | None = None,
) -> Array:
    """Scores (s, views, b) of a stack of blocks of features x (s, 1, b, d) and of their embeddings z (s, E, b, w).

    The stack holds the rows of the slice; what lies behind these is padding.
    """
    if not scorer.on_columns:
        return scorer.score(z, ready, distance)
    stack, members, block, _ = z.shape
    if block == 1 and scorer.at_once > 1:  # rows that are products of their own are scored together nevertheless
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


# Blocks: a matrix product may round a row differently in another place of the batch's tail, or in a batch of another
# size. Every product therefore gets blocks of one fixed shape, padded with zeros, on one thread; a stack of blocks goes
# through one call, and threads take different stacks.

BLOCK = {"cpu": 256, "accelerator": 16384}  # rows of one product
PIXELS = {"cpu": 2**18, "accelerator": 2**28}  # of a block of images: one image takes as long as a whole block
LEAST_IMAGES = 8
STACK = {"cpu": 32, "accelerator": 1}  # blocks of one call: few calls, so that threads seldom wait for each other


def block_of_images(size: int, device: str) -> int:
    """Images in a block, where an image has so many numbers."""
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

    `compute` maps s blocks (s, 1, b, d), which hold the rows of a slice and padding, to (s, E, b, ...); `write` gets
    the slice and the results (E, rows, ...).
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


# One score a row: the mean of all members, or the strangest of several views.

ROUNDING = 1e-12  # a deviation of logarithms that equal scores may have
LEAST = 1e-12  # of the median score, under which no logarithm is taken
FLAT = 1e-6  # of a view's median: a unit that is smaller is rounding
HIGH = 0.9  # share of the training rows: how far their scores lie above the median there is a view's unit
STRONGEST = 88.0  # e to the power of more is beyond float32, and of no use to a distance of 0
LARGEST = float(np.finfo(np.float32).max) / 4  # whose sums are finite
NOT_FINITE = (
    "scores are not finite: the model, or your own encoder, holds numbers that are too large or too small; "
    "fit and save it again"
)


def _finite(combined: Array) -> Array:
    if not bool(namespace(combined).isfinite(combined).all()):
        raise ValueError(NOT_FINITE)
    return combined


@dataclass(frozen=True)
class EnsembleScale:
    """The mean over members of their standardised log scores; a single member's score stays untouched."""

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

    neutral = property(lambda self: np.exp(self.mean))  # the score (E, 1) of each that leaves the combined one as it is

    def raised(self, scores: Array, by: Array) -> Array:
        """The scores (E, n) that raise the combined score by so much (n,), or its logarithm with a single member."""
        xp, deviation = namespace(scores), as_like(self.deviation, scores) if len(scores) > 1 else 1.0
        with np.errstate(over="ignore"):
            return (scores.clip(0) * xp.exp((deviation * by).clip(-STRONGEST, STRONGEST))).clip(0, LARGEST)

    def combine(self, scores: Array) -> Array:
        """One score a row (n,) from scores (E, n)."""
        if len(scores) == 1:
            return _finite(scores[0])
        xp = namespace(scores)
        logs = xp.log(xp.maximum(scores, as_like(self.floor, scores)))
        logs = (logs - as_like(self.mean, scores)) / as_like(self.deviation, scores)
        return _finite(sum(logs) / len(logs))  # in order: a mean may add a lone row's in another


@dataclass(frozen=True)
class ViewScale:
    """The strangest view, each measured from the median of its training scores, in units of (0.9 quantile - median).

    A row that is ordinary in every view but one is still strange. The result is compressed, sign(z) log(1 + |z|).
    """

    median: np.ndarray  # (V, 1)
    unit: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, high: Sequence[float] | None = None) -> Self:
        """Learn from training scores (V, n); `high` are the quantiles that units come from, where they differ."""
        median = np.median(scores, axis=1, keepdims=True)
        views = zip(scores, median[:, 0], high or (HIGH,) * len(scores), strict=True)
        return cls(median, np.array([[_unit(*view)] for view in views]))

    neutral = property(lambda self: self.median)  # the score (V, 1) of each view that leaves the combined one as it is

    def raised(self, scores: Array, by: Array) -> Array:
        """The scores (V, n) that raise the combined score by so much (n,)."""
        xp = namespace(scores)
        higher = (_compressed(self.measured(scores)) + by).clip(-STRONGEST, STRONGEST)
        with np.errstate(over="ignore"):
            away = as_like(self.unit, scores) * xp.copysign(xp.expm1(abs(higher)), higher)
        return as_like(self.median, scores) + away.clip(-LARGEST, LARGEST)

    def measured(self, scores: Array) -> Array:
        """The scores (V, n) from their medians in their units."""
        return (scores - as_like(self.median, scores)) / as_like(self.unit, scores)

    def combine(self, scores: Array) -> Array:
        """One score a row (n,) from scores (V, n)."""
        return _finite(_compressed(namespace(scores).amax(self.measured(scores), 0)))


def _compressed(x: Array) -> Array:
    xp = namespace(x)
    return xp.copysign(xp.log1p(abs(x)), x)


def _unit(scores: np.ndarray, median: float, high: float) -> float:
    """How far scores (n,) lie above their median at a high quantile.

    That is 0 where nine in ten are equal, as when most rows have twins: the scores above the median then tell. Where
    none is above it, every row beyond it is new, and the unit is 1.
    """
    least = max(FLAT * abs(median), np.finfo(float).tiny)
    unit = float(np.quantile(scores, high)) - median
    if unit <= least:
        above = scores[scores > median + least]
        unit = float(np.quantile(above, high)) - median if len(above) else 1.0
    return unit


# Scorers of embeddings alone: the distance to the centre, to all training rows, or to the nearest of them -----

REFERENCES_AT_ONCE = 4096


def mean_of_nearest(distances: Array, k: int) -> Array:
    """The mean (...) of the k least of distances (..., R), of all where there are fewer; infinity of none."""
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
        if z.ndim > 3:  # block by block: distances to references fill memory soon
            return namespace(z).stack([self.score(block, ready, distance) for block in z])
        total, references = 0.0, ready["references"]
        for start in range(0, references.shape[1], REFERENCES_AT_ONCE):
            total = total + cross_distances(z, references[:, start : start + REFERENCES_AT_ONCE], distance).sum(axis=-1)
        return total / references.shape[1]


@dataclass(repr=False)
class KNN(Scorer):
    """The mean distance to the k nearest of a bounded set of training rows that distillation keeps."""

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
