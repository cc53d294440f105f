"""Why no module can take an operator next: said after the search has failed.

Every module of a kind that runs the operator has something against it: rules of its own, or that
the pipeline does not lead there. The one that runs it with the least change of the spec is the
nearest; its objections are the refusal, their levers what would have helped, as far as they do
(`remedies.py`). Objections against which nothing helps weigh most.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from opu_fuse.dfg.graph import Node
from opu_fuse.fuse.explain.remedies import Trial
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.modules import MatcherState, Modules
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.rules.legality import one_window, pipeline_path, used_once
from opu_fuse.fuse.rules.module_rules import fits, module_refusals
from opu_fuse.fuse.rules.operator_rules import known_operator
from opu_fuse.fuse.rules.refusal import Lever, Refusal, Words, refuse
from opu_fuse.fuse.rules.spec_changes import NewModule

_DONE = ("end the group", "let it run by itself", "let them run one after the other")
"""Helps of the scheduler that the compiler has taken already, where it says that a group is cut."""


def no_module(context: MatchContext, state: MatcherState, node: Node) -> Refusal:
    """What stops every module that could run the operator behind this position.

    The operator map names at least one (`known_operator` holds), but perhaps none for a bias.
    """
    key = (state, context.forms[node.index])
    found = context.dead_ends.get(key)
    if found is None:
        found = _no_module(context, state, node)
        if all(
            fits(context, node, module) for module in context.modules.runners(context.runs_as(node))
        ):
            context.dead_ends[key] = found  # it says nothing about this node alone
    return found


def _no_module(context: MatchContext, state: MatcherState, node: Node) -> Refusal:
    reached = state.candidates(context.runs_as(node))
    modules = dict.fromkeys((*reached, *context.modules.runners(context.runs_as(node))))
    if not modules:  # a bias is not asked the rules for operators, its convolution is
        return refuse(known_operator, known_operator(context, node) or {})
    cases = [tuple(objections(context, state, node, module)) for module in modules]
    nearest, *further = cases if len(cases) == 1 else sorted(cases, key=_distance)
    first, *joint = nearest
    others = [case for case in cases[: len(reached)] if case is not nearest]
    return Refusal(
        predicate=first.predicate,
        facts=first.facts,
        joint=tuple(joint),
        also=tuple(map(_whole, others)),
        further=tuple(map(_whole, further)),
        trial=Trial(context=context, state=state, node=node),
    )


def _whole(case: Sequence[Refusal]) -> Refusal:
    """What stops one module, as one refusal."""
    first, *joint = case
    return Refusal(predicate=first.predicate, facts=first.facts, joint=tuple(joint))


def _distance(objections: Sequence[Refusal]) -> tuple[bool, int, int]:
    """How much must change for a module to run an operator: whether nothing helps against some
    objection, how many keys of the spec, how many objections.
    """
    levers = [objection.levers for objection in objections]
    keys = sum(min((_size(lever) for lever in found), default=0) for found in levers)
    return not all(levers), keys, len(objections)


def _size(lever: Lever) -> int:
    """A value counts 1, a module that is to be written 2 for each key, the model 1."""
    return sum(1 if value else 2 for _, value in lever.spec) or 1


def forbidden_words(context: MatchContext, matches: Sequence[Match]) -> Words:
    """The facts of `forbidden`: which operators, and what the scheduler said about them."""
    names = [context.dfg[m.node].name for m in matches]
    nodes = tuple(sorted(m.node for m in matches if m.module is not None))
    error = context.misfits.get(nodes)
    do = "together do" if len(names) > 1 else "does"
    words: Words = {"nodes": " + ".join(names), "do": do, "what": "", "help": None}
    if error is None:
        return words
    done = error.help.startswith(_DONE)
    return {**words, "what": f": {error.what}", "help": None if done else error.help}


def objections(
    context: MatchContext, state: MatcherState, node: Node, module: str
) -> Iterator[Refusal]:
    """Everything against running an operator on this module next; empty where it can."""
    if module not in state.candidates(context.runs_as(node)):
        yield no_way(context, state, context.runs_as(node), module)
    yield from module_refusals(context, node, module)


def no_way(context: MatchContext, state: MatcherState, op: str, module: str) -> Refusal:
    """The module is used up, or the data cannot get there."""
    key = (state, op, module)
    if key not in context.ways:
        context.ways[key] = _used_once(context, state, op, module) or _pipeline_path(
            context, state, op, module
        )
    return context.ways[key]


def _used_once(context: MatchContext, state: MatcherState, op: str, module: str) -> Refusal | None:
    modules = context.modules
    if module not in state.full:
        return None
    if module in modules.pools:
        other = next(m for m in state.used if m in modules.pools)
        return refuse(one_window, {"module": module, "other": other})
    uses, more = modules.by_name[module].uses, modules.by_name[module].uses + 1
    helpful: Words = {"new": _second(context, state, module)}
    if module in modules.candidates(state.tail, op, state.full - {module}):
        helpful = {"more": more}
    times = "" if uses == 1 else f" {uses} times"
    return refuse(used_once, {"module": module, "limit": uses, "times": times, **helpful})


def _pipeline_path(context: MatchContext, state: MatcherState, op: str, module: str) -> Refusal:
    modules = context.modules
    words: dict[str, object] = {"op": op, "tail": state.tail or "the memory read", "behind": ""}
    blocked = _blocked(modules, state, module)
    at = state.tail or modules.root
    if blocked is not None:
        words["blocked"] = blocked
        words["behind"] = f": {module} is behind {blocked}, which cannot be bypassed"
    if at != module:
        words |= {"at": at, "edges": f"[{', '.join((*modules.edges[at], module))}]"}
    words["new"] = _second(context, state, module)
    return refuse(pipeline_path, words)


def _second(context: MatchContext, state: MatcherState, module: str) -> NewModule:
    modules = context.modules
    like, at = modules.by_name[module], state.tail or modules.root
    return NewModule(kind=like.kind, like=like, feeds=modules.edges[module], at=at)


def _blocked(modules: Modules, state: MatcherState, target: str) -> str | None:
    """The one module on a way that data may not pass; None when more are in every way, or there is
    none.
    """
    start = (modules.root,) if state.tail is None else modules.edges[state.tail]
    first = [m for m in start if m not in state.full and m != target]
    ways: deque[tuple[str, str | None]] = deque((m, None) for m in first)
    seen: set[tuple[str, str | None]] = set(ways)
    while ways:
        module, blocked = ways.popleft()
        if not modules.passable(module):
            if blocked is not None:
                continue
            blocked = module
        for successor in modules.edges[module]:
            if successor == target:
                return blocked
            way = (successor, blocked)
            if way not in seen and successor not in state.full | {state.tail}:
                seen.add(way)
                ways.append(way)
    return None
