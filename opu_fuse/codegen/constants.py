"""The constants of a program at their offsets: weights, requantisers, tables, constant maps."""

from collections.abc import Iterator

import numpy as np

from opu_fuse.codegen.weights import (
    pack_channels,
    pack_exponentials,
    pack_params,
    pack_table,
    pack_weights,
    pack_windows,
)
from opu_fuse.dfg.graph import PRODUCTS, Dfg, Kind
from opu_fuse.dfg.integer import filters, integer_weight, operator, quant_of, requant_params
from opu_fuse.dfg.pre_array import is_affine, pre_slots
from opu_fuse.dfg.views import feature_shape
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tiling.chunks import weight_bytes
from opu_fuse.units.affine import affine_params
from opu_fuse.units.norm import table_words
from opu_fuse.units.pool import average_params


def pack_constants(dfg: Dfg, plan: Plan, hw: HwSpec) -> np.ndarray:
    """uint8 image of all weights, parameters and maps, from offset 0 of the window."""
    image = np.zeros(plan.constants_bytes, np.uint8)
    for node, place in plan.placements.items():
        if dfg[node].kind is Kind.CONST:
            data = place.layout.pack(_map(dfg, node, plan.layout.images))
            image[place.offset :][: data.size] = data
    for planned in (part for parts in plan.layers.values() for part in parts):
        for offset, data in _constants(dfg, planned, hw, image):
            image[offset : offset + data.size] = data
    return image


def _map(dfg: Dfg, node: int, images: int) -> np.ndarray:
    """int8 (channels, rows, columns) of a constant map; images of a batch are stacked rows."""
    data = dfg[node].const
    assert data is not None
    return np.tile(data.reshape(feature_shape(dfg[node].shape)), (1, images, 1))


def _constants(
    dfg: Dfg, planned: PlannedLayer, hw: HwSpec, image: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (byte offset, uint8 data) of windows, parameters, pre chain and table of a layer.

    Its weights are packed into the image directly, because they may be as large as all others
    together.
    """
    layer, records = planned.layer, []
    pieces = layer.sum_pieces(hw)
    if layer.anchor is not None:
        weight, bias, mult, shift = _numbers(dfg, planned, hw)
        if layer.shape.unit:
            yield planned.unit, _matrix(dfg, planned)
        if weight is None or layer.further:
            pass  # it is a map, or the other result's
        elif layer.shape.depthwise:
            yield planned.weights, pack_windows(planned, weight, hw)
        else:
            groups = feature_shape(dfg[layer.source].shape)[0] // weight.shape[1]
            rows = image[planned.weights :][: weight_bytes(planned.ranges, hw)]
            pack_weights(planned, weight, hw, rows, groups=groups)
        records.append(pack_params(bias, mult, shift, pieces, hw, layer.shape.px))
    records += [pack_channels(values, pieces, hw, layer.shape.px) for values in layer.per_channel]
    if records:
        yield planned.params, np.concatenate(records, axis=1).reshape(-1)
    if layer.pre and layer.gate is None:
        slots = pre_slots(dfg, layer.pre)
        units = [pack_params(*_affine(dfg, slot[0]), layer.in_pieces, hw) for slot in slots]
        yield planned.pre, np.concatenate(units, axis=1).reshape(-1)
    if layer.functions:
        tables = [pack_table(np.frombuffer(each, np.int8), hw) for each in layer.functions]
        yield planned.table, np.concatenate(tables)
    if layer.norm is not None and layer.norm.looks_up is not None:
        yield planned.exponentials, pack_exponentials(table_words(*layer.norm.looks_up), hw)


def _numbers(
    dfg: Dfg, planned: PlannedLayer, hw: HwSpec
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray]:
    """Weights (oc, ic / groups, kh, kw), None where they are a map, and bias, multiplier, shift per
    output channel, of the operator on the array.
    """
    layer = planned.layer
    assert layer.anchor is not None
    node, kernel = dfg[layer.anchor], layer.shape.kernel
    channels = feature_shape(node.shape)[0]
    zero = np.zeros(channels, np.int64)
    if node.op == "shuffle":
        order, source = np.array(node.attrs["order"]), dfg[node.operands[0]]
        weight = order[:, None] == np.arange(feature_shape(source.shape)[0])
        bias = np.where(order < 0, quant_of(source).zero_point, zero)
        return weight[:, :, None, None].astype(np.int8), bias, zero + 1, zero
    if node.op == "transpose" and not node.is_turned_layer:
        return None, zero, zero + 1, zero
    if node.index in layer.pre:
        return np.ones((channels, 1, 1, 1), np.int8), zero, zero + 1, zero
    if node.op == "avg_pool":
        p = average_params(operator(dfg, node.index), hw.numeric)
        ((_, only),) = p.mults
        bias = np.full(channels, -p.x_zero * kernel[0] * kernel[1], np.int64)
        mult, shift = np.full(channels, only.mult), np.full(channels, only.shift)
        return np.ones((channels, 1, *kernel), np.int8), bias, mult, shift
    q = requant_params(dfg, node.index, hw.numeric)
    if node.op in PRODUCTS:
        return None, q.bias, q.mult, q.shift
    weight = filters(dfg, node.index)
    if layer.phase.taps is None:
        return weight.reshape(channels, -1, *kernel), q.bias, q.mult, q.shift
    part = layer.phase.filters(weight)
    outside = weight.sum(axis=(1, 2, 3), dtype=np.int64) - part.sum(axis=(1, 2, 3), dtype=np.int64)
    missing = [(0, k - n) for k, n in zip(kernel, part.shape[2:], strict=True)]
    part = np.pad(part, ((0, 0), (0, 0), *missing))
    return part, q.bias + q.pad_value * outside, q.mult, q.shift


def _matrix(dfg: Dfg, planned: PlannedLayer) -> np.ndarray:
    """The unit matrix, or the weights of a turned layer, as stored in memory: the last channels."""
    layout, anchor = planned.reads.layout, planned.layer.anchor
    if anchor is not None and dfg[anchor].is_turned_layer:
        weight = integer_weight(dfg[dfg[anchor].operands[1]]).T
        above = layout.channels - len(weight)
        return layout.pack(np.pad(weight, ((above, 0), (0, 0)))[:, None])
    first = layout.channels - layout.cols
    return layout.pack(np.eye(layout.channels, layout.cols, -first, dtype=np.int8)[:, None])


def _affine(dfg: Dfg, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bias, multiplier and shift per input channel of a unit before the array. first: its first
    operator, which may be a clamp alone.
    """
    if is_affine(dfg, first):
        p = affine_params(operator(dfg, first))
        return p.bias, p.mult, p.shift
    channels = feature_shape(dfg[first].shape)[0]
    zero = np.zeros(channels, np.int64)
    return zero, zero + 1, zero
