"""What stays on the host, in lines: operators that stay for the same reason share one."""

import re
from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.fuse.partition import HostOp, Partition

EACH, READ = "each", "what each reads"
"""Stand for an operator, and for an operand of it, in a reason that several have."""


def host_lines(dfg: Dfg, partition: Partition) -> Iterator[str]:
    """A line for every reason, with the names in front of it; in the order of the first ones. A
    bias goes where its owner goes, and is not named beside it.
    """
    on_host = {op.node for op in partition.host}
    alike: dict[str, list[HostOp]] = {}
    for op in partition.host:
        if dfg[op.node].owner not in on_host:
            alike.setdefault(_without_names(dfg, op), []).append(op)
    for reason, ops in alike.items():
        names = ", ".join(dfg[op.node].name for op in ops)
        yield f"host: {names}: {reason if len(ops) > 1 else ops[0].reason}"


def _without_names(dfg: Dfg, op: HostOp) -> str:
    """The reason with words for the operator and its operands instead of their names."""
    node = dfg[op.node]
    words = {n.name: READ for n in _read(dfg, node)} | {node.name: EACH}
    longest = sorted(filter(None, words), key=len, reverse=True)
    named = "|".join(map(re.escape, longest))
    return re.sub(rf"(?<![\w/.-])(?:{named})(?![\w/.-])", lambda m: words[m[0]], op.reason)


def _read(dfg: Dfg, node: Node) -> Iterator[Node]:
    """Operands, those of a concat instead of its tuple."""
    for operand in (dfg[i] for i in node.operands):
        yield from [dfg[i] for i in operand.operands] if operand.kind is Kind.TUPLE else [operand]
