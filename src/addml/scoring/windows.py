"""The default scorer of series: windows by their nearest neighbours and an autoencoder, and steps by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, dots, evenly_spaced, namespace, row_product
from addml.distances import Distance
from addml.parameters import check_flag, check_number, check_whole
from addml.scoring.base import HIGH, MetricSpace, Shapes, ViewScale
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches
from addml.scoring.views import ROUNDING, Views, least, mean_of, side_by_side

WINDOW_VIEWS = ("neighbours", "space", "residual", "step")
NEIGHBOURS = {"neighbours": 3, "space": 3, "step": 5}  # references that a distance is the mean of
NUMBERS = 2**19  # of all references: a step of a stream passes through them once


class WindowDistances(NamedTuple):
    """Where windows lie among the references."""

    self_matches: SelfMatches
    neighbours: Array  # (b,) the view of that name
    distances: Array  # (b, R) of their last steps to those of the references, along the channels
    step: Array  # (b,) the view of that name


@dataclass(repr=False)
class WindowViews(Views):
    """Mean distances of windows to their nearest references, as they are and in the metric space; the residual; and the
    distance of the last step along the channels.
    """

    views: tuple[str, ...] = WINDOW_VIEWS
    step_quantile: float = HIGH  # of the training steps, from which the unit of that view comes
    singly: bool = False  # whether every row is a product of its own, as steps of a stream are
    name: ClassVar[str] = "windows"

    def check(self) -> None:
        check_whole("references", self.references, least=8)
        check_whole("at_once", self.at_once, most=256)
        check_number("step_quantile", self.step_quantile, 0.5, 1, with_low=False, with_high=False)
        check_flag("singly", self.singly)
        if tuple(self.views) != WINDOW_VIEWS:
            raise ValueError(f"views={self.views!r}: windows have the views {', '.join(WINDOW_VIEWS)}; leave views out")

    tile = property(lambda self: 1 if self.singly else self.at_once)

    def embedded(self, members: int) -> np.ndarray:
        return np.array([view != "step" for view in self.views])

    def fit_scale(self, scores: np.ndarray) -> ViewScale:
        """The scale of the views; a lone value is strange only where hardly any of training was as far out."""
        return ViewScale.fit(scores, [*[HIGH] * (len(scores) - 1), self.step_quantile])

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Take references at even steps of time, half as many where steps arrive one by one."""
        some = np.unique(np.concatenate(space.train))
        most = min(self.references, NUMBERS // len(space.column_weight)) // (2 if self.singly else 1)
        chosen = evenly_spaced(some, max(8, most))
        embedded = space.embed([chosen] * len(space.center))
        return {"rows": space.prepared(chosen), "column_weight": space.column_weight, "references": embedded}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        rows, z = arrays["rows"], side_by_side(arrays["references"][..., :-1], distance)
        return {
            **arrays,
            "keys": reference_keys(rows),
            "columns": ColumnReferences.of(rows, arrays["column_weight"]),
            "neighbours": Nearest.of(rows),
            "space": Nearest.of(z),
        }

    def locate(  # type: ignore[override]
        self, x: Array, ready: dict[str, Any], matches: SelfMatches | None = None
    ) -> WindowDistances:
        matches = self_matches(x, ready["keys"]) if matches is None else matches
        distances, beyond = ready["columns"].distances(x)
        if len(matches[0]):
            distances[matches] = np.inf
        step = mean_of(least(distances, count(distances, "step"))) + beyond
        return WindowDistances(matches, self._nearest("neighbours", x, len(x), ready, matches), distances, step)

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        rows, embedded = len(located.step), side_by_side(z[..., :-1], distance)
        scores = {
            "neighbours": located.neighbours,
            "space": self._nearest("space", embedded, rows, ready, located.self_matches),
            "residual": sum(z[1:, :rows, -1], start=z[0, :rows, -1]) / len(z),
            "step": located.step,
        }
        return namespace(z).stack([scores[view] for view in self.views])

    def _nearest(self, view: str, x: Array, rows: int, ready: dict[str, Any], matches: SelfMatches) -> Array:
        """The mean distance of so many rows of x (b, d) to their nearest references."""
        filled = x if self.singly or not isinstance(x, np.ndarray) else _filled(x, self.at_once)
        apart = ready[view].squares(filled, singly=self.singly)[:rows]
        if len(matches[0]):
            apart[matches] = np.inf
        own = x[:rows] - ready[view].origin
        squares, xp = dots(own, own)[:, None], namespace(x)
        squared = least(apart, count(apart, view)) + squares
        return mean_of(xp.sqrt(xp.where(squared > ROUNDING * squares, squared, 0 * squares)))

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        return {
            "rows": ("references", "inputs"),
            "column_weight": ("inputs",),
            "references": (members, "references", w),
        }


@dataclass(frozen=True)
class Nearest:
    """Distances to references, by one product with them."""

    origin: Array  # (d,)
    products: Array  # (d + 1, R)

    @classmethod
    def of(cls, rows: Array) -> Nearest:
        """For references (R, d)."""
        origin, xp = rows.mean(0), namespace(rows)
        rows = rows - origin
        products = xp.concatenate([-2 * rows, dots(rows, rows)[:, None]], 1).T
        return cls(origin, xp.ascontiguousarray(products) if isinstance(rows, np.ndarray) else products.contiguous())

    def squares(self, x: Array, *, singly: bool) -> Array:
        """The squared distances (b, R) of rows x (b, d), less what is the same to all references."""
        x, xp = x - self.origin, namespace(x)
        x = xp.concatenate([x, xp.ones_like(x[:, :1])], 1)
        return row_product(x[:, None], self.products)[:, 0] if singly else row_product(x, self.products)


def count(distances: Array, view: str) -> int:
    """How many of the references in distances (b, R) are neighbours: at most all but one."""
    return min(NEIGHBOURS[view], max(1, int(distances.shape[1]) - 1))


def _filled(x: np.ndarray, rows: int) -> np.ndarray:
    """X (b, d) with rows of zeros up to so many: products of one shape give a row the same bits."""
    if len(x) >= rows:
        return x
    filled = np.zeros((rows, x.shape[1]), x.dtype)
    filled[: len(x)] = x
    return filled
