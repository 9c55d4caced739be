"""An ONNX graph, written as the mathematics is: `g.Add(x, y)` adds ONNX's Add and gives the name of what it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import onnx

BOOL, FLOAT, DOUBLE, INT64 = 9, 1, 11, 7  # ONNX's numbers of its types
ZERO, ONE = np.float32(0), np.float32(1)
FIRST, LAST = np.array([0]), np.array([-1])  # axes

Value: TypeAlias = str | np.ndarray | np.generic  # what a node makes, by its name, or a constant
About: TypeAlias = tuple[int, list[str | int] | None]  # the type of an input or output, and the shape if it is known


class Graph:
    """Nodes and constants in the order in which they are asked for, each under a name of its own."""

    def __init__(self, prefix: str = "") -> None:
        """Names begin with the prefix, which tells those of a graph within another one apart."""
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

    def whole(self, name: str, inputs: Mapping[str, About], outputs: Mapping[str, About]) -> onnx.GraphProto:
        """All of it, between these inputs and outputs."""
        helper = onnx_module().helper
        make = helper.make_tensor_value_info
        ends = [[make(end, *about) for end, about in side.items()] for side in (inputs, outputs)]
        graph: onnx.GraphProto = helper.make_graph(self._nodes, name, *ends, self._constants)
        return graph


def onnx_module() -> Any:
    """ONNX itself, or an error that says what to install."""
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX export needs onnx: pip install 'addml[onnx]'") from None
    return onnx
