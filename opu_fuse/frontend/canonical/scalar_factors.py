"""Scalar factors after products move into the layer that computes a factor of the product.

Attention divides its scores by the root of the channels of a head. Exporters multiply the queries,
queries and keys, or the scores. The host would run one operator more for each.

1. Mul by a scalar of values that only moved since a layer (Conv, Gemm) computed them: the factor
   goes into the filters and biases of the channels that were moved there. Other readers of the
   layer must not see these channels.
2. Mul by a scalar of a MatMul of two computed operands: the factor moves before the MatMul, to an
   operand for which case 1 then applies.
3. Mul by a scalar of a sum of two computed operands: the factor moves before the Add, to both
   operands, if case 1 applies to both. Distilled networks output the mean of two heads so.
   So does that of one operand of a MatMul if case 1 does not apply to it: the other one is scaled.
4. Mul by a scalar of a product of two maps: the factor goes into the constants of a norm that
   computes one of them for this product alone (cosine attention).

Only in float models: in quantised ones each result has a scale of its own.
"""

from typing import TypeGuard

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
from opu_fuse.model.operator_sets import NORMS
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.model.products import is_product
from opu_fuse.quant import FLOAT_KEY

_MOST_VALUES = 64
"""Values that are followed from a layer."""
_Scaled = tuple[ir.Node, list[tuple[int, str, np.ndarray]]]
"""A layer, and the constants among its operands times the factor: index, name, data."""


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
        if FLOAT_KEY in node.metadata_props or sole_reader(x) is None:
            continue
        layers = _scaled_layers(x, node, float(factor.item()))
        for layer, constants in layers:
            for index, name, data in constants:
                layer.replace_input_with(index, add_constant(model.graph, name, data))
        if layers:
            changed |= bypass(node)
    return changed


def _scaled_layers(value: ir.Value, mul: ir.Node, factor: float) -> list[_Scaled]:
    """The layers that compute `value` times the factor, which `mul` alone reads; [] if none do."""
    producer = value.producer()
    operands = [] if producer is None else _computed_operands(producer)
    if producer is not None and is_standard(producer, "Add"):  # Case 3
        both = [s for v in operands if (s := _scaled(v, factor, moved=False)) is not None]
        return both if len({id(layer) for layer, _ in both}) == 2 else []
    if mul.outputs[0].is_graph_output():
        return []
    if producer is None or not is_standard(producer, "MatMul"):
        operands = [value]
    norms = [_scaled_norm(v, factor) for v in producer.inputs] if _is_product(producer) else []
    layers = (_scaled(v, factor) for v in operands)
    others = (_scaled(v, factor) for v in _other_operand(mul))
    return next(([scaled] for scaled in (*norms, *layers, *others) if scaled is not None), [])


def _other_operand(mul: ir.Node) -> tuple[ir.Value, ...]:
    """What a MatMul multiplies the result of a node by, which only moves before; () for others."""
    value = mul.outputs[0]
    while (reader := sole_reader(value)) is not None and is_standard(reader, *MOVES):
        value = reader.outputs[0]
    if reader is None or not is_standard(reader, "MatMul"):
        return ()
    return tuple(v for v in _computed_operands(reader) if v is not value)


def _is_product(node: ir.Node | None) -> TypeGuard[ir.Node]:
    return node is not None and is_product(node)


def _scaled_norm(value: ir.Value | None, factor: float) -> _Scaled | None:
    """The norm that computes a value times the factor, if nothing else reads it (case 4)."""
    last = None if value is None else value.producer()
    result = None if last is None else last.inputs[0]
    norm = None if result is None else result.producer()
    if value is None or last is None or result is None or norm is None:
        return None
    if not is_standard(last, "Transpose") or not is_standard(norm, *NORMS):
        return None
    if (
        sole_reader(value) is None
        or sole_reader(result) is None
        or FLOAT_KEY in norm.metadata_props
    ):
        return None
    scaled: list[tuple[int, str, np.ndarray]] = []
    for index, old in enumerate(norm.inputs[1:], 1):
        data = constant(old)
        if old is None or data is None or data.dtype != np.float32 or quant_of(old) is not None:
            return None
        scaled.append((index, f"{old.name}/scaled", np.float32(factor) * data))
    return (norm, scaled) if all(in_range(data) for _, _, data in scaled) else None


def _computed_operands(node: ir.Node) -> list[ir.Value]:
    """The operands of a product or sum that nothing else reads; [] if one is constant or both are
    one value.
    """
    computed = [v for v in node.inputs if v is not None and constant(v) is None]
    if len(computed) != len(node.inputs) or len(set(computed)) != len(computed):
        return []
    return [v for v in computed if sole_reader(v) is not None]


def _scaled(value: ir.Value, factor: float, *, moved: bool = True) -> _Scaled | None:
    """The layer that computes a value times the factor, if the value only moved since (case 1).

    moved: there is at least one move.
    """
    layer = _layer(value, moved=moved)
    if layer is None:
        return None
    weight, bias = constant(operand(layer, 1)), constant(operand(layer, 2))
    shape, w, b = static_shape(layer.outputs[0]), operand(layer, 1), operand(layer, 2)
    if shape is None or w is None or weight is None or np.prod(shape) > LARGEST:
        return None
    if (
        len(weight) != shape[1]
        or (b is not None and bias is None)
        or FLOAT_KEY in layer.metadata_props
    ):
        return None
    if any(v is not None and (quant_of(v) or constant(v).dtype != np.float32) for v in (w, b)):  # type: ignore[union-attr]  # both are constants
        return None
    channels = _moved_channels(layer.outputs[0], shape, value)
    if channels is None:
        return None
    factors = np.where(np.isin(np.arange(shape[1]), channels), np.float32(factor), np.float32(1))
    constants = [
        (index, f"{old.name}/scaled", data * factors.reshape(-1, *(1,) * (data.ndim - 1)))
        for index, old, data in ((1, w, weight), (2, b, bias))
        if old is not None and data is not None
    ]
    return (layer, constants) if all(in_range(data) for _, _, data in constants) else None


def _layer(value: ir.Value, *, moved: bool) -> ir.Node | None:
    """The Conv or Gemm that computed what moved to a value; None for others.

    moved: None without a move, too.
    """
    node, count = value.producer(), 0
    while node is not None and is_standard(node, *MOVES):
        source, count = node.inputs[0], count + 1
        node = None if source is None or quant_of(source) is not None else source.producer()
    if node is None or (moved and not count):
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
