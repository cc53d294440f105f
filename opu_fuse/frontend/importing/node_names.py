"""Unique node names, and origins: every node is recorded as its own origin."""

from collections import Counter
from collections.abc import Iterable

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import SOURCE_KEY
from opu_fuse.model.folding import bodies, holds_graphs

_QUANTISER = (
    *("_quantized", "_scale", "_zero_point", "_quantized_scale", "_quantized_zero_point"),
    *("_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output"),
)
"""Suffixes by which ONNX Runtime's quantiser derives names of new values."""


def name_everything(model: ir.Model) -> None:
    """Give all nodes and values unique names, and nodes without an origin themselves as origin.

    Unnamed nodes become `<OpType>_<n>`. Of nodes with equal names the later ones get `_<n>`.
    """
    taken = {node.name for node in model.graph}
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    for node in model.graph:
        name = node.name or ""
        while not name or name in seen or (not node.name and name in taken):
            base = node.name or node.op_type
            name = f"{base}_{counts[base]}"
            counts[base] += 1
        if node.name != name:
            node.name = name
        seen.add(name)
        node.metadata_props.setdefault(SOURCE_KEY, name)
        _name_sources(node)
    fix_names(model)


def _name_sources(outer: ir.Node) -> None:
    """Set the origins of nodes in subgraphs: themselves, or the outer node's if unnamed."""
    for graph in bodies(outer):
        for node in graph:
            own = node.name or outer.metadata_props[SOURCE_KEY]
            node.metadata_props.setdefault(SOURCE_KEY, own)
            _name_sources(node)


def fix_names(model: ir.Model) -> None:
    """Give all nodes and values unique names (mutates them).

    The library's pass is slow. It runs only if a name is missing or repeated, and for functions and
    subgraphs.
    """
    graph, nodes = model.graph, list(model.graph)
    values = [v.name for n in nodes for v in n.outputs]
    values += [v.name for v in (*graph.inputs, *graph.initializers.values())]
    unique = all(_are_unique(names) for names in ([n.name for n in nodes], values))
    if not unique or model.functions or any(map(holds_graphs, nodes)):
        common.NameFixPass()(model)


def part_names(graph: onnx.GraphProto) -> None:
    """Make node names unique: later nodes, which the quantiser appended, get `.<n>`."""
    taken: set[str] = set()
    for node in graph.node:
        name, count = node.name, 0
        while node.name in taken:
            node.name, count = f"{name}.{count}", count + 1
        taken.add(node.name)


def _are_unique(names: list[str | None]) -> bool:
    return all(names) and len(set(names)) == len(names)


def free_names(model: ir.Model, quantised: Iterable[ir.Value]) -> None:
    """Rename values whose names the quantiser needs for the values that it derives.

    quantised: the values that will be quantised. Raises ModelError for inputs and outputs of the
    model, since their names are the user's.
    """
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
    taken = {value.name or "" for value in values}
    wanted = {f"{value.name}{suffix}" for value in quantised for suffix in _QUANTISER} & taken
    for value in values:
        name = value.name or ""
        if name not in wanted:
            continue
        if value.is_graph_input() or value.is_graph_output():
            kind = "input" if value.is_graph_input() else "output"
            raise ModelError(
                f"{kind} {name!r}", "quantising needs this name for itself", f"rename the {kind}"
            )
        count = 0
        while (new := f"{name}.{count}") in taken or new in wanted:
            count += 1
        taken.add(new)
        value.name = new
