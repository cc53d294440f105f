"""Long canonical models, built without text."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir


def chain(length: int, kinds: Sequence[str]) -> ir.Model:
    """`length` operators in a row, their kinds in turn: Relu, MaxPool, Conv (with bias), Add (with
    the last Add's result).
    """
    x = ir.val("x", ir.DataType.FLOAT, [1, 4, 8, 8])
    w = _constant("w", np.ones((4, 4, 1, 1), np.float32))
    b = _constant("b", np.ones(4, np.float32))
    value, skip, nodes = x, x, []
    for i in range(length):
        kind = kinds[i % len(kinds)]
        inputs = {"Conv": [value, w, b], "Add": [value, skip]}.get(kind, [value])
        attributes = {"kernel_shape": [1, 1]} if kind == "MaxPool" else {}
        node = ir.node(kind, inputs, attributes, name=f"n{i}")
        value = node.outputs[0]
        value.name, value.shape, value.type = f"v{i}", x.shape, x.type
        skip = value if kind == "Add" else skip
        nodes.append(node)
    graph = ir.Graph(
        [x], [value], nodes=nodes, initializers=[w, b], opset_imports={"": 17}, name="chain"
    )
    return ir.Model(graph, ir_version=10)


def _constant(name: str, data: np.ndarray) -> ir.Value:
    value = ir.val(name, ir.DataType.FLOAT, data.shape)
    value.const_value = ir.tensor(data, name=name)
    return value
