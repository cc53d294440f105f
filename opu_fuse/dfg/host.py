"""One operator in ONNX Runtime: what runs where the machine's arithmetic has no word for it.

The operator gets real numbers (int8 values dequantised) and its result is rounded where the model
rounds it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from opu_fuse.dfg.lower import const_array
from opu_fuse.errors import ModelError

MAX_IR_VERSION = 10


def run_node(node: ir.Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Results of one canonical node. values: every input and captured value by name, in the model's
    own dtypes.

    Raises ModelError when ONNX Runtime refuses the operator.
    """
    wanted = [v.name or "" for v in node.outputs if v.name]
    model = _one_node_model(node, values, wanted)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return _results(session.run(wanted, dict(values)))
    except Exception as error:
        what = f"ONNX Runtime cannot run {node.op_type}: {str(error).splitlines()[0]}"
        raise ModelError(
            node.name or node.op_type, what, "check the model with onnx.checker"
        ) from error


def constant_inputs(node: ir.Node, known: Collection[str]) -> dict[str, np.ndarray]:
    """Constants that an ONNX operator takes as inputs, its DFG node as attributes.

    Pads, bounds, scales, target shapes: by name, without those in `known`. Whoever executes or
    writes the canonical node of a host operator needs them besides the DFG operands.
    """
    inputs = [v for v in node.inputs if v is not None and v.name and v.name not in known]
    return {v.name: data for v in inputs if v.name and (data := const_array(v)) is not None}


def _results(outputs: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(o) for o in outputs]


def _one_node_model(
    node: ir.Node, values: Mapping[str, np.ndarray], wanted: list[str]
) -> onnx.ModelProto:
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
        )
        for name, v in values.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in wanted]
    graph = onnx.helper.make_graph([ir.serde.serialize_node(node)], "host", inputs, outputs)
    imports = node.graph.opset_imports if node.graph is not None else {"": 17}
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=MAX_IR_VERSION)
