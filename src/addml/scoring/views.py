"""The default scorer: four simple views of a row, of which the highest counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import (
    Array,
    as_like,
    contiguous,
    convert,
    dots,
    evenly_spaced_by,
    index_like,
    namespace,
    row_product,
    to_numpy,
)
from addml.distances import Distance, count_of, normalised
from addml.parameters import check_whole
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches
from addml.scoring.scorer import MetricSpace, Ready, Scorer, ViewScale, check_at_once

VIEWS = ("columns", "space", "distilled", "tails")
WHOLE = ("space", "distilled")  # for images and windows: a single pixel or step means little (docs/images.md)
NEIGHBOURS = {"columns": 2, "space": 5, "distilled": 5}  # nearest references averaged by a view
DISTILLED = 0.8  # share of the references that the distilled view compares with
EMBEDDED = 256  # references in the metric space, where normal rows lie so close together that few suffice
ROUNDING = 2e-6  # squared distances below this share of the squared length are rounding errors


@dataclass(frozen=True)
class Tails:
    """The view without neighbours: how extreme each value of a row is in its own column.

    A column adds -log of the share of references at least as extreme, on the value's side of the column.
    """

    counted: Array  # (c,) the columns with a nonzero weight
    columns: Array  # (c, R) their sorted reference values
    equal: Array  # (c, R + 1) how many values from each index on equal the one at that index
    worth: Array  # (R + 1,) what a column adds, by the number of references at least as extreme

    @classmethod
    def of(cls, rows: Array, weight: Array) -> Tails:
        """Learn from the columns of references (R, d) with a nonzero weight (d,)."""
        counted = index_like(np.flatnonzero(to_numpy(weight)), rows)
        columns = np.sort(to_numpy(rows)[:, to_numpy(counted)].T, axis=1)
        ends = np.stack([column.searchsorted(column, side="right") for column in columns]) if len(columns) else columns
        equal = np.zeros((len(columns), len(rows) + 1), np.int64)
        equal[:, :-1] = ends - np.arange(len(rows))
        worth = np.log(len(rows) + 1.0) - np.log(np.arange(len(rows) + 1) + 1.0)
        return cls(counted, as_like(columns, rows), index_like(equal, rows), as_like(worth, rows))

    def score(self, x: Array, references: Array) -> Array:
        """The sum (b,) over the columns of rows (b, d); `references` are the indices of rows that are references."""
        total = as_like(np.zeros(len(x)), x)
        for term in self.terms(x, references):  # in a fixed order: a row's bits do not depend on its batch
            total += term
        return total

    def terms(self, x: Array, references: Array) -> Array:
        """What each counted column adds, (c, b); a reference is not compared with itself."""
        xp, size = namespace(x), self.columns.shape[1]
        values = contiguous(x[:, self.counted].T)
        if isinstance(values, np.ndarray):
            pairs = zip(self.columns, values, strict=True)
            less = np.array([column.searchsorted(own) for column, own in pairs], np.int64).reshape(values.shape)
        else:
            less = xp.searchsorted(self.columns, values)
        column = index_like(np.arange(len(values))[:, None], values)
        is_equal = self.columns[column, less.clip(0, size - 1)] == values
        at_most = less + is_equal * self.equal[column, less]
        extreme = xp.minimum(at_most, size - less)  # references at least as extreme, on the side with fewer of them
        terms = self.worth[extreme]
        if len(references):
            others = xp.maximum(extreme[:, references] - 1, 0 * extreme[:, references])
            terms[:, references] = self.worth[others] - (self.worth[0] - as_like(np.log(size), self.worth))
        return terms


class ColumnDistances(NamedTuple):
    """Distances of rows to the references along the columns."""

    self_matches: SelfMatches
    distances: Array  # (b, R) to the references, with values clipped to their range
    beyond: Array  # (b,) the excess over that range, which adds to all distances of a row
    tails: Array  # (b,) the view of that name


@dataclass(repr=False)
class Views(Scorer):
    """Four views of a row, of which the highest counts.

    Compares rows with references: training rows at all distances from the middle. See docs/method.md for the views.

    Parameters
    ----------
    references : the number of training rows to store, at least 8.
    views : any of "columns", "space", "distilled" and "tails".
    at_once : rows that are scored together, 256 or a divisor of it.
    """

    references: int = 1024
    views: tuple[str, ...] = VIEWS
    at_once: int = 256  # large blocks release the interpreter's lock for longer at a time
    name: ClassVar[str] = "views"
    on_columns: ClassVar[bool] = True
    scale = ViewScale
    max_threads = 4  # sixteen threads were slower than two: many short calls compete for the interpreter's lock

    def check(self) -> None:
        check_whole("references", self.references, least=8)
        check_at_once(self.at_once)
        views = self.views if isinstance(self.views, (tuple, list)) else ()
        if not views or len(set(views)) < len(views) or not set(views) <= set(VIEWS):
            raise ValueError(f"views={self.views!r} must be some of {', '.join(VIEWS)}, each once")

    tile = property(lambda self: self.at_once)

    def count(self, members: int) -> int:
        return len(self.views)

    def embedded(self, members: int) -> np.ndarray:
        return np.array([view == "space" for view in self.views])

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Choose references at all distances from the middle; those closest to the centre come first."""
        references = space.not_anomalous[evenly_spaced_by(space.norms, self.references)]
        embedded = space.embed([references] * len(space.center))
        squares = ((embedded - space.center[:, None]) ** 2).sum(axis=(0, 2))
        order = np.argsort(squares, kind="stable")
        return {
            "rows": space.prepared(references[order]),
            "column_weight": space.column_weight,
            "references": embedded[:, order[:: stride(len(order))]],
        }

    def ready(self, arrays: dict[str, Array], distance: Distance) -> Ready:
        rows, z = arrays["rows"], side_by_side(arrays["references"], distance)
        origin = z.mean(0)
        z = z - origin
        products = namespace(z).concatenate([-2 * z, dots(z, z)[:, None]], 1)  # (R, E w + 1)
        return {
            **arrays,
            "keys": reference_keys(rows),
            "columns": ColumnReferences.of(rows, arrays["column_weight"]),
            "tails": Tails.of(rows, arrays["column_weight"]),
            "origin": origin,
            "products": products,
            "kept": count_of(DISTILLED, len(rows), least=min(2, len(rows))),
        }

    def locate(self, x: Array, ready: Ready, matches: SelfMatches | None = None) -> ColumnDistances:
        matches = self_matches(x, ready["keys"]) if matches is None else matches
        distances, beyond = ready["columns"].distances(x)
        tails = ready["tails"].score(x, matches[0]) if "tails" in self.views else beyond
        return ColumnDistances(matches, distances, beyond, tails)

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        """Scores (views, rows) of embeddings (E, b, w); rows after the located ones are padding."""
        scores = _along_columns(located, ready["kept"]) | {"tails": located.tails}
        if "space" in self.views:
            scores["space"] = _in_space(side_by_side(z, distance), ready, located)
        return namespace(z).stack([scores[view] for view in self.views])


def stride(references: int) -> int:
    """The step between embedded references, at most EMBEDDED of them."""
    return -(-references // EMBEDDED)


def embedded_indices(references: int) -> range:
    return range(0, references, stride(references))


def side_by_side(z: Array, distance: Distance) -> Array:
    """Embeddings (E, b, w) of all members as rows (b, E w); at length 1 for the cosine distance."""
    z = normalised(z) if distance == "cosine" else z
    return z.swapaxes(0, 1).reshape(z.shape[1], -1)


def _along_columns(located: ColumnDistances, n_distilled: int) -> dict[str, Array]:
    """The views (b,) along the columns; the first `n_distilled` references are the distilled ones."""
    distances, k = located.distances, NEIGHBOURS["columns"]
    if len(located.self_matches[0]):
        distances[located.self_matches] = np.inf
    neighbours = min(NEIGHBOURS["distilled"], max(1, n_distilled - 1))  # a reference is not its own neighbour
    distilled = k_smallest(distances[:, :n_distilled], neighbours)
    nearest = distilled[:, :k]
    if n_distilled < distances.shape[1]:
        others = k_smallest(distances[:, n_distilled:], min(k, distances.shape[1] - n_distilled))
        nearest = k_smallest(namespace(distilled).concatenate([nearest, others], 1), k)
    return {"columns": finite_mean(nearest) + located.beyond, "distilled": finite_mean(distilled) + located.beyond}


def _in_space(z: Array, ready: Ready, located: ColumnDistances) -> Array:
    """The mean distance (rows,) of embeddings (b, E w) to their nearest references."""
    xp, count = namespace(z), len(located.beyond)
    z = z - ready["origin"]
    lengths = dots(z, z)[:count, None]  # squared
    squares = row_product(xp.concatenate([z, xp.ones_like(z[:, :1])], 1), ready["products"].mT)[:count]
    rows, references = located.self_matches
    if len(rows):
        step = stride(len(ready["rows"]))
        embedded = references % step == 0
        squares[rows[embedded], references[embedded] // step] = np.inf
    squares = k_smallest(squares, min(NEIGHBOURS["space"], max(1, squares.shape[1] - 1))) + lengths
    return finite_mean(xp.sqrt(xp.where(squares > ROUNDING * lengths, squares, as_like(0.0, squares))))


def k_smallest(distances: Array, k: int) -> Array:
    """The k smallest of distances (b, R), ascending."""
    if not isinstance(distances, np.ndarray):
        return namespace(distances).topk(distances, k, largest=False).values
    rest, rows = distances.copy(), np.arange(len(distances))
    result = np.empty((len(distances), k), distances.dtype)
    for rank in range(k):  # finding the minimum a few times takes a fifth of the time of a partition
        nearest = rest.argmin(axis=1)
        result[:, rank] = rest[rows, nearest]
        rest[rows, nearest] = np.inf
    return result


def finite_mean(nearest: Array) -> Array:
    """The mean (b,) of the finite distances (b, k); 0 if there are none."""
    xp = namespace(nearest)
    finite = xp.isfinite(nearest)
    if isinstance(nearest, np.ndarray) and finite.all():  # the usual case in a stream, in a third of the time
        return sum(nearest.T[1:], start=nearest.T[0]) / np.float32(nearest.shape[1])
    distances = xp.where(finite, nearest, as_like(0.0, nearest))
    total = sum(distances.T[1:], start=distances.T[0])  # in a fixed order
    return total / convert(finite.sum(1).clip(1), total)
