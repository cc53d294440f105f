"""Maps operators and values of a data-flow graph to names in the user's file.

Canonicalisation adds operators and constants with new names, but a message should use names of the
user's file. An operator is named by its own name in that file, or by that of its origin. An
operator that a library's rewrite added is named by the nearest reader or operand. A constant that
canonicalisation computed has no name in the file.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Self

import onnx
import onnx_ir as ir

KNOWN_KEY = "opu_fuse.known"
"""Key in `Model.meta`: names of nodes and values of the user's model."""
_MOST = 64
"""Largest count of operators that are searched for a name."""


class Name(str):
    """A name as messages show it. `{x:own}` formats the name in the user's file, "" if none."""

    __slots__ = ("own",)

    def __new__(cls, shown: str, own: str | None = None) -> Self:
        name = super().__new__(cls, shown)
        name.own = shown if own is None else own
        return name

    own: str

    def __format__(self, spec: str) -> str:
        return self.own if spec == "own" else super().__format__(spec)


def known_names(model: ir.Model) -> frozenset[str] | None:
    """Names in the user's file; None if not recorded. Then all names count as the user's."""
    names = model.meta.get(KNOWN_KEY)
    return names if isinstance(names, frozenset) else None


def names_of(graph: onnx.GraphProto) -> frozenset[str]:
    """Names of all nodes and values, including subgraphs.

    An unnamed node counts as `<OpType>_<n>`, the name that `frontend/importing/node_names.py` will
    give it.
    """
    return frozenset(_names(graph))


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of `names_of`."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    counts: Counter[str] = Counter()
    for node in graph.node:
        yield node.name or f"{node.op_type}_{counts[node.op_type]}"
        counts[node.op_type] += not node.name
        yield from node.output
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _names(body)


def own_name(node: ir.Node, name: str, source: Sequence[str], known: Collection[str] | None) -> str:
    """Name of an operator in the user's file, "" if neither it nor a node near it has one."""
    if known is None:
        return name if name in source or not source else source[0]
    for candidate in (name, *source):
        if candidate in known:
            return candidate
    queue, seen = [node], {node}
    for near in queue:
        for value in near.outputs:
            if value.name in known:
                return value.name or ""
        neighbours = [use.node for value in near.outputs for use in value.uses()]
        neighbours += [p for v in near.inputs if v is not None and (p := v.producer()) is not None]
        for other in neighbours:
            if other.name in known:
                return other.name or ""
            if other not in seen and len(queue) < _MOST:
                seen.add(other)
                queue.append(other)
    return ""
