"""Producers first, as ONNX wants it: libraries append what they add."""

import onnx


def sort_nodes(graph: onnx.GraphProto) -> str | None:
    """In place; nodes that need not move keep their order. Returns the name of a node that reads
    its own result, by way of others, where there is one: then nothing is moved.
    """
    nodes = list(graph.node)
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    read = ((i, name) for i, node in enumerate(nodes) for name in node.input)
    if all(producer.get(name, -1) < i for i, name in read):
        return None
    order: dict[int, None] = {}
    begun: set[int] = set()
    stack = [(i, False) for i in reversed(range(len(nodes)))]
    while stack:
        index, ready = stack.pop()
        if index in order:
            continue
        if ready:
            order[index] = None
            continue
        if index in begun:
            return nodes[index].name
        begun.add(index)
        stack.append((index, True))
        stack.extend((producer[i], False) for i in reversed(nodes[index].input) if i in producer)
    copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
    graph.ClearField("node")
    graph.node.extend(copies)
    return None
