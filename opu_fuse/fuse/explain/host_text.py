"""Host operators as text: operators with the same reason share a line."""

import re
from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.fuse.partition import HostOp, Partition
from opu_fuse.fuse.rules.legality import listed

EACH, READ = "each", "what each reads"
"""Placeholders for an operator and its operands in a reason that several operators share."""


def host_lines(dfg: Dfg, partition: Partition) -> Iterator[str]:
    """One line per reason, after the names of its operators (of many the first few), in order of
    first occurrence.

    A bias is not named if its owner is on the host too.
    """
    on_host = {op.node for op in partition.host}
    ops_of_reason: dict[str, list[HostOp]] = {}
    for op in partition.host:
        if dfg[op.node].owner not in on_host:
            ops_of_reason.setdefault(_without_names(dfg, op), []).append(op)
    for reason, ops in ops_of_reason.items():
        names = listed([dfg[op.node].name for op in ops])
        yield f"host: {names}: {reason if len(ops) > 1 else ops[0].reason}"


def _without_names(dfg: Dfg, op: HostOp) -> str:
    """The reason with placeholders instead of the names of the operator and its operands."""
    node = dfg[op.node]
    words = {n.name: READ for n in _read(dfg, node)} | {node.name: EACH}
    longest = sorted(filter(None, words), key=len, reverse=True)
    named = "|".join(map(re.escape, longest))
    return re.sub(rf"(?<![\w/.-])(?:{named})(?![\w/.-])", lambda m: words[m[0]], op.reason)


def _read(dfg: Dfg, node: Node) -> Iterator[Node]:
    """Operands of a node; the elements of a concat instead of its tuple."""
    for operand in (dfg[i] for i in node.operands):
        yield from [dfg[i] for i in operand.operands] if operand.kind is Kind.TUPLE else [operand]
