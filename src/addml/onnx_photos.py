"""Photographs in an ONNX graph: pixels -> features of the pretrained network -> patch memory -> map and score."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml.encoders.pretrained import LEVELS, PretrainedNetwork, shipped_network
from addml.model import Model
from addml.scoring.patches import top_count

DOUBLE = 11  # ONNX's number of float64
LAST, CHANNEL = np.array([-1]), np.array([1])  # axes


def onnx_module() -> Any:
    """The onnx package, or an error that says what to install."""
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX export needs onnx: pip install 'addml[onnx]'") from None
    return onnx


def photo_graph(g: Any, images: str, model: Model) -> str:
    """Scores (n,) of images (n, channels, height, width), float32, in a Graph, and `map` (n, height, width).

    The graph cannot tell images of training from others: it scores them like new ones, near their own places.
    """
    network = model.encoder
    assert isinstance(network, PretrainedNetwork)
    if network.is_tiled:
        raise ValueError(f"images of {network.size} pixels are read in tiles, which ONNX export does not; fit smaller")
    shape, ready = network.shape, model.scorer_ready("cpu")
    mean, scale = (part.astype(np.float32).reshape(shape) for part in (model.features.mean, model.features.scale))
    g.Div(g.Sub(images, mean), scale, output="images")
    count = g.Slice(g.Shape(images), np.array([0]), np.array([1]))
    g.Concat(count, np.array([shape[0], *network.size]), axis=0, output="size")
    g.splice(onnx_module().load_from_string(shipped_network()).graph)
    maps = [_map(g, name, level, ready) for level, name in enumerate(LEVELS)]
    fine, coarse = maps[0], _resized(g, maps[1], count, network.levels[0][1:])
    found = g.Div(g.Add(fine, coarse), np.float32(2))
    strangest = g.TopK(g.Flatten(found), np.array([top_count(network.levels[0])]), unused=1)
    g.Squeeze(_resized(g, found, count, shape[1:]), CHANNEL, output="map")
    return str(g.Cast(g.ReduceMean(strangest, LAST, keepdims=0), to=DOUBLE))


def _map(g: Any, name: str, level: int, ready: dict[str, Any]) -> str:
    """The distance (n, 1, h, w) of each place to the nearest reference, from features (n, c, h, w)."""
    channels, height, width = map(int, ready["levels"][level])
    (mean, deviation), references = ready[f"standard{level}"], ready[f"products{level}"].T
    places = g.Transpose(g.Reshape(name, np.array([0, channels, height * width])), perm=[0, 2, 1])
    places = g.Div(g.Sub(places, mean), deviation)
    nearest = g.ReduceMin(g.Add(g.MatMul(places, references[:-1]), references[-1]), LAST, keepdims=0)
    squared = g.Max(g.Add(nearest, g.ReduceSumSquare(places, LAST, keepdims=0)), np.float32(0))
    return str(g.Reshape(g.Div(g.Sqrt(squared), ready["units"][level]), np.array([-1, 1, height, width])))


def _resized(g: Any, maps: str, count: str, size: tuple[int, ...]) -> str:
    return str(g.Resize(maps, "", "", g.Concat(count, np.array([1, *size]), axis=0), mode="linear"))
