"""Why each edge between groups, or between a group and the host, was not fused."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.fuse.growth import Forbid, Growth, extend
from opu_fuse.fuse.legality import Refusal, Scope, Words, refuse, scope_of
from opu_fuse.fuse.order import producers
from opu_fuse.fuse.partition import Boundary, Group, HostOp
from opu_fuse.hw.spec import HwSpec

NO_REASONS: Mapping[tuple[int, int], Refusal] = MappingProxyType({})


def host_operand(words: Words) -> Words | None:
    """{source} runs on the host ({reason})"""
    return words


def host_operator(words: Words) -> Words | None:
    """{target} runs on the host ({reason})"""
    return words


def joined_other(words: Words) -> Words | None:
    """{target} continues {tail}, and reads {source} from memory"""
    return words


def interior_value(words: Words) -> Words | None:
    """{source} is not the value that its group ends with"""
    return words


def one_operator(words: Words) -> Words | None:
    """{target} stays apart from {source}: strategy none"""
    return words


def search_order(words: Words) -> Words | None:
    """{target} was not next to {source} in the published algorithm's walk"""
    return words


def boundaries(
    dfg: Dfg,
    hw: HwSpec,
    groups: Sequence[Group],
    host: Sequence[HostOp],
    strategy: str,
    forbid: Forbid,
    apart: Mapping[tuple[int, int], Refusal] = NO_REASONS,
) -> tuple[Boundary, ...]:
    """One boundary per edge that leaves a group or enters one from the host, by target, then
    operand order. apart: the strategy's own reasons, for edges that no rule forbids.
    """
    scope = scope_of(dfg, hw)
    grown = [_regrow(group) for group in groups]
    group_of = {m.node: g.index for g in groups for m in g.matches}
    reasons = {h.node: h.reason for h in host}
    found: list[Boundary] = []
    for node in dfg.nodes:
        if node.kind is not Kind.CALL:
            continue
        for source in producers(dfg, node.index):
            here, there = group_of.get(source), group_of.get(node.index)
            if (here is None and there is None) or here == there:
                continue
            words: Words = {"source": dfg[source].name, "target": node.name}
            if here is None:
                reason = refuse(
                    host_operand, {**words, "reason": reasons.get(source, "it is in no group")}
                )
            elif there is None:
                reason = refuse(
                    host_operator, {**words, "reason": reasons.get(node.index, "it is in no group")}
                )
            else:
                group = groups[there]
                own = apart.get((source, node.index)) or refuse(
                    one_operator if strategy == "none" else search_order, words
                )
                reason = _between(scope, grown[here], group, dfg[source], node, forbid, own)
            found.append(
                Boundary(source=source, target=node.index, rule=reason.rule, reason=reason.text)
            )
    return tuple(found)


def _between(
    scope: Scope,
    source_group: Growth,
    group: Group,
    source: Node,
    node: Node,
    forbid: Forbid,
    own: Refusal,
) -> Refusal:
    """Why `node`, in `group`, did not join the group that computes `source`."""
    words: Words = {"source": source.name, "target": node.name}
    ahead = [m.node for m in group.matches[: [m.node for m in group.matches].index(node.index)]]
    continued = [i for i in ahead if i in node.operands]
    if continued:
        return refuse(joined_other, {**words, "tail": scope.dfg[continued[-1]].name})
    if source_group.tail != source.index:
        return refuse(interior_value, words)
    joined = extend(scope, source_group, node, forbid)
    return joined if isinstance(joined, Refusal) else own


def _regrow(group: Group) -> Growth:
    growth = Growth()
    for match in group.matches:
        growth.take(match.node, match.module)
    return growth
