"""Copies of values that several concatenations want at different places.

A copy is a max pool over one element: machines do it on their way from memory to memory, and it
hands on its operand's integers.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node, users_of

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
    """What the copy of an operand of a concatenation is called."""
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
        concats[len(nodes)] = concat
        nodes.append(_copy(dfg, concat, position, operands[position], len(nodes)))
        operands[position] = len(nodes) - 1
        nodes[joined] = replace(nodes[joined], operands=tuple(operands))
    with_copies, moved = in_post_order(dfg, nodes)
    return Copied(
        dfg=with_copies,
        moved=tuple(moved[: len(dfg.nodes)]),
        copies={moved[copy]: concat for copy, concat in concats.items()},
    )


def in_post_order(dfg: Dfg, nodes: Sequence[Node]) -> tuple[Dfg, list[int]]:
    """The graph with these nodes, those of `dfg` first, numbered as `build_dfg` would; and for each
    its new index.
    """
    order = _post_dfs(nodes, (*dfg.outputs, *dfg.inputs))
    moved = [0] * len(nodes)
    for place, index in enumerate(order):
        moved[index] = place
    placed = tuple(_renumbered(nodes[index], moved) for index in order)
    changed = replace(
        dfg,
        nodes=placed,
        users=users_of(placed),
        inputs=tuple(moved[i] for i in dfg.inputs),
        outputs=tuple(moved[i] for i in dfg.outputs),
    )
    return changed, moved


def _copy(dfg: Dfg, concat: int, position: int, value: int, index: int) -> Node:
    name = copy_name(dfg, concat, position)
    return Node(
        index=index,
        kind=Kind.CALL,
        name=name,
        op="max_pool",
        operands=(value,),
        access=(Access.FULL,),
        shape=dfg[value].shape,
        type=dfg[value].type,
        value=name,
        quant=dfg[value].quant,
        attrs=ONE_ELEMENT,
        source=dfg[concat].source,
    )


def _post_dfs(nodes: Sequence[Node], roots: Iterable[int]) -> list[int]:
    """The order in which `build_dfg` would number these nodes."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        index, ready = stack.pop()
        if ready:
            order.append(index)
        elif index not in seen:
            seen.add(index)
            stack.append((index, True))
            stack += [(operand, False) for operand in reversed(nodes[index].operands)]
    return order


def _renumbered(node: Node, moved: Sequence[int]) -> Node:
    return replace(
        node,
        index=moved[node.index],
        operands=tuple(moved[i] for i in node.operands),
        owner=None if node.owner is None else moved[node.owner],
    )
