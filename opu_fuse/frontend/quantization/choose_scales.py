"""Selection of scales for activations and weights.

Activations: int8, one scale and zero point per group of tensors. Tensors share a group if the
operators between them only move or select values. The method `mse` minimises the squared error on
the values that other operators read:

    zero point 0     factors of products of two maps: no constant makes up for another one
    pow2             a power of two with zero point 0, while no tensor of the group clips more than
                     MAX_CLIPPED of its values
    pow2-asymmetric  a power of two and a zero point
    free             any scale and zero point (`qparam_range.py`)

Other methods select the range to cover (`calibration_methods.py`); the scale is then the finest
that covers it.

Weights: int8, per output channel. Of powers of two the candidates are the one that clips nothing
and half of it; the squared error decides. Two bounds limit a channel's scale from below: the bias
fits int32, and the shift of the requantiser is at most MAX_SHIFT.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from opu_fuse.frontend.choice_names import Method, Scales
from opu_fuse.frontend.editing import constant, filter_axis, is_standard, operand, sole_reader
from opu_fuse.frontend.quantization.activation_ranges import CALIBRATION_SHARE, Range
from opu_fuse.frontend.quantization.calibration_methods import ends
from opu_fuse.frontend.quantization.qparam_range import free_quant, relative_error
from opu_fuse.model.composites import PERMUTE, SHUFFLE, composites
from opu_fuse.model.divisions import division
from opu_fuse.model.operator_sets import AVERAGES, SLOPES, TIES_SCALES, UNMOVED
from opu_fuse.model.products import is_product, is_turn, is_turned_layer
from opu_fuse.process.progress import report
from opu_fuse.quant import LEAST, QuantParams, covering

MAX_CLIPPED = 0.01
"""Largest share of a tensor's values that a scale may saturate."""
MAX_SHIFT = 31
"""Largest shift of the requantiser that scales may need."""
BIAS_LIMIT = float(1 << 30)
"""Half of int32: the other half is headroom for the sum of products."""
NORM_BITS = 23
"""Bits of a normalisation's shift: with a product of 15 + 7 bits the sum fits float32's 24."""
_LEAST_SLOPE = 2.0**-15
"""The finest step of a slope."""
_INT16_MAX = (1 << 15) - 1
CANDIDATES = 4
"""Number of candidate scales: the one that clips nothing and its halvings."""
HALVINGS = 6
"""Of the scale of a factor of a product: flat softmaxes over 1500 values need five."""
FINER = 8
"""Arbitrary scales that are tried from one to its half."""

_TINY, _SMALLEST = 2.0**-60, 2.0**-7
"""Maps below the first magnitude are zero in any scale; they get the second as their scale."""
_NOISE = 2.0**-20
"""Share of its operand below which an average is noise: float32 has 24 bits, and errors add up."""
_BLOCK = 1 << 18
"""Weights processed at a time, so that a block fits the CPU's cache."""


def tied_groups(graph: ir.Graph, tensors: Sequence[str]) -> list[tuple[str, ...]]:
    """Partition the named activations into groups that share a scale, all in graph order."""
    parent = {name: name for name in tensors}

    # Union-find with path halving.
    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for values in _ties(graph, tensors).values():
        names = [v.name for v in values if v is not None and v.name in parent]
        for name in names[1:]:
            parent[find(name or "")] = find(names[0] or "")
    groups: dict[str, list[str]] = {}
    for name in tensors:
        groups.setdefault(find(name), []).append(name)
    return [tuple(group) for group in groups.values()]


def _ties(graph: ir.Graph, rounded: Collection[str]) -> dict[ir.Node, tuple[ir.Value | None, ...]]:
    """Nodes with a quantised result that move or select values -> values that share its scale."""
    composite_of = {
        node: composite for composite in composites(graph).values() for node in composite.nodes
    }
    ties: dict[ir.Node, tuple[ir.Value | None, ...]] = {}
    for node in graph:
        if not any(v.name in rounded for v in node.outputs):
            continue
        composite = composite_of.get(node)
        if composite is not None and composite.op in {PERMUTE, SHUFFLE}:
            ties[node] = (composite.source, *composite.nodes[-1].outputs)
        elif composite is None and is_standard(node, *TIES_SCALES) and not is_part_of_mean(node):
            operands = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            ties[node] = (*operands, *node.outputs)
    return ties


def is_part_of_mean(node: ir.Node) -> bool:
    """Whether a node is an AveragePool that only a GlobalAveragePool reads."""
    reader = sole_reader(node.outputs[0]) if is_standard(node, "AveragePool") else None
    return reader is not None and is_standard(reader, "GlobalAveragePool")


def read_by_others(graph: ir.Graph, rounded: Collection[str]) -> set[str]:
    """Names of values whose accuracy counts.

    These are model outputs and operands of operators that compute new values or whose result is not
    quantised.
    """
    names = {v.name or "" for v in graph.outputs}
    ties = _ties(graph, rounded)
    for node in graph:
        if node not in ties or node.op_type == "AveragePool":
            names.update(v.name or "" for v in node.inputs if v is not None)
    return names


def activation_quants(
    graph: ir.Graph, ranges: Mapping[str, Range], *, scales: str, method: str = Method.MSE
) -> dict[str, QuantParams]:
    """Scale and zero point of each tensor of `ranges`, equal within tied groups.

    scales, method: of `choice_names.py`.
    """
    ranges = {**ranges, **_cancelled(graph, ranges)}
    counting, factors = read_by_others(graph, ranges), _factors(graph)
    quants: dict[str, QuantParams] = {}
    groups = tied_groups(graph, list(ranges))
    for n, group in enumerate(groups):
        share = CALIBRATION_SHARE + (1.0 - CALIBRATION_SHARE) * n / len(groups)
        report(f"choose scales: {n + 1} of {len(groups)}", share)
        read = [ranges[t] for t in group if t in counting] or [ranges[group[-1]]]
        members = [ranges[t] for t in group]
        symmetric = not factors.isdisjoint(group)
        if method != Method.MSE:
            low, high = ends(read, method)
            quant = _symmetric(low, high, scales) if symmetric else _holding(low, high, scales)
        elif symmetric:
            quant = _symmetric_with_least_error(read, scales)
        elif scales == Scales.POW2:
            quant = QuantParams(scale=(_pow2_scale(members, read),))
        elif scales == Scales.ASYMMETRIC:
            quant = _pow2_span(read)
        else:
            quant = free_quant(read)
        quants.update(dict.fromkeys(group, quant))
    return quants


def _cancelled(graph: ir.Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Averages of values that cancel out, and what moves these: only the rounding of float32 is
    left of them, and they mean zero.
    """
    zero = Range(low=0.0, high=0.0, samples=np.zeros(1, np.float32))
    found: dict[str, Range] = {}
    for node in graph:
        source, result = operand(node, 0), node.outputs[0]
        before, name = ranges.get((source and source.name) or ""), result.name or ""
        if before is None or name not in ranges:
            continue
        is_noise = ranges[name].largest < _NOISE * before.largest
        moved = is_standard(node, *UNMOVED) and source is not None and source.name in found
        if moved or (is_noise and is_standard(node, *AVERAGES)):
            found[name] = zero
    return found


def _factors(graph: ir.Graph) -> set[str]:
    """Operands of products of two maps, of turns and of divisions by a channel. They have zero
    point 0: no constant makes up for it.
    """
    kinds = is_product, is_turn, is_turned_layer, division
    products = (n for n in graph if any(kind(n) for kind in kinds))
    return {v.name or "" for node in products for v in node.inputs if v is not None}


def _symmetric(low: float, high: float, scales: str) -> QuantParams:
    """The finest quantisation with zero point 0 that covers [low, high]."""
    largest = max(-low, high)
    if scales != Scales.FREE:
        return _holding(-largest, largest, Scales.POW2)
    return QuantParams(scale=(float(np.float32(largest / 127.0)) if largest >= LEAST else 1.0,))


def _symmetric_with_least_error(read: Sequence[Range], scales: str) -> QuantParams:
    """The quantisation with zero point 0 and the least error, however much it clips.

    The probabilities of a softmax need this: few are near 1, and a scale that holds these rounds
    most others of a flat row to 0.
    """
    largest = max(r.largest for r in read)
    widest = _symmetric(-largest, largest, scales)
    if largest < (LEAST if scales == Scales.FREE else _TINY):
        return widest
    steps = HALVINGS * (FINER if scales == Scales.FREE else 1)
    tried = [widest.per_tensor * 2.0 ** (-HALVINGS * n / steps) for n in range(steps + 1)]
    errors = [sum(relative_error(r.samples, scale) for r in read) for scale in tried]
    return QuantParams(scale=(float(np.float32(tried[int(np.argmin(errors))])),))


def _holding(low: float, high: float, scales: str) -> QuantParams:
    """The finest quantisation that covers [low, high], which contains zero."""
    if scales == Scales.FREE:
        return covering(low, high) if high - low >= LEAST else QuantParams(scale=(1.0,))
    largest = max(-low, high)
    if largest < _TINY:
        return QuantParams(scale=(_SMALLEST,))
    if scales == Scales.POW2:
        return QuantParams(scale=(_pow2_holding(largest),))
    scale = _pow2_holding((high - low) * 127.0 / 255.0)
    return QuantParams(scale=(scale,), zero_point=_zero_point(-128.0 - low / scale))


def _zero_point(wanted: float) -> int:
    return int(np.clip(np.rint(wanted), -128, 127))


def _pow2_span(read: Sequence[Range]) -> QuantParams:
    """The power of two and the zero point with the least error.

    Zero points are tried for which int8 begins at the lowest value, ends at the highest one, or is
    symmetric.
    """
    low, high = min(0.0, *(r.low for r in read)), max(0.0, *(r.high for r in read))
    if max(-low, high) < _TINY:
        return QuantParams(scale=(_SMALLEST,))
    widest = _pow2_holding(max(-low, high))
    tried: dict[QuantParams, float] = {}
    for step in range(CANDIDATES + 1):  # one more: a zero point gains a bit
        scale = widest * 2.0**-step
        for zero in (0, _zero_point(-128.0 - low / scale), _zero_point(127.0 - high / scale)):
            quant = QuantParams(scale=(scale,), zero_point=zero)
            if quant not in tried:
                tried[quant] = sum(relative_error(r.samples, scale, zero) for r in read)
    return min(tried, key=tried.__getitem__)


def _pow2_holding(largest: float) -> float:
    """The least power of two of which 127 steps cover `largest`."""
    return float(2.0 ** np.ceil(np.log2(largest / 127.0)))


def _pow2_scale(members: Sequence[Range], read: Sequence[Range]) -> float:
    largest = max(r.largest for r in read)
    if largest < _TINY:
        return _SMALLEST
    widest = _pow2_holding(largest)
    best, best_error = widest, np.inf
    for step in range(CANDIDATES):
        scale = widest * 2.0**-step
        if step and any(_clipped(r, scale) > MAX_CLIPPED for r in members):
            break
        error = sum(relative_error(r.samples, scale) for r in read)
        if error < best_error:
            best, best_error = scale, error
    while any(_clipped(r, best) > MAX_CLIPPED for r in members):
        best *= 2.0
    return best


def _clipped(r: Range, scale: float) -> float:
    """Fraction of the values that int8 saturates at this scale."""
    if r.largest <= 127.5 * scale:
        return 0.0
    return float(np.mean(np.abs(r.samples) > 127.5 * scale))


def weight_scales(node: ir.Node, *, x_scale: float, y_scale: float) -> np.ndarray:
    """Power-of-two scales of a convolution's or Gemm's weight, float64 [output channels]."""
    weight, bias = constant(node.inputs[1]), constant(operand(node, 2))
    assert weight is not None
    weight = np.moveaxis(weight, filter_axis(node), 0)
    rows = weight.reshape(len(weight), -1)
    step = max(_BLOCK // rows.shape[1], 1)
    scales = np.concatenate([_row_scales(rows[i : i + step]) for i in range(0, len(rows), step)])
    is_zero = scales == 0.0
    least = np.full(len(rows), _least_scale(x_scale, y_scale))
    if bias is not None:
        least = np.maximum(least, _scale_with_room(bias, x_scale))
    least = np.exp2(np.ceil(np.log2(least)))
    # A channel of zero weights is only its bias: the finest scale quantises it best.
    return np.where(is_zero, least, np.maximum(scales, least))


def roomy_scales(node: ir.Node, *, x_scale: float, y_scale: float) -> np.ndarray | None:
    """Arbitrary scales of a convolution's or Gemm's weight, float64 [output channels].

    They cover the largest weight of each channel. They are larger where the bias would overflow the
    accumulator, or where the weights are too small for the requantiser's shift. None if neither
    bound applies to any channel.
    """
    weight, bias = constant(node.inputs[1]), constant(operand(node, 2))
    if weight is None:
        return None
    weight = np.moveaxis(weight, filter_axis(node), 0)
    rows = weight.reshape(len(weight), -1)
    scales = np.abs(rows).max(axis=1, initial=0.0).astype(np.float64) / 127.0
    room = 0.0 if bias is None else _scale_with_room(bias, x_scale)
    least = np.maximum(room, _least_scale(x_scale, y_scale))
    return None if np.all(least <= scales) else np.maximum(scales, least)


def _scale_with_room(bias: np.ndarray, x_scale: float) -> np.ndarray:
    """Least weight scale of each channel for which its bias fits the accumulator."""
    return np.abs(bias.astype(np.float64)) / (x_scale * BIAS_LIMIT)


def _least_scale(x_scale: float, y_scale: float) -> float:
    """Least weight scale: the requantiser would shift out sums of finer products."""
    return y_scale / x_scale * 2.0**-MAX_SHIFT


def _row_scales(rows: np.ndarray) -> np.ndarray:
    """The better scale for each row: the one that clips nothing, or half of it; 0 for zero rows.

    Rounding noise is a twelfth of the squared step per weight. Halving the step pays if it saves
    more of that than the squared clipping error it adds.
    """
    magnitudes = np.abs(rows)
    largest = magnitudes.max(axis=1).astype(np.float64)
    is_zero = largest == 0.0
    scales = np.exp2(np.ceil(np.log2(np.where(is_zero, 1.0, largest) / 127.0)))
    half = scales / 2.0
    magnitudes -= (127.5 * half).astype(np.float32)[:, None]
    np.maximum(magnitudes, 0.0, out=magnitudes)
    clipping_error = np.einsum("ij,ij->i", magnitudes, magnitudes, dtype=np.float64)
    rounding_gain = rows.shape[1] * (np.square(scales) - np.square(half)) / 12.0
    return np.where(is_zero, 0.0, np.where(clipping_error < rounding_gain, half, scales))


def round_normalisations(graph: onnx.GraphProto, scales: Mapping[str, float]) -> None:
    """Round scale and shift of every BatchNormalization to numbers a machine can encode.

    Per channel these are `scale = a / 2**k` and `shift = b * x_scale / 2**k`, with a in int16 and b
    in NORM_BITS bits. Their sums are then exact in float32, too. scales: powers of two by tensor.
    """
    tensors = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type != "BatchNormalization" or node.input[0] not in scales:
            continue
        constants = (numpy_helper.to_array(tensors[n]) for n in node.input[1:3])
        scale, shift = (c.astype(np.float64) for c in constants)
        steps = shift / scales[node.input[0]]
        with np.errstate(divide="ignore"):
            room = np.minimum(np.log2(_INT16_MAX / abs(scale)), NORM_BITS - np.log2(abs(steps)))
        fine = np.exp2(np.where(np.isfinite(room), np.floor(room), 0.0))
        _set_data(tensors[node.input[1]], np.rint(scale * fine) / fine)
        _set_data(tensors[node.input[2]], np.rint(steps * fine) / fine * scales[node.input[0]])


def round_slopes(graph: onnx.GraphProto) -> None:
    """Round all slopes, constants or attributes, to numbers a machine can encode.

    These are int16 multiples of 2**-15 or of a coarser power of two. Their products with int8
    values are then exact in float32, too.
    """
    tensors = {t.name: t for t in graph.initializer}
    nodes = [n for n in graph.node if n.op_type in SLOPES]
    slopes = {n.input[1] for n in nodes if len(n.input) > 1} & tensors.keys()
    for name in sorted(slopes):
        _set_data(tensors[name], _coarse(numpy_helper.to_array(tensors[name])))
    for node in nodes:
        if len(node.input) == 1:
            alpha = next((a for a in node.attribute if a.name == "alpha"), None)
            if alpha is None:
                alpha = node.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, f=0.01)
            alpha.f = float(_coarse(np.array(alpha.f)))


def _coarse(slopes: np.ndarray) -> np.ndarray:
    steepest = float(np.abs(slopes).max(initial=0.0))
    fine = 2.0 ** min(15, np.floor(np.log2(_INT16_MAX / max(steepest, _LEAST_SLOPE))))
    return np.rint(slopes.astype(np.float64) * fine) / fine


def _set_data(tensor: onnx.TensorProto, data: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(data.astype(np.float32), tensor.name))
