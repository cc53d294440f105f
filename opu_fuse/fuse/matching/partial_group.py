"""A group while it grows: where its data stands in the pipeline, and what may join next."""

from collections.abc import Iterable

from msgspec import Struct, field

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.integer import ACCUMULATING, owned_bias
from opu_fuse.fuse.explain.diagnose import forbidden_words, no_module
from opu_fuse.fuse.explain.remedies import Trial
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.modules import MatcherState
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.rules.legality import (
    EDGE_RULES,
    VIEW_RULES,
    forbidden,
    group_exit,
    one_fill,
    other_operand,
)
from opu_fuse.fuse.rules.module_rules import fits
from opu_fuse.fuse.rules.refusal import Refusal, first_refusal, refuse

Forbid = frozenset[tuple[int, ...]]
NOTHING_FORBIDDEN: Forbid = frozenset()


class PartialGroup(Struct):
    """state: where the data stands in the pipeline; matches so far; base: the node whose bytes
    the tail shows (differs from the tail behind views).
    """

    state: MatcherState
    matches: list[Match] = field(default_factory=list)
    base: int = -1

    @property
    def tail(self) -> int:
        """The node whose value the group holds at its end."""
        return self.matches[-1].node

    @property
    def module(self) -> str | None:
        """The module that ran last, None before the first."""
        return self.state.tail

    def take(self, match: Match) -> None:
        """Adds an operator (on no module: a view)."""
        self.matches.append(match)
        if match.module is not None:
            self.state = self.state.after(match.module)
            self.base = match.node


def partial_group(context: MatchContext, matches: Iterable[Match]) -> PartialGroup:
    """A group with these operators."""
    partial = PartialGroup(context.modules.start)
    for match in matches:
        partial.take(match)
    return partial


def place(
    context: MatchContext, group: PartialGroup, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """The modules on which a node (and the bias it owns) can run next in a group; it is not added
    yet.

    The nearest module that fits is taken; a refusal tells what stops every candidate. Readers and
    operands are not looked at here (`extend`).
    """
    last = found = _nearest(context, group.state, node)
    if isinstance(found, Refusal):
        return found
    matches: tuple[Match, ...] = (Match(node=node.index, module=found),)
    if node.op in ACCUMULATING:
        bias = owned_bias(context.dfg, node.index)
        if bias is not None:
            last = _nearest(context, group.state.after(found), bias)
            if isinstance(last, Refusal):
                return last
            matches += (Match(node=bias.index, module=last),)
    assert isinstance(last, str)
    if not context.modules.can_end(last):
        trial = Trial(context=context, state=group.state, node=node)
        return refuse(group_exit, {"module": last}, trial)
    if forbid and working((*group.matches, *matches)) in forbid:
        return refuse(forbidden, forbidden_words(context, (*group.matches, *matches)))
    return matches


def working(matches: Iterable[Match]) -> tuple[int, ...]:
    """Nodes that run on a module, ascending: a group is forbidden whatever views go along."""
    return tuple(sorted(m.node for m in matches if m.module is not None))


def extend(
    context: MatchContext, group: PartialGroup, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """How a node joins the group whose tail it reads, or the first rule against it."""
    source = context.dfg.nodes[group.tail]
    refusal = edge_refusal(context, source, node)
    if refusal is not None:
        return refusal
    if node.is_virtual:
        refusal = first_refusal(VIEW_RULES, context, context.dfg[group.base], node)
        return refusal or (Match(node=node.index, module=None),)
    # Whatever the group computes before its tail has its one reader there.
    if context.reads_twice(node, source.index):
        return refuse(other_operand, {"node": node.called, "other": source.called})
    if source.op == "pad":
        clash = fill_clash(source, node)
        if clash is not None:
            return clash
    return place(context, group, node, forbid)


def edge_refusal(context: MatchContext, source: Node, node: Node) -> Refusal | None:
    """The first edge rule that does not hold; of most edges it is plain that all do."""
    if context.leaves_only_to(source.index, node.index):
        return None
    return first_refusal(EDGE_RULES, context, source, node)


def fill_clash(pad: Node, node: Node) -> Refusal | None:
    """A pass has one value to fill with: no zero padding behind a pad with another one."""
    if pad.op != "pad" or node.op != "conv" or not any(node.attrs["pads"]):
        return None
    value = pad.attrs["value"]
    words = {"node": node.name, "pad": pad.called, "value": value}
    return refuse(one_fill, words) if value != 0.0 else None


def _nearest(context: MatchContext, state: MatcherState, node: Node) -> str | Refusal:
    form = context.forms[node.index]
    if form not in state.nearest:
        fitting = (m for m in state.candidates(context.runs_as(node)) if fits(context, node, m))
        state.nearest[form] = next(fitting, None)
    return state.nearest[form] or no_module(context, state, node)
