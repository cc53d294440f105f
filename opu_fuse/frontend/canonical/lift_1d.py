"""Lift operators on 1-D tensors [n, c, l] to images of one row [n, c, 1, l].

1. Pools, BatchNormalization, ConvTranspose with a constant weight: always. (Conv: `convolutions`.)
2. Elementwise operators, Concat, Split, Slice, Pad, mean and maximum over the whole length: if an
   operand is such an image reshaped to 1-D. Constants get a row axis, too.

`views` merges the Reshapes before and after lifted operators. In a 1-D network only those at its
inputs and outputs remain.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.pools import WHOLE_MAP
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    insert_before,
    is_standard,
    operand,
    quant_of,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import ALONG_AXIS, ELEMENT_WISE

_CHANNELS_FIRST = frozenset(
    (
        *("AveragePool", "BatchNormalization", "ConvTranspose", "GlobalAveragePool"),
        *("GlobalMaxPool", "MaxPool"),
    )
)
_ALL_OPERANDS = ELEMENT_WISE | {"Concat"}
_OTHERS = frozenset(("Pad", "Slice", "Split", *WHOLE_MAP))
_ALONG = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""Attributes with one number per spatial axis, and the number for the new row axis."""
_RANK = 3
"""Rank of (n, c, l)."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    kinds = (*_CHANNELS_FIRST, *_ALL_OPERANDS, *_OTHERS)
    changed = [_widen(model.graph, node) for node in standard_nodes(model.graph, *kinds)]
    return any(changed)


def _widen(graph: ir.Graph, node: ir.Node) -> bool:
    images = any(_image(v) is not None for v in node.inputs)
    if not (_is_line(operand(node, 0)) if node.op_type in _CHANNELS_FIRST else images):
        return False
    if node.op_type in WHOLE_MAP:
        return _reduced(graph, node)
    if not all(_is_line(v) for v in node.outputs):
        return False
    inputs = _inputs(graph, node)
    if inputs is None:
        return False
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    for name, row in _ALONG.items():
        if name in node.attributes:
            spatial_values = node.attributes.get_ints(name, ())
            node.attributes[name] = ir.AttrInt64s(name, [row, *spatial_values])
    if node.op_type != "Pad" and (pads := node.attributes.get_ints("pads")):
        node.attributes["pads"] = ir.AttrInt64s("pads", [0, pads[0], 0, pads[1]])
    if node.op_type in ALONG_AXIS:
        axis = _axis(node.attributes.get_int("axis", 0))
        node.attributes["axis"] = ir.AttrInt64("axis", axis)
    for result in node.outputs:
        shape = static_shape(result)
        assert shape is not None
        size = add_constant(graph, f"{node.name}/line_shape", np.asarray(shape, np.int64))
        name = f"{node.name}/line"
        insert_after(node, result, "Reshape", (size,), name=name, shape=_with_row(shape))
    return True


def _is_line(value: ir.Value | None) -> bool:
    shape = static_shape(value)
    floats = value is not None and value.dtype == ir.DataType.FLOAT
    return floats and shape is not None and len(shape) == _RANK and 0 not in shape


def _image(value: ir.Value | None) -> ir.Value | None:
    """The image that a Reshape turned into this 1-D tensor; None if it requantises."""
    node = None if value is None else value.producer()
    if value is None or node is None or not is_standard(node, "Reshape") or not _is_line(value):
        return None
    source = node.inputs[0]
    same_quant = source is not None and quant_of(value) in {None, quant_of(source)}
    return (
        source
        if same_quant and static_shape(source) == _with_row(static_shape(value) or ())
        else None
    )


def _with_row(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[2:])


def _axis(axis: int) -> int:
    """The image axis of a 1-D tensor's axis."""
    return (0, 1, 3)[axis]


def _inputs(graph: ir.Graph, node: ir.Node) -> list[ir.Value | None] | None:
    """The operands of the lifted operator; None if it cannot be lifted."""
    first, *rest = node.inputs
    if node.op_type in _ALL_OPERANDS:
        if not all(_can_widen(v) for v in node.inputs):
            return None
        return [_wide(graph, node, v) for v in node.inputs]
    constants = [constant(v) for v in rest]
    match node.op_type:
        case "ConvTranspose":
            weight, w = constants[0], rest[0]
            if weight is None or w is None:
                return None
            data = weight[:, :, None, :]
            rest[0] = add_constant(graph, f"{w.name}/wide", data, quant_of(w))
        case "Slice":
            if constants[0] is None or (operand(node, 3) and constants[2] is None):
                return None
            axes = range(constants[0].size) if operand(node, 3) is None else constants[2]
            axes = np.array([_axis(int(a)) for a in axes])  # type: ignore[union-attr]  # None is ruled out above
            rest[2:3] = [add_constant(graph, f"{node.name}/wide_axes", axes)]
        case "Pad":
            if constants[0] is None or operand(node, 3) is not None:
                return None
            pads = np.insert(constants[0].reshape(2, -1), 2, 0, axis=1).reshape(-1)
            rest[0] = add_constant(graph, f"{node.name}/wide_pads", pads)
        case _ if (
            len(node.outputs) > 1 and node.op_type != "Split"
        ):  # MaxPool's indices, statistics
            return None
        case _:
            pass
    return [_wide(graph, node, first), *rest]


def _can_widen(value: ir.Value | None) -> bool:
    data, shape, quant = constant(value), static_shape(value), value and quant_of(value)
    if value is None or shape is None or data is None:
        return value is None or _is_line(value)
    return len(shape) <= _RANK and (quant is None or quant.axis is None)


def _wide(graph: ir.Graph, node: ir.Node, value: ir.Value | None) -> ir.Value | None:
    data, shape = constant(value), static_shape(value)
    if value is None or not shape:
        return value
    if (image := _image(value)) is not None:
        return image
    if data is not None:
        full = data.reshape((1,) * (_RANK - data.ndim) + data.shape)
        return add_constant(graph, f"{value.name}/wide", full[:, :, None, :], quant_of(value))
    return reshape_before(node, value, _with_row(shape), name=f"{node.name}/wide")


def _reduced(graph: ir.Graph, node: ir.Node) -> bool:
    written = operand(node, 1)
    axes = node.attributes.get_ints("axes", ()) if written is None else constant(written)
    target = static_shape(node.outputs[0])
    if axes is None or target is None or [_axis(int(a)) for a in axes] != [3]:
        return False
    wide = _wide(graph, node, node.inputs[0])
    shape = (*target[:2], 1, 1)
    name, pool = f"{node.name}/pool", WHOLE_MAP[node.op_type]
    pooled = insert_before(
        node, pool, [wide], name=name, shape=shape, quant=quant_of(node.outputs[0])
    )
    size = add_constant(graph, f"{node.name}/shape", np.asarray(target, np.int64))
    rewrite(node, "Reshape", [pooled, size])
    return True
