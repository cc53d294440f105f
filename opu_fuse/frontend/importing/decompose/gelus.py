"""Decomposes Gelu variants of ONNX Runtime and the sums fused into them."""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import static_shape
from opu_fuse.frontend.importing.decompose.replacement import Replacement

_FAST = math.sqrt(2.0 / math.pi), math.sqrt(2.0 / math.pi) * 0.044715
"""Coefficients of x and x³ in the tanh approximation of Gelu."""


def gelu(s: Replacement) -> bool:
    """Decompose Gelu: x · Φ(x)."""
    s.replace(_gelu(s, s.operand(0)))
    return True


def bias_gelu(s: Replacement) -> bool:
    """Decompose BiasGelu: Gelu(x + b)."""
    s.replace(_gelu(s, s.make("Add", s.operand(0), s.operand(1))))
    return True


def bias_split_gelu(s: Replacement) -> bool:
    """Decompose BiasSplitGelu: first half of the channels of x + b, times Gelu of the second."""
    size = (static_shape(s.operand(1)) or (0,))[-1]
    if not size or size % 2:
        return False
    sums = s.make("Add", s.operand(0), s.operand(1))
    halves = s.constant(np.array([size // 2] * 2, np.int64))
    left, right = s.make_several("Split", 2, sums, halves, axis=-1)
    s.replace(s.make("Mul", left, _gelu(s, right)))
    return True


def fast_gelu(s: Replacement) -> bool:
    """Decompose FastGelu: x · (0.5 + 0.5 · tanh(…)), of x + b if b is present."""
    x = s.make("Add", s.operand(0), s.operand(1)) if s.has(1) else s.operand(0)
    linear, cubic = map(s.number, _FAST)
    factor = s.make("Add", s.make("Mul", s.make("Mul", x, x), cubic), linear)
    half = s.make("Mul", s.make("Tanh", s.make("Mul", x, factor)), s.number(0.5))
    s.replace(s.make("Mul", x, s.make("Add", half, s.number(0.5))))
    return True


def quick_gelu(s: Replacement) -> bool:
    """Decompose QuickGelu: x · sigmoid(alpha · x)."""
    x, alpha = s.operand(0), s.node.attributes.get_float("alpha", 1.702)
    scaled = x if alpha == 1.0 else s.make("Mul", x, s.number(alpha))
    s.replace(s.make("Mul", x, s.make("Sigmoid", scaled)))
    return True


def _gelu(s: Replacement, x: ir.Value) -> ir.Value:
    """Insert the exact Gelu with Erf."""
    error = s.make("Erf", s.make("Mul", x, s.number(math.sqrt(0.5))))
    doubled = s.make("Mul", x, s.make("Add", error, s.number(1.0)))
    return s.make("Mul", doubled, s.number(0.5))
