"""Decomposes RotaryEmbedding of the standard (opset 23 on) and of ONNX Runtime.

It becomes `x * cos + rotated(x) * sin` of each head, as exporters of older operator sets write it.
Cosines and sines have to be constant.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, operand, static_shape
from opu_fuse.frontend.importing.decompose.replacement import Replacement
from opu_fuse.model.opsets import STANDARD


def rotary_embedding(s: Replacement) -> bool:
    """Decompose RotaryEmbedding of tokens (b, n, h * d) or heads (b, h, n, d)."""
    ints, size = s.node.attributes.get_int, static_shape(s.operand(0))
    tables = _tables(s.node)
    scaled = s.node.attributes.get_float("scale", 1.0) != 1 or ints("is_packed_batching", 0)
    if size is None or tables is None or scaled or len(size) not in {3, 4} or 0 in size:
        return False
    cos, sin = tables
    turned, count = 2 * cos.shape[-1], ints("num_heads", 0)
    x, width = s.operand(0), size[-1]
    if len(size) == 3:
        if count <= 0 and ints("rotary_embedding_dim", 0):
            return False
        count = count or width // turned
        if not count or width % count:
            return False
        width //= count
    tokens = size[1] if len(size) == 3 else size[2]
    if turned > width or cos.shape[-2] != tokens or cos.shape[0] not in {1, size[0]}:
        return False
    if len(size) == 3:
        x = s.make("Reshape", x, s.constant(np.array([size[0], tokens, count, width])))
        x = s.make("Transpose", x, perm=(0, 2, 1, 3))
    part, rest = x, None
    if turned < width:
        split = s.constant(np.array([turned, width - turned]))
        part, rest = s.make_several("Split", 2, x, split, axis=-1)
    result = _rotated(s, part, cos, sin, interleaved=bool(ints("interleaved", 0)))
    if rest is not None:
        result = s.make("Concat", result, rest, axis=3)
    if len(size) == 3:
        result = s.make("Transpose", result, perm=(0, 2, 1, 3))
        result = s.make("Reshape", result, s.constant(np.array(size)))
    s.replace(result)
    return True


def _tables(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Cosines and sines (b or 1, n, d / 2), if constant.

    Each token takes the row of its position; without positions, row n is of token n.
    """
    first = 1 if node.domain in STANDARD else 2
    given = operand(node, 3 if first == 1 else 1)
    cos, sin = (constant(operand(node, first + index)) for index in range(2))
    rows = constant(given)
    if cos is None or sin is None or cos.shape != sin.shape or (given is not None and rows is None):
        return None
    if rows is None:
        return (cos, sin) if cos.ndim == 3 else None
    if rows.size == 1:  # of the first token
        size = static_shape(operand(node, 0)) or ()
        rows = rows.reshape(1, 1) + np.arange(size[-2] if size else 0)
    inside = cos.ndim == 2 and rows.ndim == 2 and rows.size and rows.min() >= 0
    return (cos[rows], sin[rows]) if inside and rows.max() < len(cos) else None


def _rotated(
    s: Replacement, x: ir.Value, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool
) -> ir.Value:
    """Insert the rotation of pairs of channels: i and i + d / 2, or neighbours if interleaved."""
    half = cos.shape[-1]
    channels = np.arange(2 * half)
    first, second = (
        (channels[::2], channels[1::2]) if interleaved else (channels[:half], channels[half:])
    )
    order = np.argsort(np.concatenate([first, second]))

    def chosen(value: ir.Value, indices: np.ndarray) -> ir.Value:
        return s.make("Gather", value, s.constant(indices), axis=3)

    halves = s.make("Neg", chosen(x, second)), chosen(x, first)
    turned = s.make("Concat", *halves, axis=3)
    if interleaved:
        turned = chosen(turned, order)
    tables = (np.concatenate([table, table], axis=-1)[:, None, :, order] for table in (cos, sin))
    by_cos, by_sin = (
        s.make("Mul", value, s.constant(table))
        for value, table in zip((x, turned), tables, strict=True)
    )
    return s.make("Add", by_cos, by_sin, name=s.node.name)
