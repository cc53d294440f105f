"""Copies of values that several zero-copy concatenations need at different addresses.

A copy is a max pool over one element: machines compute it on the way from memory to memory, and it
forwards its operand's integers.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.copy_node import copy_node
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.renumber import renumbered

ONE_ELEMENT = {
    "kernel": (1, 1),
    "strides": (1, 1),
    "dilations": (1, 1),
    "pads": (0, 0, 0, 0),
    "count_include_pad": False,
}


class Copied(Struct, frozen=True, kw_only=True):
    """A graph with copies. moved: index in the graph without -> index here; copies: index here ->
    the concatenation that reads it, as index in the graph without.
    """

    dfg: Dfg
    moved: tuple[int, ...]
    copies: dict[int, int]


def copy_name(dfg: Dfg, concat: int, position: int) -> str:
    """Name of the copy of an operand of a concatenation."""
    return f"{dfg[concat].name}/copy{position}"


def insert_copies(dfg: Dfg, wanted: Iterable[tuple[int, int]]) -> Copied:
    """A graph in which these concatenations read copies. wanted: (index of a concat, position of
    an operand with four dimensions).
    """
    nodes = list(dfg.nodes)
    concats: dict[int, int] = {}
    for concat, position in wanted:
        (joined,) = dfg[concat].operands  # a tuple
        operands = list(nodes[joined].operands)
        value, name, index = operands[position], copy_name(dfg, concat, position), len(nodes)
        nodes.append(
            copy_node(dfg, value, name, "max_pool", ONE_ELEMENT, index=index, reader=concat)
        )
        concats[index], operands[position] = concat, index
        nodes[joined] = replace(nodes[joined], operands=tuple(operands))
    result, moved = renumbered(dfg, nodes)
    return Copied(
        dfg=result,
        moved=tuple(moved[: len(dfg.nodes)]),
        copies={moved[copy]: concat for copy, concat in concats.items()},
    )
