"""Decomposes layer normalisations of ONNX Runtime and the sums fused into them."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import is_standard, operand, static_shape
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


def embed_layer_normalization(s: Replacement) -> bool:
    """Decompose to Gathers of words, segments and positions, their sum and LayerNormalization.

    Results: the tokens, how many of them a mask counts, and the sum.
    """
    size, is_counted = static_shape(s.operand(0)), any(map(is_read, s.node.outputs[1:2]))
    if size is None or not all(map(s.has, (2, 3, 5, 6))) or (is_counted and not s.has(7)):
        return False
    sums = s.make("Gather", s.operand(2), s.operand(0))
    if s.has(8):
        positions = s.make("Gather", s.operand(3), s.operand(8))
    else:
        ends = (s.constant(np.array([n])) for n in (0, size[1], 0))
        positions = s.make("Slice", s.operand(3), *ends)
    sums = s.make("Add", sums, positions)
    if s.has(1) and s.has(4):
        sums = s.make("Add", sums, s.make("Gather", s.operand(4), s.operand(1)))
    epsilon = s.node.attributes.get_float("epsilon", 1e-12)
    factors = [operand(s.node, i) for i in (5, 6)]
    attributes = {"axis": -1, "epsilon": epsilon}
    result = s.make("LayerNormalization", sums, *factors, name=s.node.name, **attributes)
    count = None
    if is_counted:
        axes = s.constant(np.array([1]))
        count = s.make("ReduceSum", s.operand(7), axes, keepdims=0)
    s.replace(result, count, sums)
    return True


def _reads_statistics(node: ir.Node) -> bool:
    """Whether the mean and inverse deviation have readers, as in training."""
    return any(map(is_read, node.outputs[1:3]))


def _sums(s: Replacement, bias: int) -> ir.Value:
    """Insert x + skip + b. bias: position of b, which is optional; a layer before takes it up."""
    x, skip = s.operand(0), s.operand(1)
    if not s.has(bias):
        return s.make("Add", x, skip)
    before = skip.producer()
    if before is not None and is_standard(before, "MatMul", "Gemm"):
        x, skip = skip, x
    return s.make("Add", s.make("Add", x, s.operand(bias)), skip)


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
