"""Decomposes layer normalisations of ONNX Runtime and the sums fused into them."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import operand
from opu_fuse.frontend.importing.decompose.replacement import Replacement, is_read

_AXES_ARE_OPERANDS = 18
"""Opset from which on the axes of a ReduceMean are an operand."""


def skip_layer_normalization(s: Replacement) -> bool:
    """Decompose to LayerNormalization(x + skip + b). The sum is a result, too."""
    if _reads_statistics(s.node):
        return False
    sums = _sums(s, 4)
    epsilon = s.node.attributes.get_float("epsilon", 1e-12)
    factors = [operand(s.node, i) for i in (2, 3)]
    attributes = {"axis": -1, "epsilon": epsilon}
    result = s.make("LayerNormalization", sums, *factors, name=s.node.name, **attributes)
    s.replace(result, None, None, _read_sum(s.node, sums))
    return True


def skip_simplified_layer_normalization(s: Replacement) -> bool:
    """Decompose to an RMS normalisation of x + skip + b. The sum is a result, too."""
    if _reads_statistics(s.node):
        return False
    sums = _sums(s, 3)
    result = _by_squares(s, sums, s.operand(2), s.node.attributes.get_float("epsilon", 1e-12))
    s.replace(result, None, None, _read_sum(s.node, sums))
    return True


def simplified_layer_normalization(s: Replacement) -> bool:
    """Decompose to an RMS normalisation: x / sqrt(mean(x²) + epsilon) · gamma."""
    if _reads_statistics(s.node) or s.node.attributes.get_int("axis", -1) != -1:
        return False
    epsilon = s.node.attributes.get_float("epsilon", 1e-5)
    s.replace(_by_squares(s, s.operand(0), s.operand(1), epsilon))
    return True


def _reads_statistics(node: ir.Node) -> bool:
    """Whether the mean and inverse deviation have readers, as in training."""
    return any(map(is_read, node.outputs[1:3]))


def _sums(s: Replacement, bias: int) -> ir.Value:
    """Insert x + skip + b. bias: position of b, which is optional."""
    sums = s.make("Add", s.operand(0), s.operand(1))
    return s.make("Add", sums, s.operand(bias)) if s.has(bias) else sums


def _read_sum(node: ir.Node, sums: ir.Value) -> ir.Value | None:
    """The sum if the node has readers of it, else None."""
    results: Sequence[ir.Value] = node.outputs[3:]
    return sums if any(map(is_read, results)) else None


def _by_squares(s: Replacement, x: ir.Value, gamma: ir.Value, epsilon: float) -> ir.Value:
    """Insert an RMS normalisation in the form that exporters write."""
    squares = s.make("Mul", x, x)
    if s.opset < _AXES_ARE_OPERANDS:
        mean = s.make("ReduceMean", squares, axes=[-1])
    else:
        mean = s.make("ReduceMean", squares, s.constant(np.array([-1], np.int64)))
    root = s.make("Sqrt", s.make("Add", mean, s.number(epsilon)))
    return s.make("Mul", s.make("Div", x, root), gamma)
