"""A graph whose nodes were replaced, with its nodes in order again."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg, Node, users_of


def renumbered(dfg: Dfg, nodes: Sequence[Node]) -> tuple[Dfg, tuple[int, ...]]:
    """The graph with its nodes replaced and renumbered, and the new index of each node of `nodes`.

    nodes: replacements at the old indices, additional ones after them. The new index is 0 for dead
    nodes, which are removed.
    """
    order = _post_dfs(nodes, (*dfg.outputs, *dfg.inputs))
    moved = [0] * len(nodes)
    for place, index in enumerate(order):
        moved[index] = place
    placed = tuple(_renumbered(nodes[index], moved) for index in order)
    result = replace(
        dfg,
        nodes=placed,
        users=users_of(placed),
        inputs=tuple(moved[i] for i in dfg.inputs),
        outputs=tuple(moved[i] for i in dfg.outputs),
    )
    return result, tuple(moved)


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
