"""ONNX export of detectors for numeric tables and photographs.

The graph has the stages of `Model.scores`: numbers -> features -> embeddings -> member scores -> one score. It rounds
wherever the detector does, for example to whole steps along columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from addml import __version__
from addml.decisions.decision import p_value_table
from addml.detector import ADDML
from addml.distances import normalised
from addml.encoders.mlp import MLPNetwork
from addml.encoders.pretrained import LEVELS, PretrainedNetwork, shipped_network
from addml.io.write import write_whole
from addml.model import Model
from addml.preprocessing.scaling import FARTHEST, Features
from addml.scoring.guidance import Guided
from addml.scoring.patches import PatchMemory, top_count
from addml.scoring.scorer import Center, EnsembleScale, ViewScale
from addml.scoring.views import NEIGHBOURS, ROUNDING, Views, embedded_indices
from addml.text import SERIES, TABLE, listed

try:
    from onnx import helper, load_from_string, numpy_helper
except ImportError:
    raise ImportError("ONNX export needs onnx: pip install 'addml[onnx]'") from None

OPSET, IR_VERSION = 18, 8  # ONNX 1.13 (2022)
BOOL, FLOAT, DOUBLE, INT64 = 9, 1, 11, 7  # ONNX's type codes
ZERO, ONE, FAR = np.float32(0), np.float32(1), np.float32(np.inf)
FIRST, LAST = np.array([0]), np.array([-1])  # axes
LAST_BITS = 1e-6  # relative; float32 logarithms differ by less between libraries
ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "linear": "Identity"}

TensorType: TypeAlias = tuple[int, list[str | int] | None]  # type code, and shape if known


def to_onnx(detector: ADDML, path: str | os.PathLike[str]) -> None:
    """Export a detector for a numeric table or for photographs (encoder="pretrained") to an ONNX file.

    Input: X (n, columns), float64 with NaN for missing values, or images X (n, channels, height, width), float32.
    Outputs: score, is_anomaly, p_value and probability (n,), for images also map (n, height, width).
    """
    check_is_fitted(detector, "threshold_")
    model, training = detector.model_, detector.training_
    g = Graph()
    outputs: dict[str, TensorType] = {name: (DOUBLE, ["rows"]) for name in ("score", "p_value", "probability")}
    outputs["is_anomaly"] = (BOOL, ["rows"])
    if isinstance(model.scorer, PatchMemory):
        shape = model.vectorizer.shape
        X: TensorType = (FLOAT, ["rows", *shape])
        outputs["map"] = (FLOAT, ["rows", *shape[1:]])
        score = _photo_score(g, "X", model)
    else:
        obstacle = next(_obstacles(model), None)
        if obstacle is not None:
            raise ValueError(f"ONNX export supports numeric tables and photographs; this detector {obstacle}")
        X = (DOUBLE, ["rows", len(model.features.median)])
        score = _table_score(g, "X", model)
    g.Identity(score, output="score")
    g.Greater(score, np.float64(detector.threshold_), output="is_anomaly")
    g.Identity(_probability(g, score, *training.curve), output="probability")
    g.Identity(_p_value(g, score, training.calibration), output="p_value")
    names = getattr(detector, "feature_names_in_", None) if model.columns is None else model.columns.used
    properties = {"addml": __version__, "scorer": model.scorer.name, "threshold": repr(float(detector.threshold_))}
    if names is not None:
        properties["columns"] = json.dumps(list(map(str, names)))
    graph, opset = g.finish("addml", {"X": X}, outputs), helper.make_opsetid("", OPSET)
    file = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    helper.set_model_props(file, properties)
    write_whole(Path(os.path.expanduser(path)), file.SerializeToString())


def _obstacles(model: Model) -> Iterator[str]:
    """The reasons why a model cannot be exported, with remedies."""
    if model.kind != TABLE:
        data = "a series" if model.kind == SERIES else "images without encoder='pretrained'"
        yield f"was fitted to {data}; use addml.load"
    if model.by:
        yield f"compares rows within {listed(model.by)}; fit it without by"
    columns = () if model.columns is None else model.columns.fitted
    others = [column for column in columns if column.kind != "number" or column.features != [column.name]]
    if others:
        kinds = [f"{column.name!r} ({'has texts' if column.kind == 'number' else column.kind})" for column in others]
        yield f"was fitted to {listed(kinds)}; drop these columns or convert them to numbers, and fit it again"
    if isinstance(model.scorer, Guided):
        yield "was fitted with labels; fit it without labels"
    elif type(model.scorer) not in SCORES:
        yield f"has scorer={model.scorer!r}; fit with one of {', '.join(scorer.name for scorer in SCORES)}"
    if not isinstance(model.encoder, MLPNetwork):
        yield f"has a custom {model.encoder.name}; fit it with encoder='mlp'"


class Graph:
    """Builds an ONNX graph: `g.Add(x, y)` adds an Add node and returns the name of its output."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix` makes the names in a subgraph unique."""
        self.prefix, self.nodes, self.constants = prefix, list[Any](), list[Any]()

    def __getattr__(self, operator: str) -> Callable[..., str]:
        return partial(self._add, operator)

    def _add(self, operator: str, *inputs: Any, output: str = "", unused: int = 0, **attributes: Any) -> str:
        output = output or f"{self.prefix}{operator}_{len(self.nodes)}"
        outputs = [output, *(f"{output}_{number}" for number in range(unused))]
        names = list(inputs)
        for i, value in enumerate(inputs):
            if not isinstance(value, str):
                names[i] = f"{self.prefix}constant_{len(self.constants)}"
                self.constants.append(numpy_helper.from_array(np.asarray(value), names[i]))
        self.nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return output

    def finish(self, name: str, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]) -> Any:
        ins = [helper.make_tensor_value_info(tensor, *kind) for tensor, kind in inputs.items()]
        outs = [helper.make_tensor_value_info(tensor, *kind) for tensor, kind in outputs.items()]
        return helper.make_graph(self.nodes, name, ins, outs, self.constants)


def _table_score(g: Graph, X: str, model: Model) -> str:
    assert isinstance(model.encoder, MLPNetwork)
    x = z = _features(g, X, model.features)
    for (matrix, bias), name in zip(model.encoder.layers, model.encoder.activations, strict=True):
        z = getattr(g, ACTIVATIONS[name])(g.Add(g.MatMul(z, matrix), bias))
    return _combined(g, SCORES[type(model.scorer)](g, x, z, model), model.scale)


def _features(g: Graph, X: str, features: Features) -> str:
    """Features (n, width), float32, from X (n, d), float64 with NaN."""
    missing = g.IsNaN(X)
    values = g.Where(missing, features.median, X)
    lowest = np.where(features.sides > 0, features.median, -np.inf)
    highest = np.where(features.sides < 0, features.median, np.inf)
    values = g.Min(g.Max(values, lowest), highest)
    values = g.Concat(values, g.Cast(g.Gather(missing, features.gaps, axis=1), to=DOUBLE), axis=1)
    half = np.float64(0.5)  # halving both gives the same quotient without overflow in the difference
    values = g.Div(g.Sub(g.Mul(values, half), half * features.mean), half * features.scale)
    x = g.Clip(g.Cast(values, to=FLOAT), np.float32(-FARTHEST), np.float32(FARTHEST))
    if not features.knee[0]:
        return x
    # Robust features grow logarithmically and are then standardised.
    knee, mean, scale = (part.astype(np.float32) for part in (features.knee, features.bent_mean, features.bent_scale))
    magnitude = g.Cast(g.Div(g.Abs(x), knee), to=DOUBLE)  # ONNX has no log1p; float32 would lose small numbers
    magnitude = g.Mul(g.Cast(g.Log(g.Add(magnitude, np.float64(1))), to=FLOAT), knee)
    return g.Div(g.Sub(g.Mul(g.Sign(x), magnitude), mean), scale)


def _combined(g: Graph, scores: str, scale: EnsembleScale | ViewScale) -> str:
    scores = g.Cast(scores, to=DOUBLE)
    if isinstance(scale, ViewScale):
        highest = g.ReduceMax(g.Div(g.Sub(scores, scale.median), scale.unit), FIRST, keepdims=0)
        return g.Mul(g.Sign(highest), g.Log(g.Add(g.Abs(highest), np.float64(1))))
    if len(scale.floor) == 1:
        return g.Squeeze(scores, FIRST)
    logs = g.Div(g.Sub(g.Log(g.Max(scores, scale.floor)), scale.mean), scale.deviation)
    return g.ReduceMean(logs, FIRST, keepdims=0)


def _probability(g: Graph, score: str, knots: np.ndarray, values: np.ndarray) -> str:
    """Interpolate the probability curve at each score (n,): linear between knots, constant outside."""
    steps, rises = np.append(np.diff(knots), 1.0), np.append(np.diff(values), 0.0)
    score = g.Max(score, knots[0])
    passed = g.Cast(g.GreaterOrEqual(g.Unsqueeze(score, LAST), knots), to=FLOAT)
    last = g.Sub(g.Cast(g.ReduceSum(passed, LAST, keepdims=0), to=INT64), np.int64(1))
    share = g.Div(g.Sub(score, g.Gather(knots, last)), g.Gather(steps, last))
    return g.Add(g.Gather(values, last), g.Mul(share, g.Gather(rises, last)))


def _p_value(g: Graph, score: str, calibration: np.ndarray) -> str:
    knots, values = p_value_table(calibration)
    below = g.Cast(g.Less(knots, g.Unsqueeze(score, LAST)), to=FLOAT)
    return g.Gather(values, g.Cast(g.ReduceSum(below, LAST, keepdims=0), to=INT64))


# Scorers: member or view scores (E, n) from features x (n, width) and embeddings z (E, n, w).


def _center(g: Graph, x: str, z: str, model: Model) -> str:
    center = model.scorer_arrays["center"][:, None]
    if model.distance == "cosine":
        return g.Sub(ONE, g.ReduceSum(g.Mul(_unit(g, z), normalised(center)), LAST, keepdims=0))
    squared = g.ReduceSumSquare(g.Sub(z, center), LAST, keepdims=0)
    return squared if model.distance == "sqeuclidean" else g.Sqrt(squared)


def _unit(g: Graph, z: str) -> str:
    return g.Div(z, g.Max(g.ReduceL2(z, LAST), np.float32(1e-15)))


def _views(g: Graph, x: str, z: str, model: Model) -> str:
    assert isinstance(model.scorer, Views)
    ready, views, features = model.scorer_ready("cpu"), model.scorer.views, model.features
    rows = ready["rows"].astype(np.float64)
    scores: dict[str, str] = {}
    # Features differ in their last bits between libraries; rows this close to a reference count as that reference.
    rounding = LAST_BITS * (abs(ready["rows"]) + abs(features.bent_mean) / features.bent_scale)
    matches = _self_matches(g, x, rows, rounding, ready["keys"].places)
    if "columns" in views or "distilled" in views:
        scores |= _along_columns(g, x, matches, ready)
    if "space" in views:
        scores["space"] = _in_space(g, _unit(g, z) if model.distance == "cosine" else z, matches, ready)
    if "tails" in views:
        scores["tails"] = _tails(g, x, matches, rows, rounding, ready["tails"])
    return g.Concat(*(g.Unsqueeze(scores[view], FIRST) for view in views), axis=0)


def _self_matches(g: Graph, x: str, rows: np.ndarray, rounding: np.ndarray, distinct: np.ndarray) -> str:
    """Which rows equal which `distinct` references, (n, R): a reference is not its own neighbour."""
    tolerance = np.full(len(rows), -np.inf)
    tolerance[distinct] = (rounding**2).sum(1)[distinct]
    x = g.Cast(x, to=DOUBLE)  # float64, for squared distances more precise than the rounding
    squared = g.Add(g.Add(g.MatMul(x, -2 * rows.T), (rows**2).sum(1)), g.ReduceSumSquare(x, LAST))
    return g.LessOrEqual(squared, tolerance)


def _along_columns(g: Graph, x: str, matches: str, ready: dict[str, Any]) -> dict[str, str]:
    """The views (n,) along the columns, in the detector's whole steps within the range of the references."""
    columns, step = ready["columns"], np.float32(ready["columns"].step or 1)
    x = x if columns.counted is None else g.Gather(x, columns.counted, axis=1)
    x = g.Mul(x, columns.weight)
    inside = g.Min(g.Max(x, columns.low), columns.high)
    beyond = g.ReduceSum(g.Abs(g.Sub(x, inside)), LAST, keepdims=0)
    if columns.step:
        inside = g.Round(g.Div(g.Sub(inside, columns.low), step))

    def apart(body: Graph, total: str, value: str, reference: str) -> str:
        return body.Add(total, body.Abs(body.Sub(body.Unsqueeze(value, LAST), reference)))

    steps = _over_columns(g, apart, g.Where(matches, FAR, ZERO), inside, columns.columns.astype(np.float32))
    distances = g.Mul(steps, step)
    distilled = g.Slice(distances, FIRST, np.array([ready["kept"]]), np.array([1]))
    references = {"columns": (distances, len(ready["rows"])), "distilled": (distilled, ready["kept"])}
    return {view: g.Add(_mean(g, _nearest(g, *subset, view)), beyond) for view, subset in references.items()}


def _in_space(g: Graph, z: str, matches: str, ready: dict[str, Any]) -> str:
    """The mean distance (n,) to the nearest references in the concatenated embeddings of all members."""
    products, squares = ready["products"][:, :-1], ready["products"][:, -1]
    z = g.Reshape(g.Transpose(z, perm=[1, 0, 2]), np.array([-1, products.shape[1]]))
    z = g.Sub(z, ready["origin"])
    square = g.ReduceSumSquare(z, LAST)
    matches = g.Gather(matches, np.array(embedded_indices(len(ready["rows"]))), axis=1)
    offsets = g.Add(g.MatMul(z, products.T), g.Where(matches, FAR, squares))  # squared distances minus `square`
    squared = g.Add(_nearest(g, offsets, len(squares), "space"), square)
    squared = g.Where(g.Greater(squared, g.Mul(square, np.float32(ROUNDING))), squared, ZERO)
    return _mean(g, g.Sqrt(squared))


def _tails(g: Graph, x: str, matches: str, rows: np.ndarray, rounding: np.ndarray, tails: Any) -> str:
    """The tail score (n,): per column, the worth of the number of references at least as extreme, itself excluded."""
    size, is_reference = len(rows), g.ReduceMax(g.Cast(matches, to=FLOAT), LAST, keepdims=0)
    limits = [(rows + sign * rounding)[:, tails.counted].T.astype(np.float32) for sign in (-1, 1)]

    def add(body: Graph, total: str, value: str, low: str, high: str) -> str:
        value = body.Unsqueeze(value, LAST)
        below = body.ReduceSum(body.Cast(body.GreaterOrEqual(value, low), to=FLOAT), LAST, keepdims=0)
        above = body.ReduceSum(body.Cast(body.LessOrEqual(value, high), to=FLOAT), LAST, keepdims=0)
        others = body.Max(body.Sub(body.Min(below, above), is_reference), ZERO)
        return body.Add(total, body.Gather(tails.worth, body.Cast(others, to=INT64)))

    start = g.Mul(is_reference, np.float32(-len(tails.counted) * (np.log(size + 1) - np.log(size))))
    return _over_columns(g, add, start, g.Gather(x, tails.counted, axis=1), *limits)


def _over_columns(g: Graph, add: Callable[..., str], start: str, x: str, *columns: np.ndarray) -> str:
    """Fold `add` over the columns of x (n, c) and of constants (c, R), one at a time to save memory."""
    body, names = Graph(f"{add.__name__}_"), [f"{add.__name__}_input_{i}" for i in range(1 + len(columns))]
    body.Identity(add(body, "total", *names), output="sum")
    inputs: dict[str, TensorType] = {"total": (FLOAT, None), names[0]: (FLOAT, ["rows"])}
    inputs |= {name: (FLOAT, [array.shape[1]]) for name, array in zip(names[1:], columns, strict=True)}
    loop = body.finish("column", inputs, {"sum": (FLOAT, None)})
    axes = [1] + [0] * len(columns)
    return g.Scan(start, x, *columns, body=loop, num_scan_inputs=len(axes), scan_input_axes=axes)


def _nearest(g: Graph, distances: str, size: int, view: str) -> str:
    k = min(NEIGHBOURS[view], max(1, size - 1))  # size - 1: a reference is not its own neighbour
    return g.TopK(distances, np.array([k]), largest=0, unused=1)


def _mean(g: Graph, nearest: str) -> str:
    """The mean (n,) of the finite distances (n, k); 0 if there are none."""
    finite = g.Not(g.IsInf(nearest))
    count = g.ReduceSum(g.Cast(finite, to=FLOAT), LAST, keepdims=0)
    return g.Div(g.ReduceSum(g.Where(finite, nearest, ZERO), LAST, keepdims=0), g.Max(count, ONE))


SCORES: dict[type[Any], Callable[..., str]] = {Views: _views, Center: _center}


def _photo_score(g: Graph, images: str, model: Model) -> str:
    """Scores (n,) of images (n, channels, height, width), float32, and `map` (n, height, width).

    Unlike the detector, the graph scores training images like new ones, with their own patches as references.
    """
    network, ready = model.encoder, model.scorer_ready("cpu")
    assert isinstance(network, PretrainedNetwork)
    if network.is_tiled:
        raise ValueError(f"ONNX export does not support tiled images ({network.size} pixels); use a smaller size")
    shape, features = network.shape, model.features
    mean, scale = (part.astype(np.float32).reshape(shape) for part in (features.mean, features.scale))
    g.Div(g.Sub(images, mean), scale, output="images")
    count = g.Slice(g.Shape(images), np.array([0]), np.array([1]))
    g.Concat(count, np.array([shape[0], *network.size]), axis=0, output="size")
    shipped = load_from_string(shipped_network()).graph
    g.nodes += shipped.node
    g.constants += shipped.initializer

    def resized(maps: str, size: tuple[int, ...]) -> str:
        return g.Resize(maps, "", "", g.Concat(count, np.array([1, *size]), axis=0), mode="linear")

    fine, coarse = (_patch_map(g, name, level, ready) for level, name in enumerate(LEVELS))
    patch_map = g.Div(g.Add(fine, resized(coarse, network.levels[0][1:])), np.float32(2))
    top = g.TopK(g.Flatten(patch_map), np.array([top_count(network.levels[0])]), unused=1)
    g.Squeeze(resized(patch_map, shape[1:]), np.array([1]), output="map")
    return g.Cast(g.ReduceMean(top, LAST, keepdims=0), to=DOUBLE)


def _patch_map(g: Graph, name: str, level: int, ready: dict[str, Any]) -> str:
    """The distance (n, 1, h, w) of each patch to the nearest reference, from features (n, c, h, w)."""
    channels, height, width = map(int, ready["levels"][level])
    (mean, deviation), references = ready[f"standard{level}"], ready[f"products{level}"].T
    patches = g.Transpose(g.Reshape(name, np.array([0, channels, height * width])), perm=[0, 2, 1])
    patches = g.Div(g.Sub(patches, mean), deviation)
    nearest = g.ReduceMin(g.Add(g.MatMul(patches, references[:-1]), references[-1]), LAST, keepdims=0)
    squared = g.Max(g.Add(nearest, g.ReduceSumSquare(patches, LAST, keepdims=0)), ZERO)
    return g.Reshape(g.Div(g.Sqrt(squared), ready["units"][level]), np.array([-1, 1, height, width]))
