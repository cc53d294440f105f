"""Float model -> standard QDQ model, through ONNX Runtime's static quantiser.

Scales are chosen here (`choose_scales.py`). ONNX Runtime inserts the QuantizeLinear and
DequantizeLinear nodes: int8 activations and weights, int32 biases. Other operators remain float.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.choices import require_choice
from opu_fuse.errors import InternalError, ModelError
from opu_fuse.frontend.calibration import Calibration, samples
from opu_fuse.frontend.canonical.dense import is_final
from opu_fuse.frontend.choice_names import Method, Scales
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    filter_axis,
    is_standard,
    operand,
    static_shape,
)
from opu_fuse.frontend.importing.node_names import free_names, part_names
from opu_fuse.frontend.importing.size_limits import calibration_seconds
from opu_fuse.frontend.importing.toposort import sort_nodes
from opu_fuse.frontend.importing.value_checks import in_range
from opu_fuse.frontend.qdq import is_dequantize
from opu_fuse.frontend.quantization.activation_ranges import collect
from opu_fuse.frontend.quantization.bias_correction import correct_biases, corrected, give_biases
from opu_fuse.frontend.quantization.check_quantised import check_quantised
from opu_fuse.frontend.quantization.choose_scales import (
    BIAS_LIMIT,
    activation_quants,
    is_part_of_mean,
    roomy_scales,
    round_normalisations,
    round_slopes,
    weight_scales,
)
from opu_fuse.frontend.quantization.lost_operands import lost_operands
from opu_fuse.frontend.quantization.masks import leave_infinite, without_masks
from opu_fuse.frontend.unrounded import needless, separate, split_inputs, unround
from opu_fuse.frontend.weights import fill_in, lean_proto
from opu_fuse.model.composites import composites
from opu_fuse.model.norms import machine_norm
from opu_fuse.model.operator_sets import (
    BY_NUMBERS,
    LAYERS,
    PERMUTES,
    QUANTISED,
    REAL_CONSTANTS,
    UNMOVED,
)
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.model.products import is_product, is_turned_layer
from opu_fuse.quant import FLOAT_KEY, NEEDLESS, NORMS_KEY

_MOVERS = QUANTISED & (UNMOVED | PERMUTES)
"""Operators quantised at any rank if their operand is: lossless, so shuffles remain exact."""
_TINY = 2.0**-60
"""Constants below this magnitude are zero in any scale."""


def quantise(
    model: ir.Model, calibration: Calibration = None, *, scales: str = Scales.POW2
) -> onnx.ModelProto:
    """The QDQ form of a canonical float model (`transforms.canonicalise`).

    scales: of `choice_names.Scales`. Raises ModelError for unusable calibration data and for values
    that cannot be quantised (NaN, infinity).
    """
    return quantise_with(model, calibration, scales=scales)[0]


def quantise_with(
    model: ir.Model,
    calibration: Calibration,
    *,
    scales: str = Scales.POW2,
    method: str = Method.MSE,
    bias_correction: bool = False,
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The QDQ form of a canonical float model, as `quantise`, and the warnings.
    method: selects the range of an activation (`calibration_methods.py`).
    bias_correction: see `bias_correction.py`.
    """
    from onnxruntime.quantization import QuantType  # slow to import
    from onnxruntime.quantization.calibrate import TensorData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    require_choice("scales", scales, Scales)
    require_choice("calibration method", method, Method)
    _own_constants(model)
    nodes, values, touched = rounded(model.graph, model.graph.meta.get(NORMS_KEY, ()))
    names = {node.name or "" for node in touched}
    by_channel: set[str] = set()
    if bias_correction:
        give_biases(model.graph, nodes)
        by_channel = {v.name or "" for n in corrected(nodes) if (v := n.inputs[0]) is not None}
    free_names(model, (*values, *(v for node in nodes for v in node.inputs if v is not None)))
    if not values and calibration is None:  # all on the host: no scales to choose
        return ir.to_proto(model), ()
    calibration_samples, warnings = samples(model, calibration)
    if not values:
        return ir.to_proto(model), warnings
    proto, weights = lean_proto(model, nodes)
    sizes = {v.name or "": static_shape(v) or () for v in values}
    seconds = calibration_seconds(model, len(calibration_samples))
    ranges = collect(
        proto, sizes, calibration_samples, weights, by_channel=by_channel, seconds=seconds
    )
    infinite = [v for v in values if not ranges[v.name or ""].is_finite]
    if infinite:  # once more, without what touches them
        warning = leave_infinite(infinite, ranges)
        separate_unrounded(model, quantised=True)
        qdq, warnings = quantise_with(
            model, calibration, scales=scales, method=method, bias_correction=bias_correction
        )
        return qdq, (*warnings, warning)
    ranges = without_masks(model.graph, ranges)
    quants = activation_quants(model.graph, ranges, scales=scales, method=method)
    warnings = (*warnings, *lost_operands(nodes, ranges, quants))
    chosen = {name: quant.per_tensor for name, quant in quants.items()}
    pow2 = scales != Scales.FREE
    if pow2:
        round_normalisations(proto.graph, chosen)
    round_slopes(proto.graph)
    overrides = {name: [_override(q.per_tensor, q.zero_point)] for name, q in quants.items()}
    overrides |= _constant_overrides(nodes, chosen, pow2=pow2)
    outputs = _take_inputs_out_of_outputs(proto.graph)
    add_infer_metadata(proto)  # all shapes are known: avoids shape inference via a file
    quantizer = QDQQuantizer(
        proto,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range={
            name: TensorData(lowest=np.float32(r.low), highest=np.float32(r.high))
            for name, r in ranges.items()
        },
        nodes_to_quantize={n.name for n in nodes},  # a set: looked up for every node
        nodes_to_exclude=[],
        # No node to quantise would mean all of them.
        op_types_to_quantize=sorted(QUANTISED) if nodes else [],
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "TensorQuantOverrides": overrides,
            # Our scales leave headroom for biases; adjusted ones would not be powers of two.
            "QDQDisableWeightAdjustForInt32Bias": pow2,
        },
    )
    for name in chosen:  # else it skips Relu and pooling after a float operator
        quantizer.quantize_activation_tensor(name)
    qdq = quantizer.quantize_model()
    fill_in(qdq, weights)
    unround(qdq.graph, names)
    if bias_correction:
        correct_biases(qdq.graph, nodes, ranges)
    _restore_outputs(qdq.graph, outputs)
    part_names(qdq.graph)
    if (node := sort_nodes(qdq.graph)) is not None:
        raise InternalError(stage="quantise", what=f"node {node!r} reads its own result")
    qdq.ClearField("metadata_props")
    check_quantised(qdq)
    return qdq, warnings


def _take_inputs_out_of_outputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Remove model inputs from the outputs of a graph. Returns the former outputs.

    The quantiser would name the quantised form of an input that is also an output like the input.
    """
    outputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in graph.output]
    inputs = {value.name for value in graph.input}
    graph.ClearField("output")
    graph.output.extend(value for value in outputs if value.name not in inputs)
    return outputs


def _restore_outputs(graph: onnx.GraphProto, outputs: Sequence[onnx.ValueInfoProto]) -> None:
    graph.ClearField("output")
    graph.output.extend(outputs)


def rounded(  # noqa: C901  one case after the other
    graph: ir.Graph, norms: Collection[str] = ()
) -> tuple[list[ir.Node], dict[ir.Value, None], set[ir.Node]]:
    """The quantised nodes and values of a graph.

    Returns the nodes that ONNX Runtime's quantiser handles and all quantised values, both in graph
    order, and the set of nodes that read or write quantised values. norms: ONNX operators of
    `model/norms.py` that the machine runs.
    """
    wholes = composites(graph)
    composite_nodes = {node for composite in wholes.values() for node in composite.nodes}
    nodes: list[ir.Node] = []
    values: dict[ir.Value, None] = {}
    of_node: dict[ir.Node, list[ir.Value]] = {}
    float_nodes = {node for node in graph if FLOAT_KEY in node.metadata_props}
    float_nodes |= preprocessing_nodes(graph)  # a port's lookup table replaces them
    for node in graph:
        if node in float_nodes or (
            node in wholes and not float_nodes.isdisjoint(wholes[node].nodes)
        ):
            continue
        operands = [v for v in node.inputs if v is not None]
        shapes = [static_shape(v) for v in (*operands, *node.outputs)]
        if any(shape is None or 0 in shape for shape in shapes):
            continue  # empty, or of unknown size
        if any(is_dequantize(v.producer()) for v in operands):
            continue  # ONNX Runtime quantises no reader of a DequantizeLinear
        norm = machine_norm(node, wholes.get(node), norms) if norms else None
        if norm is not None:
            operands = [norm.source]
        elif node in wholes and not wholes[node].is_norm:
            source = wholes[node].source
            if not (source in values or source.is_graph_input()) or not _is_map(node.outputs[0]):
                continue
            operands = [source]
        elif node in composite_nodes:
            continue
        elif (is_standard(node, *_MOVERS) and node.inputs[0] in values) or _is_quantised(node):
            if not is_part_of_mean(node):  # ONNX Runtime would reuse its operand's scale
                nodes.append(node)
        elif not _has_float_constants(node):
            continue
        computed = [v for v in (*operands, *node.outputs) if v.const_value is None]
        of_node[node] = [v for v in computed if v.dtype == ir.DataType.FLOAT]
        values.update(dict.fromkeys(of_node[node]))
    touched = {n for node in of_node for n in (wholes[node].nodes if node in wholes else (node,))}
    idle = _leave_float(needless(graph, touched, wholes))
    if idle:
        values = dict.fromkeys(v for node in of_node if node not in idle for v in of_node[node])
    return [node for node in nodes if node not in idle], values, touched - idle


def _leave_float(idle: set[ir.Node]) -> set[ir.Node]:
    for node in idle:
        node.metadata_props[FLOAT_KEY] = NEEDLESS
    return idle


def separate_unrounded(model: ir.Model, *, quantised: bool) -> None:
    """Duplicate values that are read both quantised and as float (`unrounded.py`).

    Run it before a float model is quantised, or fused as a float model (quantised=False).
    """
    _, values, touched = rounded(model.graph, model.graph.meta.get(NORMS_KEY, ()))
    separate(model.graph, touched, values)
    if not quantised:
        split_inputs(model.graph, touched)


def _is_quantised(node: ir.Node) -> bool:
    if not is_standard(node, *QUANTISED):
        return False
    x, w = node.inputs[0], constant(operand(node, 1))
    if x is None or x.dtype != ir.DataType.FLOAT or static_shape(node.outputs[0]) is None:
        return False
    if is_standard(node, "ConvTranspose") and w is not None:
        group = node.attributes.get_int("group", 1)
        return constant(x) is None and (group == 1 or (group, 1) == w.shape[:2])
    if node.op_type in LAYERS:
        known = is_final(node) if node.op_type == "Gemm" else w is not None
        return known and constant(x) is None
    if is_standard(node, "Sub") and not _is_difference(node):
        return False
    if node.op_type in BY_NUMBERS and any(constant(v) is None for v in node.inputs[1:] if v):
        return False
    arrays = [constant(v) for v in node.inputs if is_standard(node, "Add")]
    if not all(np.isfinite(a).all() for a in arrays if a is not None and a.dtype.kind == "f"):
        return False  # a mask of minus infinity
    known = node.op_type != "Einsum" or is_product(node) or is_turned_layer(node)
    return known and _is_map(node.outputs[0])


def _is_difference(node: ir.Node) -> bool:
    """Whether a Sub is a difference of two maps or rows, as in `dfg/lower_node.py`: the mean or
    maximum that a normalisation subtracts remains float, as do channel statistics.
    """
    shape = static_shape(node.outputs[0]) or ()
    same_shape = all(constant(v) is None and static_shape(v) == shape for v in node.inputs)
    return same_shape and shape[2:] != (1, 1)


def _has_float_constants(node: ir.Node) -> bool:
    """Whether a node is a normalisation or slope with constant parameters."""
    known = all(constant(v) is not None for v in node.inputs[1:])
    return is_standard(node, *REAL_CONSTANTS) and known and _is_map(node.outputs[0])


def _is_map(value: ir.Value) -> bool:
    """Whether a value is one image or one row, the shapes that a machine supports."""
    shape = static_shape(value) or ()
    return len(shape) in {2, 4} and shape[:1] == (1,)


def _own_constants(model: ir.Model) -> None:
    """Copy shared biases and weights, so that each layer can quantise its own.

    An int32 bias depends on the layer's input scale, so none is shared. A weight has scales along
    one axis, so only layers with the same output channel axis share it.
    """
    by_axis: dict[ir.Value, dict[int, ir.Value]] = {}
    for node in model.graph:
        if not is_standard(node, *LAYERS):
            continue
        (w, weight), (b, bias) = ((v, constant(v)) for v in (node.inputs[1], operand(node, 2)))
        if w is not None and weight is not None:
            axis = filter_axis(node)
            known = by_axis.setdefault(w, {axis: w})
            if axis not in known:
                known[axis] = add_constant(model.graph, f"{node.name}/weight", weight)
            node.replace_input_with(1, known[axis])
        if b is not None and bias is not None and len(b.uses()) > 1:
            node.replace_input_with(2, add_constant(model.graph, f"{node.name}/bias", bias))


def _constant_overrides(
    nodes: Sequence[ir.Node], chosen: dict[str, float], *, pow2: bool
) -> dict[str, list[dict[str, Any]]]:
    overrides: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        if node.op_type in LAYERS:
            _check_sums(node, chosen)
            name, rows = _weight_override(node, chosen, pow2=pow2)
            if rows:
                overrides[name] = _wider(overrides.get(name), rows)
            continue
        for value in node.inputs:
            data = constant(value)
            if value is None or data is None or data.dtype != np.float32 or data.size == 0:
                continue
            largest = float(np.abs(data).max())
            if pow2 and np.isfinite(largest):
                exponent = np.ceil(np.log2(largest / 127.0)) if largest >= _TINY else -7
                overrides[value.name or ""] = [_override(2.0**exponent)]
    return overrides


def _check_sums(node: ir.Node, chosen: dict[str, float]) -> None:
    """Raise ModelError if the scale of products or of the bias is out of float32's range."""
    x = node.inputs[0]
    assert x is not None
    scale = chosen[x.name or ""]
    factors = {"weight": scale, "bias": 1.0 / (scale * BIAS_LIMIT)}
    for (what, factor), value in zip(factors.items(), node.inputs[1:], strict=False):
        data = constant(value)
        if data is None or not data.size:
            continue
        ends = np.array([data.min(), data.max()], np.float64)
        if not in_range(ends * factor):
            raise ModelError(
                f"node {node.name!r} ({node.op_type})",
                f"its {what} {np.abs(ends).max():.3g} is too large for a scale of {scale:.3g}",
                "check the weights, or calibrate with inputs that the network is for",
            )


def _weight_override(
    node: ir.Node, chosen: dict[str, float], *, pow2: bool
) -> tuple[str, list[dict[str, Any]]]:
    """The weight's name and scales per output channel; none if ONNX Runtime's suffice."""
    x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None
    assert w is not None
    x_scale = chosen[x.name or ""]
    scales = weight_scales if pow2 else roomy_scales
    rows = scales(node, x_scale=x_scale, y_scale=chosen[y.name or ""])
    axis = {"axis": filter_axis(node)}
    return w.name or "", [_override(s) | axis for s in (() if rows is None else rows)]


def _wider(old: list[dict[str, Any]] | None, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the scales of a weight that several layers read: the larger one of each channel."""
    if old is None:
        return new
    return [max(a, b, key=lambda o: float(o["scale"])) for a, b in zip(old, new, strict=True)]


def _override(scale: float, zero_point: int = 0) -> dict[str, Any]:
    from onnxruntime.quantization import QuantType

    return {
        "scale": np.array(scale, np.float32),
        "zero_point": np.array(zero_point, np.int8),
        "quant_type": QuantType.QInt8,
    }
