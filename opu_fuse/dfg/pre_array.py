"""Operators before the array: constants that scale and shift channels, gates, and clamps."""

from collections.abc import Sequence

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.integer import is_tied

CLAMPS = ("relu", "clip")
"""Activations that the pre chain can do."""


def is_affine(dfg: Dfg, index: int) -> bool:
    """True for `x * scale + shift` per channel with constants: batch_norm, and multiply or add of a
    computed value and a constant that is read per channel or as one number.
    """
    node = dfg[index]
    if node.op == "batch_norm":
        return True
    if node.op not in {"multiply", "add"} or node.owner is not None or len(node.operands) != 2:
        return False
    kinds = {
        (dfg[i].kind is Kind.CONST, access is Access.FULL)
        for i, access in zip(node.operands, node.access, strict=True)
    }
    return kinds == {(False, True), (True, False)} and Access.UNSUPPORTED not in node.access


def is_gate(dfg: Dfg, index: int) -> bool:
    """True for the product of a computed map and one computed value per channel."""
    node = dfg[index]
    if node.op != "multiply" or node.owner is not None or len(node.operands) != 2:
        return False
    computed = all(dfg[i].kind is not Kind.CONST for i in node.operands)
    return computed and set(node.access) == {Access.FULL, Access.PER_CHANNEL}


def rescales(dfg: Dfg, node: Node) -> bool:
    """True for a clamp that also rounds to another scale or zero point. Of one in floats, and of
    what is quantised here, no other scale is known.
    """
    if node.op not in CLAMPS:
        return False
    x, y = dfg[node.operands[0]].quant, node.quant
    return node.is_requantisation or (None not in {x, y} and not is_tied(x, y))


def pre_slots(dfg: Dfg, nodes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Operators before the array, those together that one unit does: a channel affine or a gate and
    the clamp after it, or one of them.
    """
    slots: list[tuple[int, ...]] = []
    for node in nodes:
        clamp = dfg[node].op in CLAMPS
        if clamp and slots and dfg[slots[-1][-1]].op not in CLAMPS:
            slots[-1] = (*slots[-1], node)
        else:
            slots.append((node,))
    return tuple(slots)
