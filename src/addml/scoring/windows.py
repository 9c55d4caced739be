"""The default scorer of series: nearest windows in learned metrics, reconstruction, and single steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from addml.arrays import Array, column_sums, dots, evenly_spaced, namespace, row_product, zeros
from addml.distances import Distance
from addml.parameters import check_flag, check_number, check_whole
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches
from addml.scoring.scorer import HIGH, MetricSpace, ViewScale, check_at_once
from addml.scoring.views import ROUNDING, Views, finite_mean, k_smallest

WINDOW_VIEWS = ("neighbours", "residual", "linear", "step")
ONE_CHANNEL = ("neighbours", "residual", "shapes", "step")  # without `linear`: components leave mostly noise
NEIGHBOURS = {"neighbours": 3, "shapes": 3, "step": 5}  # nearest references averaged by a view
MAX_VALUES = 2**19  # in all references: each step of a stream is compared with all of them
EXPLAINED = 0.99  # share of the variance of windows that the principal components explain
COMPONENTS_PER_WINDOW = 2 / 3  # per window without shared steps: more would overfit
WINDOWS, LARGEST_MATRIX = 8000, 1024  # windows to fit components to; eigenvectors take 0.1 s


class LinearMetric(NamedTuple):
    """The metric that shrinks differences along the principal components of windows, where windows vary most.

    It is the Mahalanobis distance with Sigma + e I, where Sigma is the covariance of windows and e its mean eigenvalue:
    halfway between the Euclidean and the full Mahalanobis distance.
    """

    mean: Array  # (d,)
    components: Array  # (k, d)
    shrink: Array  # (k,) the share by which a difference along a component shrinks

    @classmethod
    def fit(cls, windows: np.ndarray, most: int) -> LinearMetric:
        """Fit at most `most` components to windows (n, d)."""
        mean = windows.mean(axis=0, dtype=np.float64)
        centred = windows - mean
        n, d = centred.shape
        variance, vectors = np.linalg.eigh((centred.T @ centred if d <= n else centred @ centred.T) / n)
        variance, vectors = np.maximum(variance[::-1], 0), vectors.T[::-1]
        count = min(most, 1 + int(np.searchsorted(np.cumsum(variance), EXPLAINED * variance.sum())))
        components = vectors[:count] if d <= n else vectors[:count] @ centred
        components /= np.maximum(np.sqrt(dots(components, components))[:, None], np.finfo(float).tiny)
        shrink = 1 - 1 / np.sqrt(1 + variance[:count] / max(variance.sum() / d, np.finfo(float).tiny))
        return cls(*(part.astype(np.float32) for part in (mean, components, shrink)))

    def mapped(self, x: Array, *, singly: bool) -> tuple[Array, Array]:
        """Windows (b, d) in the space where the metric is Euclidean, and the norms (b,) of their PCA residuals."""
        centred, xp = x - self.mean, namespace(x)
        coordinates = _product(centred, self.components.T, singly)
        squares = dots(centred, centred)
        residual = squares - dots(coordinates, coordinates)
        residual = xp.sqrt(xp.where(residual > ROUNDING * squares, residual, 0 * residual))
        return centred - _product(coordinates * self.shrink, self.components, singly), residual


KERNELS, STRIDES, WIDTH = (7, 5, 3), (2, 2, 1), 32  # of the convolutions; the width is also that of the space
INPUTS = (7, 5 * WIDTH, 3 * WIDTH, WIDTH)  # of an output: kernel times channels, then a linear layer
KNEE = 5.0  # deviations beyond which values are compressed
TRAINING_STEPS, BATCH, RATE, MARGIN = 300, 64, 2e-3, 0.5  # of triplets; a batch of 128 is no better
SHIFT = 0.1  # of a window: how far its two crops may lie apart
TINY = 1e-12


class ShapeMetric:
    """The metric of shapes: three convolutions over a window of one channel, averaged over time, then a linear layer.

    A shift of the window hardly moves its embedding, a point on the unit sphere. Trained by triplets: two crops of a
    window are to lie closer together than the first and the most distant window of the batch.
    """

    def __init__(self, weights: Array) -> None:
        """Weights (P,): the matrix and the bias of each layer."""
        self.weights, ends = weights, np.cumsum([(inputs + 1) * WIDTH for inputs in INPUTS])
        layers = [
            weights[end - (n + 1) * WIDTH : end].reshape(n + 1, WIDTH) for n, end in zip(INPUTS, ends, strict=True)
        ]
        self.layers = [(layer[:-1], layer[-1]) for layer in layers]

    @classmethod
    def fit(cls, draw: Callable[[int], np.ndarray], random: np.random.Generator) -> ShapeMetric:
        """Train on windows (n, steps) that `draw(n)` takes at random."""
        metric = cls.initial(draw(2 * BATCH), random)
        mean = square = np.zeros_like(metric.weights)
        for step in range(1, TRAINING_STEPS + 1):
            gradient = metric.gradient(*crops(draw(BATCH), random))
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2  # Adam
            rate = RATE * (1 + math.cos(math.pi * step / TRAINING_STEPS)) / 2 / (1 - 0.9**step)
            metric.weights -= np.float32(rate) * mean / (np.sqrt(square / np.float32(1 - 0.999**step)) + 1e-8)
        return metric

    @classmethod
    def initial(cls, windows: np.ndarray, random: np.random.Generator) -> ShapeMetric:
        """Random weights with which the convolutions of these windows have mean 0 and deviation 1."""
        parts = [random.uniform(-1, 1, (n + 1) * WIDTH) / math.sqrt(n) for n in INPUTS]
        metric, x = cls(np.concatenate(parts).astype(np.float32)), compressed(windows)
        for (matrix, bias), kernel, stride in zip(metric.layers, KERNELS, STRIDES, strict=False):
            patches = patches_of(x, kernel, stride)
            matrix /= (patches @ matrix).std(axis=(0, 1)) + TINY
            bias[:] = -(patches @ matrix).mean(axis=(0, 1))
            x = (patches @ matrix + bias).clip(0)
        return metric

    def embed(self, windows: Array) -> Array:
        """Embeddings (b, WIDTH) of windows (b, steps); each has products of its own, for equal bits in any batch."""
        return self._forward(windows)[0][:, 0]

    def gradient(self, anchors: np.ndarray, shifted: np.ndarray) -> np.ndarray:
        """The gradient (P,) of the mean hinge loss of the triplets of these crops (b, steps)."""
        z, layers, mean, length = self._forward(np.concatenate([anchors, shifted]))
        anchor, near = z[: len(anchors), 0], z[len(anchors) :, 0]
        farthest = (anchor @ anchor.T).argmin(axis=1)
        far = anchor[farthest]
        hinge = ((anchor - near) ** 2).sum(axis=1) - ((anchor - far) ** 2).sum(axis=1) + MARGIN
        factor = ((hinge > 0) * 2 / len(anchors)).astype(z.dtype)[:, None]
        grad = np.concatenate([factor * (far - near), factor * (near - anchor)])
        np.add.at(grad, farthest, factor * (anchor - far))
        grad = (grad[:, None] - dots(grad[:, None], z)[..., None] * z) / length  # through the normalisation
        parts = [grad.sum(axis=(0, 1)), mean[:, 0].T @ grad[:, 0]]
        grad = grad @ self.layers[-1][0].T / layers[-1][1].shape[1]  # the same for all positions
        for layer in reversed(range(len(KERNELS))):
            patches, y = layers[layer]
            grad = (grad * (y > 0)).reshape(-1, WIDTH)
            parts += [grad.sum(axis=0), patches.reshape(len(grad), -1).T @ grad]
            if layer:
                steps = layers[layer - 1][1].shape[1]
                grad = (grad @ self.layers[layer][0].T).reshape(patches.shape)
                grad = _from_patches(grad, KERNELS[layer], STRIDES[layer], steps)
        return np.concatenate([part.ravel() for part in reversed(parts)])

    def _forward(self, windows: Array) -> tuple[Array, list[tuple[Array, Array]], Array, Array]:
        """Embeddings (b, 1, WIDTH); the patches and the output of every convolution, the mean output, and lengths."""
        x, outputs = compressed(windows), []
        for (matrix, bias), kernel, stride in zip(self.layers, KERNELS, STRIDES, strict=False):
            patches = patches_of(x, kernel, stride)
            x = patches @ matrix
            x += bias
            x = x.clip(0)
            outputs.append((patches, x))
        mean = column_sums(x) / x.shape[1]
        z = mean @ self.layers[-1][0] + self.layers[-1][1]
        length = namespace(z).sqrt(dots(z, z))[..., None] + TINY
        return z / length, outputs, mean, length


def compressed(windows: Array) -> Array:
    """Windows (b, steps) as the input (b, steps, 1) of the first convolution."""
    xp = namespace(windows)
    return (xp.sign(windows) * KNEE * xp.log1p(abs(windows) / KNEE))[..., None]


def crops(windows: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two crops of each window (b, steps), at different places."""
    most = max(1, int(SHIFT * windows.shape[1]))
    first = random.integers(most + 1, size=len(windows))
    second = (first + random.integers(1, most + 1, size=len(windows))) % (most + 1)
    steps = np.arange(windows.shape[1] - most)
    own = np.arange(len(windows))[:, None]
    return windows[own, first[:, None] + steps], windows[own, second[:, None] + steps]


def patches_of(x: Array, kernel: int, stride: int) -> Array:
    """The `kernel` steps around every `stride`-th step of x (b, steps, c), zeros beyond its ends: (b, n, kernel c)."""
    padded = zeros((len(x), x.shape[1] + kernel - 1, x.shape[2]), x)
    padded[:, kernel // 2 : kernel // 2 + x.shape[1]] = x
    flat, size, step = padded.reshape(len(x), -1), kernel * x.shape[2], stride * x.shape[2]
    if not isinstance(x, np.ndarray):
        return flat.unfold(1, size, step)
    return np.ascontiguousarray(sliding_window_view(flat, size, axis=1)[:, ::step])


def _from_patches(grad: np.ndarray, kernel: int, stride: int, steps: int) -> np.ndarray:
    """The gradient of x (b, steps, c) from that of `patches_of` (b, n, kernel c)."""
    grad = grad.reshape(*grad.shape[:2], kernel, -1)
    padded = np.zeros((len(grad), steps + kernel - 1, grad.shape[-1]), grad.dtype)
    for k in range(kernel):
        padded[:, k : k + (grad.shape[1] - 1) * stride + 1 : stride] += grad[:, :, k]
    return padded[:, kernel // 2 : kernel // 2 + steps]


class WindowDistances(NamedTuple):
    """Distances of windows to the references."""

    self_matches: SelfMatches
    neighbours: Array  # (b,) the view
    linear: Array  # (b,) the view
    shapes: Array | None  # (b,) the view, of a single channel
    distances: Array  # (b, R) between last steps, along the channels
    step: Array  # (b,) the view


@dataclass(repr=False)
class WindowViews(Views):
    """Views of a window: the mean distance to its nearest references in a linear metric, the errors of an autoencoder
    and of principal components, and the distance of the last step along the channels. A single channel has a metric of
    shapes instead of components.
    """

    references: int = 2048
    views: tuple[str, ...] = WINDOW_VIEWS
    step_quantile: float = HIGH  # of the training steps: gives the unit of the view `step`
    singly: bool = False  # one row per matrix product, as in streams
    smoothing: int = 1  # steps of the centred mean of scores
    name: ClassVar[str] = "windows"

    def check(self) -> None:
        check_whole("references", self.references, least=8)
        check_at_once(self.at_once)
        check_number("step_quantile", self.step_quantile, 0.5, 1, with_low=False, with_high=False)
        check_flag("singly", self.singly)
        check_whole("smoothing", self.smoothing)
        if tuple(self.views) not in (WINDOW_VIEWS, ONE_CHANNEL):
            raise ValueError(f"views={self.views!r}: windows have the views {', '.join(WINDOW_VIEWS)}; leave views out")

    tile = property(lambda self: 1 if self.singly else self.at_once)

    def embedded(self, members: int) -> np.ndarray:
        return np.array([view != "step" for view in self.views])

    def fit_scale(self, scores: np.ndarray) -> ViewScale:
        """The scale of the views; the unit of `step` comes from its own quantile."""
        return ViewScale.fit(scores, [*[HIGH] * (len(scores) - 1), self.step_quantile])

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Take evenly spaced references, half as many for streams."""
        windows, width = np.unique(np.concatenate(space.train)), len(space.column_weight)
        most = min(self.references, MAX_VALUES // width) // (2 if self.singly else 1)
        rows = space.prepared(evenly_spaced(windows, max(8, most)))
        sample = evenly_spaced(windows, WINDOWS if width <= LARGEST_MATRIX else LARGEST_MATRIX)
        disjoint = int((np.ptp(windows) + 1) * space.column_weight.sum() / width)  # windows without shared steps
        metric = LinearMetric.fit(space.prepared(sample), max(1, int(disjoint * COMPONENTS_PER_WINDOW)))
        arrays = {"rows": rows, "column_weight": space.column_weight, **metric._asdict()}
        if "shapes" not in self.views:
            return arrays
        normal = np.unique(np.concatenate(space.kept))  # by distillation

        def draw(count: int) -> np.ndarray:
            return space.prepared(np.sort(space.random.choice(normal, count)))

        return arrays | {"shapes": ShapeMetric.fit(draw, space.random).weights}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        rows, metric = arrays["rows"], LinearMetric(*(arrays[name] for name in LinearMetric._fields))
        shapes = ShapeMetric(arrays["shapes"]) if "shapes" in self.views else None
        return {
            **arrays,
            "metric": metric,
            "keys": reference_keys(rows),
            "columns": ColumnReferences.of(rows, arrays["column_weight"]),
            "neighbours": Nearest.of(metric.mapped(rows, singly=False)[0]),
            "shapes": shapes,
            "alike": None if shapes is None else Nearest.of(shapes.embed(rows)),
        }

    def locate(  # type: ignore[override]
        self, x: Array, ready: dict[str, Any], matches: SelfMatches | None = None
    ) -> WindowDistances:
        matches = self_matches(x, ready["keys"]) if matches is None else matches
        distances, beyond = ready["columns"].distances(x)
        if len(matches[0]):
            distances[matches] = np.inf
        step = finite_mean(k_smallest(distances, n_neighbours(distances, "step"))) + beyond
        missing, padded = self.at_once - len(x), x
        if missing > 0 and isinstance(x, np.ndarray) and not self.singly:
            padded = np.pad(x, ((0, missing), (0, 0)))  # products of one shape give a row the same bits
        mapped, norms = ready["metric"].mapped(padded, singly=self.singly)
        neighbours, shapes = self._nearest(mapped, len(x), ready["neighbours"], matches), None
        if ready["shapes"] is not None:
            shapes = self._nearest(ready["shapes"].embed(padded), len(x), ready["alike"], matches)
        return WindowDistances(matches, neighbours, norms[: len(x)], shapes, distances, step)

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        rows = len(located.step)
        residual = sum(z[1:, :rows, -1], start=z[0, :rows, -1]) / len(z)
        scores = {**located._asdict(), "residual": residual}
        return namespace(z).stack([scores[view] for view in self.views])

    def _nearest(self, x: Array, rows: int, references: Nearest, matches: SelfMatches) -> Array:
        """The mean distance of the first `rows` of x (b, d), in a metric's space, to their nearest references."""
        squares = references.squares(x, singly=self.singly)[:rows]
        if len(matches[0]):
            squares[matches] = np.inf
        centred = x[:rows] - references.origin
        lengths, xp = dots(centred, centred)[:, None], namespace(x)
        squares = k_smallest(squares, n_neighbours(squares, "neighbours")) + lengths
        return finite_mean(xp.sqrt(xp.where(squares > ROUNDING * lengths, squares, 0 * lengths)))


@dataclass(frozen=True)
class Nearest:
    """Distances to references, by a single matrix product."""

    origin: Array  # (d,)
    products: Array  # (d + 1, R)

    @classmethod
    def of(cls, rows: Array) -> Nearest:
        origin, xp = rows.mean(0), namespace(rows)
        rows = rows - origin
        products = xp.concatenate([-2 * rows, dots(rows, rows)[:, None]], 1).T
        return cls(origin, xp.ascontiguousarray(products) if isinstance(rows, np.ndarray) else products.contiguous())

    def squares(self, x: Array, *, singly: bool) -> Array:
        """Squared distances (b, R) of rows x (b, d), without |x|^2, which is the same for all references."""
        x, xp = x - self.origin, namespace(x)
        return _product(xp.concatenate([x, xp.ones_like(x[:, :1])], 1), self.products, singly)


def _product(x: Array, matrix: Array, singly: bool) -> Array:
    """Rows x (b, d) times a matrix (d, k), one row at a time if `singly`."""
    return (x[:, None] @ matrix)[:, 0] if singly else row_product(x, matrix)


def n_neighbours(distances: Array, view: str) -> int:
    """The number of neighbours that a view averages among distances (b, R): at most all but one."""
    return min(NEIGHBOURS[view], max(1, int(distances.shape[1]) - 1))
