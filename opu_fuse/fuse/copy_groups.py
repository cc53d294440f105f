"""Maps a partition to the graph with copies: each copy becomes its own group.

The strategy ran on the graph without copies, so its groups, reasons and search report remain valid.
Only the edges that a copy interrupts get new reasons.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from opu_fuse.dfg.concat_copies import Copied
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.group_order import producers
from opu_fuse.fuse.matching.context import MatchContext, context_of
from opu_fuse.fuse.matching.partial_group import PartialGroup, match_next
from opu_fuse.fuse.partition import Boundary, Match, Partition
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.registry import in_order
from opu_fuse.fuse.verify import verify
from opu_fuse.hw.spec.hw_spec import HwSpec

if TYPE_CHECKING:
    from opu_fuse.fuse.strategies.search_report import Search  # of one strategy only


def copied(words: Words) -> Words | None:
    """{copy} copies {value}, which cannot be stored in {concat} itself ({why})"""
    return words


def with_copies(
    partition: Partition, copied_dfg: Copied, hw: HwSpec
) -> Partition | tuple[int, Refusal]:
    """The partition on the graph with copies, or (index of a copy that no module can run, reason).

    partition: that of the graph without copies; its `copies` holds the reasons by name.
    """
    moved = copied_dfg.moved
    misfits = {tuple(sorted(moved[n] for n in g)): e for g, e in partition.misfits.items()}
    context = context_of(copied_dfg.dfg, hw, misfits)
    raw = [
        [Match(node=moved[m.node], module=m.module) for m in group.matches]
        for group in partition.groups
    ]
    for index in copied_dfg.copies:
        node = context.dfg[index]
        placed = operator_refusal(context, node) or match_next(
            context, PartialGroup(context.modules.start), node
        )
        if isinstance(placed, Refusal):
            return index, placed
        raw.append(list(placed))
    host = tuple(dataclasses.replace(h, node=moved[h.node]) for h in partition.host)
    groups = in_order(context, raw, host)
    return dataclasses.replace(
        partition,
        groups=groups,
        host=host,
        boundaries=_boundaries(context, partition, copied_dfg),
        violations=verify(context, groups, host),
        search=None if partition.search is None else _search(partition.search, moved),
        misfits=misfits,
    )


def _boundaries(
    context: MatchContext, partition: Partition, copied_dfg: Copied
) -> tuple[Boundary, ...]:
    """Edges in the order of `boundaries.boundaries`; those to and from a copy get its reason."""
    dfg, moved = context.dfg, copied_dfg.moved
    known = {(moved[b.source], moved[b.target]): b.why for b in partition.boundaries}
    of_copy = {c: _reason(context, c, moved[i], partition) for c, i in copied_dfg.copies.items()}
    open_edges: list[Boundary] = []
    for node in dfg.calls:
        for source in producers(dfg, node.index):
            why = known.get((source, node.index)) or of_copy.get(node.index) or of_copy.get(source)
            if why is not None:
                open_edges.append(Boundary(source=source, target=node.index, why=why))
    return tuple(open_edges)


def _reason(context: MatchContext, copy: int, concat: int, partition: Partition) -> Refusal:
    name, (value,) = context.dfg[copy].name, context.dfg[copy].operands
    words: Words = {
        "copy": name,
        "value": context.dfg[value].name,
        "concat": context.dfg[concat].name,
        "why": partition.copies[name],
    }
    return refuse(copied, words)


def _search(search: "Search", moved: Sequence[int]) -> "Search":
    def renumbered(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(moved[n] for n in nodes))

    regions = tuple(replace(r, nodes=renumbered(r.nodes)) for r in search.regions)
    timed = search.timed
    if timed is not None:
        taken = tuple(replace(c, nodes=renumbered(c.nodes)) for c in timed.taken)
        timed = replace(timed, taken=taken)
    return replace(search, regions=regions, timed=timed)
