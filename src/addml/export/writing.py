"""The whole graph of a detector, what its file tells of itself, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from addml import __version__
from addml.encoders.mlp import MLPNetwork
from addml.export import stages
from addml.export.graph import BOOL, DOUBLE, About, Graph, onnx_module
from addml.export.scorers import SCORES
from addml.io.write import write_whole
from addml.scoring.guidance import Guided
from addml.text import listed

if TYPE_CHECKING:
    import onnx

    from addml.detector import ADDML
    from addml.model import MetricModel

OPSET, IR_VERSION = 18, 8  # those of ONNX 1.13, of 2022: runtimes of the last years take them
MOST_BYTES = 2**31 - 2**26  # of references: a file of ONNX ends at 2 GiB
OUTPUTS: dict[str, About] = {name: (DOUBLE, ["rows"]) for name in ("score", "probability")}
OUTPUTS["is_anomaly"] = (BOOL, ["rows"])


def to_onnx(detector: ADDML, path: str | os.PathLike[str]) -> None:
    """Write a detector that was fitted to a table of numbers as an ONNX file, whole or not at all.

    It takes X (n, columns), float64 with NaN for gaps, and gives score, is_anomaly and probability, each (n,).
    """
    check_is_fitted(detector, "threshold_")
    write_whole(Path(os.path.expanduser(path)), onnx_model(detector).SerializeToString())


def onnx_model(detector: ADDML) -> onnx.ModelProto:
    """The model that `to_onnx` writes."""
    helper, g = onnx_module().helper, Graph()
    score = _score(g, "X", detector.model_)
    g.Identity(score, output="score")
    g.Greater(score, np.float64(detector.threshold_), output="is_anomaly")
    g.Identity(stages.probability(g, score, detector.training_.probability), output="probability")
    graph = g.whole("addml", {"X": (DOUBLE, ["rows", len(detector.model_.features.median)])}, OUTPUTS)
    opset = helper.make_opsetid("", OPSET)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    helper.set_model_props(model, _about(detector))
    return model


def _score(g: Graph, X: str, model: MetricModel) -> str:
    """One score (n,) a row of X (n, d), stage by stage as in `MetricModel.scores`."""
    _check(model)
    assert isinstance(model.encoder, MLPNetwork)
    assert model.scale is not None
    x = stages.prepared(g, X, model.features)
    z = stages.embedded(g, x, model.encoder)
    return stages.combined(g, SCORES[type(model.scorer)](g, x, z, model), model.scale)


def _about(detector: ADDML) -> dict[str, str]:
    """Version, scorer, threshold and, where they have names, the columns in their order."""
    columns, names = detector.model_.columns, getattr(detector, "feature_names_in_", None)
    used = names if columns is None else columns.used
    about = {"addml": __version__, "scorer": detector.model_.scorer.name, "threshold": repr(float(detector.threshold_))}
    return about if used is None else about | {"columns": json.dumps(list(map(str, used)))}


def _check(model: MetricModel) -> None:
    """Refuse what the graph does not know, by its name and with the remedy."""
    if model.form is not None:
        what = "a series" if model.form.is_series else "images"
        raise ValueError(f"the detector was fitted to {what}, ONNX export is for tables of numbers; use addml.load")
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
