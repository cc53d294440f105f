"""Whether constant folding has anything to do: the library that folds is slow to import.

It computes operators on constants, operators that say something of a shape, and leaves out those
that change nothing.
"""

from collections.abc import Collection

import onnx_ir as ir

PRESERVED = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Never folded: they carry scales and zero points."""
_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def is_preserved(node: ir.Node) -> bool:
    """Whether a node must not be folded: as above, and casts that keep infinities (the library
    would make casts of them that do not).
    """
    return node.op_type in PRESERVED or node.attributes.get_int("saturate", 1) == 0


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
    return bool(attributes) and not _GRAPHS.isdisjoint([a.type for a in attributes.values()])


def can_fold(model: ir.Model, untouchable: Collection[ir.Node] = ()) -> bool:
    """Whether any node but the untouchable ones may be folded; True when in doubt (subgraphs)."""
    graphs = (model.graph, *(f.graph for f in model.functions.values()))
    return any(
        holds_graphs(node) or (_can_fold(node) and node not in untouchable)
        for graph in graphs
        for node in graph
    )


def _can_fold(node: ir.Node) -> bool:
    operands = [v for v in node.inputs if v is not None]
    may = node.op_type in EVALUATED or all(v.const_value is not None for v in operands)
    if not may and node.op_type in SHAPING:
        shapes = [v.shape for v in operands]
        may = any(s is None or 0 in s or s == node.outputs[0].shape for s in shapes)
    return may and not is_preserved(node)
