"""MatMul and Gemm with a constant right side become Gemm(x, W [n, k], b [n]): transA = 0, transB =
1, alpha = beta = 1.

1. MatMul with a two-dimensional left side of one row.
2. Gemm: W is transposed, alpha and beta are folded into W and the bias; the bias becomes [n].
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    operand,
    quant_of,
    real_constant,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.frontend.numbers import LARGEST
from opu_fuse.quant import QuantParams

_CANONICAL = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_gemm(model.graph, n) for n in standard_nodes(model.graph, "MatMul", "Gemm")]
    return any(changed)


def _gemm(graph: ir.Graph, node: ir.Node) -> bool:
    x, w = node.inputs[0], operand(node, 1)
    shape, weight = static_shape(x), constant(w)
    if shape is None or weight is None or w is None or weight.ndim != 2:
        return False
    if len(shape) != 2 or shape[0] != 1 or node.attributes.get_int("transA", 0):
        return False
    transposed = bool(node.attributes.get_int("transB", 0))
    alpha = node.attributes.get_float("alpha", 1.0)
    beta = node.attributes.get_float("beta", 1.0)
    outputs = weight.shape[0] if transposed else weight.shape[1]
    b = operand(node, 2)
    bias = _bias(b, outputs)
    if b is not None and bias is None:
        return False
    done = node.op_type == "Gemm" and transposed and alpha == 1.0 and beta == 1.0
    if done and (b is None or constant(b).shape == (outputs,)):  # type: ignore[union-attr]  # `bias` came from it
        return False
    if not _keeps_integers(quant_of(w), alpha):
        return False
    new_w = w
    if not transposed or alpha != 1.0:
        new_w = _weight(graph, w, weight, transposed=transposed, alpha=alpha)
    inputs = [x, new_w]
    if bias is not None and b is not None:
        same = beta == 1.0 and constant(b).shape == (outputs,)  # type: ignore[union-attr]  # `bias` came from it
        keep = b if same else add_constant(graph, f"{b.name}/vector", np.float32(beta) * bias)
        inputs.append(keep)
    rewrite(node, "Gemm", inputs, _CANONICAL)
    return True


def _bias(b: ir.Value | None, outputs: int) -> np.ndarray | None:
    """The real bias as a vector, None when it is computed or not a vector."""
    data = real_constant(b)
    if data is None or data.size not in {1, outputs}:
        return None
    return np.broadcast_to(data.reshape(-1), (outputs,)).astype(np.float32)


def _keeps_integers(quant: QuantParams | None, alpha: float) -> bool:
    """Whether a factor of rounded weights can be one of their scales: it is not where it is
    negative (no int8 is 128), zero or not a number.
    """
    scales = () if quant is None else quant.scale
    return all(1 / LARGEST < s * alpha < LARGEST for s in scales)


def _weight(
    graph: ir.Graph, w: ir.Value, weight: np.ndarray, *, transposed: bool, alpha: float
) -> ir.Value:
    quant = quant_of(w)
    rows = weight if transposed else np.ascontiguousarray(weight.T)
    if quant is None:
        return add_constant(graph, f"{w.name}/rows", np.float32(alpha) * rows)
    axis = quant.axis if quant.axis is None or transposed else 1 - quant.axis
    scales = tuple(s * alpha for s in quant.scale)
    return add_constant(graph, f"{w.name}/rows", rows, replace(quant, scale=scales, axis=axis))


def weight_rows(quant: QuantParams, outputs: int) -> QuantParams:
    """A per-tensor weight annotation spelt out per output channel (axis 0)."""
    if quant.axis is not None:
        return quant
    return replace(quant, scale=quant.scale * outputs, axis=0)
