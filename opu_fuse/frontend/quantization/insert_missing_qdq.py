"""Missing Q/DQ pairs: insert them before functions and sums, where a machine needs int8 operands.

Some quantisers treat a layer, its activation function and a residual as one operator. They quantise
only its final result. The lookup tables and adders of a machine read int8, so the layer's own
result needs a Q/DQ pair, too. The pair is part of the model: all later passes and the reference of
`--check` see it. Its scale needs no calibration data; the next quantisation determines it:

1. Before a function of one number: the span over which the quantised result still changes. Outside
   of it the result saturates, or the function is flat.
2. Before a sum with a quantised map, or a difference: the numbers that give a representable result
   with some value of that map.

No pair is inserted where a result might move by more than `LIMIT` steps (a LeakyRelu whose result
has as much range below zero as above).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.editing import (
    constant,
    is_standard,
    operand,
    static_shape,
)
from opu_fuse.frontend.importing.node_names import fix_names
from opu_fuse.frontend.qdq import activation_params, dequantised, is_dequantize, is_quantize
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.quantization.insert_requantise import add_pair, replace_after_pair
from opu_fuse.model.composites import TABLE, composites
from opu_fuse.model.operator_sets import AFFINE, MONOTONE, SLOPES, WITHIN_RANGE
from opu_fuse.quant import LEAST, QuantParams, covering

LIMIT = 3.0
"""Largest error that an inserted pair may cause, in steps of the next quantised result."""

_TOLERANCES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
"""Errors allowed for values that the inner scale saturates, in steps of the result."""
_FAR = 2.0 ** np.arange(-10, 10, 1 / 16)
"""Points at which a function is sampled, in spans of its result, on both sides of zero."""

_Function = Callable[[np.ndarray], np.ndarray]
_Read = tuple[ir.Value, Sequence[ir.Node]]
"""The value that a function reads, and all its nodes."""


class _Candidate(NamedTuple):
    """A value to quantise. steps, off: those of `_Added`, for the next result."""

    value: ir.Value
    quant: QuantParams
    steps: float
    off: float


class _Added(Struct, frozen=True, kw_only=True):
    """An inserted Q/DQ pair of a value.

    steps: steps of the next quantised result in one step of this value.
    off: bound on the error of the last quantised result downstream, in steps of that result. The
    bounds of a pair before a function and of one before the following sum add up.
    """

    value: ir.Value
    reader: ir.Node
    steps: float
    off: float


def insert_missing_pairs(model: ir.Model) -> tuple[ir.Model, tuple[str, ...]]:
    """Insert the missing pairs. Returns the model and the warnings, at most one line.

    Nodes are visited in reverse order: a pair inserted before a sum is the quantisation that
    determines the scale before the preceding function.
    """
    functions = dict(_functions(model.graph))
    added: dict[ir.Value, _Added] = {}
    for node in reversed(list(model.graph)):
        candidate = None
        if node in functions:
            candidate = _before_function(node, *functions[node])
        elif is_standard(node, "Add", "Sub"):
            candidate = _before_sum(node, functions)
        if candidate is not None:
            value, quant, steps, off = candidate
            later = added.get(node.outputs[0])
            if later is not None:
                steps, off = steps * later.steps, off * later.steps + later.off
            reader = next(iter(value.uses())).node
            added[value] = _Added(value=value, reader=reader, steps=steps, off=off)
            layer = value.producer()
            assert layer is not None
            replace_after_pair(value, add_pair(value, quant, layer))
    if not added:
        return model, ()
    fix_names(model)
    return model, (_warning([*added.values()][::-1]),)


def _warning(added: Sequence[_Added]) -> str:
    first = added[0]
    worst = math.ceil(max(a.off for a in added) * 10 - 1e-6) / 10  # a bound is not rounded down
    results = f"{len(added)} results are" if added[1:] else "a result is"
    return (
        f"{results} rounded to int8, though the model rounds only a result after it, since "
        f"machines read int8 here (the first: {first.value.name}, read by {first.reader.op_type}"
        f" {first.reader.name}); the next rounded result may move by {worst:.1f} steps, with pairs "
        "of the model's own by less; --check compares with the model that has these roundings"
    )


def _functions(graph: ir.Graph) -> Iterator[tuple[ir.Node, _Read]]:
    """Functions of one number, each by the node that writes its result."""
    for last, composite in composites(graph).items():
        if composite.op == TABLE:
            yield last, (composite.source, composite.nodes)
    for node in graph:
        x = operand(node, 0)
        if is_standard(node, *SLOPES) and x is not None:
            yield node, (x, (node,))


def _before_function(
    last: ir.Node, source: ir.Value, nodes: Sequence[ir.Node]
) -> _Candidate | None:
    """Case 1, for the operand of a function."""
    result_quant = _quant_after(last.outputs[0])
    read_only_here = all(use.node in nodes for use in source.uses())
    if result_quant is None or not read_only_here or not _is_layer(source):
        return None
    function = _steps_of(nodes, source, last.outputs[0], result_quant)
    best = None if function is None else _scale_before(function, result_quant)
    if best is None:
        return None
    quant, off = best
    return _Candidate(source, quant, quant.per_tensor / result_quant.per_tensor, off)


def _before_sum(node: ir.Node, functions: Mapping[ir.Node, _Read]) -> _Candidate | None:
    """Case 2, for the result of a layer or of a function of it."""
    result_quant, (a, b) = _quant_after(node.outputs[0]), node.inputs
    if result_quant is None or a is None or b is None or static_shape(a) != static_shape(b):
        return None
    value, other = (b, a) if _quant_of_pair(a) is not None else (a, b)
    other_quant = _quant_of_pair(other)
    if other_quant is None or len(value.uses()) != 1 or not _is_layer(_read_by(value, functions)):
        return None
    (low, high), (lowest, highest) = _ends(result_quant), _ends(other_quant)
    if node.op_type == "Sub" and value is b:  # operand b = a - result
        low, high, lowest, highest = -high, -low, -highest, -lowest
    elif node.op_type == "Sub":
        lowest, highest = -highest, -lowest
    quant = _between(low - highest, high - lowest, like=(result_quant, other_quant))
    steps = quant.per_tensor / result_quant.per_tensor
    return _Candidate(value, quant, steps, steps / 2) if steps / 2 <= LIMIT else None


def _read_by(value: ir.Value, functions: Mapping[ir.Node, _Read]) -> ir.Value:
    """The operand of the function that computes a value; the value itself if there is none."""
    node = value.producer()
    return value if node is None or node not in functions else functions[node][0]


def _ends(quant: QuantParams) -> tuple[float, float]:
    """The real numbers that -128 and 127 represent."""
    zero, scale = quant.zero_point, quant.per_tensor
    return (-128 - zero) * scale, (127 - zero) * scale


def _between(low: float, high: float, *, like: Sequence[QuantParams]) -> QuantParams:
    """The finest scale that covers [low, high] and 0.

    It is a power of two with zero point 0 if all of `like` are. An empty range takes any scale.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < LEAST:
        return like[0]
    if all(quant.is_pow2 and quant.zero_point == 0 for quant in like):
        return QuantParams(scale=(float(2.0 ** np.ceil(np.log2(max(-low / 128, high / 127)))),))
    return covering(low, high)


def _scale_before(function: _Function, after: QuantParams) -> tuple[QuantParams, float] | None:
    """The inner scale with the least error, and the bound on it in steps; None above `LIMIT`.

    function: computes the result in steps of `after`, not rounded.
    """
    magnitudes = _FAR * 255 * after.per_tensor
    points = np.concatenate([-magnitudes[::-1], [0.0], magnitudes])
    results = function(points)
    best = None
    for tolerance in _TOLERANCES:
        low, high = (
            _flat_until(points, results, tolerance),
            _flat_until(-points, results, tolerance),
        )
        quant = _between(low, -high, like=(after,))
        error = _moved(function, quant, points, results)
        if error <= LIMIT and (best is None or error < best[1]):  # NaN compares false
            best = quant, error
    return best


def _flat_until(points: np.ndarray, results: np.ndarray, tolerance: float) -> float:
    """The last point, from the left, up to which all results are within `tolerance` of its own.

    With negated points the search runs from the right.
    """
    order = np.argsort(points)
    points, results = points[order], results[..., order]
    lowest = np.minimum.accumulate(results, axis=-1)
    highest = np.maximum.accumulate(results, axis=-1)
    flat = np.maximum(highest - results, results - lowest) <= tolerance
    rows = flat.reshape(-1, len(points)).all(axis=0)
    return float(
        points[np.flatnonzero(rows)[-1]] if rows.all() else points[max(rows.argmin() - 1, 0)]
    )


def _moved(
    function: _Function, quant: QuantParams, points: np.ndarray, results: np.ndarray
) -> float:
    """Bound on the change of a function's result when its operand is quantised, in steps.

    It is measured at the sampled points and at both ends of each integer's rounding interval.
    """
    steps = (np.arange(-128.5, 128, 0.5) - quant.zero_point) * quant.per_tensor
    step_results = function(steps)
    inner, middles = step_results[..., 1::2], step_results[..., ::2]
    errors = [np.abs(middles[..., :-1] - inner), np.abs(middles[..., 1:] - inner)]
    low, high = _ends(quant)
    saturated = np.where(points < low, inner[..., :1], inner[..., -1:]) - results
    errors.append(np.abs(saturated[..., (points < low) | (points > high)]))
    return float(max(a.max(initial=0.0) for a in errors))


def _steps_of(
    nodes: Sequence[ir.Node], source: ir.Value, result: ir.Value, after: QuantParams
) -> _Function | None:
    """The function that the nodes compute, in steps of `after` and clipped to int8.

    It is evaluated per channel if slopes differ. None if the nodes read any other computed value.
    """
    shape, inner = static_shape(source), {node.outputs[0] for node in nodes}
    if shape is None or not shape or source.name is None:
        return None
    others = {v for node in nodes for v in node.inputs if v is not None} - inner - {source}
    constants = {v.name or "": _number(v) for v in others}
    if any(data is None for data in constants.values()):
        return None
    wide = max((data.size for data in constants.values() if data is not None), default=1) > 1
    lead = shape[:2] if wide and len(shape) == 4 else (1,) * min(len(shape) - 1, 2)
    run = _runner(nodes, source, result, constants)

    def function(x: np.ndarray) -> np.ndarray:
        size = (*lead, *[1] * (len(shape) - len(lead) - 1), len(x))
        with np.errstate(all="ignore"):
            y = run(np.broadcast_to(x.astype(np.float32), size)).astype(np.float64)
            return np.clip(y / after.per_tensor + after.zero_point, -128, 127)

    return function


def _runner(
    nodes: Sequence[ir.Node],
    source: ir.Value,
    result: ir.Value,
    constants: Mapping[str, np.ndarray | None],
) -> _Function:
    """A function that evaluates a few nodes in ONNX Runtime."""
    graph = nodes[0].graph
    assert graph is not None
    kind = onnx.TensorProto.FLOAT
    proto = onnx.helper.make_graph(
        [ir.serde.serialize_node(node) for node in nodes],
        "function",
        [onnx.helper.make_tensor_value_info(source.name or "", kind, None)],
        [onnx.helper.make_tensor_value_info(result.name or "", kind, None)],
        [onnx.numpy_helper.from_array(d, n) for n, d in constants.items() if d is not None],
    )
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in graph.opset_imports.items()]
    model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
    running = session(model)
    return lambda x: np.asarray(running.run(None, {source.name or "": np.ascontiguousarray(x)})[0])


def _number(value: ir.Value) -> np.ndarray | None:
    """The real numbers of a constant, also of a dequantised one."""
    producer = value.producer()
    return dequantised(producer) if producer and is_dequantize(producer) else constant(value)


def _quant_after(value: ir.Value) -> QuantParams | None:
    """The quantisation of a value whose readers all quantise it alike.

    Operators that commute with rounding are skipped. None if the readers differ.
    """
    while not value.is_graph_output():
        readers = [use.node for use in value.uses()]
        if readers and all(is_quantize(node) for node in readers):
            params = {activation_params(node) for node in readers}
            return params.pop() if len(params) == 1 else None
        if len(readers) != 1 or not is_standard(readers[0], *MONOTONE):
            return None
        value = readers[0].outputs[0]
    return None


def _quant_of_pair(value: ir.Value) -> QuantParams | None:
    """The quantisation of a value that a Q/DQ pair produced, through monotone operators."""
    node = value.producer()
    while node is not None and is_standard(node, *MONOTONE) and node.inputs[0]:
        node = node.inputs[0].producer()
    computed = node is not None and is_dequantize(node) and constant(node.inputs[0]) is None
    return activation_params(node) if node is not None and computed else None


def _is_layer(value: ir.Value) -> bool:
    """Whether a layer with quantised operands computes a value, possibly through affine steps.

    The affine steps fold into the layer. Only layers count that machines run.
    """
    node, shape = value.producer(), static_shape(value)
    while node is not None and is_standard(node, *AFFINE):
        above = [v for v in node.inputs if v is not None and _number(v) is None]
        node = above[0].producer() if len(above) == 1 else None
    if node is None or shape is None or value.is_graph_output():
        return False
    if is_standard(node, "Gemm", "MatMul"):
        fits = math.prod(shape[:-1]) == 1
    else:
        fits = is_standard(node, "Conv", "ConvTranspose") and len(shape) in {3, 4}
    if not fits:
        return False
    x, weight = (_pair_before(v) for v in node.inputs[:2])
    return weight is not None and x is not None and activation_params(x) is not None


def _pair_before(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear that produced a value, through operators that keep its range."""
    node = None if value is None else value.producer()
    while node is not None and is_standard(node, *WITHIN_RANGE) and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if is_dequantize(node) else None
