"""One operator in ONNX Runtime: what runs where the machine's arithmetic has no word for it.

The operator gets real numbers (int8 values dequantised) and its result is rounded where the model
rounds it.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.lower_node import const_array
from opu_fuse.dfg.value_types import UNKNOWN, ValueType
from opu_fuse.errors import ModelError
from opu_fuse.model.composites import PERMUTE, SHUFFLE
from opu_fuse.quant import META_KEY, QuantParams

MAX_IR_VERSION = 10
"""IR version of the models. Newer ones have no feature that is needed here."""
_ELEMENTS = {f"tensor({t.name.lower()})": t for t in ir.DataType}

log = logging.getLogger(__name__)


def run_call(node: Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Results of one call, not rounded. values: its operands by name, in the model's own dtypes.

    Raises ModelError when ONNX Runtime refuses the operator.
    """
    assert node.ir_node is not None, f"call {node.name} has no canonical node"
    nodes, constants = body_of(node, values)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in values.items()
    ]
    wanted = [v.name or "" for v in node.ir_node.outputs if v.name]
    outputs = [helper.make_empty_tensor_value_info(name) for name in wanted]
    graph = helper.make_graph(nodes, "host", inputs, outputs, constants)
    opsets = node.ir_node.graph.opset_imports if node.ir_node.graph is not None else {"": 17}
    try:
        return run_graph(graph, opsets, values)
    except Exception as error:
        what = f"ONNX Runtime cannot run {node.title}: {str(error).splitlines()[0]}"
        raise ModelError(node.name, what, "check the model with onnx.checker") from error


def body_of(
    node: Node, known: Collection[str] = ()
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The ONNX nodes of a call, and the constants they read that are no DFG operands (pads, bounds,
    scales, target shapes), without those in `known`.

    Values between the nodes of a composite are rounded as the model rounds them, the result is not.
    What a shuffle or permutation moves is rounded once, at its end, where that is the same.
    """
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for part in node.body or (node.ir_node,):
        assert part is not None, f"call {node.name} has no canonical node"
        proto = ir.serde.serialize_node(part)
        nodes.append(proto)
        constants |= constant_inputs(part, known)
        quant = part.outputs[0].meta.get(META_KEY)
        moved = node.op in {SHUFFLE, PERMUTE} and quant == node.quant
        if part is not node.ir_node and quant is not None and not moved:
            name = proto.output[0]
            proto.output[0] = f"{name}:raw"
            nodes += rounding(f"{name}:raw", f"{name}:int8", name, quant, constants)
    return nodes, [numpy_helper.from_array(data, name) for name, data in constants.items()]


def rounding(
    source: str, ints: str, target: str, quant: QuantParams, constants: dict[str, np.ndarray]
) -> list[onnx.NodeProto]:
    """QuantizeLinear and DequantizeLinear between three names; adds scale and zero point."""
    scale, zero = f"{ints}:scale", f"{ints}:zero"
    constants[scale] = np.array(quant.per_tensor, np.float32)
    constants[zero] = np.array(quant.zero_point, np.int8)
    return [
        helper.make_node("QuantizeLinear", [source, scale, zero], [ints], name=f"{ints}:Q"),
        helper.make_node("DequantizeLinear", [ints, scale, zero], [target], name=f"{ints}:DQ"),
    ]


def constant_inputs(node: ir.Node, known: Collection[str]) -> dict[str, np.ndarray]:
    """Constants that an ONNX operator takes as inputs, its DFG node as attributes, as real numbers.

    By name, without those in `known`. Whoever executes or writes the canonical node of a host
    operator needs them in addition to the DFG operands.
    """
    results: dict[str, np.ndarray] = {}
    for value in node.inputs:
        if value is None or not value.name or value.name in known:
            continue
        if (data := const_array(value)) is not None:
            quant = value.meta.get(META_KEY)
            results[value.name] = data if quant is None else quant.dequantize(data)
    return results


def run_graph(
    graph: onnx.GraphProto, opsets: Mapping[str, int], values: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """A graph in ONNX Runtime, one operator after the other."""
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=MAX_IR_VERSION)
    return [np.asarray(result) for result in _session(model).run(None, dict(values))]


def result_types(model: onnx.ModelProto) -> dict[str, ValueType]:
    """Types of a model's outputs as ONNX Runtime infers them: it knows operators that onnx does
    not. What it calls no tensor is left out, as are all outputs of a model that it refuses.
    """
    try:
        result = _session(model).get_outputs()
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        log.debug("no types from ONNX Runtime: %s", error)
        return {}
    return {
        o.name: ValueType(dtype=_ELEMENTS[o.type], shape=_sizes(o.shape))
        for o in result
        if o.type in _ELEMENTS
    }


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else UNKNOWN for size in shape)


def _session(model: onnx.ModelProto) -> Any:
    import onnxruntime as ort  # slow to import, and few models need it here

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
