"""A partition in words: what runs where, and the reason at every boundary."""

import difflib

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import PartitionError
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.fuse.search import search_lines
from opu_fuse.hw.spec import HwSpec


def explain(dfg: Dfg, hw: HwSpec, partition: Partition, node: str | None = None) -> tuple[str, ...]:
    """Lines of text about the whole partition, or about the operators that stand for one node.

    node: name of a DFG operator or of a node of the user's model. Raises PartitionError when there
    is none of that name.
    """
    if node is None:
        return _whole(dfg, hw, partition)
    named = [n.index for n in dfg.calls if n.name == node] or [
        n.index for n in dfg.calls if node in n.source
    ]
    if not named:
        names = sorted({s for n in dfg.calls for s in (n.name, *n.source)})
        close = difflib.get_close_matches(node, names, n=3) or names[:3]
        raise PartitionError(
            "--explain", f"no operator is named {node!r}", f"did you mean {', '.join(close)}?"
        )
    return tuple(line for index in named for line in _one(dfg, partition, index))


def _whole(dfg: Dfg, hw: HwSpec, partition: Partition) -> tuple[str, ...]:
    verdict = "legal" if partition.legal else f"illegal, {len(partition.violations)} violations"
    counts = f"{len(partition.groups)} groups, {len(partition.host)} host operators"
    lines = [f"{dfg.name} on {hw.name}, strategy {partition.strategy}: {counts} ({verdict})"]
    lines += [] if partition.search is None else search_lines(dfg, partition.search)
    for group in partition.groups:
        lines.append(f"group {group.index}: {_chain(dfg, group)}")
        members = {m.node for m in group.matches}
        cuts = [b for b in partition.boundaries if b.source in members]
        lines += [f"  before {dfg[b.target].name}: {b.reason}" for b in cuts]
    lines += [f"host {dfg[h.node].name}: {h.reason}" for h in partition.host]
    lines += [f"violation {v.rule}: {v.text}" for v in partition.violations]
    return tuple(lines)


def _one(dfg: Dfg, partition: Partition, index: int) -> list[str]:
    name = dfg[index].name
    lines = [f"{name} ({dfg[index].op.removeprefix('host:')}): {_place(dfg, partition, index)}"]
    for b in partition.boundaries:
        if b.target == index:
            lines.append(f"  not in the group of {dfg[b.source].name}: {b.reason}")
        elif b.source == index:
            lines.append(f"  {dfg[b.target].name} did not join: {b.reason}")
    lines += [f"  violation {v.rule}: {v.text}" for v in partition.violations if index in v.nodes]
    return lines


def _place(dfg: Dfg, partition: Partition, index: int) -> str:
    for group in partition.groups:
        for match in group.matches:
            if match.node == index:
                where = f"module {match.module}" if match.module else "a view, no work"
                return f"group {group.index}, {where}: {_chain(dfg, group)}"
    reason = next((h.reason for h in partition.host if h.node == index), "in no group")
    return f"on the host ({reason})"


def _chain(dfg: Dfg, group: Group) -> str:
    return " -> ".join(f"{dfg[m.node].name} [{m.module or 'view'}]" for m in group.matches)
