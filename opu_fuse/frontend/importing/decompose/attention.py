"""Decomposes operators of whole attentions: softmax(scale * q * kᵀ + bias) * v of each head.

`Attention` of the standard (opset 23 on), and `Attention` and `MultiHeadAttention` of ONNX Runtime.
They become what exporters of older operator sets write; the machine runs that. Shapes must be
known. Caches of keys, windows and the scores as a result are left to ONNX Runtime.

A query that no key is allowed for has the result 0 in the standard, and ONNX Runtime's operators
give it equal shares of all. Masks are finite here, which gives equal shares, so results of the
standard's operator are multiplied by whether anything is allowed (`recognise_masks.py` drops that
where it can).
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.editing import constant, is_standard, operand, static_shape
from opu_fuse.frontend.importing.decompose.replacement import Replacement, is_read

_AXES_ARE_OPERANDS = 18
"""Opset from which on the axes of a ReduceMax are an operand."""
_HALF = ir.DataType.FLOAT16
_LOWEST, _LOWEST_HALF = -3e38, -65504.0
"""About the lowest numbers of float32 and bfloat16, and that of float16."""


Sizes = tuple[int, ...]


class _Heads(Struct, frozen=True, kw_only=True):
    """Queries (b, h, n, d), keys (b, k, m, d) and values (b, k, m, e), where k divides h."""

    q: Sizes
    k: Sizes
    v: Sizes


def attention(s: Replacement) -> bool:
    """Decompose `Attention` of the standard."""
    ints = s.node.attributes.get_int
    windows = (ints(f"{side}_window_size", -1) for side in ("left", "right"))
    if any(map(s.has, (4, 5, 6))) or any(map(is_read, s.node.outputs[1:])) or max(windows) >= 0:
        return False
    values = [s.operand(index) for index in range(3)]
    sizes = [static_shape(value) for value in values]
    heads = _heads(sizes, ints("q_num_heads", 0), ints("kv_num_heads", 0))
    mask = operand(s.node, 3)
    size = static_shape(mask)
    if heads is None or (mask is not None and (size is None or size[-1:] != heads.k[2:3])):
        return False
    queries, keys = heads.q[2], heads.k[2]
    causal = np.tri(queries, keys, dtype=bool) if ints("is_causal", 0) else None
    key = (mask, causal is None, queries, keys)
    if key not in s.shared:  # layers have a mask in common
        s.shared[key] = _biases(s, mask, causal)
    biases, sees, each = s.shared[key]
    cap = s.node.attributes.get_float("softcap", 0.0)
    result, of_tokens = _attended(s, heads, values, biases, cap=cap), len(sizes[0] or ()) == 3
    if sees is not None and each[-3:-2] in {(), (1,)}:  # the same for all heads
        factor = _reshaped(s, sees, (-1, 1, 1, (1, *each)[-2]))
        result = _by_rows(s, heads, result, factor)
        if not of_tokens:
            result = _as_heads(s, result, (*heads.q[:3], heads.v[3]), heads.q[1])
    else:
        if sees is not None:
            result = s.make("Mul", result, sees)
        result = _tokens(s, heads, result) if of_tokens else result
    s.replace(result)
    return True


def multi_head_attention(s: Replacement) -> bool:
    """Decompose MultiHeadAttention of ONNX Runtime: q, k, v, bias, mask of keys, -, bias of scores.

    `_of_runtime` says what masks are.
    """
    if any(map(s.has, (6, 7, 8, 9))):
        return False
    values = [s.operand(index) for index in range(3)]
    sizes, bias = [static_shape(value) for value in values], _known(s, 3)
    ends = np.cumsum([size[-1] for size in sizes if size])
    if s.has(3) and (
        bias is None or any(len(x or ()) != 3 for x in sizes) or bias.size != ends[-1]
    ):
        return False

    def with_biases() -> Sequence[ir.Value]:
        if bias is None:
            return values
        parts = zip(values, np.split(bias, ends[:-1]), strict=True)
        return [s.make("Add", value, s.constant(part)) for value, part in parts]

    return _of_runtime(s, sizes, with_biases, operand(s.node, 4))


def packed_attention(s: Replacement) -> bool:
    """Decompose Attention of ONNX Runtime: tokens, weights of q, k and v, bias, mask of keys, -,
    bias of scores. `_of_runtime` says what masks are.
    """
    ints, size, weights = s.node.attributes.get_int, static_shape(s.operand(0)), _known(s, 1)
    bias = _known(s, 2)
    if size is None or weights is None or s.has(4) or s.has(6) or ints("do_rotary", 0):
        return False
    if s.has(2) and bias is None:
        return False
    widths = list(s.node.attributes.get_ints("qkv_hidden_sizes", [weights.shape[-1] // 3] * 3))
    ends = np.cumsum(widths)[:-1]

    def products() -> Sequence[ir.Value]:  # of their own, so that each gets its own scale
        values = [
            s.make("MatMul", s.operand(0), s.constant(np.ascontiguousarray(part)))
            for part in np.split(weights, ends, axis=-1)
        ]
        if bias is None:
            return values
        parts = zip(values, np.split(bias, ends), strict=True)
        return [s.make("Add", value, s.constant(part)) for value, part in parts]

    return _of_runtime(s, [(*size[:-1], w) for w in widths], products, operand(s.node, 3))


def _known(s: Replacement, index: int) -> np.ndarray | None:
    return constant(operand(s.node, index))


def _of_runtime(
    s: Replacement,
    sizes: Sequence[Sizes | None],
    values: Callable[[], Sequence[ir.Value]],
    mask: ir.Value | None,
) -> bool:
    """What both operators of ONNX Runtime have in common.

    values: makes queries, keys and values, of these sizes. mask: 1 for keys that are there, else 0,
    (b, m) or (b, n, m), or how many are there, (b,).
    """
    count = s.node.attributes.get_int("num_heads", 0)
    heads, size = _heads(sizes, count, count), static_shape(mask)
    if heads is None or any(map(is_read, s.node.outputs[1:])):
        return False
    batch, queries, keys = heads.q[0], heads.q[2], heads.k[2]
    if mask is not None and size not in {(batch,), (batch, keys), (batch, queries, keys)}:
        return False
    biases = [s.operand(5)] if s.has(5) else []
    if s.node.attributes.get_int("unidirectional", 0):
        biases += _biases(s, None, np.tri(queries, keys, keys - queries, dtype=bool))[0]
    if mask is not None and size is not None:
        absent = s.node.attributes.get_float("mask_filter_value", -10000.0)
        if (mask, absent) not in s.shared:
            s.shared[mask, absent] = _padding(s, mask, size, keys, absent)
        biases.append(s.shared[mask, absent])
    s.replace(_tokens(s, heads, _attended(s, heads, values(), biases)))
    return True


def _padding(s: Replacement, mask: ir.Value, size: Sizes, keys: int, absent: float) -> ir.Value:
    """What a mask of `_of_runtime` adds to the scores: `absent` for keys that are not there."""
    if len(size) == 1:
        numbers = s.constant(np.arange(keys, dtype=np.int32))
        there = s.make("Less", numbers, _reshaped(s, mask, (-1, 1, 1, 1)))
    else:
        whole = _reshaped(s, mask, (-1, 1, size[1] if len(size) == 3 else 1, keys))
        there = s.make("Cast", whole, to=int(ir.DataType.BOOL))
    return s.make("Where", there, s.number(0.0), s.number(absent))


def _heads(sizes: Sequence[Sizes | None], count: int, shared: int) -> _Heads | None:
    """The heads of queries, keys and values with four axes, or of tokens (b, n, count * d)."""
    found = []
    for size, number in zip(sizes, (count, shared, shared), strict=True):
        if size is None or 0 in size or len(size) not in {3, 4}:
            return None
        if len(size) == 3:
            batch, tokens, channels = size
            if number <= 0 or channels % number:
                return None
            size = (batch, number, tokens, channels // number)
        found.append(size)
    q, k, v = found
    fits = q[0] == k[0] and q[1] % k[1] == 0 and q[3] == k[3] and k[:3] == v[:3]
    return _Heads(q=q, k=k, v=v) if fits else None


def _as_heads(s: Replacement, value: ir.Value, size: Sizes, count: int) -> ir.Value:
    """Tokens as heads of this size, and repeated, since each serves several of `count` heads."""
    batch, shared, tokens, width = size
    if static_shape(value) != size:
        value = _reshaped(s, value, (batch, tokens, shared, width))
        value = s.make("Transpose", value, perm=(0, 2, 1, 3))
    if count == shared:
        return value
    value = s.make("Unsqueeze", value, s.constant(np.array([2])))
    repeated = s.constant(np.array([batch, shared, count // shared, tokens, width]))
    return _reshaped(s, s.make("Expand", value, repeated), (batch, count, tokens, width))


def _attended(
    s: Replacement,
    heads: _Heads,
    values: Sequence[ir.Value],
    biases: Iterable[ir.Value],
    *,
    cap: float = 0.0,
) -> ir.Value:
    """softmax(cap(scale * q * kᵀ) + biases) * v, (b, h, n, e)."""
    sizes = (heads.q, heads.k, heads.v)
    q, k, v = (_as_heads(s, x, n, heads.q[1]) for x, n in zip(values, sizes, strict=True))
    scale = s.node.attributes.get_float("scale", 0.0) or 1 / math.sqrt(heads.q[3])
    q = s.make("Mul", q, s.number(scale))
    scores = s.make("MatMul", q, s.make("Transpose", k, perm=(0, 1, 3, 2)))
    if cap:
        scores = s.make("Tanh", s.make("Div", scores, s.number(cap)))
        scores = s.make("Mul", scores, s.number(cap))
    for bias in biases:
        scores = s.make("Add", scores, bias)
    return s.make("MatMul", s.make("Softmax", scores, axis=-1), v, name=s.node.name)


def _tokens(s: Replacement, heads: _Heads, value: ir.Value) -> ir.Value:
    """Heads (b, h, n, e) as tokens (b, n, h * e)."""
    (batch, count, tokens, _), width = heads.q, heads.v[3]
    value = s.make("Transpose", value, perm=(0, 2, 1, 3))
    return _reshaped(s, value, (batch, tokens, count * width))


def _by_rows(s: Replacement, heads: _Heads, value: ir.Value, factor: ir.Value) -> ir.Value:
    """Heads (b, h, n, e) times a factor for each query (b, 1, 1, n), as tokens.

    What is multiplied is a channels-first map, as machines do it.
    """
    batch, count, queries, _ = heads.q
    width = count * heads.v[3]
    image = _reshaped(s, _tokens(s, heads, value), (batch, 1, queries, width))
    image = s.make("Transpose", image, perm=(0, 3, 1, 2))
    factor = s.make("Expand", factor, s.constant(np.array([batch, width, 1, queries])))
    image = s.make("Transpose", s.make("Mul", image, factor), perm=(0, 2, 3, 1))
    return _reshaped(s, image, (batch, queries, width))


def _biases(
    s: Replacement, mask: ir.Value | None, causal: np.ndarray | None
) -> tuple[list[ir.Value], ir.Value | None, Sizes]:
    """What is added to the scores; 1 for queries that see a key and 0 for others (..., n or 1, 1),
    or None if all do; and the size of what that was computed of.

    mask: truth values, or numbers to be added. causal: (n, m), the keys that a query may see.
    """
    zero, lowest = s.number(0.0), s.number(_LOWEST_HALF if s.dtype == _HALF else _LOWEST)
    seen = None if causal is None else s.constant(causal)
    if mask is None:
        return ([] if seen is None else [s.make("Where", seen, zero, lowest)]), None, ()
    allowed, bias = _of_mask(s, mask, zero)
    if allowed is None:
        return [bias if seen is None else s.make("Where", seen, bias, lowest)], None, ()
    size = static_shape(allowed) or static_shape(mask) or ()
    if causal is not None:
        allowed, size = s.make("And", allowed, seen), (*size[:-2], *causal.shape)
    bias = s.make("Where", allowed, bias, lowest)
    numbers = s.make("Cast", allowed, to=int(s.dtype))
    if s.opset < _AXES_ARE_OPERANDS:
        return [bias], s.make("ReduceMax", numbers, axes=[-1]), size
    return [bias], s.make("ReduceMax", numbers, s.constant(np.array([-1]))), size


def _of_mask(s: Replacement, mask: ir.Value, zero: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """Which keys a mask allows, None if all since it adds no minus infinity; and what it adds."""
    if mask.dtype == ir.DataType.BOOL:
        return mask, zero
    node = mask.producer()
    if node is not None and is_standard(node, "Where"):
        condition, chosen, other = (operand(node, index) for index in range(3))
        data = constant(other)
        if condition and chosen and data is not None and data.size == 1 and data.max() < 0:
            return (condition, chosen) if np.isinf(data).all() else (None, mask)
    return s.make("Not", s.make("IsInf", mask, detect_positive=0)), mask


def _reshaped(s: Replacement, value: ir.Value, size: Sizes) -> ir.Value:
    return s.make("Reshape", value, s.constant(np.array(size, np.int64)))
