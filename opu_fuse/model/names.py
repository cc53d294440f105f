"""What the user calls the operators and values of a data-flow graph.

The canonical form adds operators and constants, and gives them names of its own. A remedy is about
what stands in the user's file: an operator by its own name there, or by that of the operator that
it stands for; one that a library's rewrite has made, by the nearest operator that reads it, or that
it reads. A constant that the canonical form computed is in no file.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Self

import onnx
import onnx_ir as ir

KNOWN_KEY = "opu_fuse.known"
"""Key in `Model.meta`: names of nodes and values of the user's model."""
_MOST = 64
"""Operators that are looked at for a name."""


class Name(str):
    """A name as messages show it. Formatted as `{x:own}`: the one in the user's file, "" where it
    has none.
    """

    __slots__ = ("own",)

    def __new__(cls, shown: str, own: str | None = None) -> Self:
        name = super().__new__(cls, shown)
        name.own = shown if own is None else own
        return name

    own: str

    def __format__(self, spec: str) -> str:
        return self.own if spec == "own" else super().__format__(spec)


def known_names(model: ir.Model) -> frozenset[str] | None:
    """None where nobody has written them down: then every operator's own name counts."""
    found = model.meta.get(KNOWN_KEY)
    return found if isinstance(found, frozenset) else None


def names_of(graph: onnx.GraphProto) -> frozenset[str]:
    """Of all nodes and values, those of subgraphs too; a node without a name counts as
    `<OpType>_<n>`, as `frontend/importing/node_names.py` will call it.
    """
    return frozenset(_names(graph))


def _names(graph: onnx.GraphProto) -> Iterator[str]:
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
    """What the user calls an operator, "" where nothing near it has a name of theirs."""
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
        found = [use.node for value in near.outputs for use in value.uses()]
        found += [p for v in near.inputs if v is not None and (p := v.producer()) is not None]
        for other in found:
            if other.name in known:
                return other.name or ""
            if other not in seen and len(queue) < _MOST:
                seen.add(other)
                queue.append(other)
    return ""
