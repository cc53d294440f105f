"""MatMul and Gemm with a constant right side become Gemm(x, W [n, k], b [n]): transA = 0, transB =
1, alpha = beta = 1.

1. MatMul with a two-dimensional left side of one row.
2. Gemm of any number of rows: W is transposed, alpha and beta are folded into W and the bias, which
   becomes [n]. A Gemm whose bias differs from row to row does not change.
3. Gemm of a flattened transposed map, as channels-last models have it: the columns of W are
   permuted instead of the map.
"""

import math

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.editing import (
    TENSOR_KEY,
    add_constant,
    constant,
    detach,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    real_constant,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
    values_of,
)
from opu_fuse.frontend.importing.value_checks import are_scales
from opu_fuse.quant import QuantParams

_CANONICAL = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
_DEFAULTS = {**_CANONICAL, "transB": 0}


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    nodes = list(standard_nodes(model.graph, "MatMul", "Gemm"))
    changed = [_gemm(model.graph, n) or _transpose_weights(model.graph, n) for n in nodes]
    return any(changed)


def _gemm(graph: ir.Graph, node: ir.Node) -> bool:
    x, w = node.inputs[0], operand(node, 1)
    shape, weight = static_shape(x), constant(w)
    if shape is None or weight is None or w is None or weight.ndim != 2:
        return False
    if len(shape) != 2 or node.attributes.get_int("transA", 0) or is_final(node):
        return False
    if node.op_type == "MatMul" and shape[0] != 1:
        return False
    transposed = bool(node.attributes.get_int("transB", 0))
    alpha = node.attributes.get_float("alpha", 1.0)
    beta = node.attributes.get_float("beta", 1.0)
    outputs = weight.shape[0] if transposed else weight.shape[1]
    b = operand(node, 2)
    bias = _bias(b, outputs)
    if b is not None and bias is None:
        return False
    if not _folds_into_scales(quant_of(w), alpha):
        return False
    new_w = w
    if not transposed or alpha != 1.0:
        new_w = _weight(graph, w, weight, transposed=transposed, alpha=alpha)
    inputs = [x, new_w]
    if bias is not None and b is not None:
        is_vector = beta == 1.0 and constant(b).shape == (outputs,)  # type: ignore[union-attr]  # `bias` came from it
        keep = b if is_vector else add_constant(graph, f"{b.name}/vector", np.float32(beta) * bias)
        inputs.append(keep)
    rewrite(node, "Gemm", inputs, _CANONICAL)
    return True


def is_final(node: ir.Node) -> bool:
    """Whether a node is a Gemm of constants in the form above."""
    weight, b = constant(operand(node, 1)), operand(node, 2)
    if weight is None or not is_standard(node, "Gemm"):
        return False
    if _DEFAULTS | values_of(node) != _CANONICAL:
        return False
    bias = constant(b)
    return b is None or (bias is not None and bias.shape == weight.shape[:1])


def _transpose_weights(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3, of a Gemm in its final form."""
    x, w = node.inputs[0], operand(node, 1)
    weight = constant(w)
    if w is None or weight is None or not is_standard(node, "Gemm"):
        return False
    if (static_shape(x) or ())[:1] != (1,):
        return False  # rows are parts of a map, not all of it
    view = _alone(x, "Reshape")
    transposed = None if view is None else view.inputs[0]
    transpose = _alone(transposed, "Transpose")
    source = None if transpose is None else transpose.inputs[0]
    shape = static_shape(transposed)
    is_plain = node.attributes.get_int("transB", 0) and not node.attributes.get_int("transA", 0)
    if (
        x is None
        or view is None
        or transpose is None
        or source is None
        or shape is None
        or not is_plain
        or is_of_norm(transpose)  # it would come back
    ):
        return False
    quants = {quant_of(v) for v in (x, transposed, source) if v}
    if len(quants - {None}) > 1 or (quants != {None} and quant_of(source) is None):
        return False  # it would be requantised
    order = transpose.attributes.get_ints("perm", range(len(shape))[::-1])
    inverse = [1 + int(axis) for axis in np.argsort(order)]
    columns = weight.reshape(-1, *shape).transpose(0, *inverse).reshape(weight.shape)
    name = f"{w.name}/turned"
    node.replace_input_with(1, add_constant(graph, name, columns, quant_of(w)))
    view.replace_input_with(0, source)
    x.meta.pop(TENSOR_KEY, None)  # the model's tensor has another order
    merge_sources(view, [transpose])
    detach(transpose)
    return True


def _alone(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The producer of a value, if it is of this type and the value has one reader; else None."""
    node = None if value is None else value.producer()
    if value is None or node is None or sole_reader(value) is None:
        return None
    return node if is_standard(node, op_type) else None


def _bias(b: ir.Value | None, outputs: int) -> np.ndarray | None:
    """The real bias as a vector, None when it is computed or differs from row to row."""
    data = real_constant(b)
    if data is None or data.size not in {1, outputs} or math.prod(data.shape[:-1]) != 1:
        return None
    return np.broadcast_to(data.reshape(-1), (outputs,)).astype(np.float32)


def _folds_into_scales(quant: QuantParams | None, alpha: float) -> bool:
    """Whether a factor can fold into the scales of quantised weights.

    It cannot if it is negative (-128 has no negative in int8), zero or NaN.
    """
    return quant is None or are_scales(np.array(quant.scale) * alpha)


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
    """Expand a per-tensor weight annotation to one scale per output channel (axis 0)."""
    if quant.axis is not None:
        return quant
    return replace(quant, scale=quant.scale * outputs, axis=0)
