"""Random networks full of concatenations, as ONNX: shared, repeated and nested operands, pools
behind them, several inputs and outputs.

Only operators that the canonical form leaves as they are: no constants to fold, no padding that a
convolution takes in.
"""

import random
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

SIZE = 8
CHANNELS = (4, 8)
KINDS = {
    "conv": 6,
    "conv_bias": 6,
    "relu": 6,
    "leaky": 1,
    "max_pool": 3,
    "avg_pool": 1,
    "halve": 2,
    "upsample": 3,
    "pad": 1,
    "widen": 1,
    "softmax": 1,
    "add": 4,
    "multiply": 3,
    "concat": 8,
}
"""How often each operator is drawn."""

RESIZE = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


@dataclass
class Network:
    """shapes: (channels, rows) by value, in the order in which they are made."""

    rng: random.Random
    nodes: list[NodeProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def pick(self, shape=None, *, rows=None) -> str:
        """A value, mostly a recent one."""
        fits = [v for v, s in self.shapes.items() if shape in (None, s) and rows in (None, s[1])]
        return self.rng.choice(fits[-4:] if self.rng.random() < 0.7 else fits)

    def node(self, op: str, inputs: list[str], shape: tuple[int, int], **attributes) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_y"], name, **attributes))
        self.shapes[f"{name}_y"] = shape
        return f"{name}_y"

    def constant(self, data: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def ones(self, *shape: int) -> str:
        return self.constant(np.ones(shape, np.float32))


def _conv(net: Network, *, bias: bool) -> None:
    x = net.pick()
    c, rows = net.shapes[x]
    out = net.rng.choice(CHANNELS)
    size = net.rng.choice((1, 3))
    inputs = [x, net.ones(out, c, size, size), *([net.ones(out)] if bias else [])]
    net.node("Conv", inputs, (out, rows), kernel_shape=[size, size], pads=[size // 2] * 4)


def _same(net: Network, op: str, **attributes) -> None:
    x = net.pick()
    net.node(op, [x], net.shapes[x], **attributes)


def _halve(net: Network) -> None:
    x = net.pick()
    c, rows = net.shapes[x]
    if rows > 1:
        net.node("MaxPool", [x], (c, rows // 2), kernel_shape=[2, 2], strides=[2, 2])


def _upsample(net: Network) -> None:
    x = net.pick()
    c, rows = net.shapes[x]
    if rows < SIZE:
        scales = net.constant(np.array((1, 1, 2, 2), np.float32))
        net.node("Resize", [x, "", scales], (c, 2 * rows), **RESIZE)


def _pad(net: Network, *, channels: int) -> None:
    """Of rows and columns with ones, which no convolution takes in; of channels with zeros."""
    x = net.pick()
    c, rows = net.shapes[x]
    around = 0 if channels else 1
    if rows + 2 * around > SIZE + 2:
        return
    pads = np.array((0, 0, around, around, 0, channels, around, around), np.int64)
    fill = net.constant(np.array(float(around), np.float32))
    net.node("Pad", [x, net.constant(pads), fill], (c + channels, rows + 2 * around))


def _binary(net: Network, op: str) -> None:
    """Products only of what no functions of one element make: x · relu(x) is one operator."""
    made = {n.output[0]: n.op_type for n in net.nodes}
    x = net.pick()
    fits = [v for v, s in net.shapes.items() if s == net.shapes[x] and v != x]
    if op == "Mul":
        fits = [v for v in fits if {made.get(v), made.get(x)} <= {"Conv", "MaxPool", "Concat"}]
    if fits:
        net.node(op, [x, net.rng.choice(fits)], net.shapes[x])


def _concat(net: Network) -> None:
    first = net.pick()
    rows = net.shapes[first][1]
    operands = [first, *(net.pick(rows=rows) for _ in range(net.rng.choice((1, 1, 2, 3))))]
    channels = sum(net.shapes[v][0] for v in operands)
    if channels <= 96:
        y = net.node("Concat", operands, (channels, rows), axis=1)
        if net.rng.random() < 0.3:
            window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
            net.node("MaxPool", [y], (channels, rows), **window)


WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
MAKERS = {
    "conv": lambda net: _conv(net, bias=False),
    "conv_bias": lambda net: _conv(net, bias=True),
    "relu": lambda net: _same(net, "Relu"),
    "leaky": lambda net: _same(net, "LeakyRelu", alpha=0.125),
    "max_pool": lambda net: _same(net, "MaxPool", **WINDOW),
    "avg_pool": lambda net: _same(net, "AveragePool", **WINDOW, count_include_pad=1),
    "halve": _halve,
    "upsample": _upsample,
    "pad": lambda net: _pad(net, channels=0),
    "widen": lambda net: _pad(net, channels=4),
    "softmax": lambda net: _same(net, "Softmax", axis=1),
    "add": lambda net: _binary(net, "Add"),
    "multiply": lambda net: _binary(net, "Mul"),
    "concat": _concat,
}


def concat_graph(seed: int) -> ModelProto:
    """A network of up to 20 operators, at least one of them a concatenation."""
    rng = random.Random(seed)
    net = Network(rng)
    inputs = ["x", "z"][: rng.choice((1, 1, 1, 2))]
    for name in inputs:  # inputs that are only moved would not be rounded
        net.node("MaxPool", [name], (CHANNELS[0], SIZE), **WINDOW)
    kinds = [*rng.choices(list(KINDS), list(KINDS.values()), k=rng.randint(3, 16)), "concat"]
    for kind in kinds:
        MAKERS[kind](net)
    if rng.random() < 0.3:
        _head(net)
    return _model(net, inputs)


def _head(net: Network) -> None:
    x = net.pick()
    c, _ = net.shapes[x]
    pooled = net.node("GlobalAveragePool", [x], (c, 1))
    flat = net.node("Flatten", [pooled], (c, 0), axis=1)
    net.node("Gemm", [flat, net.ones(5, c), net.ones(5)], (5, 0), transB=1)


def _model(net: Network, inputs: list[str]) -> ModelProto:
    """Outputs: whatever nobody reads, and sometimes a value from within."""
    read = {i for n in net.nodes for i in n.input}
    outputs = [v for v in net.shapes if v not in read or net.rng.random() < 0.05]
    net.rng.shuffle(outputs)

    def info(name: str):
        channels, rows = net.shapes.get(name, (CHANNELS[0], SIZE))
        dims = [1, channels, rows, rows] if rows else [1, channels]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    graph = helper.make_graph(
        net.nodes,
        "concats",
        [info(v) for v in inputs],
        [info(v) for v in outputs],
        [numpy_helper.from_array(data, name) for name, data in net.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
