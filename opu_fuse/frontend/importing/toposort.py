"""Sorts nodes topologically, as ONNX requires. Some libraries append new nodes at the end."""

import onnx


def sort_nodes(graph: onnx.GraphProto) -> str | None:
    """Sort the nodes of a graph topologically. Nodes that need not move keep their order.

    If the graph has a cycle, it is not changed, and the name of a node of the cycle is returned.
    """
    nodes = list(graph.node)
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    read = ((i, name) for i, node in enumerate(nodes) for name in node.input)
    if all(producer.get(name, -1) < i for i, name in read):
        return None
    # Depth-first search; a node is emitted when it is popped for the second time (ready).
    order: dict[int, None] = {}
    visited: set[int] = set()
    stack = [(i, False) for i in reversed(range(len(nodes)))]
    while stack:
        index, ready = stack.pop()
        if index in order:
            continue
        if ready:
            order[index] = None
            continue
        if index in visited:
            return nodes[index].name
        visited.add(index)
        stack.append((index, True))
        stack.extend((producer[i], False) for i in reversed(nodes[index].input) if i in producer)
    copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
    graph.ClearField("node")
    graph.node.extend(copies)
    return None
