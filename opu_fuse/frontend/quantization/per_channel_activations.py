"""Per-channel activation quantisation -> per-tensor, as some tools use it before depthwise layers.

A machine's map has one scale. The channel scales can move into the neighbouring layers if a
convolution produces the map and only depthwise convolutions read it. With one scale S instead of
s[c], the convolution's result is multiplied by S / s[c] and channel c of the depthwise weights by
s[c] / S. The integers of the map and the results of the depthwise layers do not change.

1. A per-channel factor is inserted after the convolution and folds into its weight scales. It
   commutes with the operators between: Relu, slopes, MaxPool.
2. A Clip commutes at 0. Any other limit must be implied by the int8 range of each channel.
3. Otherwise the pairs remain, on the host: also if zero points differ, if the convolution does not
   compute in integers, or if a channel's scale is too fine for a multiplier.
"""

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN
from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    insert_after,
    is_standard,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.frontend.qdq import (
    activation_params,
    channel_params,
    is_dequantize,
    is_quantize,
    per_row,
)
from opu_fuse.model.operator_sets import AVERAGES, CONVOLUTIONS, HOMOGENEOUS, MOVES_VALUES
from opu_fuse.quant import QuantParams

_LARGEST_RATIO = 2.0**15
"""Largest ratio of an accumulator's scale and its result's: multipliers have 16 bits."""
_COMMUTES = HOMOGENEOUS - AVERAGES
"""Operators that commute with a factor. Averages do not: they round their result."""


def level_channels(graph: ir.Graph) -> None:
    """Convert such maps to one scale. Weights must be annotated already."""
    for node in list(graph):
        value = node.inputs[0] if is_quantize(node) and node.graph is not None else None
        quant = channel_params(node) if value is not None else None
        if value is None or quant is None:
            continue
        pairs, layers = _pairs(value, quant), _layers(value)
        chain = None if pairs is None or layers is None else _chain(value, quant)
        if pairs is None or layers is None or chain is None:
            continue
        scales = np.asarray(quant.scale)
        level = float(np.float32(scales.max()))  # a power of two where all are
        _scale_sums(graph, chain, level / scales)
        _scale_weights(graph, layers, scales / level)
        for pair in pairs:
            _set_scale(graph, pair, level)


def _pairs(value: ir.Value, quant: QuantParams) -> list[ir.Node] | None:
    """All Q nodes of a value and their DQ nodes.

    None if one has other parameters, or if another node or a model output reads the integers.
    """
    pair_nodes = [use.node for use in value.uses()]
    if value.is_graph_output() or not all(is_quantize(n) for n in pair_nodes):
        return None
    for ints in [n.outputs[0] for n in pair_nodes]:
        if ints.is_graph_output() or not all(is_dequantize(u.node) for u in ints.uses()):
            return None
        pair_nodes += [use.node for use in ints.uses()]
    return pair_nodes if all(channel_params(n) == quant for n in pair_nodes) else None


def _layers(value: ir.Value) -> list[ir.Node] | None:
    """The convolutions that read the pairs of a value.

    None if one is not depthwise with integer weights, or if there are other readers.
    """
    readers = []
    for quantize in value.uses():
        for dequantize in quantize.node.outputs[0].uses():
            real = dequantize.node.outputs[0]
            if real.is_graph_output():
                return None
            readers += [(use.idx, use.node) for use in real.uses()]
    channels = (static_shape(value) or (0, 0))[1]
    all_depthwise = all(index == 0 and _is_depthwise(node, channels) for index, node in readers)
    return list(dict.fromkeys(node for _, node in readers)) if all_depthwise else None


def _is_depthwise(node: ir.Node, channels: int) -> bool:
    weight = operand(node, 1)
    data = constant(weight)
    return (
        is_standard(node, "Conv")
        and node.attributes.get_int("group", 1) == channels
        and weight is not None
        and data is not None
        and data.dtype in (np.int8, np.int16)
        and (quant := quant_of(weight)) is not None
        and quant.axis in {0, None}
    )


def _chain(value: ir.Value, quant: QuantParams) -> list[ir.Node] | None:
    """The nodes from the quantisation back to the convolution, both ends included.

    None if a per-channel factor does not commute with all of them.
    """
    chain_nodes: list[ir.Node] = []
    while (node := value.producer()) is not None:
        chain_nodes.append(node)
        source = node.inputs[0]
        if is_standard(node, *CONVOLUTIONS):
            return chain_nodes if _reaches(node, min(quant.scale)) else None
        commutes = is_standard(node, *_COMMUTES) or _clips_nothing_else(node, quant)
        if source is None or not commutes or len(node.outputs) > 1:
            return None
        if sole_reader(source) is not node:
            return None
        value = source
    return None


def _reaches(conv: ir.Node, finest: float) -> bool:
    """Case 3: whether a multiplier reaches `finest`, the finest channel scale of the result."""
    x, weight = conv.inputs[0], conv.inputs[1]
    quant = None if weight is None else quant_of(weight)
    while x is not None and (node := x.producer()) is not None and is_standard(node, *MOVES_VALUES):
        x = node.inputs[0]
    pair = None if x is None else x.producer()
    x_quant = activation_params(pair) if pair is not None and is_dequantize(pair) else None
    if quant is None or x_quant is None:
        return False
    return x_quant.per_tensor * max(quant.scale) / finest < _LARGEST_RATIO


def _clips_nothing_else(node: ir.Node, quant: QuantParams) -> bool:
    """Case 2: whether a Clip's limits are 0, absent, or implied by int8."""
    if not is_standard(node, "Clip"):
        return False
    low, high = (_limit(node, i) for i in (1, 2))
    if low is None or high is None:
        return False
    scales = np.asarray(quant.scale, np.float32)
    with np.errstate(over="ignore"):
        least, most = (np.rint(np.float32(v) / scales) + quant.zero_point for v in (low, high))
    return bool((low == 0.0 or np.all(least <= INT8_MIN)) and np.all(most >= INT8_MAX))


def _limit(node: ir.Node, index: int) -> float | None:
    """A limit of a Clip, infinite where it has none; None where it is computed."""
    value = operand(node, index)
    if value is None:
        return -np.inf if index == 1 else np.inf
    data = constant(value)
    return None if data is None or data.size != 1 else float(data.reshape(()))


def _scale_sums(graph: ir.Graph, chain: list[ir.Node], factors: np.ndarray) -> None:
    """Case 1: insert the factor after the convolution, and drop the Clips it makes redundant."""
    *between, sums = chain
    result = sums.outputs[0]
    shape = static_shape(result) or ()
    data = factors.astype(np.float32).reshape(-1, *[1] * (len(shape) - 2))
    name = f"{sums.name}/level"
    for node in between:
        if is_standard(node, "Clip"):
            if _limit(node, 1) == 0.0:
                rewrite(node, "Relu", node.inputs[:1])
            else:
                bypass(node)
    factor = add_constant(graph, name, data)
    insert_after(sums, result, "Mul", [factor], name=name, shape=shape)


def _scale_weights(graph: ir.Graph, layers: list[ir.Node], factors: np.ndarray) -> None:
    """Multiply weights by a factor per channel; shared constants are copied for each layer."""
    for node in layers:
        weight = node.inputs[1]
        assert weight is not None
        data, quant = constant(weight), quant_of(weight)
        assert data is not None
        assert quant is not None
        spread = np.repeat(factors, len(data) // len(factors))
        scale = np.asarray(per_row(quant, len(data)).scale) * spread
        quant = replace(quant, scale=tuple(scale.tolist()), axis=0)
        node.replace_input_with(1, add_constant(graph, weight.name or "weight", data, quant))


def _set_scale(graph: ir.Graph, pair: ir.Node, level: float) -> None:
    zero = constant(operand(pair, 2))
    pair.attributes.pop("axis", None)
    name = f"{pair.name}/level"
    scale = np.asarray(level, np.float32)
    pair.replace_input_with(1, add_constant(graph, f"{name}/scale", scale))
    if zero is not None:
        only = zero.reshape(-1)[:1].reshape(())
        pair.replace_input_with(2, add_constant(graph, f"{name}/zero_point", only))
