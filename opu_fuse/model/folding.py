"""Whether constant folding has anything to do: the library that folds is slow to import.

It computes operators on constants, operators that say something of a shape, and leaves out those
that change nothing.
"""

from collections.abc import Collection, Iterable

import onnx_ir as ir

from opu_fuse.model.operator_sets import BODIES, PAIRS

_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def is_preserved(node: ir.Node) -> bool:
    """Whether a node must not be folded: pairs, which carry scales and zero points, and casts that
    keep infinities (the library would make casts of them that do not).
    """
    return node.op_type in PAIRS or node.attributes.get_int("saturate", 1) == 0


EVALUATED = frozenset(
    {"Cast", "CastLike", "ConcatFromSequence", "Dropout", "Identity", "If", "SequenceAt"}
    | {"SequenceConstruct", "Shape", "Size", "SplitToSequence"}
)
"""May be folded whatever they read."""
SHAPING = frozenset({"Concat", "Expand", "Reshape"})
"""May be folded when an operand is empty, or has the result's shape already."""


def holds_graphs(node: ir.Node) -> bool:
    """Whether a node has graphs inside (If, Loop, Scan)."""
    attributes = node.attributes.data  # the dict inside: the other view is slow
    if not attributes or (node.domain == "" and node.op_type not in BODIES):
        return False
    return not _GRAPHS.isdisjoint([a.type for a in attributes.values()])


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs inside a node."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values() if holds_graphs(node) else ():
        match attribute.type:
            case ir.AttributeType.GRAPH:
                found.append(attribute.as_graph())
            case ir.AttributeType.GRAPHS:
                found += attribute.as_graphs()
            case _:
                pass
    return found


def can_fold(model: ir.Model, untouchable: Collection[ir.Node] = ()) -> bool:
    """Whether any node but the untouchable ones may be folded; True when in doubt (subgraphs)."""
    graphs = (model.graph, *(f.graph for f in model.functions.values()))
    for graph in graphs:
        for node in graph:
            if holds_graphs(node) or (_can_fold(node) and node not in untouchable):
                return True
    return False


def _are_constants(values: Iterable[ir.Value]) -> bool:
    for value in values:  # noqa: SIM110  `all` would make a generator for every node
        if value.const_value is None:
            return False
    return True


def _can_fold(node: ir.Node) -> bool:
    kind, operands = node.op_type, [v for v in node.inputs if v is not None]
    may = kind in EVALUATED or _are_constants(operands)
    if not may and kind in SHAPING:
        shapes = [v.shape for v in operands]
        may = any(s is None or 0 in s or s == node.outputs[0].shape for s in shapes)
    return may and not is_preserved(node)
