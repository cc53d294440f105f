"""The hardware data-flow graph (HDFG) of a spec: which module can feed which.

A `networkx.DiGraph`: nodes are module names with attribute `module` (a `spec.Module`), edges in the
order of the spec (the order in which `greedy` searches); graph attributes `root` (name) and
`operators` (operator -> kinds). The graph may contain cycles.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opu_fuse.hw.spec.hw_spec import HwSpec, Module
from opu_fuse.units.base import ModuleKind

if TYPE_CHECKING:
    import networkx as nx  # slow to import, and few need the graph


def build_hdfg(spec: HwSpec) -> "nx.DiGraph[str]":
    """The HDFG of a checked spec."""
    import networkx as nx

    flow = spec.dataflow
    graph: nx.DiGraph[str] = nx.DiGraph(root=flow.root, operators=dict(flow.operators))
    for name, module in flow.modules.items():
        graph.add_node(name, module=module)
    for source, targets in flow.edges.items():
        graph.add_edges_from((source, target) for target in targets)
    return graph


def module_of(hdfg: "nx.DiGraph[str]", name: str) -> Module:
    """The module that a node name refers to."""
    return hdfg.nodes[name]["module"]


def kinds_for(hdfg: "nx.DiGraph[str]", operator: str) -> tuple[ModuleKind, ...]:
    """Module kinds able to run an operator; empty when no module of this machine runs it."""
    return hdfg.graph["operators"].get(operator, ())


def breadth_first(hdfg: "nx.DiGraph[str]", last: str | None = None) -> Iterator[str]:
    """Modules in the order in which a match after `last` is looked for.

    Without `last`: from the root on, the root included. With it: from its successors on, `last`
    itself excluded. Data passes modules that are yielded but not taken.
    """
    visited = set() if last is None else {last}
    queue = deque([hdfg.graph["root"]] if last is None else hdfg.successors(last))
    visited.update(queue)
    while queue:
        name = queue.popleft()
        yield name
        for successor in hdfg.successors(name):
            if successor not in visited:
                visited.add(successor)
                queue.append(successor)


def reachable(hdfg: "nx.DiGraph[str]") -> set[str]:
    """Names of the modules that data can reach from the root."""
    return set(breadth_first(hdfg))
