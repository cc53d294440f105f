"""The verifier: replays every group through the rules, independently of the strategy.

Each check has the name of its rule. The rules of `legality.py` are reused unchanged; the rules
about whole groups are defined here.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.fuse.explain.diagnose import why_unreachable
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.group_order import order_units
from opu_fuse.fuse.matching.context import MatchContext, leaves
from opu_fuse.fuse.matching.partial_group import PartialGroup, fill_clash
from opu_fuse.fuse.partition import Group, HostOp, Violation
from opu_fuse.fuse.rules.legality import VIEW_RULES, group_exit, listed, no_group, other_operand
from opu_fuse.fuse.rules.module_rules import fits, module_refusal
from opu_fuse.fuse.rules.operator_rules import known_operator
from opu_fuse.fuse.rules.refusal import Refusal, Words, first_refusal, refuse


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
    """{bias} must run directly after {conv}, which owns it"""
    return words


def acyclic(words: Words) -> Words | None:
    """{groups} wait for each other in a circle ({nodes})"""
    return words


def verify(
    context: MatchContext, groups: Sequence[Group], host: Sequence[HostOp]
) -> tuple[Violation, ...]:
    """All broken rules of a partition, group by group; empty when the machine can run it."""
    violations = list(_coverage(context.dfg, groups, host))
    for group in groups:
        _replay(context, group, violations)
        _results(context, group, violations)
    # Groups that hold the rules so far are paths whose value leaves through the tail. Such groups
    # cannot form a cycle: each tail would precede the next one in topological order, all the way
    # round. So only a partition that broke another rule needs the cycle check.
    if violations:
        violations += _cycles(context.dfg, groups, host)
    return tuple(violations)


def _violation(rule: object, words: Words, *nodes: int) -> Violation:
    return _violated(refuse(rule, words), *nodes)  # pyright: ignore[reportArgumentType]  # every rule that is verified is a predicate


def _violated(refusal: Refusal, *nodes: int) -> Violation:
    return Violation(rule=refusal.rule, nodes=nodes, text=refusal.text)


def _coverage(dfg: Dfg, groups: Sequence[Group], host: Sequence[HostOp]) -> Iterator[Violation]:
    counts = dict.fromkeys([n.index for n in dfg.calls], 0)
    counts |= Counter([m.node for g in groups for m in g.matches] + [h.node for h in host])
    for index in [i for i, count in counts.items() if count != 1]:
        words: Words = {"node": dfg[index].name, "count": counts[index]}
        yield _violation(placed_once, words, index)


def _replay(context: MatchContext, group: Group, violations: list[Violation]) -> None:
    """Checks a group operator by operator: can the machine run it, does it read the tail, does the
    pipeline lead to its module?
    """
    partial = PartialGroup(context.modules.start)
    members = {m.node for m in group.matches}
    for match in group.matches:
        node = context.dfg.nodes[match.node]
        refusal = _operator(context, node, match.module)
        if refusal is not None:
            violations.append(_violated(refusal, node.index))
        if partial.matches:
            _data(context, partial, node, members, violations)
        else:
            _head(context, node, violations)
        op = context.runs_as(node)
        if match.module is not None and match.module not in partial.state.candidates(op):
            refusal = why_unreachable(context, partial.state, op, match.module)
            violations.append(_violated(refusal, node.index))
        partial.take(match)
    if partial.module is not None and not context.modules.can_end(partial.module):
        violations.append(_violation(group_exit, {"module": partial.module}, partial.tail))


def _operator(context: MatchContext, node: Node, module: str | None) -> Refusal | None:
    if module is None:
        words: Words = {"op": node.op.removeprefix("host:")}
        return None if node.is_virtual else refuse(known_operator, words)
    refusal = operator_refusal(context, node) if node.owner is None else None
    if refusal is None and not fits(context, node, module):
        refusal = module_refusal(context, node, module)
    return refusal


def _head(context: MatchContext, node: Node, violations: list[Violation]) -> None:
    """Checks the first operator of a group: a bias or a view may not begin one."""
    dfg = context.dfg
    if node.owner is not None:
        violations.append(_strayed(dfg, node))
    elif node.is_virtual:
        words: Words = {"node": node.called, "source": dfg[node.operands[0]].name}
        violations.append(_violation(no_group, words, node.index))


def _data(
    context: MatchContext,
    partial: PartialGroup,
    node: Node,
    members: Collection[int],
    violations: list[Violation],
) -> None:
    """Checks that an operator reads the group's tail and no other value that the group computes."""
    dfg, tail = context.dfg, partial.tail
    if node.owner is not None:
        if tail != node.owner:
            violations.append(_strayed(dfg, node))
        return
    inside = [i for i in leaves(dfg, node) if i in members]
    if tail not in inside:
        words: Words = {"node": node.name, "tail": dfg[tail].name}
        violations.append(_violation(reads_tail, words, tail, node.index))
        return
    inside.remove(tail)
    for other in inside:
        words = {"node": node.called, "other": dfg[other].called}
        violations.append(_violation(other_operand, words, other, node.index))
    refusal = fill_clash(dfg[tail], node)
    if refusal is None and node.is_virtual:
        base = partial.base if partial.base >= 0 else tail
        refusal = first_refusal(VIEW_RULES, context, dfg[base], node)
    if refusal is not None:
        violations.append(_violated(refusal, tail, node.index))


def _strayed(dfg: Dfg, bias: Node) -> Violation:
    owner = bias.owner
    assert owner is not None
    words: Words = {"bias": bias.name, "conv": dfg[owner].name}
    return _violation(owned_bias_stays, words, owner, bias.index)


def _results(context: MatchContext, group: Group, violations: list[Violation]) -> None:
    """Checks that interior values are read inside the group only, and that it has one result."""
    dfg = context.dfg
    members = {m.node for m in group.matches}
    for match, successor in itertools.pairwise(group.matches):
        if context.leaves_only_to(match.node, successor.node):
            continue
        readers = context.readers(match.node)
        is_output = match.node in context.outputs
        if not is_output and members.issuperset(readers):
            continue
        outside = [dfg[r].name for r in readers if r not in members]
        outside += ["the model's output"] if is_output else []
        words: Words = {
            "node": dfg[match.node].name,
            "group": group.index,
            "readers": listed(outside),
        }
        violations.append(_violation(interior_reader, words, match.node))
    if len(group.outputs) != 1:
        names = listed([dfg[o].name for o in group.outputs])
        words = {"group": f"group {group.index}", "count": len(group.outputs), "results": names}
        violations.append(_violation(one_result, words, *group.outputs))


def _cycles(dfg: Dfg, groups: Sequence[Group], host: Sequence[HostOp]) -> Iterator[Violation]:
    _, stuck = order_units(dfg, [g.matches for g in groups], host)
    if stuck:
        nodes = tuple(m.node for g in stuck for m in groups[g].matches)
        names = listed([dfg[n].name for n in nodes])
        groups_text = listed([f"group {groups[g].index}" for g in stuck])
        yield _violation(acyclic, {"groups": groups_text, "nodes": names}, *nodes)
