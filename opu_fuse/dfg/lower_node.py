"""Lowering: one node of the canonical model -> operator of the hardware spec.

`LOWERINGS` is the table: ONNX operator -> function giving operator name, operands and attributes,
or None when this form of the operator is not one the machines know; such nodes become
`host:<OpType>` with all their operands.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.dfg.graph import Access, is_map
from opu_fuse.dfg.indexing import (
    bias_access,
    conv_maps,
    dense_maps,
    derive_access,
    elementwise_access,
    window_map,
)
from opu_fuse.dfg.nearest import repeats, resizes_by
from opu_fuse.dfg.value_types import known_dims
from opu_fuse.dfg.views import same_storage
from opu_fuse.model.composites import const_array
from opu_fuse.model.operator_sets import BY_NUMBERS
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.products import is_turn, product_operator
from opu_fuse.quant import CHOICE_KEY

Shape = tuple[int, ...]

_REAL = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8, None}
)


class Lowered(Struct, frozen=True, kw_only=True):
    """op: operator name; operands: values in operand order, `access` alike; bias: of conv and
    dense, None without.
    """

    op: str
    operands: tuple[ir.Value, ...]
    access: tuple[Access, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    bias: ir.Value | None = None


def lower(node: ir.Node) -> Lowered:
    """The operator of one canonical node; `host:<OpType>` when the machines do not know its
    form.
    """
    rule = LOWERINGS.get(node.op_type) if node.domain in STANDARD else None
    if node.op_type in BY_NUMBERS and any(v and const_array(v) is None for v in node.inputs[1:]):
        rule = None
    lowered = rule(node) if rule and _are_feature_maps(node) else None
    if lowered is not None:
        return lowered
    operands = tuple(v for v in node.inputs if v is not None) + _captured(node)
    return Lowered(
        op=f"host:{node.op_type}", operands=operands, access=(Access.UNSUPPORTED,) * len(operands)
    )


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Static shape of a value, UNKNOWN for dimensions (() for ranks) that are not known before the
    run.
    """
    shape = value.shape
    return () if shape is None else known_dims(shape.dims)


def _are_feature_maps(node: ir.Node) -> bool:
    """Results (one, unless it is a Split) of known shape, standing for real numbers."""
    results = node.outputs
    if len(results) > 1 and node.op_type != "Split":
        return False
    smallest = min([min(shape_of(r), default=0) for r in results], default=1)
    return smallest > 0 and _REAL.issuperset([r.dtype for r in results])


def _captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """Values of the outer graph that the node's subgraphs (If, Loop, Scan) read, each once, in
    order.
    """
    seen: dict[ir.Value, None] = {}
    graphs = [g for a in node.attributes.values() for g in _graphs(a)]
    inner = set(graphs)
    while graphs:
        graph = graphs.pop()
        read = [v for n in graph for v in n.inputs if v is not None] + list(graph.outputs)
        seen.update(dict.fromkeys(v for v in read if v.graph not in inner and v not in node.inputs))
        nested = [g for n in graph for a in n.attributes.values() for g in _graphs(a)]
        inner.update(nested)
        graphs.extend(nested)
    return tuple(v for v in seen if v.graph not in inner)


def _graphs(attr: ir.Attr) -> list[ir.Graph]:
    if attr.type == ir.AttributeType.GRAPH:
        return [attr.as_graph()]
    return list(attr.as_graphs()) if attr.type == ir.AttributeType.GRAPHS else []


def _pair(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node.attributes.get_ints(name, default))


def _no_auto_pad(node: ir.Node) -> bool:
    return node.attributes.get_string("auto_pad", "NOTSET") in {"NOTSET", ""}


def _conv(node: ir.Node) -> Lowered | None:
    x, w = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weight = const_array(w)
    if (
        x is None
        or w is None
        or weight is None
        or weight.ndim != 4
        or len(shape_of(x)) != 4
        or not _no_auto_pad(node)
    ):
        return None
    if bias is not None and const_array(bias) is None:
        return None
    attributes = tuple([(name, a.value) for name, a in node.attributes.data.items()])
    attrs, access = _window(attributes, shape_of(x), weight.shape, shape_of(node.outputs[0]))
    attrs = {**attrs, **_choice(node)}
    return Lowered(op="conv", operands=(x, w), access=access, attrs=attrs, bias=bias)


def _choice(node: ir.Node) -> dict[str, Any]:
    known = node.metadata_props.get(CHOICE_KEY)
    if known is None:
        return {}
    return {"choice": True, **({"divisor": int(known)} if known.isdigit() else {})}


@functools.lru_cache(maxsize=4096)
def _window(
    attributes: tuple[tuple[str, Any], ...], data: Shape, weight: Shape, result: Shape
) -> tuple[Mapping[str, Any], tuple[Access, ...]]:
    """Attributes and access of a convolution. attributes: names and values of the ONNX
    operator's; networks repeat few of them often.
    """
    known = dict(attributes)
    geometry: dict[str, Any] = {
        "strides": tuple(known.get("strides", (1, 1))),
        "dilations": tuple(known.get("dilations", (1, 1))),
        "pads": tuple(known.get("pads", (0, 0, 0, 0))),
        "group": known.get("group", 1),
    }
    maps = conv_maps(data, weight, result, **geometry)
    access = tuple(derive_access(m, const=i == 1) for i, m in enumerate(maps))
    return {"kernel": weight[2:], **geometry}, access


def _transposed_conv(node: ir.Node) -> Lowered | None:
    x, w = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weight = const_array(w)
    if x is None or w is None or weight is None or weight.ndim != 4 or not _no_auto_pad(node):
        return None
    group, dilations = node.attributes.get_int("group", 1), _pair(node, "dilations", (1, 1))
    depthwise = group == weight.shape[0] and weight.shape[1] == 1
    constant = bias is None or const_array(bias) is not None
    known = len(shape_of(x)) == 4 and "output_shape" not in node.attributes
    if not (known and constant and dilations == (1, 1) and (group == 1 or depthwise)):
        return None
    attrs = {
        "kernel": tuple(weight.shape[2:]),
        "strides": _pair(node, "strides", (1, 1)),
        "dilations": dilations,
        "pads": _pair(node, "pads", (0, 0, 0, 0)),
        "output_padding": _pair(node, "output_padding", (0, 0)),
        "group": group,
        **_choice(node),
    }
    # No affine map says which positions of x a result reads; all channels and a window, as in conv.
    access = (Access.FULL, Access.PER_CHANNEL)
    return Lowered(op="transposed_conv", operands=(x, w), access=access, attrs=attrs, bias=bias)


def _batch_norm(node: ir.Node) -> Lowered | None:
    """Scale and shift alone: mean 0, variance 1, epsilon 0."""
    x, scale, shift, *moments = node.inputs
    data = [const_array(v) for v in (scale, shift, *moments)]
    if x is None or scale is None or shift is None or any(d is None for d in data):
        return None
    plain = not np.any(data[2]) and np.all(data[3] == 1.0)
    if not plain or node.attributes.get_float("epsilon", 1e-5) or len(shape_of(x)) not in {2, 4}:
        return None
    vector = bias_access(shape_of(node.outputs[0]))
    access = (Access.FULL, vector, vector)
    return Lowered(op="batch_norm", operands=(x, scale, shift), access=access)


def _prelu(node: ir.Node) -> Lowered | None:
    """Slopes that are constants, one a channel."""
    lowered = _elementwise(node, "prelu")
    if lowered is None or lowered.access != (Access.FULL, Access.PER_CHANNEL):
        return None
    return lowered


def _split(node: ir.Node) -> Lowered | None:
    """Channels only."""
    x, axis = node.inputs[0], node.attributes.get_int("axis", 0)
    if x is None or len(shape := shape_of(x)) not in {2, 4} or axis % len(shape) != 1:
        return None
    sizes = tuple(shape_of(v)[1] for v in node.outputs)
    attrs = {"axis": 1, "sizes": sizes}
    return Lowered(op="split", operands=(x,), access=(Access.FULL,), attrs=attrs)


def _gemm(node: ir.Node) -> Lowered | None:
    x, w = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weight = const_array(w)
    if x is None or w is None or weight is None or len(shape_of(x)) != 2:
        return None
    attrs = node.attributes
    plain = (attrs.get_int("transA", 0), attrs.get_int("transB", 0)) == (0, 1)
    plain = plain and attrs.get_float("alpha", 1.0) == 1.0 and attrs.get_float("beta", 1.0) == 1.0
    vector = bias is None or (
        (b := const_array(bias)) is not None and b.shape == (weight.shape[0],)
    )
    if not (plain and vector):
        return None
    maps = dense_maps(shape_of(x), weight.shape)
    access = tuple(derive_access(m, const=i == 1) for i, m in enumerate(maps))
    return Lowered(op="dense", operands=(x, w), access=access, bias=bias)


def _pool(node: ir.Node, op: str, *, whole: bool) -> Lowered | None:
    x = node.inputs[0]
    if x is None or len(shape := shape_of(x)) != 4 or min(shape) <= 0 or not _no_auto_pad(node):
        return None
    if node.attributes.get_int("ceil_mode", 0):
        return None
    attrs: dict[str, Any] = {
        "kernel": shape[2:] if whole else _pair(node, "kernel_shape", (1, 1)),
        "strides": (1, 1) if whole else _pair(node, "strides", (1, 1)),
        "dilations": _pair(node, "dilations", (1, 1)),
        "pads": _pair(node, "pads", (0, 0, 0, 0)),
    }
    access = (derive_access(window_map(shape_of(node.outputs[0]), **attrs), const=False),)
    attrs["count_include_pad"] = bool(node.attributes.get_int("count_include_pad", 0))
    return Lowered(op=op, operands=(x,), access=access, attrs=attrs)


def _elementwise(node: ir.Node, op: str, **attrs: Any) -> Lowered | None:
    operands = tuple([v for v in node.inputs if v is not None])
    shapes = [shape_of(v) for v in operands]
    if min([min(s, default=1) for s in shapes], default=1) <= 0:
        return None
    result = shape_of(node.outputs[0])
    access = tuple(
        [
            elementwise_access(s, result, const=const_array(v) is not None)
            for s, v in zip(shapes, operands, strict=True)
        ]
    )
    return Lowered(op=op, operands=operands, access=access, attrs=attrs)


def _difference(node: ir.Node) -> Lowered | None:
    """Subtraction of two computed maps or rows of one shape; channel statistics remain floats."""
    shape = shape_of(node.outputs[0])
    alike = all(v and const_array(v) is None and shape_of(v) == shape for v in node.inputs)
    return _elementwise(node, "add", minus=1) if alike and shape[2:] != (1, 1) else None


def _unary(node: ir.Node, op: str, **attrs: Any) -> Lowered | None:
    x = node.inputs[0]
    if x is None:
        return None
    access = elementwise_access(shape_of(x), shape_of(node.outputs[0]), const=False)
    return Lowered(op=op, operands=(x,), access=(access,), attrs=attrs)


def _scalar(node: ir.Node, position: int, default: float) -> float | None:
    """A constant scalar operand; the default when absent, None when it is computed."""
    value = node.inputs[position] if len(node.inputs) > position else None
    if value is None:
        return default
    data = const_array(value)
    return None if data is None or data.size != 1 else float(data.reshape(()))


def _clip(node: ir.Node) -> Lowered | None:
    low, high = _scalar(node, 1, -np.inf), _scalar(node, 2, np.inf)
    if low is None or high is None or not low <= high:  # NaN; bounds in the wrong order
        return None
    return _unary(node, "clip", min=low, max=high)


def _pad(node: ir.Node) -> Lowered | None:
    x, fill = node.inputs[0], _scalar(node, 2, 0.0)
    amounts = const_array(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    constant = node.attributes.get_string("mode", "constant") == "constant"
    if (
        x is None
        or amounts is None
        or fill is None
        or axes is not None
        or not constant
        or amounts.size != 8
    ):
        return None
    pads = [int(p) for p in amounts]
    if min(pads) < 0 or pads[0] or pads[4]:
        return None
    attrs = {
        "pads": (pads[2], pads[3], pads[6], pads[7]),
        "channels": (pads[1], pads[5]),
        "value": fill,
    }
    return Lowered(op="pad", operands=(x,), access=(Access.FULL,), attrs=attrs)


def _concat(node: ir.Node) -> Lowered | None:
    operands = tuple(v for v in node.inputs if v is not None)
    rank = len(shape_of(node.outputs[0]))
    axis = node.attributes.get_int("axis", 0)
    return Lowered(
        op="concat", operands=operands, access=(Access.FULL,), attrs={"axis": axis % rank}
    )


def _resize(node: ir.Node) -> Lowered | None:
    x, y = node.inputs[0], node.outputs[0]
    if x is None or len(source := shape_of(x)) != 4 or min(source) <= 0:
        return None
    target = shape_of(y)
    nearest = node.attributes.get_string("mode", "nearest") == "nearest"
    whole = source[:2] == target[:2] and all(
        t % s == 0 for s, t in zip(source, target, strict=True)
    )
    scale = (target[2] // source[2], target[3] // source[3])
    if not (nearest and whole and resizes_by(node, (1, 1, *scale))):
        return None
    coordinates = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    rounding = node.attributes.get_string("nearest_mode", "round_prefer_floor")
    if not all(repeats(source[i + 2], scale[i], coordinates, rounding) for i in range(2)):
        return None
    return Lowered(op="upsample", operands=(x,), access=(Access.FULL,), attrs={"scale": scale})


def _whole(node: ir.Node, op: str, *operands: ir.Value | None) -> Lowered:
    maps = tuple([v for v in operands or node.inputs if v is not None])
    return Lowered(op=op, operands=maps, access=(Access.FULL,) * len(maps))


def _reshape(node: ir.Node) -> Lowered | None:
    x = node.inputs[0]
    if x is None or min(shape_of(x), default=0) <= 0:
        return None
    source, target = shape_of(x), shape_of(node.outputs[0])
    if is_map(source) and len(target) == 4 and not same_storage(source, target):
        # Its values are stored elsewhere: a machine reads what the host has moved.
        return _whole(node, "transpose", x) if is_turn(node) else None
    return _whole(node, "reshape", x)


LOWERINGS: dict[str, Callable[[ir.Node], Lowered | None]] = {
    "Conv": _conv,
    "ConvTranspose": _transposed_conv,
    "Gemm": _gemm,
    "Einsum": lambda n: _whole(n, op) if (op := product_operator(n)) else None,
    "Transpose": lambda n: _whole(n, "transpose") if is_turn(n) else None,
    "BatchNormalization": _batch_norm,
    "Add": lambda n: _elementwise(n, "add"),
    "Sub": _difference,
    "Mul": lambda n: _elementwise(n, "multiply"),
    "Relu": lambda n: _unary(n, "relu"),
    "PRelu": _prelu,
    "Clip": _clip,
    "LeakyRelu": lambda n: _unary(n, "leaky_relu", alpha=n.attributes.get_float("alpha", 0.01)),
    "MaxPool": lambda n: _pool(n, "max_pool", whole=False),
    "AveragePool": lambda n: _pool(n, "avg_pool", whole=False),
    "GlobalMaxPool": lambda n: _pool(n, "max_pool", whole=True),
    "GlobalAveragePool": lambda n: _pool(n, "avg_pool", whole=True),
    "Pad": _pad,
    "Concat": _concat,
    "Split": _split,
    "Resize": _resize,
    "Reshape": _reshape,
}
