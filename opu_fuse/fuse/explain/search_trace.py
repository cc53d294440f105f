"""The search trace of one operator: the groups in which it was tried, and every module that each
search visited.

The trace repeats the search of `matched` for one operator. Where another strategy decided
differently, the attempt holds that strategy's own reason.
"""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from opu_fuse.dfg.graph import Node
from opu_fuse.fuse.explain.boundaries import host_operand, joined_other
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.matching.context import MatchContext, data_operands
from opu_fuse.fuse.matching.modules import MatcherState
from opu_fuse.fuse.matching.partial_group import (
    PartialGroup,
    edge_refusal,
    match_next,
    partial_group,
)
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.fuse.rules.module_rules import module_refusals
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.matched import levels
from opu_fuse.timing.group_cost import GroupCosts


class Outcome(StrEnum):
    """The result of the search at one module."""

    TAKEN = "taken"
    REFUSED = "refused"
    USED_UP = "already used in this group"
    PASSED = "not of its kind, data passes"
    BLOCKED = "not of its kind, data cannot pass"


class Trial(Struct, frozen=True, kw_only=True):
    """A module that the breadth-first search visited. why: all rules that it breaks, if refused."""

    module: str
    outcome: Outcome
    why: tuple[Refusal, ...] = ()


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt to match the operator in one group.

    source: operand whose group it would continue, None for a group of its own.
    group: index of the operand's group.
    at: module that ran last, None before the first.
    trials: modules visited.
    why: the rule that forbids it, None where it runs.
    """

    source: int | None
    group: int | None = None
    at: str | None = None
    trials: tuple[Trial, ...] = ()
    why: Refusal | None = None


class SearchTrace(Struct, frozen=True, kw_only=True):
    """The search trace of one operator.

    node: DFG index.
    kinds: module kinds that the operator map names.
    attempts: in search order.
    next: readers that did not join its group, and why.
    misfits: groups that the scheduler forbade, as sentences.
    unfit: why no tile fits its group, None when one does.
    """

    node: int
    kinds: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    next: tuple[tuple[int, Refusal], ...]
    misfits: tuple[str, ...]
    unfit: str | None


def model_input(words: Words) -> Words | None:
    """{source} is an input of the model: it comes from memory"""
    return words


def search_trace(context: MatchContext, partition: Partition, node: Node) -> SearchTrace:
    """The search trace of one call."""
    groups = ([m.node for m in g.matches] for g in partition.groups)
    members = next((nodes for nodes in groups if node.index in nodes), ())
    find_attempts = _of_bias if node.owner is not None else _attempts
    return SearchTrace(
        node=node.index,
        kinds=tuple(map(str, context.hw.dataflow.operators.get(context.runs_as(node), ()))),
        attempts=tuple(find_attempts(context, partition, node)),
        next=tuple((b.target, b.why) for b in partition.boundaries if b.source == node.index),
        misfits=tuple(_misfits(context, node.index)),
        unfit=GroupCosts(context.dfg, context.hw).misfit(members) if members else None,
    )


def trials(context: MatchContext, state: MatcherState, node: Node) -> Iterator[Trial]:
    """The modules that the search visits from a matcher state, breadth first, until one takes the
    operator.
    """
    modules = context.modules
    kinds = context.hw.dataflow.operators.get(context.runs_as(node), ())
    queue = deque((modules.root,) if state.tail is None else modules.edges[state.tail])
    seen = {state.tail, *queue}
    while queue:
        module = queue.popleft()
        if module in state.full:
            yield Trial(module=module, outcome=Outcome.USED_UP)
            continue
        passable = modules.passable(module)
        if modules.by_name[module].kind not in kinds:
            yield Trial(module=module, outcome=Outcome.PASSED if passable else Outcome.BLOCKED)
        else:
            why = module_refusals(context, node, module)
            yield Trial(module=module, outcome=Outcome.REFUSED if why else Outcome.TAKEN, why=why)
            if not why:
                return
        following = [m for m in modules.edges[module] if m not in seen] if passable else []
        seen.update(following)
        queue.extend(following)


def _of_bias(context: MatchContext, partition: Partition, node: Node) -> Iterator[Attempt]:
    """The attempts for an owned bias: it can only run directly after its owner."""
    assert node.owner is not None
    for group in partition.groups:
        members = [m.node for m in group.matches]
        if node.index in members and node.owner in members:
            prefix = partial_group(context, group.matches[: members.index(node.owner) + 1])
            yield _attempt_after(context, prefix, group, node, None)


def _attempts(context: MatchContext, partition: Partition, node: Node) -> Iterator[Attempt]:
    """The attempts to continue every computed operand, longest branch first, then to run alone."""
    if not node.is_virtual and operator_refusal(context, node) is not None:
        return
    place_of = {m.node: (g, i) for g in partition.groups for i, m in enumerate(g.matches)}
    cuts = {b.source: b.why for b in partition.boundaries if b.target == node.index}
    longest = levels(context.dfg)
    sources = dict.fromkeys(context.dfg.producer(i) for i in data_operands(context.dfg, node))
    joined = False
    for source in sorted(sources, key=lambda i: (longest[i], i), reverse=True):
        if source not in place_of:
            yield Attempt(source=source, why=_from_memory(context, partition, source))
            continue
        group, at = place_of[source]
        prefix = partial_group(context, group.matches[: at + 1])
        attempt = _attempt_after(context, prefix, group, node, cuts.get(source))
        joined = joined or attempt.why is None
        yield attempt
    if not joined and not node.is_virtual:
        alone = PartialGroup(context.modules.start)
        placed = match_next(context, alone, node, frozenset(partition.misfits))
        yield Attempt(
            source=None,
            trials=tuple(trials(context, alone.state, node)),
            why=placed if isinstance(placed, Refusal) else None,
        )


def _attempt_after(
    context: MatchContext, before: PartialGroup, group: Group, node: Node, cut: Refusal | None
) -> Attempt:
    """The attempt to continue an operand in the part of its group that ends with it.

    cut: why the edge was not fused.
    """
    source = context.dfg[before.tail]
    searched = not node.is_virtual and (cut is None or cut.predicate is not joined_other)
    if node.owner is None:
        searched = searched and edge_refusal(context, source, node) is None
    return Attempt(
        source=source.index,
        group=group.index,
        at=before.module,
        trials=tuple(trials(context, before.state, node)) if searched else (),
        why=cut,
    )


def _from_memory(context: MatchContext, partition: Partition, source: int) -> Refusal:
    name = context.dfg[source].name
    why = next((h.why for h in partition.host if h.node == source), None)
    if why is None:
        return refuse(model_input, {"source": name})
    return refuse(host_operand, {"source": name, "reason": why})


def _misfits(context: MatchContext, index: int) -> Iterator[str]:
    for nodes, error in context.misfits.items():
        if index in nodes:
            names = " + ".join(context.dfg[n].name for n in nodes)
            yield names if error is None else f"{names}: {error.what}; {error.help}"
