"""A partition as text: what runs where, why each boundary exists, an operator's search trace."""

import difflib
from collections import defaultdict
from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.errors import PartitionError
from opu_fuse.fuse.explain.search_trace import Attempt, Trial, search_trace
from opu_fuse.fuse.matching.context import MatchContext, context_of
from opu_fuse.fuse.partition import Group, Partition, added_lines, views_of_groups
from opu_fuse.fuse.strategies.search_report import search_lines
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.number_text import counted


def explain(
    dfg: Dfg, hw: HwSpec, partition: Partition, node: str | None = None, *, reasons: bool = True
) -> tuple[str, ...]:
    """Lines of text about the whole partition, or the search trace of the operators of one node.

    node: name of a DFG operator or of a node of the user's model; reasons: why groups end and
    operators run on the host, for the whole partition. Raises PartitionError when no operator has
    that name.
    """
    if node is None:
        return tuple(_whole(dfg, hw, partition, reasons=reasons))
    named = operators_named(dfg, node, "--explain")
    context = context_of(dfg, hw, partition.misfits)
    return tuple(line for n in named for line in _one(context, partition, n))


def operators_named(dfg: Dfg, name: str, option: str) -> list[Node]:
    """The operators with a name: that of a DFG operator, or of a node of the user's model.

    option: command-line option that the error names. Raises PartitionError when there is none.
    """
    named = [n for n in dfg.calls if n.name == name] or [n for n in dfg.calls if name in n.source]
    if not named:
        names = sorted({s for n in dfg.calls for s in (n.name, *n.source)})
        suggestions = difflib.get_close_matches(name, names, n=3) or names[:3]
        raise PartitionError(
            option, f"no operator is named {name!r}", f"did you mean {', '.join(suggestions)}?"
        )
    return named


def _whole(dfg: Dfg, hw: HwSpec, partition: Partition, *, reasons: bool) -> Iterator[str]:
    illegal = f"illegal, {counted(len(partition.violations), 'violation')}"
    verdict = "legal" if partition.legal else illegal
    groups = counted(len(partition.groups), "group")
    views = views_of_groups(dfg, partition)
    counts = f"{groups}, {counted(len(partition.host) - len(views), 'host operator')}"
    if views:
        counts += f", {counted(len(views), 'view')}"
    yield f"{dfg.name} on {hw.name}, strategy {partition.strategy}: {counts} ({verdict})"
    yield from [] if partition.search is None else search_lines(dfg, partition.search)
    cuts: dict[int, list[str]] = defaultdict(list)
    for b in partition.boundaries if reasons else ():
        cuts[b.source].append(f"  ends before {dfg[b.target].name}: {b.reason}")
    for group in partition.groups:
        yield f"group {group.index}: {_chain(dfg, group)}"
        for match in group.matches:
            yield from cuts.get(match.node, ())
    for op in partition.host if reasons else ():
        kind = "view" if op.node in views else "host"
        yield f"{kind} {dfg[op.node].name}: {op.reason}"
    yield from (f"violation {v.rule}: {v.text}" for v in partition.violations)
    yield from added_lines(partition)


def _one(context: MatchContext, partition: Partition, node: Node) -> Iterator[str]:
    dfg = context.dfg
    yield f"{node.name} ({node.op.removeprefix('host:')}): {_place(dfg, partition, node)}"
    if node.owner is not None:
        yield f"  goes where {dfg[node.owner].name} goes, which owns it"
    trace = search_trace(context, partition, node)
    if trace.kinds:
        yield f"  runs on modules of kind {' or '.join(trace.kinds)}"
    for attempt in trace.attempts:
        yield from _attempt(context, attempt)
    yield from (f"  forbidden by the scheduler: {text}" for text in trace.misfits)
    if trace.unfit is not None:
        yield f"  compile will not keep this group: {trace.unfit}"
    yield from (f"  {dfg[target].name} did not join: {why.reason}" for target, why in trace.next)
    broken = [v for v in partition.violations if node.index in v.nodes]
    yield from (f"  violation {v.rule}: {v.text}" for v in broken)


def _attempt(context: MatchContext, attempt: Attempt) -> Iterator[str]:
    verdict = "it runs there" if attempt.why is None else attempt.why.reason
    if attempt.source is None:
        yield f"  in a group of its own: {verdict}"
    else:
        where = "" if attempt.group is None else f" in group {attempt.group}"
        at = "" if attempt.at is None else f" at {attempt.at}"
        yield f"  after {context.dfg[attempt.source].name}{where}{at}: {verdict}"
    yield from (f"    {_trial(context, trial)}" for trial in attempt.trials)


def _trial(context: MatchContext, trial: Trial) -> str:
    kind = context.modules.by_name[trial.module].kind
    why = "".join(f", {refusal.reason}" for refusal in trial.why)
    return f"{trial.module} ({kind}): {trial.outcome}{why}"


def _place(dfg: Dfg, partition: Partition, node: Node) -> str:
    for group in partition.groups:
        for match in group.matches:
            if match.node == node.index:
                where = f"module {match.module}" if match.module else "a view, no work"
                return f"group {group.index}, {where}: {_chain(dfg, group)}"
    reason = next((h.reason for h in partition.host if h.node == node.index), "in no group")
    return f"on the host: {reason}"


def _chain(dfg: Dfg, group: Group) -> str:
    return " -> ".join(f"{dfg[m.node].name} [{m.module or 'view'}]" for m in group.matches)
