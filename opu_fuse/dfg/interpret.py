"""The golden model: executes a DFG with exactly the machine's arithmetic, node by node.

`RULES` is the table operator -> integer arithmetic. A node without a rule, one in floating point
(`islands.py`), or one named in `host` runs in ONNX Runtime on real numbers and is rounded where the
model rounds.
"""

from collections.abc import Callable, Collection, Mapping
from typing import cast

import numpy as np

from opu_fuse.dfg.function_tables import table_entries
from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.integer import (
    filters,
    integer_weight,
    operator,
    owned_bias,
    pad_fill,
    quant_of,
    requant_params,
    settings,
    tied_quant,
)
from opu_fuse.dfg.interpret_norms import divide, layer_norm, softmax
from opu_fuse.dfg.islands import float_reason
from opu_fuse.dfg.numpy_kernels import (
    conv_sums,
    dense_sums,
    shuffle_channels,
    transposed_sums,
    window_max,
    window_sum,
)
from opu_fuse.dfg.ort_operator import run_call
from opu_fuse.dfg.pre_array import is_affine
from opu_fuse.errors import RunError
from opu_fuse.fixedpoint import average, channel_affine, exact_matmul, requantize
from opu_fuse.model.composites import is_slope
from opu_fuse.model.products import TURN
from opu_fuse.quant import as_int8
from opu_fuse.units import STAGE_OF_OPERATOR
from opu_fuse.units.affine import affine_params
from opu_fuse.units.base import Stage
from opu_fuse.units.operator import Numeric
from opu_fuse.units.params import ResidualRegisters
from opu_fuse.units.pool import average_params
from opu_fuse.units.residual import combine

Values = dict[int, np.ndarray]
Rule = Callable[[Dfg, Node, Mapping[int, np.ndarray], Numeric], np.ndarray]


def interpret(
    dfg: Dfg,
    inputs: Mapping[str, np.ndarray],
    numeric: Numeric,
    host: Collection[int] = (),
) -> Values:
    """Every node's result for one set of inputs.

    inputs: by input name, shape of the var; real numbers (rounded here where the model rounds them)
    or int8. host: calls to run in ONNX Runtime although they have a rule. Returns per node index:
    int8 where the node has a quantisation, int64 accumulators for a conv or dense node whose owned
    bias rounds, the model's own dtype elsewhere; calls with several results and tuples have no
    entry (their tuple_gets and elements have), nor has a conv that ran on the host together with
    its bias. Raises RunError for a missing input or a wrong shape, ModelError for annotations that
    no integer arithmetic can express.
    """
    values: Values = {}
    for node in dfg.nodes:
        if node.kind is Kind.VAR:
            values[node.index] = _input(dfg, node, inputs)
        elif node.kind is Kind.CONST and node.const is not None:
            values[node.index] = node.const
        elif node.kind is Kind.CALL:
            values.update(evaluate(dfg, node.index, values, numeric, host))
    return values


def evaluate(
    dfg: Dfg,
    index: int,
    values: Mapping[int, np.ndarray],
    numeric: Numeric,
    host: Collection[int] = (),
) -> Values:
    """Results of one call from its operands' values: {} or one entry; several for a call with
    tuple_gets.
    """
    node = dfg[index]
    anchor = index if node.owner is None else node.owner
    if runs_integer(dfg, anchor) and anchor not in host and index not in host:
        if node.op == "split":
            return _split(dfg, node, values)
        return {index: RULES[node.op](dfg, node, values, numeric)}
    return _on_host(dfg, node, values)


def runs_integer(dfg: Dfg, index: int) -> bool:
    """True when a call has integer arithmetic of its own (whether or not some machine has a module
    for it).
    """
    node = dfg[index]
    if (
        not dfg.quantised
        or node.op not in {*RULES, "split"}
        or float_reason(dfg, index) is not None
    ):
        return False
    match node.op:
        case "add":
            maps = all(
                access is Access.FULL
                or (access is Access.PER_CHANNEL and dfg[i].kind is not Kind.CONST)
                for i, access in zip(node.operands, node.access, strict=True)
            )
            rounded = all(dfg[i].quant is not None for i in node.operands)
            return node.owner is not None or (maps and rounded) or is_affine(dfg, index)
        case "multiply":
            maps = all(access is Access.FULL for access in node.access)
            computed = all(dfg[i].kind is not Kind.CONST for i in node.operands)
            return maps or computed or is_affine(dfg, index)
        case "leaky_relu":
            return is_slope(node.attrs["alpha"])
        case "pad":
            return not any(node.attrs["channels"])
        case _:
            return True


def _input(dfg: Dfg, node: Node, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    border = dfg.entries[dfg.inputs.index(node.index)]
    shape = node.shape if border is None else border.type.shape
    if node.name not in inputs:
        raise RunError(f"input {node.name!r}", "has no value", f"give one of shape {shape}")
    value = np.asarray(inputs[node.name])
    if value.shape != shape:
        what = f"shape {value.shape}, the model takes {shape}"
        raise RunError(f"input {node.name!r}", what, "reshape it")
    if border is not None and border.turn is not None:
        value = border.turn.inside(value)
    if border is not None and border.lookup is not None:
        value = border.lookup.reals_of(value)
    if value.dtype == np.uint8 and border is not None and border.written is not None:
        value = as_int8(value)
    if node.quant is None and border is not None and border.written is not None:
        return border.written.dequantize(value)
    if node.quant is None or value.dtype == np.int8:
        return value
    return node.quant.quantize(value)


def _conv(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric) -> np.ndarray:
    x, weight = values[node.operands[0]], filters(dfg, node.index)
    zero = quant_of(dfg[node.operands[0]]).zero_point
    match node.op:
        case "conv":
            sums = conv_sums(x, weight, node.attrs, zero)
        case "transposed_conv":
            if node.attrs.get("edges"):
                x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "edge")
            sums = transposed_sums(x, weight, node.attrs, zero)
        case _:
            sums = dense_sums(x, weight)
    if owned_bias(dfg, node.index) is not None:
        shift = zero * weight.reshape(weight.shape[0], -1).sum(axis=1, dtype=np.int64)
        return sums - _per_channel(shift, sums.ndim)
    params = requant_params(dfg, node.index, numeric)
    acc = sums + _per_channel(params.bias, sums.ndim)
    return _round(acc, params.mult, params.shift, params.zero_point)


def _add(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric) -> np.ndarray:
    if is_affine(dfg, node.index):
        return _affine(dfg, node, values, numeric)
    a, b = (values[i] for i in node.operands)
    if node.owner is None:
        return _combined(dfg, node, a, b, numeric)
    params = requant_params(dfg, node.owner, numeric)
    return _round(
        a + _per_channel(b.astype(np.int64), a.ndim), params.mult, params.shift, params.zero_point
    )


def _multiply(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric
) -> np.ndarray:
    if is_affine(dfg, node.index):
        return _affine(dfg, node, values, numeric)
    a, b = (values[i] for i in node.operands)
    return _combined(dfg, node, a, b, numeric)


def _combined(dfg: Dfg, node: Node, a: np.ndarray, b: np.ndarray, numeric: Numeric) -> np.ndarray:
    registers = settings(dfg, node.index, Stage.RESIDUAL, numeric).registers
    return combine(a, b, cast("ResidualRegisters", registers))


def _affine(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    (x,) = (values[i] for i in node.operands if dfg[i].kind is not Kind.CONST)
    p = affine_params(operator(dfg, node.index))
    mult, bias, shift = (_per_channel(v, x.ndim) for v in (p.mult, p.bias, p.shift))
    return channel_affine(x, mult=mult, bias=bias, shift=shift, y_zero=p.y_zero)


def _table(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric) -> np.ndarray:
    return table_entries(dfg, node.index)[values[node.operands[0]].astype(np.int16) + 128]


def _by_value(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric
) -> np.ndarray:
    """Result of a stage that maps one value at a time."""
    unit, x = STAGE_OF_OPERATOR[node.op], values[node.operands[0]]
    assert unit.stage is not None
    assert unit.apply is not None
    result = settings(dfg, node.index, unit.stage, numeric)
    records = None if result.per_channel is None else np.array(result.per_channel, unit.record)
    if records is not None:
        records = _per_channel(records, x.ndim)
    return unit.apply(x, result.registers, records)


def _max_pool(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    tied_quant(dfg, node.index)
    return window_max(values[node.operands[0]], node.attrs)


def _avg_pool(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric
) -> np.ndarray:
    p = average_params(operator(dfg, node.index), numeric)
    total = window_sum(values[node.operands[0]], node.attrs, p.x_zero)
    counts = np.outer(p.row_counts, p.col_counts)
    out = np.empty(total.shape, np.int8)
    for n, m in p.mults:
        where = np.broadcast_to(counts == n, total.shape)
        out[where] = average(total[where], mult=m.mult, shift=m.shift, y_zero=p.y_zero)
    return out


def _pad(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric) -> np.ndarray:
    sides = np.array(node.attrs["pads"])
    top, left, bottom, right = np.maximum(sides, 0)
    above, before, below, after = np.maximum(-sides, 0)
    x = values[node.operands[0]]
    x = x[:, :, above : x.shape[2] - below, before : x.shape[3] - after]
    width = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(x, width, constant_values=pad_fill(dfg, node.index))


def _upsample(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    tied_quant(dfg, node.index)
    rows, cols = node.attrs["scale"]
    return values[node.operands[0]].repeat(rows, axis=2).repeat(cols, axis=3)


def _permute(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    tied_quant(dfg, node.index)
    x, axes = values[node.operands[0]], (0, 1, *[2 + axis for axis in node.attrs["order"]])
    x = _rolled_back(x, node.attrs.get("before"))
    result = x.reshape(*x.shape[:2], *node.attrs["extents"]).transpose(axes).reshape(node.shape)
    return _rolled_back(result, node.attrs.get("after"))


def _rolled_back(x: np.ndarray, by: tuple[int, int] | None) -> np.ndarray:
    return x if by is None else np.roll(x, (-by[0], -by[1]), (2, 3))


def _reshape(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    tied_quant(dfg, node.index)
    return values[node.operands[0]].reshape(node.shape)


def _concat(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    return np.concatenate([values[i] for i in dfg[node.operands[0]].operands], node.attrs["axis"])


def _shuffle(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    zero_point = quant_of(dfg[node.operands[0]]).zero_point
    return shuffle_channels(values[node.operands[0]], node.attrs["order"], zero_point)


def _matmul(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric) -> np.ndarray:
    x, second = (values[i] for i in node.operands)
    channels, rows = second.shape[1:3]
    by_row = x.reshape(channels, rows, -1)
    products = [exact_matmul(second[0, :, r].T, by_row[:, r], channels) for r in range(rows)]
    acc = np.stack(products, axis=1).reshape(node.shape)
    params = requant_params(dfg, node.index, numeric)
    return _round(acc, params.mult, params.shift, params.zero_point)


def _transpose(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric
) -> np.ndarray:
    x = values[node.operands[0]]
    if not node.is_turned_layer:
        tied_quant(dfg, node.index)
        return x.transpose(TURN)
    weight = integer_weight(dfg[node.operands[1]])
    pixels = exact_matmul(weight, x.reshape(x.shape[1], -1), x.shape[1])
    sums = pixels.reshape(1, -1, *x.shape[2:]).transpose(TURN)
    params = requant_params(dfg, node.index, numeric)
    return _round(sums, params.mult, params.shift, params.zero_point)


def _split(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray]) -> Values:
    starts = np.cumsum(node.attrs["sizes"])[:-1]
    parts = np.split(values[node.operands[0]], starts, axis=node.attrs["axis"])
    return {part.index: parts[i] for i, part in _parts(dfg, node).items()}


RULES: dict[str, Rule] = {
    **{op: _by_value for op, unit in STAGE_OF_OPERATOR.items() if unit.apply is not None},
    "conv": _conv,
    "transposed_conv": _conv,
    "dense": _conv,
    "matmul": _matmul,
    "transpose": _transpose,
    "softmax": softmax,
    "grouped_softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": layer_norm,
    "group_norm": layer_norm,
    "divide": divide,
    "add": _add,
    "multiply": _multiply,
    "batch_norm": _affine,
    "table": _table,
    "concat": _concat,
    "shuffle": _shuffle,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "pad": _pad,
    "upsample": _upsample,
    "permute": _permute,
    "reshape": _reshape,
}


def _per_channel(values: np.ndarray, ndim: int) -> np.ndarray:
    """(c,) -> (1, c) or (1, c, 1, 1)."""
    return values.reshape(1, -1, *[1] * (ndim - 2))


def _round(acc: np.ndarray, mult: np.ndarray, shift: np.ndarray, zero_point: int) -> np.ndarray:
    return requantize(acc, _per_channel(mult, acc.ndim), _per_channel(shift, acc.ndim), zero_point)


def _on_host(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray]) -> Values:
    """Execute the canonical node with ONNX Runtime.

    A conv with an owned bias is one canonical node: it is executed at the index of the bias.
    """
    if owned_bias(dfg, node.index) is not None:
        return {}
    assert node.ir_node is not None, f"call {node.name} has no canonical node"
    first = node.index if node.owner is None else node.owner
    operands = (*dfg[first].operands, *(() if first == node.index else (node.operands[1],)))
    leaves = [j for i in operands for j in (dfg[i].operands if dfg[i].kind is Kind.TUPLE else (i,))]
    results = run_call(node, {dfg[i].value: _real(dfg[i], values[i]) for i in leaves})
    targets = _parts(dfg, node)
    if len(node.ir_node.outputs) == 1:
        targets = {0: node}
    named = [i for i, v in enumerate(node.ir_node.outputs) if v.name]
    by_output = dict(zip(named, results, strict=True))
    return {t.index: _rounded(t, by_output[i]) for i, t in targets.items()}


def _parts(dfg: Dfg, node: Node) -> dict[int, Node]:
    """The tuple_gets of a call, by position of the result."""
    users = (dfg[u] for u in dfg.users[node.index])
    return {u.attrs["index"]: u for u in users if u.kind is Kind.TUPLE_GET}


def _real(node: Node, value: np.ndarray) -> np.ndarray:
    return value if node.quant is None else node.quant.dequantize(value)


def _rounded(node: Node, value: np.ndarray) -> np.ndarray:
    return value if node.quant is None else node.quant.quantize(value)
