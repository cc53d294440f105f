"""The graphs of `fusion_scaling.py`, described once and built for whoever fuses them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

CHANNELS, ROWS, COLS = 4, 8, 8
WIDEST = 10_000
"""Operands of a concat; larger graphs have several."""

INPUT = -1


class Op(NamedTuple):
    """kind: conv (with a bias), relu, pool, add or concat; operands: positions, or INPUT."""

    kind: str
    operands: tuple[int, ...]


def chain(count: int) -> list[Op]:
    """conv, relu, pool, add with the sum before, over and over."""
    ops: list[Op] = []
    shortcut = INPUT
    for i in range(count):
        kind = ("conv", "relu", "pool", "add")[i % 4]
        ops.append(Op(kind, (i - 1, shortcut) if kind == "add" else (i - 1,)))
        shortcut = i if kind == "add" else shortcut
    return ops


def residual(count: int) -> list[Op]:
    """Residual blocks: conv, relu, conv, add with the block's input, relu."""
    ops: list[Op] = []
    block = INPUT
    for i in range(count):
        kind = ("conv", "relu", "conv", "add", "relu")[i % 5]
        ops.append(Op(kind, (i - 1, block) if kind == "add" else (i - 1,)))
        block = i if i % 5 == 4 else block
    return ops


def fan_out(count: int) -> list[Op]:
    """One value read by half of all operators, the other half sums them up."""
    width = count // 2
    ops = [Op("relu", (INPUT,)), *(Op("conv", (0,)) for _ in range(width))]
    total = 1
    for i in range(2, width + 1):
        ops.append(Op("add", (total, i)))
        total = len(ops) - 1
    return ops


def concat(count: int) -> list[Op]:
    """Branches of one operator, joined `WIDEST` at a time."""
    ops: list[Op] = []
    while len(ops) < count:
        width = min(WIDEST, count - len(ops))
        first = len(ops)
        ops += [Op("relu", (INPUT,)) for _ in range(width)]
        ops.append(Op("concat", tuple(range(first, first + width))))
    return ops


GRAPHS: dict[str, Callable[[int], list[Op]]] = {
    "chain": chain,
    "residual": residual,
    "fan-out": fan_out,
    "concat": concat,
}


def onnx_model(ops: Sequence[Op]) -> ir.Model:
    """The canonical float model of a description; whatever nobody reads is an output."""
    x = ir.val("x", ir.DataType.FLOAT, [1, CHANNELS, ROWS, COLS])
    weight = _constant("w", np.ones((CHANNELS, CHANNELS, 1, 1), np.float32))
    bias = _constant("b", np.ones(CHANNELS, np.float32))
    values: list[ir.Value] = []
    nodes: list[ir.Node] = []
    for i, op in enumerate(ops):
        operands = [x if o == INPUT else values[o] for o in op.operands]
        if op.kind == "conv":
            operands += [weight, bias]
        attributes = {"pool": {"kernel_shape": [1, 1]}, "concat": {"axis": 1}}.get(op.kind, {})
        onnx_op = {"conv": "Conv", "relu": "Relu", "pool": "MaxPool", "add": "Add"}
        node = ir.node(onnx_op.get(op.kind, "Concat"), operands, attributes, name=f"n{i}")
        value = node.outputs[0]
        wide = len(operands) if op.kind == "concat" else 1
        value.name, value.type = f"v{i}", x.type
        value.shape = ir.Shape([1, wide * CHANNELS, ROWS, COLS])
        nodes.append(node)
        values.append(value)
    read = {o for op in ops for o in op.operands}
    outputs = [value for i, value in enumerate(values) if i not in read]
    graph = ir.Graph(
        [x],
        outputs,
        nodes=nodes,
        initializers=[weight, bias],
        opset_imports={"": 17},
        name="scaling",
    )
    return ir.Model(graph, ir_version=10)


def _constant(name: str, data: np.ndarray) -> ir.Value:
    value = ir.val(name, ir.DataType.FLOAT, data.shape)
    value.const_value = ir.tensor(data, name=name)
    return value
