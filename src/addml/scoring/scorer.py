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

Ready = dict[str, Any]  # the arrays of a scorer, prepared for scoring


class MetricSpace(NamedTuple):
    """The metric space of the best networks, to which scorers are fitted; M are the rows they were trained on."""

    center: np.ndarray  # (E, w), mean embedding of M
    scores: np.ndarray  # (E, n), distances of M to the centre
    train: list[np.ndarray]  # rows of M, one list per member
    kept: list[np.ndarray]  # rows of M that distillation keeps, one list per member
    not_anomalous: np.ndarray  # rows not labelled as anomalies
    column_weight: np.ndarray  # (d,) 1 for features that count as columns, 0 for others
    norms: np.ndarray  # distances of those rows from the middle, along the columns
    prepared: Callable[[np.ndarray], np.ndarray]  # rows (k,) -> their features (k, d)
    embed: Callable[[list[np.ndarray]], np.ndarray]  # k rows of every member -> embeddings (E, k, w)
    distance: Distance
    random: np.random.Generator
    anomalies: np.ndarray = np.empty(0, np.int64)  # rows labelled as anomalies
    normals: np.ndarray = np.empty(0, np.int64)  # rows labelled normal
    patches: Callable[[np.ndarray], np.ndarray] | None = None  # images (k,) -> features of all patches, flat
    levels: tuple[tuple[int, int, int], ...] = ()  # channels, height and width of each block of patches


class Scorer(Part, ABC):
    """Maps embeddings (E, b, w) to scores (E, b), each row by itself; higher is more anomalous.

    `fit` returns plain arrays for the model to store; `ready` derives from them what scoring needs. The defaults suit
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
        """The arrays that the model stores."""

    def ready(self, arrays: dict[str, Array], distance: Distance) -> Ready:
        """The arrays, with what scoring derives from them."""
        return arrays

    def locate(self, x: Array, ready: Ready, matches: SelfMatches | None = None) -> Any:
        """Where features x (b, d) lie along the columns; `matches` are computed if None."""
        return None

    @abstractmethod
    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        """Scores of embeddings z, with what `locate` found."""


def score_rows(
    scorer: Scorer, x: Array, z: Array, ready: Ready, distance: Distance, rows: slice, overlaps: Overlaps | None = None
) -> Array:
    """Scores (s, views, b) of a stack of blocks of features x (s, 1, b, d) with embeddings z (s, E, b, w).

    The stack holds the `rows`, then padding.
    """
    if not scorer.on_columns:
        return scorer.score(z, ready, distance)
    is_single = z.shape[2] == 1 and scorer.at_once > 1
    if is_single:  # one row per product, but scored together, as one block
        x, z = x.swapaxes(0, 2), z.swapaxes(0, 2)
    stack, members, block, _ = z.shape
    scores = as_like(np.zeros((stack, scorer.count(members), block)), z)
    size = min(scorer.at_once, block) if isinstance(z, np.ndarray) else block
    for start in range(rows.start, rows.stop, size):
        batch = slice(start, min(start + size, rows.stop))
        index, offset = divmod(start - rows.start, block)
        unpadded = slice(offset, offset + batch.stop - batch.start)
        matches = None if overlaps is None else overlaps.part(batch, x)
        located = scorer.locate(x[index, 0, unpadded], ready, matches)
        scores[index, :, unpadded] = scorer.score(z[index, :, offset : offset + size], ready, distance, located)
    return scores.swapaxes(0, 2) if is_single else scores


# A matrix product may round a row differently at another position or in a batch of another size. So every product gets
# blocks of one fixed shape, padded with zeros, on one thread. One call takes a stack of blocks; threads share stacks.

BLOCK = {"cpu": 256, "accelerator": 16384}  # rows per product
PIXELS = {"cpu": 2**18, "accelerator": 2**28}  # per block of images
LEAST_IMAGES = 8
ROWS_PER_CALL = {"cpu": 8192, "accelerator": 16384}  # in a stack: with few calls, threads seldom wait for each other
NUMBERS_PER_CALL = {"cpu": 2**23, "accelerator": 2**28}  # fewer rows if they are large
NUMBERS_OF_SINGLES = 2**19  # the same for blocks of one row: the patches of a photograph have many more numbers


def check_at_once(at_once: Any) -> None:
    """Raise ValueError unless blocks of rows can be scored in parts of this size."""
    check_whole("at_once", at_once, most=BLOCK["cpu"])
    if BLOCK["cpu"] % at_once:
        raise ValueError(f"at_once={at_once!r} must divide {BLOCK['cpu']}, such as 64 or 128")


def block_of_images(size: int, device: str) -> int:
    """The number of images in a block, for images of `size` numbers."""
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

    `compute` gets s blocks (s, 1, b, d), with padding, and the slice of their rows, and returns (s, E, b, ...); `write`
    gets the slice and the results (E, rows, ...).
    """
    kind = "cpu" if device == "cpu" else "accelerator"
    block = block or BLOCK[kind]
    numbers = NUMBERS_PER_CALL[kind] if block > 1 else NUMBERS_OF_SINGLES
    most = min(ROWS_PER_CALL[kind], numbers // max(1, math.prod(rows.shape[1:])))
    size = block * max(1, most // block)

    def work(stack: int) -> None:
        x = rows.slice(stack * size, size)
        batch = slice(stack * size, stack * size + len(x))
        padded = np.zeros((-(-len(x) // block) * block, x.shape[1]), x.dtype)
        padded[: len(x)] = x
        result = to_numpy(compute(on_device(padded.reshape(-1, 1, block, x.shape[1]), device), batch))
        result = np.moveaxis(result, 1, 0).reshape(result.shape[1], -1, *result.shape[3:])
        write(batch, result[:, : len(x)])

    stacks = -(-rows.shape[0] // size)
    in_threads(work, stacks, min(threads, stacks) if device == "cpu" else 1)


MIN_DEVIATION = 1e-12  # of logarithms: a smaller standard deviation is only rounding
LOG_FLOOR = 1e-12  # of the median score: lower scores count as this one in logarithms
MIN_UNIT = 1e-6  # of a view's median: a smaller unit is only rounding
HIGH = 0.9  # a view's unit is the distance from the median to this quantile of the training scores
MAX_EXPONENT = 88.0  # exp of more overflows float32
LARGEST = float(np.finfo(np.float32).max) / 4  # sums of a few such numbers stay finite


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
        typical = np.median(scores, axis=1, keepdims=True)
        typical = np.where(typical > 0, typical, scores.mean(axis=1, keepdims=True))
        floor = np.maximum(LOG_FLOOR * typical, np.finfo(float).tiny)
        logs = np.log(np.maximum(scores, floor))
        deviation = logs.std(axis=1, keepdims=True)
        return cls(floor, logs.mean(axis=1, keepdims=True), np.where(deviation > MIN_DEVIATION, deviation, 1.0))

    neutral = property(lambda self: np.exp(self.mean))  # member scores (E, 1) that leave the mean as it is

    def raised(self, scores: Array, by: Array) -> Array:
        """Scores (E, n) whose combined score, or the logarithm of a single member's score, is higher by `by` (n,)."""
        deviation = as_like(self.deviation, scores) if len(scores) > 1 else 1.0
        with np.errstate(over="ignore"):
            factor = namespace(scores).exp((deviation * by).clip(-MAX_EXPONENT, MAX_EXPONENT))
            return (scores.clip(0) * factor).clip(0, LARGEST)

    def combine(self, scores: Array) -> Array:
        """One score per row (n,) from scores (E, n)."""
        if len(scores) == 1:
            return _finite(scores[0])
        xp = namespace(scores)
        logs = xp.log(xp.maximum(scores, as_like(self.floor, scores)))
        logs = (logs - as_like(self.mean, scores)) / as_like(self.deviation, scores)
        return _finite(sum(logs) / len(logs))  # in a fixed order: `mean` may add up a single row in another one


@dataclass(frozen=True)
class ViewScale:
    """The highest of the views, each measured as (score - median) / (0.9 quantile - median) of its training scores.

    So a single view can make a row anomalous. The result is compressed: sign(z) log(1 + |z|).
    """

    median: np.ndarray  # (V, 1)
    unit: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, high: Sequence[float] | None = None) -> Self:
        """Fit to training scores (V, n); `high` replaces the quantiles that units come from."""
        median = np.median(scores, axis=1, keepdims=True)
        views = zip(scores, median[:, 0], high or [HIGH] * len(scores), strict=True)
        return cls(median, np.array([[_unit(*view)] for view in views]))

    neutral = property(lambda self: self.median)  # view scores (V, 1) that count as ordinary

    def raised(self, scores: Array, by: Array) -> Array:
        """Scores (V, n) whose combined score is higher by `by` (n,)."""
        xp = namespace(scores)
        combined = (_compressed(self.measured(scores)) + by).clip(-MAX_EXPONENT, MAX_EXPONENT)
        with np.errstate(over="ignore"):
            above_median = as_like(self.unit, scores) * xp.copysign(xp.expm1(abs(combined)), combined)
        return as_like(self.median, scores) + above_median.clip(-LARGEST, LARGEST)

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

    If that is 0, as when most rows have duplicates, it is the quantile of the scores above the median, or 1 if no score
    lies above it.
    """
    min_unit = max(MIN_UNIT * abs(median), np.finfo(float).tiny)
    unit = float(np.quantile(scores, high)) - median
    if unit <= min_unit:
        above = scores[scores > median + min_unit]
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

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        return center_distances(z, ready["center"], distance)[0]


@dataclass(repr=False)
class Dissimilarity(Scorer):
    """The mean distance to all training rows.

    For squared distances that is the distance to the centre plus the spread of the training rows, in constant time. For
    other distances, the model stores the embeddings of all training rows.
    """

    name: ClassVar[str] = "dissimilarity"

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        if space.distance == "sqeuclidean":
            spread = space.scores.mean(axis=1, keepdims=True, dtype=np.float64)
            return {"center": space.center, "spread": spread.astype(space.center.dtype)}
        return {"references": space.embed(space.train)}

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        if "spread" in ready:
            return center_distances(z, ready["center"], distance)[0] + ready["spread"]
        if z.ndim > 3:  # one block at a time saves memory
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
        size = min(self.references, *(len(rows) for rows in space.kept))
        sample = [np.sort(space.random.choice(rows, size, replace=False)) for rows in space.kept]
        return {"references": space.embed(sample)}

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        if z.ndim > 3:
            return namespace(z).stack([self.score(block, ready, distance) for block in z])
        return mean_of_nearest(cross_distances(z, ready["references"], distance), self.k)
