"""Rotary embeddings become layers and products of tokens.

Exporters rotate the queries and keys of each head, (1, h, n, d), which Reshape and Transpose cut
out of tokens (1, n, c): `x * cos + rotated(x) * sin` with constants. `rotated` changes the order of
the d channels, and the signs of some, by Slice, Neg and Concat. As operators of the tokens these
run where the layer before them does:

1. `rotated` is a convolution of single pixels with a group for each head, whose weights are 0, 1
   and -1. The constants are repeated for all heads.
2. Tokens or channels that a Concat joins to the rotated ones (a class token; in some networks a
   part of each head) are rotated by nothing: their cos is 1 and their sin 0.

3. A factor that the heads are multiplied by later is part of the constants.

The heads are cut out of the rotated tokens.
"""

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.canonical.element_order import MOVES, sources
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    operand,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)

_MOST_LINKS = 12
"""Operators of the longest spelling of `rotated`, one after another."""
_JOINED = frozenset({1, 2})
"""Axes of (h, n, d) along which a Concat joins what is not rotated."""


class _Rotation(Struct, frozen=True, kw_only=True):
    """`x * cos + rotated(x) * sin`, of (1, h, n, d). order, sign: of the d channels of rotated(x).

    node: what computes it; tokens: (1, n, c), of which elements (h, n, d) are x.
    """

    node: ir.Node
    tokens: ir.Value
    elements: np.ndarray
    order: np.ndarray
    sign: np.ndarray
    cos: np.ndarray
    sin: np.ndarray


def may_be_rotations(model: ir.Model) -> bool:
    """Whether a model may have rotary embeddings."""
    return any(is_standard(n, "Neg") for n in model.graph)


def recognise(model: ir.Model) -> bool:
    """Rewrite all, in place. Returns whether the graph changed."""
    found = [known for node in standard_nodes(model.graph, "Add") if (known := _rotation(node))]
    changed = [_rewrite(model.graph, _with_others(rotation)) for rotation in found]
    return any(changed)


def _take_factor(value: ir.Value) -> float:
    """Case 3: the factor that a value is multiplied by, which becomes 1; 1 if there is none."""
    reader = sole_reader(value)
    while reader is not None and is_standard(reader, *MOVES) and reader.inputs[0] is value:
        value = reader.outputs[0]
        reader = sole_reader(value)
    if reader is None or not is_standard(reader, "Mul"):
        return 1.0
    data = constant(reader.inputs[reader.inputs[0] is value])
    if data is None or data.size != 1 or data.ndim > len(static_shape(value) or ()):
        return 1.0
    rewrite(reader, "Identity", [value])
    return float(data.item())


def _rotation(node: ir.Node) -> _Rotation | None:
    products = [_product(value) for value in node.inputs]
    first, second = products if len(products) == 2 else (None, None)
    if first is None or second is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return None
    for (x, cos), (rotated, sin) in ((first, second), (second, first)):
        shape = static_shape(x)
        if shape is None or len(shape) != 4 or shape[0] != 1 or static_shape(rotated) != shape:
            continue
        if static_shape(node.outputs[0]) != shape:
            continue
        signed = _signed(rotated, x, _MOST_LINKS)
        source = next((s for s in sources(x) if _are_tokens(s.value)), None)
        if signed is None or source is None:
            continue
        row = signed.reshape(-1, shape[-1])[0]
        order, sign = np.abs(row) - 1, np.sign(row)
        if order.max() >= shape[-1] or not np.array_equal(
            signed, sign * (_numbers(shape)[..., order])
        ):
            continue
        return _Rotation(
            node=node,
            tokens=source.value,
            elements=source.elements[0],
            order=order,
            sign=sign,
            cos=np.broadcast_to(cos, shape)[0],
            sin=np.broadcast_to(sin, shape)[0],
        )
    return None


def _product(value: ir.Value | None) -> tuple[ir.Value, np.ndarray] | None:
    """The operand and the constant of a product that is read once; None for others."""
    node = None if value is None else value.producer()
    if value is None or node is None or not is_standard(node, "Mul") or sole_reader(value) is None:
        return None
    for index in (0, 1):
        x, data = node.inputs[index], constant(node.inputs[1 - index])
        if x is not None and data is not None and data.dtype == np.float32 and constant(x) is None:
            return x, data
    return None


def _are_tokens(value: ir.Value) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) == 3 and shape[0] == 1


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """The elements of a value, from 1 so that each has a negative."""
    return 1 + np.arange(np.prod(shape)).reshape(shape)


def _signed(value: ir.Value | None, x: ir.Value, most: int) -> np.ndarray | None:
    """The elements of x that a value consists of, negated by `Neg`; None for other values."""
    if value is x:
        shape = static_shape(x)
        return None if shape is None else _numbers(shape)
    node = None if value is None else value.producer()
    if value is None or node is None or not most:
        return None
    if is_standard(node, "Concat"):
        parts = [_signed(v, x, most - 1) for v in node.inputs]
        known = [part for part in parts if part is not None]
        axis = node.attributes.get_int("axis", 0)
        return np.concatenate(known, axis) if len(known) == len(parts) else None
    if not is_standard(node, "Neg", *MOVES):
        return None
    read = _signed(operand(node, 0), x, most - 1)
    if read is None or is_standard(node, "Neg"):
        return None if read is None else -read
    return MOVES[node.op_type](read, node, value)


def _with_others(rotation: _Rotation) -> _Rotation:
    """Case 2: the rotation with the tokens or channels that a Concat joins to it."""
    join = sole_reader(rotation.node.outputs[0])
    if join is None or not is_standard(join, "Concat") or len(join.inputs) != 2:
        return rotation
    first = join.inputs[0] is not rotation.node.outputs[0]
    other, axis = join.inputs[not first], join.attributes.get_int("axis", 0) % 4 - 1
    found = () if other is None else sources(other)
    source = next((s for s in found if s.value is rotation.tokens), None)
    if source is None or axis not in _JOINED:
        return rotation

    def whole(own: np.ndarray, others: np.ndarray, axis: int) -> np.ndarray:
        return np.concatenate([others, own] if first else [own, others], axis)

    elements, order, sign = source.elements[0], rotation.order, rotation.sign
    if axis == 2:
        more = np.arange(elements.shape[2])
        before, after = (len(more), 0) if first else (0, len(order))
        order, sign = whole(order + before, more + after, 0), whole(sign, 1 + 0 * more, 0)
    ones = np.ones(elements.shape, np.float32)
    return _Rotation(
        node=join,
        tokens=rotation.tokens,
        elements=whole(rotation.elements, elements, axis),
        order=order,
        sign=sign,
        cos=whole(rotation.cos, ones, axis),
        sin=whole(rotation.sin, 0 * ones, axis),
    )


def _rewrite(graph: ir.Graph, rotation: _Rotation) -> bool:
    """Case 1. Returns whether x is all tokens, with the heads one after the other."""
    node, name = rotation.node, rotation.node.name
    heads, count, width = rotation.elements.shape
    _, tokens, channels = static_shape(rotation.tokens) or (0, 0, 0)
    first, inner = int(rotation.elements.flat[0]), heads * width
    flat = rotation.elements.transpose(1, 0, 2).reshape(count, inner)
    expected = first + channels * np.arange(tokens)[:, None] + np.arange(inner)
    if first + inner > channels or not np.array_equal(flat, expected):
        return False
    x, shape = rotation.tokens, (1, tokens, inner)

    def numbers(what: str, *data: int) -> ir.Value:
        return add_constant(graph, f"{name}/{what}", np.array(data, np.int64))

    def made(
        op_type: str, what: str, size: tuple[int, ...], *inputs: ir.Value, **attributes: object
    ) -> ir.Value:
        return insert_before(node, op_type, inputs, attributes, name=f"{name}/{what}", shape=size)

    if inner < channels:
        ends = [
            numbers(what, n) for what, n in (("start", first), ("end", first + inner), ("axis", 2))
        ]
        x = made("Slice", "part", shape, x, *ends)
    image, first_shape = (1, 1, tokens, inner), (1, inner, 1, tokens)
    weights = np.zeros((inner, width, 1, 1), np.float32)
    weights[np.arange(inner), np.tile(rotation.order, heads), 0, 0] = np.tile(rotation.sign, heads)
    pixels = made("Reshape", "image", image, x, numbers("image_shape", *image))
    pixels = made("Transpose", "channels", first_shape, pixels, perm=(0, 3, 1, 2))
    filters = add_constant(graph, f"{name}/filters", weights)
    rotated = made(
        "Conv", "rotated", first_shape, pixels, filters, group=heads, kernel_shape=(1, 1)
    )
    rotated = made("Transpose", "last", image, rotated, perm=(0, 2, 3, 1))
    rotated = made("Reshape", "tokens", shape, rotated, numbers("tokens_shape", *shape))
    terms, factor = [], _take_factor(node.outputs[0])
    for value, what, data in ((x, "cos", rotation.cos), (rotated, "sin", rotation.sin)):
        numbers_of = np.float32(factor) * data.transpose(1, 0, 2).reshape(shape)
        by = add_constant(graph, f"{name}/{what}", numbers_of)
        terms.append(made("Mul", f"by_{what}", shape, value, by))
    total = made("Add", "sum", shape, *terms)
    cut = (1, tokens, heads, width)
    value = made("Reshape", "heads", cut, total, numbers("heads_shape", *cut))
    rewrite(node, "Transpose", [value], {"perm": (0, 2, 1, 3)})
    return True
