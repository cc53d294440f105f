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
    new_index = [0] * len(nodes)
    for position, index in enumerate(order):
        new_index[index] = position
    ordered = tuple(_renumbered(nodes[index], new_index) for index in order)
    result = replace(
        dfg,
        nodes=ordered,
        users=users_of(ordered),
        inputs=tuple(new_index[i] for i in dfg.inputs),
        outputs=tuple(new_index[i] for i in dfg.outputs),
    )
    return result, tuple(new_index)


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


def _renumbered(node: Node, new_index: Sequence[int]) -> Node:
    return replace(
        node,
        index=new_index[node.index],
        operands=tuple(new_index[i] for i in node.operands),
        owner=None if node.owner is None else new_index[node.owner],
    )
