"""The one verifier: replays every group through the rules, whatever strategy made it.

Each check has the name of its rule; the rules of `legality.py` are reused word for word, those
about whole groups stand here.
"""

from collections.abc import Iterator, Sequence

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.fuse.growth import Growth, fill_clash
from opu_fuse.fuse.legality import (
    OPERATOR_RULES,
    VIEW_RULES,
    Scope,
    Words,
    first_refusal,
    group_exit,
    known_operator,
    leaves,
    listed,
    no_group,
    other_operand,
    pipeline_path,
    readers,
    refuse,
    scope_of,
    used_once,
)
from opu_fuse.fuse.module_rules import module_refusal
from opu_fuse.fuse.order import order_units
from opu_fuse.fuse.partition import Group, HostOp, Match, Violation
from opu_fuse.hw.spec import HwSpec


def placed_once(words: Words) -> Words | None:
    """{node} is in {count} groups or host operators, it belongs in one"""
    return words


def reads_tail(words: Words) -> Words | None:
    """{node} does not read {tail}, the value that comes to it through the pipeline"""
    return words


def interior_reader(words: Words) -> Words | None:
    """{node} is computed inside group {group}, but {readers} needs its value"""
    return words


def one_result(words: Words) -> Words | None:
    """{group} has {count} results ({results}), a group stores one"""
    return words


def owned_bias_stays(words: Words) -> Words | None:
    """{bias} must run right behind {conv}, which owns it"""
    return words


def acyclic(words: Words) -> Words | None:
    """{groups} wait for each other in a circle ({nodes})"""
    return words


def verify(
    dfg: Dfg, hw: HwSpec, groups: Sequence[Group], host: Sequence[HostOp]
) -> tuple[Violation, ...]:
    """All broken rules of a partition, group by group; empty when the machine can run it."""
    scope = scope_of(dfg, hw)
    found = list(_coverage(dfg, groups, host))
    for group in groups:
        found += _replay(scope, group)
        found += _results(scope, group)
    found += _circles(dfg, groups, host)
    return tuple(found)


def _violation(rule: object, words: Words, *nodes: int) -> Violation:
    refusal = refuse(rule, words)  # pyright: ignore[reportArgumentType]
    return Violation(rule=refusal.rule, nodes=nodes, text=refusal.text)


def _coverage(dfg: Dfg, groups: Sequence[Group], host: Sequence[HostOp]) -> Iterator[Violation]:
    counts = dict.fromkeys((n.index for n in dfg.calls), 0)
    for index in [m.node for g in groups for m in g.matches] + [h.node for h in host]:
        counts[index] = counts.get(index, 0) + 1
    for index, count in counts.items():
        if count != 1:
            yield _violation(placed_once, {"node": dfg[index].name, "count": count}, index)


def _replay(scope: Scope, group: Group) -> Iterator[Violation]:
    """Operator by operator: is it runnable, does it read the tail, does the pipeline lead to its
    module?
    """
    growth = Growth()
    for match in group.matches:
        node = scope.dfg[match.node]
        yield from _operator(scope, growth, node, match)
        growth.take(match.node, match.module)
    if growth.module is not None and not scope.modules.can_end(growth.module):
        yield _violation(group_exit, {"module": growth.module}, growth.tail)


def _operator(scope: Scope, growth: Growth, node: Node, match: Match) -> Iterator[Violation]:
    refusal = None
    if match.module is None and not node.is_virtual:
        refusal = refuse(known_operator, {"op": node.op.removeprefix("host:")})
    elif match.module is not None:
        refusal = first_refusal(OPERATOR_RULES if node.owner is None else (), scope, node)
        refusal = refusal or module_refusal(scope, node, match.module)
    if refusal is not None:
        yield Violation(rule=refusal.rule, nodes=(node.index,), text=refusal.text)
    yield from _data(scope, growth, node)
    if match.module is not None:
        yield from _path(scope, growth, node, match.module)


def _data(scope: Scope, growth: Growth, node: Node) -> Iterator[Violation]:
    """What the operator reads: the group's tail and nothing else that the group computes."""
    dfg = scope.dfg
    if node.owner is not None and (not growth.matches or growth.tail != node.owner):
        yield _violation(
            owned_bias_stays,
            {"bias": node.name, "conv": dfg[node.owner].name},
            node.owner,
            node.index,
        )
        return
    if not growth.matches:
        if node.is_virtual:
            words: Words = {"node": node.name, "source": dfg[node.operands[0]].name}
            yield _violation(no_group, words, node.index)
        return
    operands = list(leaves(dfg, node))
    if growth.tail not in operands:
        yield _violation(
            reads_tail, {"node": node.name, "tail": dfg[growth.tail].name}, growth.tail, node.index
        )
        return
    operands.remove(growth.tail)
    for inside in [i for i in operands if i in growth.members]:
        yield _violation(
            other_operand, {"node": node.name, "other": dfg[inside].name}, inside, node.index
        )
    clash = fill_clash(dfg[growth.tail], node)
    if clash is not None:
        yield Violation(rule=clash.rule, nodes=(growth.tail, node.index), text=clash.text)
    base = growth.base if growth.base >= 0 else growth.tail
    refusal = first_refusal(VIEW_RULES, scope, dfg[base], node) if node.is_virtual else None
    if refusal is not None:
        yield Violation(rule=refusal.rule, nodes=(growth.tail, node.index), text=refusal.text)


def _path(scope: Scope, growth: Growth, node: Node, module: str) -> Iterator[Violation]:
    full = growth.full(scope)
    if module in full:
        yield _violation(used_once, {"module": module}, node.index)
    elif module not in scope.modules.candidates(growth.module, node.op, full):
        tail = growth.module or "the memory read"
        yield _violation(pipeline_path, {"op": node.op, "tail": tail}, node.index)


def _results(scope: Scope, group: Group) -> Iterator[Violation]:
    """Interior values nobody else needs, and one result."""
    dfg = scope.dfg
    members = {m.node for m in group.matches}
    for match in group.matches[:-1]:
        outside = [dfg[r].name for r in readers(dfg, match.node) if r not in members]
        outside += ["the model's output"] if match.node in scope.outputs else []
        if outside:
            words: Words = {
                "node": dfg[match.node].name,
                "group": group.index,
                "readers": listed(outside),
            }
            yield _violation(interior_reader, words, match.node)
    if len(group.outputs) != 1:
        names = listed([dfg[o].name for o in group.outputs])
        words = {"group": f"group {group.index}", "count": len(group.outputs), "results": names}
        yield _violation(one_result, words, *group.outputs)


def _circles(dfg: Dfg, groups: Sequence[Group], host: Sequence[HostOp]) -> Iterator[Violation]:
    _, stuck = order_units(dfg, [g.matches for g in groups], host)
    if stuck:
        nodes = tuple(m.node for g in stuck for m in groups[g].matches)
        names = listed([dfg[n].name for n in nodes])
        groups_text = listed([f"group {groups[g].index}" for g in stuck])
        yield _violation(acyclic, {"groups": groups_text, "nodes": names}, *nodes)
