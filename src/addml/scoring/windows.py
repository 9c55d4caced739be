"""The default scorer of series: nearest windows in learned metrics, reconstruction, and single steps."""

from __future__ import annotations

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
ONE_CHANNEL = ("neighbours", "residual", "step")  # without `linear`: components leave mostly noise
NEIGHBOURS = {"neighbours": 3, "step": 5}  # nearest references averaged by a view
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


LAYERS = ((7, 32), (5, 64))  # kernel and channels of random convolutions of every other step
SHAPES, SHIFT = 2000, 0.1  # windows to learn the metric of shapes from, and the share of a window they are shifted by
KNEE = 5.0  # deviations beyond which values are compressed


class ShapeMetric(NamedTuple):
    """A metric of windows of one channel, in which the shape matters more than its position.

    Random convolutions are averaged over the window. Then the directions are shrunk in which these averages vary when
    windows are shifted (relevant component analysis).
    """

    first: Array  # (8, 32) a convolution: its matrix, and its bias in the last row
    second: Array  # (161, 64)
    shrink: Array  # (64, 64)

    @classmethod
    def fit(cls, windows: np.ndarray, random: np.random.Generator) -> ShapeMetric:
        """Draw convolutions with outputs of mean 0 and deviation 1, and learn from two crops of each window (n, d)."""
        layers, x = list[np.ndarray](), _compressed(evenly_spaced(windows, 256))
        for kernel, channels in LAYERS:
            patches = _patches(x, kernel)
            matrix = random.uniform(-1, 1, (patches.shape[-1], channels))
            deviation = (patches @ matrix).std(axis=(0, 1))
            matrix /= np.where(deviation > 0, deviation, 1)
            layers.append(np.vstack([matrix, -(patches @ matrix).mean(axis=(0, 1))]).astype(np.float32))
            x = _convolved(x, layers[-1])
        metric = cls(layers[0], layers[1], np.eye(LAYERS[-1][1], dtype=np.float32))
        first, second = (metric.mapped(part)[0].astype(np.float64) for part in crops(windows, random))
        variance, vectors = np.linalg.eigh((first - second).T @ (first - second) / len(windows))
        variance = np.maximum(variance, 0) + (max(variance.mean(), 0) or 1)
        return metric._replace(shrink=(vectors / np.sqrt(variance)).astype(np.float32))

    def mapped(self, x: Array, *, singly: bool = True) -> tuple[Array, None]:
        """Windows (b, d) in the space where the metric is Euclidean, always one window per product."""
        y = _compressed(x)
        for layer in (self.first, self.second):
            y = _convolved(y, layer)
        return (column_sums(y) / y.shape[1] @ self.shrink)[:, 0], None


def crops(windows: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two crops of each window (n, d), at different positions."""
    width = windows.shape[1]
    most = min(max(1, int(SHIFT * width)), width - 1)
    first = random.integers(most + 1, size=(len(windows), 1))
    second = (first + random.integers(min(1, most), most + 1, size=first.shape)) % (most + 1)
    rows, steps = np.arange(len(windows))[:, None], np.arange(width - most)
    return windows[rows, first + steps], windows[rows, second + steps]


def _compressed(windows: Array) -> Array:
    """Windows (b, d) with compressed values, as one channel (b, d, 1)."""
    xp = namespace(windows)
    return (xp.sign(windows) * KNEE * xp.log1p(abs(windows) / KNEE))[..., None]


def _convolved(x: Array, layer: Array) -> Array:
    """The positive part of the convolution of x (b, steps, c), (b, steps / 2, channels)."""
    y = _patches(x, (len(layer) - 1) // x.shape[2]) @ layer[:-1]
    y += layer[-1]
    return y.clip(0)


def _patches(x: Array, kernel: int) -> Array:
    """The `kernel` steps around every other step of x (b, steps, c), with zeros beyond its ends: (b, n, kernel c)."""
    padded = zeros((len(x), x.shape[1] + kernel - 1, x.shape[2]), x)
    padded[:, kernel // 2 : kernel // 2 + x.shape[1]] = x
    flat, size, step = padded.reshape(len(x), -1), kernel * x.shape[2], 2 * x.shape[2]
    if not isinstance(x, np.ndarray):
        return flat.unfold(1, size, step)
    return np.ascontiguousarray(sliding_window_view(flat, size, axis=1)[:, ::step])


Metric = LinearMetric | ShapeMetric


class WindowDistances(NamedTuple):
    """Distances of windows to the references."""

    self_matches: SelfMatches
    neighbours: Array  # (b,) the view
    linear: Array | None  # (b,) the view, of several channels
    distances: Array  # (b, R) between last steps, along the channels
    step: Array  # (b,) the view


@dataclass(repr=False)
class WindowViews(Views):
    """Views of a window: the mean distance to its nearest references in a linear metric, or for one channel in a metric
    of shapes; the errors of an autoencoder and, for several channels, of principal components; and the distance of the
    last step along the channels.
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
        if "linear" in self.views:
            sample = evenly_spaced(windows, WINDOWS if width <= LARGEST_MATRIX else LARGEST_MATRIX)
            disjoint = int((np.ptp(windows) + 1) * space.column_weight.sum() / width)  # windows without shared steps
            metric: Metric = LinearMetric.fit(space.prepared(sample), max(1, int(disjoint * COMPONENTS_PER_WINDOW)))
        else:
            distilled = np.unique(np.concatenate(space.kept))
            metric = ShapeMetric.fit(space.prepared(evenly_spaced(distilled, SHAPES)), space.random)
        return {"rows": rows, "column_weight": space.column_weight, **metric._asdict()}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        rows, kind = arrays["rows"], LinearMetric if "linear" in self.views else ShapeMetric
        metric: Metric = kind(*(arrays[name] for name in kind._fields))
        return {
            **arrays,
            "metric": metric,
            "keys": reference_keys(rows),
            "columns": ColumnReferences.of(rows, arrays["column_weight"]),
            "neighbours": Nearest.of(metric.mapped(rows, singly=False)[0]),
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
        linear = None if norms is None else norms[: len(x)]
        return WindowDistances(matches, self._nearest(mapped, len(x), ready, matches), linear, distances, step)

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        rows = len(located.step)
        residual = sum(z[1:, :rows, -1], start=z[0, :rows, -1]) / len(z)
        scores = {**located._asdict(), "residual": residual}
        return namespace(z).stack([scores[view] for view in self.views])

    def _nearest(self, x: Array, rows: int, ready: dict[str, Any], matches: SelfMatches) -> Array:
        """The mean distance of the first `rows` of x (b, d), in the metric's space, to their nearest references."""
        squares = ready["neighbours"].squares(x, singly=self.singly)[:rows]
        if len(matches[0]):
            squares[matches] = np.inf
        centred = x[:rows] - ready["neighbours"].origin
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
