"""Static control flow: unrolls Loop and Scan, and inlines the taken branch of an If.

A Loop is unrolled if its trip count is constant and its condition is always true. A Scan is
unrolled if its length is static. An If with a constant condition becomes one of its branches. A
Concat stacks the results that a Loop or Scan collects over its iterations.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    operand,
    static_shape,
)
from opu_fuse.frontend.importing.decompose.replacement import Replacement, is_read
from opu_fuse.model.composites import const_array
from opu_fuse.model.folding import bodies
from opu_fuse.model.opsets import STANDARD

NODES = 4096
"""Limit on the nodes into which one Loop or Scan is unrolled."""

Values = Sequence[ir.Value]


def unroll_control_flow(model: ir.Model) -> bool:
    """Unroll and inline static control flow. Return whether a node was replaced.

    Nested control flow is replaced as well. Names and shapes have to be inferred again afterwards.
    A node that cannot be unrolled is unchanged (`why_not` gives the reason).
    """
    candidates = [n for n in model.graph if n.domain in STANDARD and n.op_type in _FORMS]
    changed = False
    for node in candidates:
        if why_not(node) is None:
            _FORMS[node.op_type](Replacement(node))
            _release(node)
            changed = True
    return changed


def why_not(node: ir.Node) -> tuple[str, str] | None:
    """Why a control-flow node cannot be unrolled or inlined, and what would help.

    None if it can be.
    """
    if node.domain not in STANDARD or node.op_type not in _FORMS:
        return "it has graphs inside", "export it without conditions and loops"
    if not _is_whole(node):
        return "its bodies do not fit its operands and results", "check the export"
    if node.op_type == "If":
        known = _scalar(operand(node, 0)) is not None
        return None if known else ("its condition is computed", "export it without conditions")
    count = _count_of_loop(node) if node.op_type == "Loop" else _count_of_scan(node)
    if isinstance(count, str):
        return count, "export it with a constant trip count, or unrolled"
    nodes = count * max(sum(1 for _ in _body(node).all_nodes()), 1)
    if nodes > NODES:
        what = f"{count} iterations would be {nodes:,} nodes, up to {NODES:,} are unrolled"
        return what, "export it with fewer iterations, or leave the loop out"
    collected = node.outputs[_count_of_state(node) :]
    if not count and any(map(is_read, collected)):
        return "it collects the results of no iteration", "leave the loop out"
    return None


def _is_whole(node: ir.Node) -> bool:
    """Whether the arity of the bodies matches the operands and results of the node."""
    if node.op_type == "If":
        return all(len(graph.outputs) == len(node.outputs) for graph in bodies(node))
    body, first = _body(node), 2 if node.op_type == "Loop" else 0
    scanned = node.attributes.get_int("num_scan_inputs", 0)
    axes = node.attributes.get_ints("scan_input_axes", ())
    return (
        all(value is not None for value in node.inputs[first:])
        and 0 <= scanned <= len(node.inputs)
        and len(axes) in {0, scanned}
        and len(body.inputs) == max(len(node.inputs), first)
        and len(body.outputs) == len(node.outputs) + (node.op_type == "Loop")
        and len(node.outputs) >= _count_of_state(node)
    )


def _body(node: ir.Node) -> ir.Graph:
    return node.attributes["body"].as_graph()


def _scalar(value: ir.Value | None) -> int | None:
    data = constant(value)
    return int(data.item()) if data is not None and data.size == 1 else None


def _count_of_loop(node: ir.Node) -> int | str:
    """Trip count of a Loop, or the reason (text) why it is not static."""
    limit, condition = operand(node, 0), operand(node, 1)
    trips, keep_going = _scalar(limit), _scalar(condition)
    if (keep_going is not None and not keep_going) or (trips is not None and trips <= 0):
        return 0
    if limit is not None and trips is None:
        return "how often it runs depends on data"
    if condition is not None and keep_going is None:
        return "its condition is computed"
    always_true = _constant_condition(node)
    if always_true is None:
        return "its condition is computed in each iteration"
    if always_true and trips is None:
        return "it has no trip count, and its condition is always true"
    return trips if always_true and trips is not None else 1


def _constant_condition(node: ir.Node) -> bool | None:
    """Value of the condition that a Loop's body returns; None if it is computed at run time."""
    body = _body(node)
    value: ir.Value | None = body.outputs[0]
    while value is not None and (producer := value.producer()) is not None:
        if not is_standard(producer, "Identity"):
            break
        value = producer.inputs[0]
    if value is body.inputs[1] or value is operand(node, 1):
        return True
    number = const_array(value)
    return None if number is None or number.size != 1 else bool(number.reshape(-1)[0])


def _count_of_scan(node: ir.Node) -> int | str:
    """Iteration count of a Scan, or the reason (text) why it is not static."""
    scanned = node.attributes.get_int("num_scan_inputs", 0)
    axes = _listed(node, "scan_input_axes", scanned)
    first = len(node.inputs) - scanned
    for value, axis in zip(node.inputs[first:], axes, strict=True):
        shape = static_shape(value)
        if shape is None or not -len(shape) <= axis < len(shape):
            return "the length of what it scans is not known"
        return shape[axis]
    return "it scans nothing"


def _count_of_state(node: ir.Node) -> int:
    """Count of state values, which one iteration passes to the next."""
    if node.op_type == "Loop":
        return max(len(node.inputs) - 2, 0)
    return len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)


def _listed(node: ir.Node, name: str, count: int) -> list[int]:
    """An attribute with one integer for each of `count` values; zeros if it is absent."""
    return list(node.attributes.get_ints(name, ())) or [0] * count


def _if(s: Replacement) -> None:
    """Inline the branch that a constant condition selects."""
    branch = "then_branch" if _scalar(s.operand(0)) else "else_branch"
    graph = s.node.attributes[branch].as_graph()
    s.replace(*(_own(s, v) for v in _inlined(s, graph, (), s.node.name or "")))


def _loop(s: Replacement) -> None:
    """Unroll a Loop: one copy of the body per iteration."""
    body, count = _body(s.node), _count_of_loop(s.node)
    assert isinstance(count, int)
    values = [s.operand(i) for i in range(2, len(s.node.inputs))]
    condition = s.constant(_shaped(True, body.inputs[1]))
    collected: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(values) :]]
    for trip in range(count):
        number = s.constant(_shaped(np.int64(trip), body.inputs[0]))
        arguments = [number, condition, *values]
        _, *results = _inlined(s, body, arguments, f"{s.node.name}/{trip}")
        for iterations, value in zip(collected, results[len(values) :], strict=True):
            iterations.append(value)
        values = results[: len(values)]
    stacks = [_stacked(s, iterations, 0) for iterations in collected]
    s.replace(*(_own(s, v) for v in values), *stacks)


def _shaped(value: bool | np.generic, port: ir.Value) -> np.ndarray:
    """A scalar in the rank that the body declares for it: [] or [1, ...]."""
    return np.full((1,) * (0 if port.shape is None else len(port.shape)), value)


def _scan(s: Replacement) -> None:
    """Unroll a Scan: one copy of the body per slice of the scanned values."""
    node, body, state_count = s.node, _body(s.node), _count_of_state(s.node)
    count = _count_of_scan(node)
    assert isinstance(count, int)
    values = [s.operand(i) for i in range(state_count)]
    scanned = [s.operand(i) for i in range(state_count, len(node.inputs))]
    axes = _listed(node, "scan_input_axes", len(scanned))
    reversed_inputs = _listed(node, "scan_input_directions", len(scanned))
    collected: list[list[ir.Value]] = [[] for _ in body.outputs[state_count:]]
    for trip in range(count):
        indices = [count - 1 - trip if is_reversed else trip for is_reversed in reversed_inputs]
        rows = [
            s.make("Gather", value, s.constant(np.asarray(index, np.int64)), axis=axis)
            for value, index, axis in zip(scanned, indices, axes, strict=True)
        ]
        results = _inlined(s, body, [*values, *rows], f"{node.name}/{trip}")
        for iterations, value in zip(collected, results[state_count:], strict=True):
            iterations.append(value)
        values = list(results[:state_count])
    output_axes = _listed(node, "scan_output_axes", len(collected))
    directions = _listed(node, "scan_output_directions", len(collected))
    stacks = [
        _stacked(s, iterations[::-1] if in_reverse else iterations, axis)
        for iterations, axis, in_reverse in zip(collected, output_axes, directions, strict=True)
    ]
    s.replace(*(_own(s, v) for v in values), *stacks)


def _stacked(s: Replacement, values: Values, axis: int) -> ir.Value | None:
    """Stack the results of all iterations along a new axis; None if no iteration ran."""
    if not values:
        return None
    axes = s.constant(np.asarray([axis], np.int64))
    return s.make("Concat", *(s.make("Unsqueeze", v, axes) for v in values), axis=axis)


def _own(s: Replacement, value: ir.Value) -> ir.Value:
    """Copy a value through an Identity, so that it may take the name of a graph result.

    The value itself may be a constant, or have other readers.
    """
    return s.make("Identity", value)


def _inlined(s: Replacement, body: ir.Graph, operands: Values, prefix: str) -> Values:
    """Insert a copy of a body before the control-flow node and return the results of the copy."""
    _own_results(body)
    copy = body.clone(allow_outer_scope_values=True)
    for old, new in zip(copy.inputs, operands, strict=True):
        ir.convenience.replace_all_uses_with(old, new)
    for value in list(copy.initializers.values()):
        tensor = value.const_value
        if tensor is not None:
            new = add_constant(s.graph, f"{prefix}/{value.name}", tensor.numpy())
            ir.convenience.replace_all_uses_with(value, new)
    nodes, results = list(copy), list(copy.outputs)
    copy.outputs.clear()
    copy.remove(nodes)
    for node in nodes:
        node.name = f"{prefix}/{node.name or node.op_type}"
        for value in node.outputs:
            value.shape = None  # declared by the file and not verified: shape inference sets it
    s.graph.insert_before(s.node, nodes)
    return results


def _release(node: ir.Node) -> None:
    """Drop all uses that the bodies of a removed node hold, so that dead code can be removed."""
    for graph in bodies(node):
        graph.outputs.clear()
        for inner in graph.all_nodes():
            inner.resize_inputs(0)
            for body in bodies(inner):
                body.outputs.clear()


def _own_results(graph: ir.Graph) -> None:
    """Make every result of a body (nested bodies, too) the output of one of its own nodes.

    An Identity is appended where a result is an input, a value of an outer graph, or a repeated
    result. A body can then be cloned and inlined without two results that are one value.
    """
    for node in graph:
        for inner in bodies(node):
            _own_results(inner)
    seen: set[ir.Value] = set()
    for index, value in enumerate(list(graph.outputs)):
        producer = value.producer()
        if producer is None or producer.graph is not graph or value in seen:
            copy = ir.Node("", "Identity", [value], name=f"{value.name}/result")
            copy.outputs[0].name = f"{value.name}/result"
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[index] = copy.outputs[0]
        seen.add(graph.outputs[index])


_FORMS = {"If": _if, "Loop": _loop, "Scan": _scan}
