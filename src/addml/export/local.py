"""The local scorer as nodes: distances to the nearest row of groups of references, embedded and along the columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from addml.data.features import Features
from addml.export.graph import DOUBLE, FLOAT, LAST, ZERO, About, Graph
from addml.model import MetricModel
from addml.scoring.local import ROUNDING

LAST_BITS = 1e-6  # of a feature: logarithms in float32 differ by less from one library to the next
FAR = np.float32(np.inf)


def local(g: Graph, x: str, z: str, model: MetricModel) -> str:
    """Scores of all members on every scale and, where the columns count, along these."""
    ready = model.scorer_ready("cpu")
    own = partial(_own, g, g.Cast(x, to=DOUBLE), model.features, ready)
    z = unit(g, z) if model.distance == "cosine" else z
    scores = [_in_spaces(g, z, ready, own)]
    if ready["axes"] is not None:
        scores.append(_along_columns(g, x, ready, own))
    return g.Concat(*scores, axis=0)


def unit(g: Graph, z: str) -> str:
    """Embeddings (E, n, w) at length 1."""
    return g.Div(z, g.Max(g.ReduceL2(z, LAST), np.float32(1e-15)))


def _own(g: Graph, x: str, features: Features, ready: dict[str, Any], places: np.ndarray) -> str:
    """Whether rows are the references in these places (k, R) themselves, and so no neighbours of them: (k, n, R).

    The features of one row differ in their last bits from library to library, so that what is as near as these counts
    as equal. Squared distances in float64 are finer by far.
    """
    rows = ready["all_rows"].astype(np.float64)
    rounding = LAST_BITS * (abs(rows) + abs(features.shift) / features.reach)
    nearest = np.full(len(rows), -np.inf)
    nearest[ready["keys"].places] = (rounding**2).sum(1)[ready["keys"].places]
    rows, nearest = rows[places], nearest[places][:, None]
    squared = g.Add(g.Add(g.MatMul(x, -2 * rows.mT), (rows**2).sum(-1)[:, None]), g.ReduceSumSquare(x, LAST))
    return g.LessOrEqual(squared, nearest)


def _in_spaces(g: Graph, z: str, ready: dict[str, Any], own: Callable[[np.ndarray], str]) -> str:
    """Scores in the metric spaces of all members, which take turns at the shares of the references."""
    (members, size, _), counts, shares = ready["products"].shape, ready["counts"][0], ready["shares"]
    places = _filled_up(size, counts[0])
    products, squares = np.split(ready["products"][:, places], [-1], axis=-1)
    is_own = g.Gather(own(places * shares + np.arange(shares)[:, None]), np.arange(members) % shares)  # (E, n, R)
    z = g.Sub(z, ready["origin"])
    square = g.ReduceSumSquare(z, LAST)
    apart = g.Add(g.MatMul(z, products.mT), g.Where(is_own, FAR, squares.mT))
    squared = g.Add(_nearest(g, apart, counts[0]), square)
    squared = g.Where(g.Greater(squared, g.Mul(square, np.float32(ROUNDING))), squared, ZERO)
    return _means(g, g.Sqrt(squared), counts, members)


def _along_columns(g: Graph, x: str, ready: dict[str, Any], own: Callable[[np.ndarray], str]) -> str:
    """Scores along the plain columns, within the range of the references in the detector's whole steps."""
    axes, counts = ready["axes"], ready["counts"][1]
    places, step = _filled_up(axes.columns.shape[1], counts[0]), np.float32(axes.step or 1)
    x = g.Mul(x, axes.reach)
    inside = g.Min(g.Max(x, axes.low), axes.high)
    beyond = g.ReduceSum(g.Abs(g.Sub(x, inside)), LAST, keepdims=0)
    if axes.step:
        inside = g.Round(g.Div(g.Sub(inside, axes.low), step))
    columns = axes.columns[:, places].astype(np.float32)
    steps = _added_up(g, inside, columns, g.Where(own(places[None]), FAR, ZERO))
    nearest = _nearest(g, g.Mul(steps, step), counts[0])
    return g.Add(_means(g, nearest, counts, 1), beyond)


def _added_up(g: Graph, x: str, columns: np.ndarray, start: str) -> str:
    """What |x - r| of x (n, d) and references by column (d, R) adds up to from a start (1, n, R).

    One column after another, since all of them at once take d times the memory.
    """
    body, size = Graph("each_"), columns.shape[1]
    apart = body.Abs(body.Sub(body.Unsqueeze("each_value", LAST), "each_reference"))
    body.Add("each_total", apart, output="each_sum")
    total: About = (FLOAT, [1, "rows", size])
    inputs: dict[str, About] = {"each_total": total, "each_value": (FLOAT, ["rows"]), "each_reference": (FLOAT, [size])}
    whole = body.whole("column", inputs, {"each_sum": total})
    return g.Scan(start, x, columns, body=whole, num_scan_inputs=2, scan_input_axes=[1, 0])


def _filled_up(references: int, count: int) -> np.ndarray:
    """The places of references, some of them twice in their own group, so that `count` groups are of one size."""
    places = np.arange(-(-references // count) * count)
    return np.where(places < references, places, places % count)


def _nearest(g: Graph, distances: str, count: int) -> str:
    """The least distance (k, n, count) in each group, of distances (k, n, R): the i-th is in group i modulo count."""
    return g.ReduceMin(g.Reshape(distances, np.array([0, 0, -1, count])), np.array([2]), keepdims=0)


def _means(g: Graph, nearest: str, counts: list[int], members: int) -> str:
    """The means (k scales, n) of the nearest (k, n, groups) on every scale; a group of nothing but the row is at 0."""
    means = []
    for count in counts:
        nearest = _nearest(g, nearest, count)
        known = g.Where(g.IsInf(nearest), ZERO, nearest)
        means.append(g.Transpose(g.ReduceMean(known, LAST), perm=[0, 2, 1]))  # (k, 1, n)
    return g.Reshape(g.Concat(*means, axis=1), np.array([members * len(counts), -1]))
