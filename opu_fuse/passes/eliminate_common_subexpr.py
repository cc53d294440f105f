"""EliminateCommonSubexpr: the same operator on the same values is computed once."""

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.model.operator_sets import RANDOM
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.registry import function_pass, register
from opu_fuse.passes.sealing import annotation, sealed

_ANNOTATIONS = "opu_fuse."
_SOURCE_KEY = "opu_fuse.source"
"""Key of `Node.metadata_props`: comma-joined names of the user nodes a node represents."""


@register
@function_pass(name="EliminateCommonSubexpr", opt_level=3)
def eliminate_common_subexpr(
    function: ir.Function, model: ir.Model, _: PassContext
) -> tuple[ir.Function, bool]:
    """Common subexpression elimination of onnx_ir, on one function.

    * Case 1: results rounded differently (other annotations) are different results.
    * Case 2: random operators, and calls of the model's functions with one inside, are never equal.
    * Case 3: an output keeps its name, its annotations, and what is known of its type.
    * Case 4: the remaining node also represents the user nodes of the removed ones.
    Nodes that hold graphs (If, Loop) are not changed.
    """
    outputs = list(function.outputs)
    uses = {node: _first_use(node, outputs) for node in function}
    alone = ir.Model(function.graph, ir_version=model.ir_version)
    with sealed(_labels(function, _random_operators(model))):
        changed = common.CommonSubexpressionEliminationPass()(alone).modified
    for old, new in zip(outputs, function.outputs, strict=True):
        if new is not old:  # Case 3
            _inherit(new, old)
    _join_origins(function, uses)  # Case 4
    if changed:
        common.NameFixPass()(alone)  # identities added for outputs
    return function, changed


def _inherit(new: ir.Value, old: ir.Value) -> None:
    annotations = {key: note for key, note in old.meta.items() if str(key).startswith(_ANNOTATIONS)}
    new.meta.update(annotations)
    new.type = old.type if new.type is None else new.type
    new.shape = old.shape if new.shape is None else new.shape


def _labels(function: ir.Function, random: frozenset[tuple[str, str]]) -> dict[ir.Node, str]:
    labels: dict[ir.Node, str] = {}
    for i, node in enumerate(function):
        rounding = [annotation(value) for value in node.outputs]
        if (node.domain, node.op_type) in random:  # Case 2
            labels[node] = f"draw {i}"
        elif any(rounding):  # Case 1
            labels[node] = f"{node.domain} rounded {rounding!r}"
    return labels


_Use = tuple[ir.Node, int] | int | None
"""Where a result is read: an input of a node, an output of the function, or nowhere."""


def _first_use(node: ir.Node, outputs: list[ir.Value]) -> _Use:
    """One use of a result of the node: the node that feeds it later has replaced this one."""
    for value in node.outputs:
        for use in value.uses():
            return use.node, use.idx
        if value.is_graph_output():
            return next(i for i, output in enumerate(outputs) if output is value)
    return None


def _join_origins(function: ir.Function, first_uses: dict[ir.Node, _Use]) -> None:
    """first_uses: one use of each node before elimination, in order."""
    replaced_by: dict[ir.Node, ir.Node] = {}
    for node, use in reversed(first_uses.items()):  # readers first: one may have been replaced too
        if node.graph is not None or use is None:
            continue
        if isinstance(use, int):
            remaining = function.outputs[use].producer()
        else:
            remaining = _producer(replaced_by.get(use[0], use[0]), use[1])
        if remaining is not None and remaining not in first_uses:  # an identity added for an output
            remaining = _producer(remaining, 0)
        if remaining is not None:
            replaced_by[node] = remaining
            _join(remaining, node)


def _producer(reader: ir.Node, index: int) -> ir.Node | None:
    value = reader.inputs[index]
    return None if value is None else value.producer()


def _join(remaining: ir.Node, removed: ir.Node) -> None:
    names = [
        name
        for node in (remaining, removed)
        for name in node.metadata_props.get(_SOURCE_KEY, "").split(",")
        if name
    ]
    if names:
        remaining.metadata_props[_SOURCE_KEY] = ",".join(dict.fromkeys(names))


def _random_operators(model: ir.Model) -> frozenset[tuple[str, str]]:
    """(domain, operator) of all that draws, functions of the model included."""
    random = {("", name) for name in RANDOM}
    calls: Mapping[tuple[str, str], set[tuple[str, str]]] = {
        (f.domain, f.name): {(n.domain, n.op_type) for n in f.graph.all_nodes()}
        for f in model.functions.values()
    }
    while True:
        more = {name for name, called in calls.items() if called & random} - random
        if not more:
            return frozenset(random)
        random |= more
