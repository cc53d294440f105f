"""A partition carried over to its graph with copies: each copy becomes a group of its own.

The strategy has seen the graph without them, so its groups, its reasons and what its search gained
stay what they were; only the edges that a copy interrupts are new.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from opu_fuse.dfg.copies import Copied
from opu_fuse.fuse.growth import Growth, place
from opu_fuse.fuse.order import producers
from opu_fuse.fuse.partition import Boundary, Match, Partition
from opu_fuse.fuse.refusal import Refusal, Words, refuse
from opu_fuse.fuse.remedies import operator_refusal
from opu_fuse.fuse.scope import Scope, scope_of
from opu_fuse.fuse.strategies import in_order
from opu_fuse.fuse.verify import verify
from opu_fuse.hw.spec import HwSpec

if TYPE_CHECKING:
    from opu_fuse.fuse.search import Search  # of one strategy only


def copied(words: Words) -> Words | None:
    """{copy} copies {value}, which cannot lie in {concat} itself ({why})"""
    return words


def with_copies(
    partition: Partition, copied_dfg: Copied, hw: HwSpec
) -> Partition | tuple[int, Refusal]:
    """The partition on the graph with copies, or a copy (its index there) that no module can make
    and why.

    partition: of the graph without copies; its `copies` holds the reasons by name.
    """
    moved = copied_dfg.moved
    misfits = {tuple(sorted(moved[n] for n in g)): e for g, e in partition.misfits.items()}
    scope = scope_of(copied_dfg.dfg, hw, misfits)
    raw = [
        [Match(node=moved[m.node], module=m.module) for m in group.matches]
        for group in partition.groups
    ]
    for index in copied_dfg.copies:
        node = scope.dfg[index]
        placed = operator_refusal(scope, node) or place(scope, Growth(scope.modules.start), node)
        if isinstance(placed, Refusal):
            return index, placed
        raw.append(list(placed))
    host = tuple(dataclasses.replace(h, node=moved[h.node]) for h in partition.host)
    groups = in_order(scope, raw, host)
    return dataclasses.replace(
        partition,
        groups=groups,
        host=host,
        boundaries=_boundaries(scope, partition, copied_dfg),
        violations=verify(scope, groups, host),
        search=None if partition.search is None else _search(partition.search, moved),
        misfits=misfits,
    )


def _boundaries(scope: Scope, partition: Partition, copied_dfg: Copied) -> tuple[Boundary, ...]:
    """Edges in the order of `boundaries.boundaries`; those to and from a copy have its reason."""
    dfg, moved = scope.dfg, copied_dfg.moved
    known = {(moved[b.source], moved[b.target]): b.why for b in partition.boundaries}
    of_copy = {c: _reason(scope, c, moved[i], partition) for c, i in copied_dfg.copies.items()}
    found: list[Boundary] = []
    for node in dfg.calls:
        for source in producers(dfg, node.index):
            why = known.get((source, node.index)) or of_copy.get(node.index) or of_copy.get(source)
            if why is not None:
                found.append(Boundary(source=source, target=node.index, why=why))
    return tuple(found)


def _reason(scope: Scope, copy: int, concat: int, partition: Partition) -> Refusal:
    name, (value,) = scope.dfg[copy].name, scope.dfg[copy].operands
    words: Words = {
        "copy": name,
        "value": scope.dfg[value].name,
        "concat": scope.dfg[concat].name,
        "why": partition.copies[name],
    }
    return refuse(copied, words)


def _search(search: "Search", moved: Sequence[int]) -> "Search":
    def there(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(moved[n] for n in nodes))

    regions = tuple(replace(r, nodes=there(r.nodes)) for r in search.regions)
    timed = search.timed
    if timed is not None:
        timed = replace(timed, taken=tuple(replace(c, nodes=there(c.nodes)) for c in timed.taken))
    return replace(search, regions=regions, timed=timed)
