"""Mapping-failure diagnosis: why no module can take an operator next. Runs after a failed search.

Every module of a suitable kind has objections: it breaks a module rule, or the pipeline does not
lead to it. The module that needs the smallest change of the spec is the nearest. Its objections
become the refusal, and their levers become the proposed remedies, if they help when tried
(`remedies.py`). A module with an objection that no lever removes ranks last.
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
"""Beginnings of scheduler advice that the compiler has already followed by cutting the group."""


def no_module(context: MatchContext, state: MatcherState, node: Node) -> Refusal:
    """The refusal when no module can run the operator from this matcher state.

    The operator map names at least one module (`known_operator` holds), but perhaps none for a
    bias.
    """
    key = (state, context.forms[node.index])
    refusal = context.dead_ends.get(key)
    if refusal is None:
        refusal = _no_module(context, state, node)
        if all(
            fits(context, node, module) for module in context.modules.runners(context.runs_as(node))
        ):
            context.dead_ends[key] = refusal  # no module rule is broken: valid for the whole form
    return refusal


def _no_module(context: MatchContext, state: MatcherState, node: Node) -> Refusal:
    reached = state.candidates(context.runs_as(node))
    modules = dict.fromkeys((*reached, *context.modules.runners(context.runs_as(node))))
    if not modules:  # operator rules are asked of the convolution, not of its bias
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
    """All objections to one module as one refusal."""
    first, *joint = case
    return Refusal(predicate=first.predicate, facts=first.facts, joint=tuple(joint))


def _distance(objections: Sequence[Refusal]) -> tuple[bool, int, int]:
    """Sort key: how much must change for a module to run an operator.

    (whether some objection has no lever, changed keys of the spec, objections).
    """
    levers = [objection.levers for objection in objections]
    keys = sum(min((_size(lever) for lever in options), default=0) for options in levers)
    return not all(levers), keys, len(objections)


def _size(lever: Lever) -> int:
    """Size of a change: 1 per value, 2 per key of a new module, 1 for a change of the model."""
    return sum(1 if value else 2 for _, value in lever.spec) or 1


def forbidden_words(context: MatchContext, matches: Sequence[Match]) -> Words:
    """The facts of `forbidden`: the operators, and the scheduler's error about them."""
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
    """All reasons that forbid an operator on this module next; empty if it can run."""
    if module not in state.candidates(context.runs_as(node)):
        yield why_unreachable(context, state, context.runs_as(node), module)
    yield from module_refusals(context, node, module)


def why_unreachable(context: MatchContext, state: MatcherState, op: str, module: str) -> Refusal:
    """Why a module is out of reach: it has no use left, or the data cannot pass to it."""
    key = (state, op, module)
    if key not in context.unreachable:
        context.unreachable[key] = _used_once(context, state, op, module) or _pipeline_path(
            context, state, op, module
        )
    return context.unreachable[key]


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
    operators = "an operator" if uses == 1 else f"{uses} operators"
    return refuse(used_once, {"module": module, "limit": uses, "operators": operators, **helpful})


def _pipeline_path(context: MatchContext, state: MatcherState, op: str, module: str) -> Refusal:
    modules = context.modules
    words: dict[str, object] = {"op": op, "tail": state.tail or "the memory read", "detail": ""}
    blocked = _blocked(modules, state, module)
    at = state.tail or modules.root
    if blocked is not None:
        words["blocked"] = blocked
        words["detail"] = f": {module} comes after {blocked}, which cannot be bypassed"
    if at != module:
        words |= {"at": at, "edges": f"[{', '.join((*modules.edges[at], module))}]"}
    words["new"] = _second(context, state, module)
    return refuse(pipeline_path, words)


def _second(context: MatchContext, state: MatcherState, module: str) -> NewModule:
    modules = context.modules
    like, at = modules.by_name[module], state.tail or modules.root
    return NewModule(kind=like.kind, like=like, feeds=modules.edges[module], at=at)


def _blocked(modules: Modules, state: MatcherState, target: str) -> str | None:
    """The only non-bypassable module on some path to the target.

    None when every path has more than one, or there is no path. Breadth-first search over (module,
    blocking module so far).
    """
    start = (modules.root,) if state.tail is None else modules.edges[state.tail]
    first = [m for m in start if m not in state.full and m != target]
    paths: deque[tuple[str, str | None]] = deque((m, None) for m in first)
    seen: set[tuple[str, str | None]] = set(paths)
    while paths:
        module, blocked = paths.popleft()
        if not modules.passable(module):
            if blocked is not None:
                continue
            blocked = module
        for successor in modules.edges[module]:
            if successor == target:
                return blocked
            path = (successor, blocked)
            if path not in seen and successor not in state.full | {state.tail}:
                seen.add(path)
                paths.append(path)
    return None
