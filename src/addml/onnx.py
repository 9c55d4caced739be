"""A fitted detector for tables of numbers or for photographs as one ONNX graph, which scores without Python.

The graph goes the detector's own way: numbers -> features -> embeddings -> scores of all members -> one score. Whatever
the detector rounds on that way, such as the whole steps along columns, is rounded here too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from addml import __version__
from addml.decisions.p_values import Curve, p_value_table
from addml.distances import normalised
from addml.encoders.base import LEAK
from addml.encoders.mlp import MLPNetwork
from addml.io.write import write_whole
from addml.model import Model
from addml.onnx_photos import onnx_module, photo_graph
from addml.preprocessing.scaling import FARTHEST, Features
from addml.scoring.base import EnsembleScale, ViewScale
from addml.scoring.guidance import Guided
from addml.scoring.patches import PatchMemory
from addml.scoring.simple import KNN, Center, Dissimilarity
from addml.scoring.views import NEIGHBOURS, ROUNDING, Views, embedded_places
from addml.text import listed

if TYPE_CHECKING:
    import onnx

    from addml.detector import ADDML

OPSET, IR_VERSION = 18, 8  # those of ONNX 1.13, of 2022: runtimes of the last years take them
MOST_BYTES = 2**31 - 2**26  # of references: an ONNX file ends at 2 GiB
BOOL, FLOAT, DOUBLE, INT64 = 9, 1, 11, 7  # ONNX's numbers of its types
ZERO, ONE, FAR = np.float32(0), np.float32(1), np.float32(np.inf)
FIRST, LAST = np.array([0]), np.array([-1])  # axes
LAST_BITS = 1e-6  # of a feature: logarithms in float32 differ by less from one library to the next

Value: TypeAlias = str | np.ndarray | np.generic  # what a node makes, by its name, or a constant
About: TypeAlias = tuple[int, list[str | int] | None]  # the type of an input or output, and the shape if it is known

OUTPUTS: dict[str, About] = {name: (DOUBLE, ["rows"]) for name in ("score", "p_value", "probability")}
OUTPUTS["is_anomaly"] = (BOOL, ["rows"])
ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {  # as operators with their attributes
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": LEAK}),
    "elu": ("Elu", {}),
    "linear": ("Identity", {}),
}


def to_onnx(detector: ADDML, path: str | os.PathLike[str]) -> None:
    """Write a detector for a table of numbers, or of photographs (encoder="pretrained"), as an ONNX file.

    It takes X (n, columns), float64 with NaN for missing values, or images X (n, channels, height, width), float32,
    and gives score, is_anomaly, p_value and probability (n,), and of images map (n, height, width).
    """
    check_is_fitted(detector, "threshold_")
    write_whole(Path(os.path.expanduser(path)), onnx_model(detector).SerializeToString())


def onnx_model(detector: ADDML) -> onnx.ModelProto:
    """The model that `to_onnx` writes."""
    helper, g, own = onnx_module().helper, Graph(), detector.model_
    is_photo, shape = isinstance(own.scorer, PatchMemory), own.vectorizer.shape
    X: About = (FLOAT, ["rows", *shape]) if is_photo else (DOUBLE, ["rows", len(own.features.median)])
    score = (photo_graph if is_photo else _score)(g, "X", own)
    g.Identity(score, output="score")
    g.Greater(score, np.float64(detector.threshold_), output="is_anomaly")
    g.Identity(probability(g, score, detector.training_.curve), output="probability")
    g.Identity(p_value(g, score, detector.training_.calibration), output="p_value")
    graph = g.whole("addml", {"X": X}, OUTPUTS | ({"map": (FLOAT, ["rows", *shape[1:]])} if is_photo else {}))
    opset = helper.make_opsetid("", OPSET)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    helper.set_model_props(model, _about(detector))
    return model


def _score(g: Graph, X: str, model: Model) -> str:
    """One score (n,) a row of X (n, d), stage by stage as in `Model.scores`."""
    _check(model)
    assert isinstance(model.encoder, MLPNetwork)
    assert model.scale is not None
    x = features_of(g, X, model.features)
    z = embedded(g, x, model.encoder)
    return combined(g, SCORES[type(model.scorer)](g, x, z, model), model.scale)


def _about(detector: ADDML) -> dict[str, str]:
    """Version, scorer, threshold and, where they have names, the columns in their order."""
    columns, names = detector.model_.columns, getattr(detector, "feature_names_in_", None)
    used = names if columns is None else columns.used
    about = {"addml": __version__, "scorer": detector.model_.scorer.name, "threshold": repr(float(detector.threshold_))}
    return about if used is None else about | {"columns": json.dumps(list(map(str, used)))}


def _check(model: Model) -> None:
    """Refuse what the graph does not know, by its name and with the remedy."""
    if model.form is not None:
        what = "a series" if model.form.is_series else "images without encoder='pretrained'"
        raise ValueError(f"the detector was fitted to {what}, ONNX export is for tables of numbers; use addml.load")
    if model.by:
        raise ValueError(f"rows are judged within {listed(model.by)}, which ONNX export does not know; fit without by")
    prepared = () if model.columns is None else model.columns.fitted
    kinds = {one.name: one.kind for one in prepared if one.kind != "number" or one.features != [one.name]}
    others = [f"{name!r} ({'number, and text' if kind == 'number' else kind})" for name, kind in kinds.items()]
    if others:
        raise ValueError(
            f"the detector was fitted to {listed(others)}, ONNX export is for tables of numbers; "
            "leave such columns out, or make numbers of them, and fit it again"
        )
    if isinstance(model.scorer, Guided):
        raise ValueError("the detector is guided by labels, which ONNX export does not know; fit it without labels")
    if not isinstance(model.encoder, MLPNetwork):
        raise ValueError(f"the encoder is a {model.encoder.name} of your own; ONNX export is for encoder='mlp'")
    if type(model.scorer) not in SCORES:
        known = ", ".join(scorer.name for scorer in SCORES)
        raise ValueError(f"scorer={model.scorer!r} is not known to ONNX export; fit with one of {known}")
    size = sum(array.nbytes for array in model.scorer_arrays.values())
    if size > MOST_BYTES:
        raise ValueError(
            f"scorer={model.scorer.name!r} keeps {size / 2**30:.1f} GiB of training rows, "
            "an ONNX file holds less than 2; fit with scorer='views'"
        )


class Graph:
    """An ONNX graph written as the mathematics is: `g.Add(x, y)` adds ONNX's Add and gives the name of its output."""

    def __init__(self, prefix: str = "") -> None:
        """The prefix keeps the names of a graph within another one apart."""
        self._prefix = prefix
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def __getattr__(self, operator: str) -> Callable[..., str]:
        return partial(self._add, operator)

    def _add(self, operator: str, *inputs: Value, output: str = "", unused: int = 0, **attributes: Any) -> str:
        output = output or f"{self._prefix}{operator}_{len(self._nodes)}"
        outputs = [output, *(f"{output}_{number}" for number in range(unused))]
        names = [one if isinstance(one, str) else self._constant(np.asarray(one)) for one in inputs]
        self._nodes.append(onnx_module().helper.make_node(operator, names, outputs, **attributes))
        return output

    def _constant(self, array: np.ndarray) -> str:
        name = f"{self._prefix}constant_{len(self._constants)}"
        self._constants.append(onnx_module().numpy_helper.from_array(array, name))
        return name

    def splice(self, graph: onnx.GraphProto) -> None:
        """Add the nodes of another graph, which are found by their own names."""
        self._nodes += graph.node
        self._constants += graph.initializer

    def whole(self, name: str, inputs: Mapping[str, About], outputs: Mapping[str, About]) -> onnx.GraphProto:
        """The finished graph between these inputs and outputs."""
        helper = onnx_module().helper
        make = helper.make_tensor_value_info
        ends = [[make(end, *about) for end, about in side.items()] for side in (inputs, outputs)]
        graph: onnx.GraphProto = helper.make_graph(self._nodes, name, *ends, self._constants)
        return graph


# Stages -----------------------------------------------------------------------------------------------------


def features_of(g: Graph, X: str, features: Features) -> str:
    """Features (n, width), float32, of numbers (n, d), float64 with NaN for missing values."""
    missing = g.IsNaN(X)
    values = g.Where(missing, features.median, X)
    lowest = np.where(features.sides > 0, features.median, -np.inf)
    highest = np.where(features.sides < 0, features.median, np.inf)
    values = g.Min(g.Max(values, lowest), highest)
    values = g.Concat(values, g.Cast(g.Gather(missing, features.gaps, axis=1), to=DOUBLE), axis=1)
    half = np.float64(0.5)  # of all three, for the same quotient: the difference of two numbers may be beyond float64
    values = g.Div(g.Sub(g.Mul(values, half), half * features.mean), half * features.scale)
    x = g.Clip(g.Cast(values, to=FLOAT), np.float32(-FARTHEST), np.float32(FARTHEST))
    return _bent(g, x, features) if features.knee[0] else x


def _bent(g: Graph, x: str, features: Features) -> str:
    """Robust features, which grow like a logarithm and are then standardised."""
    knee, shift, reach = (part.astype(np.float32) for part in (features.knee, features.shift, features.reach))
    size = g.Cast(g.Div(g.Abs(x), knee), to=DOUBLE)  # ONNX has no log1p, whose small numbers float32 would lose
    size = g.Mul(g.Cast(g.Log(g.Add(size, np.float64(1))), to=FLOAT), knee)
    return g.Div(g.Sub(g.Mul(g.Sign(x), size), shift), reach)


def embedded(g: Graph, x: str, encoder: MLPNetwork) -> str:
    """Embeddings (E, n, w) of features (n, width)."""
    for (matrix, bias), name in zip(encoder.layers, encoder.activations, strict=True):
        operator, attributes = ACTIVATIONS[name]
        x = getattr(g, operator)(g.Add(g.MatMul(x, matrix), bias), **attributes)
    return x


def combined(g: Graph, scores: str, scale: EnsembleScale | ViewScale) -> str:
    """One score (n,), float64, from those of all members or views (E, n)."""
    scores = g.Cast(scores, to=DOUBLE)
    if isinstance(scale, ViewScale):
        strangest = g.ReduceMax(g.Div(g.Sub(scores, scale.median), scale.unit), FIRST, keepdims=0)
        return g.Mul(g.Sign(strangest), g.Log(g.Add(g.Abs(strangest), np.float64(1))))
    if len(scale.floor) == 1:
        return g.Squeeze(scores, FIRST)
    logs = g.Div(g.Sub(g.Log(g.Max(scores, scale.floor)), scale.mean), scale.deviation)
    return g.ReduceMean(logs, FIRST, keepdims=0)


def probability(g: Graph, score: str, curve: Curve) -> str:
    """The curve's value (n,) at each score (n,): straight between its points, level beyond them."""
    steps, rises = np.append(np.diff(curve.scores), 1.0), np.append(np.diff(curve.values), 0.0)
    score = g.Max(score, curve.scores[0])
    passed = g.Cast(g.GreaterOrEqual(g.Unsqueeze(score, LAST), curve.scores), to=FLOAT)
    last = g.Sub(g.Cast(g.ReduceSum(passed, LAST, keepdims=0), to=INT64), np.int64(1))
    share = g.Div(g.Sub(score, g.Gather(curve.scores, last)), g.Gather(steps, last))
    return g.Add(g.Gather(curve.values, last), g.Mul(share, g.Gather(rises, last)))


def p_value(g: Graph, score: str, calibration: np.ndarray) -> str:
    """The conformal p-value (n,) of each score (n,)."""
    knots, values = p_value_table(calibration)
    below = g.Cast(g.Less(knots, g.Unsqueeze(score, LAST)), to=FLOAT)
    return g.Gather(values, g.Cast(g.ReduceSum(below, LAST, keepdims=0), to=INT64))


# Scorers: scores of every member or view, (E, n), of features x (n, width) and of their embeddings z (E, n, w).


def center(g: Graph, x: str, z: str, model: Model) -> str:
    """Distances to the centre of the training rows."""
    center = model.scorer_arrays["center"][:, None]
    if model.distance == "cosine":
        return g.Sub(ONE, g.ReduceSum(g.Mul(unit(g, z), normalised(center)), LAST, keepdims=0))
    squared = g.ReduceSumSquare(g.Sub(z, center), LAST, keepdims=0)
    return squared if model.distance == "sqeuclidean" else g.Sqrt(squared)


def dissimilarity(g: Graph, x: str, z: str, model: Model) -> str:
    """Mean distances to all training rows."""
    if "spread" in model.scorer_arrays:
        return g.Add(center(g, x, z, model), model.scorer_arrays["spread"])
    return g.ReduceMean(_to_references(g, z, model), LAST, keepdims=0)


def knn(g: Graph, x: str, z: str, model: Model) -> str:
    """Mean distances to the k nearest references."""
    k = min(model.scorer.settings()["k"], model.scorer_arrays["references"].shape[1])
    nearest = g.TopK(_to_references(g, z, model), np.array([k]), largest=0, unused=1)
    return g.ReduceMean(nearest, LAST, keepdims=0)


def _to_references(g: Graph, z: str, model: Model) -> str:
    """Distances (E, n, R) to every reference."""
    references = model.scorer_arrays["references"]
    if model.distance == "cosine":
        return g.Sub(ONE, g.MatMul(unit(g, z), normalised(references).mT))
    origin = references.mean(1, keepdims=True)
    z, references = g.Sub(z, origin), references - origin
    products = g.Add(g.MatMul(z, -2 * references.mT), (references**2).sum(-1)[:, None])
    squared = g.Max(g.Add(products, g.ReduceSumSquare(z, LAST)), ZERO)
    return squared if model.distance == "sqeuclidean" else g.Sqrt(squared)


def views(g: Graph, x: str, z: str, model: Model) -> str:
    """Scores (views, n) of features (n, d) and of their embeddings (E, n, w)."""
    assert isinstance(model.scorer, Views)
    ready, wanted, scores = model.scorer_ready("cpu"), model.scorer.views, dict[str, str]()
    own = _self_matches(g, x, model.features, ready)
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


def _self_matches(g: Graph, x: str, features: Features, ready: dict[str, Any]) -> str:
    """Which rows are which references (n, R), of several equal ones the first: they are no neighbours.

    Features differ in their last bits from library to library, so that rows as near as these count as equal. Squared
    distances in float64 are finer by far.
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
    columns, step = ready["columns"], np.float32(ready["columns"].step or 1)
    x = x if columns.counted is None else g.Gather(x, columns.counted, axis=1)
    x = g.Mul(x, columns.weight)
    inside = g.Min(g.Max(x, columns.low), columns.high)
    beyond = g.ReduceSum(g.Abs(g.Sub(x, inside)), LAST, keepdims=0)
    if columns.step:
        inside = g.Round(g.Div(g.Sub(inside, columns.low), step))
    steps = _over_columns(g, _apart, g.Where(own, FAR, ZERO), inside, columns.columns.astype(np.float32))
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


SCORES: dict[type[Any], Callable[[Graph, str, str, Model], str]] = {
    Views: views,
    Center: center,
    Dissimilarity: dissimilarity,
    KNN: knn,
}
