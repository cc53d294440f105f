"""Tables: any function of one int8 value, as its 256 results."""

import functools
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import quant_of
from opu_fuse.dfg.ort_operator import body_of, rounding, run_graph
from opu_fuse.errors import ModelError

ENTRIES = 256
"""One entry for each int8."""
_SHAPE = (1, 1, 1, ENTRIES)
"""Four dimensions, so that single numbers of any rank broadcast."""


def table_entries(dfg: Dfg, index: int) -> np.ndarray:
    """int8[256]: entry i is the result of an element-wise call (table, relu, clip, leaky_relu) for
    the value i - 128.

    Filled by DequantizeLinear, the call's ONNX nodes and QuantizeLinear in ONNX Runtime. Raises
    ModelError when it refuses them, or when operand or result is not rounded to int8.
    """
    node = dfg[index]
    x, y = quant_of(dfg[node.operands[0]]), quant_of(node)
    nodes, tensors = body_of(node)
    source, result = _ends(nodes, tensors)
    entered, left = f"{source}:int8", f"{result}:int8"
    constants: dict[str, np.ndarray] = {}
    dequantise = rounding("", entered, source, x, constants)[1]
    quantise = rounding(result, left, "", y, constants)[0]
    tensors += [onnx.numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph(
        [dequantise, *nodes, quantise],
        "table",
        [helper.make_tensor_value_info(entered, onnx.TensorProto.INT8, _SHAPE)],
        [helper.make_tensor_value_info(left, onnx.TensorProto.INT8, _SHAPE)],
        tensors,
    )
    opsets = node.ir_node.graph.opset_imports if node.ir_node and node.ir_node.graph else {"": 17}
    try:
        outcome = _run(graph.SerializeToString(deterministic=True), tuple(opsets.items()))
    except Exception as error:
        what = f"ONNX Runtime cannot run {node.title}: {str(error).splitlines()[0]}"
        raise ModelError(node.name, what, "check the model with onnx.checker") from error
    return np.frombuffer(outcome, np.int8)


def _ends(
    nodes: Sequence[onnx.NodeProto], constants: Sequence[onnx.TensorProto]
) -> tuple[str, str]:
    """Names of operand and result in a function's ONNX nodes: a call that is computed again has
    other ones.
    """
    inner = {"", *(t.name for t in constants), *(name for node in nodes for name in node.output)}
    source = next(name for node in nodes for name in node.input if name not in inner)
    return source, nodes[-1].output[0]


@functools.lru_cache(maxsize=1024)
def _run(graph: bytes, opsets: tuple[tuple[str, int], ...]) -> bytes:
    """The entries as bytes; remembered, as simulator and code generator ask again."""
    values = np.arange(-128, 128, dtype=np.int16).astype(np.int8).reshape(_SHAPE)
    proto = onnx.GraphProto.FromString(graph)
    (result,) = run_graph(proto, dict(opsets), {proto.input[0].name: values})
    return result.astype(np.int8).tobytes()
