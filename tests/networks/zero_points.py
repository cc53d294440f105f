"""Layers whose weights have zero points, between pairs."""

from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper


class Layer(Struct, frozen=True, kw_only=True):
    """One operator. x, weight: shapes; axis: of the output channels in the weight."""

    op: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    axis: int = 0
    form: dict[str, Any]


SAME, UNEVEN = {"pads": [1, 1, 1, 1]}, {"pads": [1, 2, 2, 0], "strides": [2, 2]}
LAYERS = {
    "conv": Layer(op="Conv", x=(1, 19, 9, 7), weight=(37, 19, 3, 3), form=SAME),
    "image": Layer(op="Conv", x=(1, 3, 15, 13), weight=(20, 3, 5, 5), form=UNEVEN),
    "pixel": Layer(op="Conv", x=(1, 70, 5, 5), weight=(40, 70, 1, 1), form={}),
    "line": Layer(op="Conv", x=(1, 9, 21), weight=(11, 9, 3), form={"pads": [2, 0]}),
    "grouped": Layer(op="Conv", x=(1, 12, 8, 8), weight=(18, 4, 3, 3), form={**SAME, "group": 3}),
    "depthwise": Layer(
        op="Conv", x=(1, 37, 9, 9), weight=(37, 1, 3, 3), form={**SAME, "group": 37}
    ),
    "large depthwise": Layer(
        op="Conv", x=(1, 11, 12, 12), weight=(11, 1, 7, 5), form={"group": 11}
    ),
    "transposed": Layer(
        op="ConvTranspose",
        x=(1, 10, 6, 5),
        weight=(10, 21, 3, 3),
        axis=1,
        form={**SAME, "strides": [2, 2], "output_padding": [1, 1]},
    ),
    "gemm": Layer(op="Gemm", x=(1, 90), weight=(30, 90), form={"transB": 1}),
    "matmul": Layer(op="MatMul", x=(1, 90), weight=(90, 30), axis=1, form={}),
}

Kind = type[np.int8] | type[np.uint8]
ZEROS: dict[str, tuple[Kind, list[int] | int]] = {
    "int8 -128": (np.int8, -128),
    "int8 127": (np.int8, 127),
    "int8 3": (np.int8, 3),
    "uint8 0": (np.uint8, 0),
    "uint8 255": (np.uint8, 255),
    "uint8 119": (np.uint8, 119),
    "int8 for each channel": (np.int8, [0, 0, -128, 0, 0, 127, 5]),
    "uint8 for each channel": (np.uint8, [128, 128, 128, 0, 255, 128, 100, 128, 128]),
}


def between_pairs(
    layer: Layer, kind: Kind, zeros: list[int] | int, seed: int = 1
) -> onnx.ModelProto:
    """The layer between pairs, scales powers of two, its weights from one end of their type to the
    other; every second filter keeps close to its zero point. zeros: one, or those of the channels
    in turn.
    """
    rng, limits = np.random.default_rng(seed), np.iinfo(kind)
    channels = layer.weight[layer.axis]
    zero = np.resize(zeros, channels) if isinstance(zeros, list) else np.full(channels, zeros)
    along = [-1 if i == layer.axis else 1 for i in range(len(layer.weight))]
    spread = zero.reshape(along)
    weight = rng.integers(limits.min, limits.max + 1, layer.weight)
    close = np.clip(spread + rng.integers(-100, 101, layer.weight), limits.min, limits.max)
    weight = np.where((np.arange(channels) % 4 > 1).reshape(along), close, weight).astype(kind)
    several = isinstance(zeros, list)
    terms = weight.size // channels if layer.op != "ConvTranspose" else layer.weight[0] * 3
    constants = {
        "w": weight,
        "w_s": np.float32(2.0 ** -(5 + np.arange(channels) % 3)) if several else np.float32(2**-6),
        "w_z": zero.astype(kind) if several else np.array(zeros, kind),
        "x_s": np.float32(2**-5),
        "x_z": np.int8(-9),
        "y_s": np.float32(2.0 ** np.ceil(np.log2(np.sqrt(terms) / 8))),
        "y_z": np.int8(4),
        "b": rng.integers(-9999, 10000, channels).astype(np.int32),
    }
    constants["b_s"] = constants["x_s"] * constants["w_s"]
    axis: dict[str, Any] = {"axis": layer.axis} if several else {}
    operands = ["x_r", "w_r"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "x_s", "x_z"], ["x_r"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["w_r"], **axis),
    ]
    if layer.op != "MatMul":
        operands.append("b_r")
        form: dict[str, Any] = {"axis": 0} if several else {}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "b_s"], ["b_r"], **form))
    nodes += [
        helper.make_node(layer.op, operands, ["c"], name="layer", **layer.form),
        helper.make_node("QuantizeLinear", ["c", "y_s", "y_z"], ["y_q"]),
        helper.make_node("DequantizeLinear", ["y_q", "y_s", "y_z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, layer.x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.asarray(v), n)
            for n, v in constants.items()
            if n not in {"b", "b_s"} or layer.op != "MatMul"
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)
