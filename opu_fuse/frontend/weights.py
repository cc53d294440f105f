"""Passes models to ONNX Runtime without their large weights, since its tools copy a model often.

The arrays of the user's model hold the float weights once. The calibration session reads these
arrays as graph inputs. It would copy constants, and pack them for its kernels. The quantiser only
needs the range of each channel. It gets a substitute: the smallest and the largest weight of each
channel. This module then quantises the actual weights with the scales that the quantiser computed.
"""

from collections.abc import Iterable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper

from opu_fuse.frontend.editing import constant, is_standard, operand

LARGE_BYTES = 1 << 16
"""Smallest size in bytes of a weight that is replaced by a substitute."""
QUANTIZED, SCALE = "_quantized", "_scale"
"""Suffixes with which ONNX Runtime's quantiser names a quantised weight and its scale."""
_BLOCK = 1 << 18
"""Weights that are rounded at a time, so that temporaries fit the CPU cache."""

Weights = dict[str, np.ndarray]
"""float32 weights by name, output channels along axis 0."""


def lean_proto(model: ir.Model, nodes: Iterable[ir.Node]) -> tuple[onnx.ModelProto, Weights]:
    """A copy of the model with substitutes for large weights, and these weights.

    Only weights of convolutions and dense layers among `nodes` are replaced. The weights are the
    arrays of `model`, which is not modified.
    """
    weights = _large_weights(nodes)
    lean = model.clone()  # shares all tensors
    for name, data in weights.items():
        lean.graph.initializers[name].const_value = ir.tensor(_substitute(data), name=name)
    return ir.to_proto(lean), weights


def _large_weights(nodes: Iterable[ir.Node]) -> Weights:
    """Large float32 weights that only convolutions and dense layers read, by name."""
    large: Weights = {}
    for node in nodes:
        value = operand(node, 1)
        data = constant(value) if _is_by_rows(node) else None
        if value is None or data is None or data.nbytes < LARGE_BYTES or data.dtype != np.float32:
            continue
        if all(_is_by_rows(use.node) and use.idx == 1 for use in value.uses()):
            large[value.name or ""] = np.ascontiguousarray(data)
    return large


def _is_by_rows(node: ir.Node) -> bool:
    """Whether axis 0 of the node's weight is the output channel."""
    transposed = is_standard(node, "Gemm") and bool(node.attributes.get_int("transB", 0))
    return transposed or is_standard(node, "Conv")


def _substitute(data: np.ndarray) -> np.ndarray:
    """Minimum and maximum of each output channel, [channels, 2, 1, ...]."""
    rows = data.reshape(len(data), -1)
    ends = np.stack([rows.min(axis=1), rows.max(axis=1)], axis=1)
    return ends.reshape(len(data), 2, *[1] * (data.ndim - 2))


def weights_as_inputs(lean: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """A copy of a lean model that has its large weights as additional graph inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(lean)
    graph = model.graph
    small = [t for t in lean.graph.initializer if t.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(small)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, data.shape)
        for name, data in weights.items()
    )
    return model


def fill_in(qdq: onnx.ModelProto, weights: Weights) -> None:
    """Replace the substitutes in the quantiser's result by the (quantised) weights."""
    tensors = {t.name: t for t in qdq.graph.initializer}
    for name, data in weights.items():
        if name in tensors:  # also read by an operator that remains in floats
            _put(tensors[name], data)
        if name + QUANTIZED in tensors:
            scale = numpy_helper.to_array(tensors[name + SCALE])
            _put(tensors[name + QUANTIZED], _rounded(data, scale))


def _put(tensor: onnx.TensorProto, data: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))


def _rounded(data: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Quantise to int8 as QuantizeLinear with zero point 0 does. scale: [channels]."""
    out = np.empty(data.shape, np.int8)
    rows, target, scale = data.reshape(len(data), -1), out.reshape(len(data), -1), scale[:, None]
    step = max(_BLOCK // rows.shape[1], 1)
    for i in range(0, len(rows), step):
        steps = np.rint(rows[i : i + step] / scale[i : i + step])
        target[i : i + step] = np.clip(steps, -128, 127, out=steps)
    return out


def release(model: ir.Model) -> None:
    """Drop the constants of a model of which only the structure is still needed."""
    for value in model.graph.initializers.values():
        value.const_value = None
