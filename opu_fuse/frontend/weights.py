"""Large weights stay out of what is passed to ONNX Runtime: its tools copy a model many times.

The float weights lie in the arrays of the model in hand, once. The calibration session reads them
there, as inputs of its model: constants it would copy, and pack for its kernels. The quantiser
needs no more than the extremes of each channel, so it gets a stand-in: the smallest and the largest
weight of each. What it would have made of the others is made here, weight by weight, with the
scales that it wrote.
"""

from collections.abc import Iterable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper

from opu_fuse.frontend.editing import constant, is_standard, operand

LARGE_BYTES = 1 << 16
"""Weights from this size on are kept out."""
QUANTIZED, SCALE = "_quantized", "_scale"
"""How ONNX Runtime's quantiser names what it makes of a weight."""
_BLOCK = 1 << 18
"""Weights rounded together: they stay in the cache."""

Weights = dict[str, np.ndarray]
"""float32 weights by name, output channels along axis 0."""


def lean_proto(model: ir.Model, nodes: Iterable[ir.Node]) -> tuple[onnx.ModelProto, Weights]:
    """The model with stand-ins for the large weights of the convolutions and dense layers among
    `nodes`, and these weights: the arrays of `model`, which stays as it is.
    """
    weights = _large_weights(nodes)
    lean = model.clone()  # shares all tensors
    for name, data in weights.items():
        lean.graph.initializers[name].const_value = ir.tensor(_stand_in(data), name=name)
    return ir.to_proto(lean), weights


def _large_weights(nodes: Iterable[ir.Node]) -> Weights:
    found: Weights = {}
    for node in nodes:
        value = operand(node, 1)
        data = constant(value) if _is_by_rows(node) else None
        if value is None or data is None or data.nbytes < LARGE_BYTES or data.dtype != np.float32:
            continue
        if all(_is_by_rows(use.node) and use.idx == 1 for use in value.uses()):
            found[value.name or ""] = np.ascontiguousarray(data)
    return found


def _is_by_rows(node: ir.Node) -> bool:
    """Whether the node's weight has its output channels along axis 0."""
    turned = is_standard(node, "Gemm") and bool(node.attributes.get_int("transB", 0))
    return turned or is_standard(node, "Conv")


def _stand_in(data: np.ndarray) -> np.ndarray:
    """[channels, 2, 1, ...]: the extremes of each channel."""
    rows = data.reshape(len(data), -1)
    ends = np.stack([rows.min(axis=1), rows.max(axis=1)], axis=1)
    return ends.reshape(len(data), 2, *[1] * (data.ndim - 2))


def weights_as_inputs(lean: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """A copy of a lean model that reads its large weights as further inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(lean)
    graph = model.graph
    kept = [t for t in lean.graph.initializer if t.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, data.shape)
        for name, data in weights.items()
    )
    return model


def fill_in(qdq: onnx.ModelProto, weights: Weights) -> None:
    """Put what the stand-ins stand for into the quantiser's result, in place."""
    tensors = {t.name: t for t in qdq.graph.initializer}
    for name, data in weights.items():
        if name in tensors:  # read by an operator that stays float, too
            _put(tensors[name], data)
        if name + QUANTIZED in tensors:
            scale = numpy_helper.to_array(tensors[name + SCALE])
            _put(tensors[name + QUANTIZED], _rounded(data, scale))


def _put(tensor: onnx.TensorProto, data: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))


def _rounded(data: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int8, as QuantizeLinear with zero point 0 computes it. scale: [channels]."""
    out = np.empty(data.shape, np.int8)
    rows, target, scale = data.reshape(len(data), -1), out.reshape(len(data), -1), scale[:, None]
    step = max(_BLOCK // rows.shape[1], 1)
    for i in range(0, len(rows), step):
        steps = np.rint(rows[i : i + step] / scale[i : i + step])
        target[i : i + step] = np.clip(steps, -128, 127, out=steps)
    return out


def release(model: ir.Model) -> None:
    """Forget the constants of a model of which only the structure is still needed."""
    for value in model.graph.initializers.values():
        value.const_value = None
