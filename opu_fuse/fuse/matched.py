"""Strategies `matched` (default) and `none`: groups that the machine can run.

Operators are visited once, in post-DFS order. One joins the group whose tail it reads when every
rule agrees (`growth.extend`); else it opens a group of its own; else it stays on the host. A
group's value leaves it only through its tail, and a node joins only as the tail's single reader, so
nothing outside can depend on a growing group: groups never wait for each other in a circle.
"""

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import owned_bias
from opu_fuse.fuse.grouping import Grouping
from opu_fuse.fuse.growth import NOTHING_FORBIDDEN, Forbid, Growth, extend, place
from opu_fuse.fuse.legality import (
    OPERATOR_RULES,
    Refusal,
    Scope,
    first_refusal,
    leaves,
    no_group,
    refuse,
    scope_of,
)
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.hw.spec import HwSpec


def matched(dfg: Dfg, hw: HwSpec, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """The longest chains along the machine's pipeline."""
    return _grow(scope_of(dfg, hw), forbid, fuse=True)


def none(dfg: Dfg, hw: HwSpec, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """Every operator alone, with the bias it owns and the views behind it."""
    return _grow(scope_of(dfg, hw), forbid, fuse=False)


def _grow(scope: Scope, forbid: Forbid, *, fuse: bool) -> Grouping:
    groups: list[Growth] = []
    group_of: dict[int, Growth] = {}
    host: list[HostOp] = []
    longest = levels(scope.dfg)
    for node in scope.dfg.nodes:
        if node.kind is not Kind.CALL or node.owner is not None:
            continue
        found = _find(scope, group_of, node, forbid, longest, fuse=fuse)
        if isinstance(found, Refusal):
            host.extend(on_host(scope.dfg, node, found))
            continue
        group, matches = found
        if not group.matches:
            groups.append(group)
        for match in matches:
            group.take(match.node, match.module)
            group_of[match.node] = group
    return Grouping(groups=[group.matches for group in groups], host=host)


def _find(
    scope: Scope,
    group_of: dict[int, Growth],
    node: Node,
    forbid: Forbid,
    longest: list[int],
    *,
    fuse: bool,
) -> tuple[Growth, tuple[Match, ...]] | Refusal:
    """The group a node joins (a new one without matches yet), or why it stays on the host."""
    if not node.is_virtual:
        refusal = first_refusal(OPERATOR_RULES, scope, node)
        if refusal is not None:
            return refusal
    operands = dict.fromkeys(i for i in leaves(scope.dfg, node) if i in group_of)
    # The longer branch first: a residual add continues it, the shorter one is read from memory.
    ordered = sorted(operands, key=lambda i: (longest[i], i), reverse=True)
    refused: Refusal | None = None
    for operand in ordered if fuse or node.is_virtual else ():
        group = group_of[operand]
        if group.tail != operand:
            continue
        joined = extend(scope, group, node, forbid)
        if not isinstance(joined, Refusal):
            return group, joined
        refused = refused or joined
    if node.is_virtual:
        source = scope.dfg[node.operands[0]].name
        return refused or refuse(no_group, {"node": node.name, "source": source})
    alone = Growth()
    placed = place(scope, alone, node, forbid)
    return placed if isinstance(placed, Refusal) else (alone, placed)


def on_host(dfg: Dfg, node: Node, refusal: Refusal) -> list[HostOp]:
    """An operator on the host, and the bias it owns."""
    host = [HostOp(node=node.index, reason=refusal.text)]
    bias = owned_bias(dfg, node.index)
    if bias is not None:
        host.append(
            HostOp(node=bias.index, reason=f"{node.name}, which owns this bias, runs on the host")
        )
    return host


def levels(dfg: Dfg) -> list[int]:
    """Longest path from the inputs, in operators."""
    found = [0] * len(dfg.nodes)
    for node in dfg.nodes:
        step = 1 if node.kind is Kind.CALL else 0
        found[node.index] = step + max((found[i] for i in node.operands), default=0)
    return found
