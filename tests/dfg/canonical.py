"""Canonical models from ONNX text, quantised here without the frontend, and the QDQ model they
stand for.

Graph inputs named w* (weights), b* (biases) and k* (other constants, numbers of 15 bits) become
seeded initialisers.
`quantised` puts a rounding behind every value; `reference` runs the same roundings as
QuantizeLinear / DequantizeLinear in ONNX Runtime.
"""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper, numpy_helper

from opu_fuse.quant import META_KEY, QuantParams

SAME_SCALE = {"MaxPool", "Reshape", "Pad", "Resize", "Transpose", "Concat", "Split"}


@dataclass
class Quantised:
    """model: annotated canonical IR; qdq: the same as a QDQ model; names: values that are
    rounded.
    """

    model: ir.Model
    qdq: onnx.ModelProto
    names: list[str]


def float_model(text: str, seed: int = 0, opset: int = 17) -> onnx.ModelProto:
    """Parses `g (inputs) => (outputs) { nodes }` and fills weights, biases and constants."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    rng = np.random.default_rng(seed)
    for info in [i for i in proto.graph.input if i.name[0] in "wbk"]:
        proto.graph.input.remove(info)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            raise ValueError("give integer constants as <int64[n] name = {...}>")
        fan_in = int(np.prod(shape[1:])) if info.name[0] == "w" else 1
        data = rng.normal(size=shape) / np.sqrt(fan_in)
        if info.name[0] == "k":
            data = np.rint(data * 2**12) / 2**12
        proto.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), info.name))
    for i, node in enumerate(proto.graph.node):
        node.name = node.name or f"{node.op_type.lower()}_{i}"
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True)


def canonical(text: str, seed: int = 0, opset: int = 17) -> ir.Model:
    """The float canonical model of a text."""
    return ir.from_proto(float_model(text, seed, opset))


def user_inputs(proto: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Noise for every input."""
    return {
        i.name: rng.normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for i in proto.graph.input
    }


def run(
    proto: onnx.ModelProto, inputs: dict[str, np.ndarray], names: list[str]
) -> dict[str, np.ndarray]:
    """Values of a model in ONNX Runtime, without optimisations: one operator after the other."""
    if not names:
        return {}
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))


def quantised(
    text: str,
    seed: int = 0,
    *,
    pow2: bool = True,
    zero_points: bool = False,
    unrounded: tuple[str, ...] = (),
    opset: int = 17,
    tied: bool = True,
) -> Quantised:
    """A text quantised with one calibration sample; values in `unrounded` get no rounding (float
    islands). tied: operators that move values keep their scale.
    """
    proto = float_model(text, seed, opset)
    rng = np.random.default_rng(seed + 1)
    inputs = user_inputs(proto, rng)
    floats = [v for v in _value_names(proto) if v not in unrounded]
    values = run(proto, inputs, [v for v in floats if v not in inputs]) | inputs
    activations: dict[str, QuantParams] = {}
    for name in floats:
        activations[name] = _activation_quant(
            values[name], pow2, int(rng.integers(-40, 40)) if zero_points else 0
        )
    if tied:
        _tie(proto, activations)
    constants = _constant_quants(proto, activations, pow2)
    return Quantised(
        _annotate(proto, activations, constants), _qdq(proto, activations, constants), floats
    )


def _tie(proto: onnx.ModelProto, activations: dict[str, QuantParams]) -> None:
    """Operators that only move values keep their scale: the largest one of all they touch.

    Of equal scales the one with the largest zero point, so that the loop ends.
    """
    changed = True
    while changed:
        changed = False
        for node in (n for n in proto.graph.node if n.op_type in SAME_SCALE):
            reads = node.input if node.op_type == "Concat" else node.input[:1]
            if node.input[0] not in activations or node.output[0] not in activations:
                continue
            names = [n for n in (*reads, *node.output) if n in activations]
            largest = max((activations[n] for n in names), key=lambda q: (q.scale, q.zero_point))
            changed = changed or any(activations[n] != largest for n in names)
            activations |= dict.fromkeys(names, largest)


def reference(q: Quantised, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """int8 of every rounded value, by value name, from ONNX Runtime on the QDQ model."""
    found = run(q.qdq, inputs, [f"{n}/q" for n in q.names])
    return {n: found[f"{n}/q"] for n in q.names}


def _value_names(proto: onnx.ModelProto) -> list[str]:
    constant = {"Constant"}
    made = [o for n in proto.graph.node if n.op_type not in constant for o in n.output if o]
    kinds = {v.name: v.type.tensor_type.elem_type for v in proto.graph.value_info}
    truths = {name for name, kind in kinds.items() if kind == onnx.TensorProto.BOOL}
    return [i.name for i in proto.graph.input] + [name for name in made if name not in truths]


def _activation_quant(value: np.ndarray, pow2: bool, zero_point: int) -> QuantParams:
    scale = max(float(np.abs(value).max()), 1e-3) / (127 - abs(zero_point))
    scale = float(np.exp2(np.ceil(np.log2(scale)))) if pow2 else float(np.float32(scale))
    return QuantParams(scale=(scale,), zero_point=zero_point)


def _constant_quants(
    proto: onnx.ModelProto, activations: dict[str, QuantParams], pow2: bool
) -> dict[str, QuantParams]:
    data = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    found: dict[str, QuantParams] = {}
    for node in proto.graph.node:
        if node.op_type not in {"Conv", "ConvTranspose", "Gemm"}:
            continue
        if node.input[0] not in activations:
            continue
        axis = _filter_axis(node)
        weight = np.moveaxis(data[node.input[1]], axis, 0)
        weight = weight.reshape(len(weight), -1)
        scales = np.maximum(np.abs(weight).max(axis=1), 1e-3) / 127
        scales = np.exp2(np.ceil(np.log2(scales))) if pow2 else scales.astype(np.float32)
        found[node.input[1]] = QuantParams(scale=tuple(map(float, scales)), axis=axis)
        if len(node.input) > 2:
            sx = activations[node.input[0]].per_tensor
            bias = tuple(float(np.float32(s * sx)) for s in scales)
            found[node.input[2]] = QuantParams(scale=bias, axis=0, bits=32)
    return found


def _filter_axis(node: onnx.NodeProto) -> int:
    groups = [a.i for a in node.attribute if a.name == "group"] or [1]
    return int(node.op_type == "ConvTranspose" and groups == [1])


def _integers(data: np.ndarray, quant: QuantParams) -> np.ndarray:
    scale = np.asarray(quant.scale).reshape(
        [-1 if i == quant.axis else 1 for i in range(data.ndim)]
    )
    limit = 127 if quant.bits == 8 else 2**31 - 1
    return np.clip(np.rint(data / scale), -limit, limit).astype(
        np.int8 if quant.bits == 8 else np.int32
    )


def _annotate(proto, activations, constants) -> ir.Model:
    model = ir.from_proto(proto)
    values = list(model.graph.inputs) + [o for n in model.graph for o in n.outputs]
    for value in values:
        if value.name in activations:
            value.meta[META_KEY] = activations[value.name]
            value.meta["opu_fuse.tensor"] = f"{value.name}/q"
    for name, quant in constants.items():
        value = model.graph.initializers[name]
        value.const_value = ir.tensor(_integers(value.const_value.numpy(), quant), name=name)
        value.meta[META_KEY] = quant
    return model


def _qdq(proto, activations, constants) -> onnx.ModelProto:
    graph = proto.graph
    extra: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def pair(name: str, source: str, quant: QuantParams) -> None:
        extra.append(numpy_helper.from_array(np.array(quant.per_tensor, np.float32), f"{name}/s"))
        extra.append(numpy_helper.from_array(np.array(quant.zero_point, np.int8), f"{name}/z"))
        nodes.append(
            helper.make_node("QuantizeLinear", [source, f"{name}/s", f"{name}/z"], [f"{name}/q"])
        )
        nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}/q", f"{name}/s", f"{name}/z"], [f"{name}/d"]
            )
        )

    for tensor in graph.initializer:
        if tensor.name not in constants:
            extra.append(tensor)
            continue
        quant = constants[tensor.name]
        extra.append(
            numpy_helper.from_array(
                _integers(numpy_helper.to_array(tensor), quant), f"{tensor.name}/q"
            )
        )
        extra.append(numpy_helper.from_array(np.array(quant.scale, np.float32), f"{tensor.name}/s"))
        nodes.append(
            helper.make_node(
                "DequantizeLinear",
                [f"{tensor.name}/q", f"{tensor.name}/s"],
                [f"{tensor.name}/d"],
                axis=quant.axis,
            )
        )
    for info in graph.input:
        if info.name in activations:
            pair(info.name, info.name, activations[info.name])
    rounded = {*activations, *constants}
    for node in graph.node:
        new = onnx.NodeProto.FromString(node.SerializeToString())
        new.input[:] = [f"{i}/d" if i in rounded else i for i in node.input]
        nodes.append(new)
        for output in node.output:
            if output in activations:
                pair(output, output, activations[output])
    outputs = [helper.make_empty_tensor_value_info(o.name) for o in graph.output]
    new_graph = helper.make_graph(nodes, graph.name, graph.input, outputs, extra)
    return helper.make_model(
        new_graph, opset_imports=proto.opset_import, ir_version=proto.ir_version
    )
