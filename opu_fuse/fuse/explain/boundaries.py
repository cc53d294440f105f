"""Why each edge between groups, or between a group and the host, was not fused."""

from collections.abc import Mapping, Sequence

from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.group_order import producers
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import (
    Forbid,
    PartialGroup,
    edge_refusal,
    extend,
    partial_group,
)
from opu_fuse.fuse.partition import Boundary, Group, HostOp
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.grouping import OwnReason, no_reason


def host_operand(words: Words) -> Words | None:
    """{source} runs on the host ({reason})"""
    return words


def host_operator(words: Words) -> Words | None:
    """{target} runs on the host ({reason})"""
    return words


def joined_other(words: Words) -> Words | None:
    """{target} continues {tail}, and reads {source} from memory

    Change: use --strategy {weighing}, which weighs the two against each other
    """
    return words


def interior_value(words: Words) -> Words | None:
    """{source} is not the value that its group ends with

    Change: use --strategy matched
    """
    return words


def one_operator(words: Words) -> Words | None:
    """{target} is not fused with {source}: strategy none

    Change: use --strategy matched
    """
    return words


def search_order(words: Words) -> Words | None:
    """{target} was not next to {source} in the published algorithm's traversal

    Change: use --strategy matched
    """
    return words


def boundaries(
    context: MatchContext,
    groups: Sequence[Group],
    host: Sequence[HostOp],
    strategy: str,
    forbid: Forbid,
    own_reason: OwnReason = no_reason,
) -> tuple[Boundary, ...]:
    """One boundary per edge that leaves a group or enters one from the host.

    The order is by target, then by operand. own_reason: of the strategy, where no rule forbids it.
    """
    nodes = context.dfg.nodes
    group_of = {m.node: g for g in groups for m in g.matches}
    hosted = {h.node: h.why for h in host}
    weighing = None if strategy == "optimal" else "optimal"
    grown_groups: dict[int, PartialGroup] = {}
    open_edges: list[Boundary] = []
    for node in nodes:
        if node.kind is not Kind.CALL:
            continue
        target_group = group_of.get(node.index)
        for source in producers(context.dfg, node.index):
            source_group = group_of.get(source)
            if source_group is target_group:
                continue
            if source_group is None or target_group is None:
                reason = _with_host(
                    context, hosted, source, node.index, from_host=source_group is None
                )
            else:
                reason = _between(
                    context,
                    grown_groups,
                    source_group,
                    target_group,
                    source,
                    node,
                    forbid,
                    weighing,
                ) or (
                    own_reason(source, node.index)
                    or refuse(
                        one_operator if strategy == "none" else search_order,
                        {"source": nodes[source].name, "target": node.name},
                    )
                )
            open_edges.append(Boundary(source=source, target=node.index, why=reason))
    return tuple(open_edges)


def _with_host(
    context: MatchContext,
    hosted: Mapping[int, Refusal],
    source: int,
    target: int,
    *,
    from_host: bool,
) -> Refusal:
    words: Words = {"source": context.dfg[source].name, "target": context.dfg[target].name}
    why = hosted.get(source if from_host else target, "it is in no group")
    return refuse(host_operand if from_host else host_operator, {**words, "reason": why})


def _between(
    context: MatchContext,
    grown_groups: dict[int, PartialGroup],
    source_group: Group,
    group: Group,
    source: int,
    node: Node,
    forbid: Forbid,
    weighing: str | None,
) -> Refusal | None:
    """Why `node`, in `group`, did not join the group that computes `source`; None when no rule
    forbids it.

    grown_groups: cache of partial groups, by index of the source group; weighing: the strategy that
    would compare operands.
    """
    if group.matches[0].node != node.index:
        continued = _continued(group, node)
        if continued is not None:
            tail = context.dfg[continued].name
            words: Words = {"source": context.dfg[source].name, "target": node.name, "tail": tail}
            return refuse(joined_other, {**words, "weighing": weighing})
    if source_group.matches[-1].node != source:
        return refuse(interior_value, {"source": context.dfg[source].name})
    unfit = None if node.is_virtual else operator_refusal(context, node)
    unfit = unfit or edge_refusal(context, context.dfg.nodes[source], node)
    if unfit is not None:  # `greedy` takes in what no module runs
        return unfit
    partial = grown_groups.get(source_group.index)
    if partial is None:
        partial = grown_groups[source_group.index] = partial_group(context, source_group.matches)
    joined = extend(context, partial, node, forbid)
    return joined if isinstance(joined, Refusal) else None


def _continued(group: Group, node: Node) -> int | None:
    """The operand that a node reads from the pipeline of its own group."""
    last = None
    for match in group.matches:
        if match.node == node.index:
            break
        if match.node in node.operands:
            last = match.node
    return last
