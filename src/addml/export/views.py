"""The views as nodes: distances along columns and in the metric space to the nearest references, and tails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from addml.export.graph import DOUBLE, FIRST, FLOAT, INT64, LAST, ONE, ZERO, About, Graph
from addml.model import MetricModel
from addml.preprocessing.scaling import Features
from addml.scoring.views import NEIGHBOURS, ROUNDING, Views, embedded_places

LAST_BITS = 1e-6  # of a feature: logarithms in float32 differ by less from one library to the next
FAR = np.float32(np.inf)


def views(g: Graph, x: str, z: str, model: MetricModel) -> str:
    """Scores (views, n) of features (n, d) and of their embeddings (E, n, w)."""
    assert isinstance(model.scorer, Views)
    ready, wanted, scores = model.scorer_ready("cpu"), model.scorer.views, dict[str, str]()
    own = _own(g, x, model.features, ready)
    if "columns" in wanted or "distilled" in wanted:
        scores |= _along_columns(g, x, own, ready)
    if "space" in wanted:
        scores["space"] = _in_space(g, unit(g, z) if model.distance == "cosine" else z, own, ready)
    if "tails" in wanted:
        scores["tails"] = _tails(g, x, own, model.features, ready)
    return g.Concat(*(g.Unsqueeze(scores[view], FIRST) for view in wanted), axis=0)


def unit(g: Graph, z: str) -> str:
    """Embeddings (E, n, w) at length 1."""
    return g.Div(z, g.Max(g.ReduceL2(z, LAST), np.float32(1e-15)))


def _own(g: Graph, x: str, features: Features, ready: dict[str, Any]) -> str:
    """Whether rows equal references, of several equal ones the first, and so are no neighbours of them: (n, R).

    The features of one row differ in their last bits from library to library, so that what is as near as these counts
    as equal. Squared distances in float64 are finer by far.
    """
    rows, places, x = ready["rows"].astype(np.float64), ready["keys"].places, g.Cast(x, to=DOUBLE)
    nearest = np.full(len(rows), -np.inf)
    nearest[places] = (_rounding(rows, features) ** 2).sum(1)[places]
    squared = g.Add(g.Add(g.MatMul(x, -2 * rows.T), (rows**2).sum(1)), g.ReduceSumSquare(x, LAST))
    return g.LessOrEqual(squared, nearest)


def _rounding(rows: np.ndarray, features: Features) -> np.ndarray:
    """How far the features (R, d) of references may be off in another library."""
    return np.asarray(LAST_BITS * (abs(rows) + abs(features.shift) / features.reach))


def _along_columns(g: Graph, x: str, own: str, ready: dict[str, Any]) -> dict[str, str]:
    """The views (n,) along the columns, within the range of the references in the detector's whole steps."""
    axes, step = ready["axes"], np.float32(ready["axes"].step or 1)
    x = x if axes.counted is None else g.Gather(x, axes.counted, axis=1)
    x = g.Mul(x, axes.weight)
    inside = g.Min(g.Max(x, axes.low), axes.high)
    beyond = g.ReduceSum(g.Abs(g.Sub(x, inside)), LAST, keepdims=0)
    if axes.step:
        inside = g.Round(g.Div(g.Sub(inside, axes.low), step))
    steps = _over_columns(g, _apart, g.Where(own, FAR, ZERO), inside, axes.columns.astype(np.float32))
    distances = g.Mul(steps, step)
    kept = g.Slice(distances, FIRST, np.array([ready["kept"]]), np.array([1]))
    near = {"columns": (distances, len(ready["rows"])), "distilled": (kept, ready["kept"])}
    return {view: g.Add(_mean(g, _nearest(g, *some, view)), beyond) for view, some in near.items()}


def _in_space(g: Graph, z: str, own: str, ready: dict[str, Any]) -> str:
    """The mean distance (n,) in the metric spaces of all members side by side."""
    products, squares = ready["products"][:, :-1], ready["products"][:, -1]
    z = g.Reshape(g.Transpose(z, perm=[1, 0, 2]), np.array([-1, products.shape[1]]))
    z = g.Sub(z, ready["origin"])
    square = g.ReduceSumSquare(z, LAST)
    own = g.Gather(own, np.array(embedded_places(len(ready["rows"]))), axis=1)
    apart = g.Add(g.MatMul(z, products.T), g.Where(own, FAR, squares))
    squared = g.Add(_nearest(g, apart, len(squares), "space"), square)
    squared = g.Where(g.Greater(squared, g.Mul(square, np.float32(ROUNDING))), squared, ZERO)
    return _mean(g, g.Sqrt(squared))


def _tails(g: Graph, x: str, own: str, features: Features, ready: dict[str, Any]) -> str:
    """The sum over columns (n,) of what the number of references at least as extreme is worth; none counts itself."""
    tails, size = ready["tails"], len(ready["rows"])
    is_own = g.ReduceMax(g.Cast(own, to=FLOAT), LAST, keepdims=0)
    counted = ready["rows"][:, tails.counted].astype(np.float64)
    off = _rounding(ready["rows"], features)[:, tails.counted]
    limits = [(counted + sign * off).T.astype(np.float32) for sign in (-1, 1)]

    def add(body: Graph, total: str, value: str, low: str, high: str) -> str:
        value = body.Unsqueeze(value, LAST)
        below = body.ReduceSum(body.Cast(body.GreaterOrEqual(value, low), to=FLOAT), LAST, keepdims=0)
        above = body.ReduceSum(body.Cast(body.LessOrEqual(value, high), to=FLOAT), LAST, keepdims=0)
        others = body.Max(body.Sub(body.Min(below, above), is_own), ZERO)
        return body.Add(total, body.Gather(tails.worth, body.Cast(others, to=INT64)))

    start = g.Mul(is_own, np.float32(-len(tails.counted) * (np.log(size + 1) - np.log(size))))
    return _over_columns(g, add, start, g.Gather(x, tails.counted, axis=1), *limits)


def _apart(body: Graph, total: str, value: str, reference: str) -> str:
    """The total (n, R) and how far values (n,) lie from references (R,) along one column."""
    return body.Add(total, body.Abs(body.Sub(body.Unsqueeze(value, LAST), reference)))


def _over_columns(g: Graph, add: Callable[..., str], start: str, x: str, *columns: np.ndarray) -> str:
    """What `add` makes of a start, column by column of x (n, c) and of constants (c, R).

    One column after another, since all of them at once take c times the memory.
    """
    body, names = Graph(f"{add.__name__}_"), [f"{add.__name__}_input_{place}" for place in range(1 + len(columns))]
    body.Identity(add(body, "total", *names), output="sum")
    inputs: dict[str, About] = {"total": (FLOAT, None), names[0]: (FLOAT, ["rows"])}
    inputs |= {name: (FLOAT, [array.shape[1]]) for name, array in zip(names[1:], columns, strict=True)}
    whole = body.whole("column", inputs, {"sum": (FLOAT, None)})
    axes = [1] + [0] * len(columns)
    return g.Scan(start, x, *columns, body=whole, num_scan_inputs=len(axes), scan_input_axes=axes)


def _nearest(g: Graph, distances: str, size: int, view: str) -> str:
    """The least (n, k) of distances (n, size), as many as a view averages over; a reference has one fewer than all."""
    k = min(NEIGHBOURS[view], max(1, size - 1))
    return g.TopK(distances, np.array([k]), largest=0, unused=1)


def _mean(g: Graph, nearest: str) -> str:
    """The mean (n,) of distances (n, k), without references that do not count; 0 where none does."""
    known = g.Not(g.IsInf(nearest))
    count = g.ReduceSum(g.Cast(known, to=FLOAT), LAST, keepdims=0)
    return g.Div(g.ReduceSum(g.Where(known, nearest, ZERO), LAST, keepdims=0), g.Max(count, ONE))
