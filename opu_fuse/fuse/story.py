"""The whole story of one operator: which groups it was tried in, and every module that the search
met there.

The search of `matched` is done once more, for one operator. Where another strategy decided
differently, its own reason stands with the attempt.
"""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from opu_fuse.cost.groups import GroupCosts
from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.boundaries import host_operand, joined_other
from opu_fuse.fuse.growth import Growth, edge_refusal, grown, place
from opu_fuse.fuse.matched import levels
from opu_fuse.fuse.module_rules import module_refusals
from opu_fuse.fuse.modules import Position
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.fuse.refusal import Refusal, Words, refuse
from opu_fuse.fuse.remedies import operator_refusal
from opu_fuse.fuse.scope import Scope, data_operands


class Outcome(StrEnum):
    """What the search found at a module."""

    TAKEN = "taken"
    REFUSED = "refused"
    USED_UP = "already used in this group"
    PASSED = "not of its kind, data passes"
    BLOCKED = "not of its kind, data cannot pass"


class Trial(Struct, frozen=True, kw_only=True):
    """A module that the breadth-first search met. why: all rules against it, if refused."""

    module: str
    outcome: Outcome
    why: tuple[Refusal, ...] = ()


class Attempt(Struct, frozen=True, kw_only=True):
    """A place where the operator could run. source: operand behind which, None for a group of its
    own; group: index of the operand's group; at: module where the data stands, None before the
    first; why: what forbade it, None where it runs.
    """

    source: int | None
    group: int | None = None
    at: str | None = None
    trials: tuple[Trial, ...] = ()
    why: Refusal | None = None


class Story(Struct, frozen=True, kw_only=True):
    """node: DFG index; kinds: module kinds that the operator map names; attempts: in the order in
    which they are made; next: readers that did not join its group, and why; misfits: what the
    scheduler forbade, as sentences; unfit: what the scheduler will say about its group, None when a
    tile fits.
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


def story(scope: Scope, partition: Partition, node: Node) -> Story:
    """The story of one call."""
    groups = ([m.node for m in g.matches] for g in partition.groups)
    members = next((nodes for nodes in groups if node.index in nodes), ())
    told = _of_bias if node.owner is not None else _attempts
    return Story(
        node=node.index,
        kinds=tuple(map(str, scope.hw.dataflow.operators.get(scope.runs_as(node), ()))),
        attempts=tuple(told(scope, partition, node)),
        next=tuple((b.target, b.why) for b in partition.boundaries if b.source == node.index),
        misfits=tuple(_misfits(scope, node.index)),
        unfit=GroupCosts(scope.dfg, scope.hw).misfit(members) if members else None,
    )


def trials(scope: Scope, position: Position, node: Node) -> Iterator[Trial]:
    """The modules that the search for one meets behind a position, breadth first, until one takes
    it.
    """
    modules = scope.modules
    kinds = scope.hw.dataflow.operators.get(scope.runs_as(node), ())
    queue = deque((modules.root,) if position.tail is None else modules.edges[position.tail])
    seen = {position.tail, *queue}
    while queue:
        module = queue.popleft()
        if module in position.full:
            yield Trial(module=module, outcome=Outcome.USED_UP)
            continue
        passable = modules.passable(module)
        if modules.by_name[module].kind not in kinds:
            yield Trial(module=module, outcome=Outcome.PASSED if passable else Outcome.BLOCKED)
        else:
            why = module_refusals(scope, node, module)
            yield Trial(module=module, outcome=Outcome.REFUSED if why else Outcome.TAKEN, why=why)
            if not why:
                return
        following = [m for m in modules.edges[module] if m not in seen] if passable else []
        seen.update(following)
        queue.extend(following)


def _of_bias(scope: Scope, partition: Partition, node: Node) -> Iterator[Attempt]:
    """An owned bias is looked for behind its owner, nowhere else."""
    assert node.owner is not None
    for group in partition.groups:
        members = [m.node for m in group.matches]
        if node.index in members and node.owner in members:
            before = grown(scope, group.matches[: members.index(node.owner) + 1])
            yield _behind(scope, before, group, node, None)


def _attempts(scope: Scope, partition: Partition, node: Node) -> Iterator[Attempt]:
    """Behind every computed operand, the longer branch first, then in a group of its own."""
    if not node.is_virtual and operator_refusal(scope, node) is not None:
        return
    place_of = {m.node: (g, i) for g in partition.groups for i, m in enumerate(g.matches)}
    cuts = {b.source: b.why for b in partition.boundaries if b.target == node.index}
    longest = levels(scope.dfg)
    sources = dict.fromkeys(_producer(scope, i) for i in data_operands(scope.dfg, node))
    joined = False
    for source in sorted(sources, key=lambda i: (longest[i], i), reverse=True):
        if source not in place_of:
            yield Attempt(source=source, why=_from_memory(scope, partition, source))
            continue
        group, at = place_of[source]
        before = grown(scope, group.matches[: at + 1])
        attempt = _behind(scope, before, group, node, cuts.get(source))
        joined = joined or attempt.why is None
        yield attempt
    if not joined and not node.is_virtual:
        alone = Growth(scope.modules.start)
        placed = place(scope, alone, node, frozenset(partition.misfits))
        yield Attempt(
            source=None,
            trials=tuple(trials(scope, alone.position, node)),
            why=placed if isinstance(placed, Refusal) else None,
        )


def _behind(scope: Scope, before: Growth, group: Group, node: Node, cut: Refusal | None) -> Attempt:
    """Behind an operand, in its group as far as that. cut: why the edge was left open."""
    source = scope.dfg[before.tail]
    searched = not node.is_virtual and (cut is None or cut.predicate is not joined_other)
    if node.owner is None:
        searched = searched and edge_refusal(scope, source, node) is None
    return Attempt(
        source=source.index,
        group=group.index,
        at=before.module,
        trials=tuple(trials(scope, before.position, node)) if searched else (),
        why=cut,
    )


def _producer(scope: Scope, index: int) -> int:
    node = scope.dfg[index]
    return node.operands[0] if node.kind is Kind.TUPLE_GET else index


def _from_memory(scope: Scope, partition: Partition, source: int) -> Refusal:
    name = scope.dfg[source].name
    why = next((h.why for h in partition.host if h.node == source), None)
    if why is None:
        return refuse(model_input, {"source": name})
    return refuse(host_operand, {"source": name, "reason": why})


def _misfits(scope: Scope, index: int) -> Iterator[str]:
    for nodes, error in scope.misfits.items():
        if index in nodes:
            names = " + ".join(scope.dfg[n].name for n in nodes)
            yield names if error is None else f"{names}: {error.what}; {error.help}"
