"""Scalar factors after products move into the layer that computes a factor of the product.

Attention divides its scores by the root of the channels of a head. Exporters multiply the queries,
queries and keys, or the scores. The host would run one operator more for each.

1. Mul by a scalar of values that only moved since a layer (Conv, Gemm) computed them: the factor
   goes into the filters and biases of the channels that were moved there. Other readers of the
   layer must not see these channels.
2. Mul by a scalar of a MatMul of two computed operands: the factor moves before the MatMul, to an
   operand for which case 1 then applies.

Only in float models: in quantised ones each result has a scale of its own.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.channel_permutes import LARGEST
from opu_fuse.frontend.canonical.dense import is_final
from opu_fuse.frontend.canonical.element_order import MOVES
from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    is_standard,
    operand,
    quant_of,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.frontend.importing.value_checks import in_range
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.quant import FLOAT_KEY

_MOST_VALUES = 64
"""Values that are followed from a layer."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed, at_ports = False, preprocessing_nodes(model.graph)
    for node in standard_nodes(model.graph, "Mul"):
        x, factor = node.inputs[0], constant(operand(node, 1))
        if x is None or factor is None or factor.size != 1 or node in at_ports:
            continue
        if factor.dtype != np.float32 or static_shape(x) != static_shape(node.outputs[0]):
            continue
        if quant_of(x) is not None or quant_of(node.outputs[0]) is not None:
            continue
        if FLOAT_KEY in node.metadata_props or node.outputs[0].is_graph_output():
            continue
        if any(_scaled(model.graph, v, float(factor.item())) for v in _factors(x)):
            changed |= bypass(node)
    return changed


def _factors(value: ir.Value) -> Iterator[ir.Value]:
    """A value that a Mul alone reads, or the operands of the MatMul that computes it (case 2)."""
    product = value.producer()
    if sole_reader(value) is None or product is None:
        return
    if not is_standard(product, "MatMul"):
        yield value
        return
    computed = [v for v in product.inputs if v is not None and constant(v) is None]
    if len(computed) == len(product.inputs) and len(set(computed)) == len(computed):
        yield from (v for v in computed if sole_reader(v) is not None)


def _scaled(graph: ir.Graph, value: ir.Value, factor: float) -> bool:
    """Scale a value that only moved since a layer computed it, in the layer (case 1)."""
    layer = _layer(value)
    if layer is None:
        return False
    weight, bias = constant(operand(layer, 1)), constant(operand(layer, 2))
    shape, w, b = static_shape(layer.outputs[0]), operand(layer, 1), operand(layer, 2)
    if shape is None or w is None or weight is None or np.prod(shape) > LARGEST:
        return False
    if (
        len(weight) != shape[1]
        or (b is not None and bias is None)
        or FLOAT_KEY in layer.metadata_props
    ):
        return False
    if any(v is not None and (quant_of(v) or constant(v).dtype != np.float32) for v in (w, b)):  # type: ignore[union-attr]  # both are constants
        return False
    moved = _moved_channels(layer.outputs[0], shape, value)
    if moved is None:
        return False
    factors = np.where(np.isin(np.arange(shape[1]), moved), np.float32(factor), np.float32(1))
    for index, old, data in ((1, w, weight), (2, b, bias)):
        if old is None or data is None:
            continue
        scaled = data * factors.reshape(-1, *(1,) * (data.ndim - 1))
        if not in_range(scaled):
            return False
        layer.replace_input_with(index, add_constant(graph, f"{old.name}/scaled", scaled))
    return True


def _layer(value: ir.Value) -> ir.Node | None:
    """The Conv or Gemm that computed what moved to a value; None for others, or without a move."""
    node, count = value.producer(), 0
    while node is not None and is_standard(node, *MOVES):
        source, count = node.inputs[0], count + 1
        node = None if source is None or quant_of(source) is not None else source.producer()
    if node is None or not count:
        return None
    if is_standard(node, "Gemm"):
        return node if is_final(node) else None
    return node if is_standard(node, "Conv") else None


def _moved_channels(
    result: ir.Value, shape: tuple[int, ...], target: ir.Value
) -> np.ndarray | None:
    """The channels of a layer's result that moved to `target`.

    None if operators that do not only move values read some of them as well, or too many values
    are to be followed.
    """
    channels = np.arange(shape[1]).reshape(1, -1, *(1,) * (len(shape) - 2))
    stack, inside, outside = [(result, np.broadcast_to(channels, shape))], None, set[int]()
    for _ in range(_MOST_VALUES):
        if not stack:
            break
        value, seen = stack.pop()
        if value is target:
            inside = np.unique(seen)
            continue
        uses = list(value.uses())
        if value.is_graph_output() or not all(
            is_standard(u.node, *MOVES) and not u.idx for u in uses
        ):
            outside.update(np.unique(seen).tolist())
        for node in dict.fromkeys(u.node for u in uses if is_standard(u.node, *MOVES)):
            for made in node.outputs:
                there = MOVES[node.op_type](seen, node, made)
                if there is None:
                    return None
                stack.append((made, there))
    if stack or inside is None or not outside.isdisjoint(inside.tolist()):
        return None
    return inside
