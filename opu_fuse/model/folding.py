"""Tells whether constant folding has anything to do, since the library is slow to import.

The library folds operators on constants and shape arithmetic, and removes no-ops.
"""

from collections.abc import Collection, Iterable

import onnx_ir as ir

from opu_fuse.model.operator_sets import BODIES, PAIRS

_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def is_preserved(node: ir.Node) -> bool:
    """Whether a node must not be folded.

    Q/DQ nodes carry scales and zero points. The library would lose the attribute of casts that
    preserve infinities (saturate = 0).
    """
    return node.op_type in PAIRS or node.attributes.get_int("saturate", 1) == 0


EVALUATED = frozenset(
    {"Cast", "CastLike", "ConcatFromSequence", "Dropout", "Identity", "If", "SequenceAt"}
    | {"SequenceConstruct", "Shape", "Size", "SplitToSequence"}
)
"""Operators that may be folded whatever their operands are."""
SHAPING = frozenset({"Concat", "Expand", "Reshape"})
"""Operators that may be folded if an operand is empty or already has the shape of the result."""


def holds_graphs(node: ir.Node) -> bool:
    """Whether a node has subgraphs (If, Loop, Scan)."""
    attributes = node.attributes.data  # `.data`: access through the wrapper is slow
    if not attributes or (node.domain == "" and node.op_type not in BODIES):
        return False
    return not _GRAPHS.isdisjoint([a.type for a in attributes.values()])


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs of a node."""
    subgraphs: list[ir.Graph] = []
    for attribute in node.attributes.values() if holds_graphs(node) else ():
        match attribute.type:
            case ir.AttributeType.GRAPH:
                subgraphs.append(attribute.as_graph())
            case ir.AttributeType.GRAPHS:
                subgraphs += attribute.as_graphs()
            case _:
                pass
    return subgraphs


def can_fold(model: ir.Model, untouchable: Collection[ir.Node] = ()) -> bool:
    """Whether any node that is not `untouchable` may be folded; True for subgraphs."""
    graphs = (model.graph, *(f.graph for f in model.functions.values()))
    for graph in graphs:
        for node in graph:
            if holds_graphs(node) or (_can_fold(node) and node not in untouchable):
                return True
    return False


def _are_constants(values: Iterable[ir.Value]) -> bool:
    for value in values:  # noqa: SIM110  `all` would create a generator for every node
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
