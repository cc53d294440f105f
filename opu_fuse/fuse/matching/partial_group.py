"""A partial group: its matcher state in the pipeline, and which operator may join next."""

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
    """A group under construction.

    state: matcher state in the pipeline; matches: operators so far, in pipeline order; base: the
    node whose bytes the tail shows (not the tail itself if that is a view).
    """

    state: MatcherState
    matches: list[Match] = field(default_factory=list)
    base: int = -1

    @property
    def tail(self) -> int:
        """The node whose value the group produces."""
        return self.matches[-1].node

    @property
    def module(self) -> str | None:
        """The module that ran last, None before the first."""
        return self.state.tail

    def take(self, match: Match) -> None:
        """Appends an operator; a match without module is a view."""
        self.matches.append(match)
        if match.module is not None:
            self.state = self.state.after(match.module)
            self.base = match.node


def partial_group(context: MatchContext, matches: Iterable[Match]) -> PartialGroup:
    """The partial group after these matches."""
    partial = PartialGroup(context.modules.start)
    for match in matches:
        partial.take(match)
    return partial


def match_next(
    context: MatchContext, group: PartialGroup, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """The matches with which a node (and the bias it owns) can run next in a group.

    Does not change the group. Takes the nearest module that fits; a refusal names the objections of
    every candidate. Readers and operands are checked by `extend`.
    """
    last = module = _nearest(context, group.state, node)
    if isinstance(module, Refusal):
        return module
    matches: tuple[Match, ...] = (Match(node=node.index, module=module),)
    if node.op in ACCUMULATING:
        bias = owned_bias(context.dfg, node.index)
        if bias is not None:
            last = _nearest(context, group.state.after(module), bias)
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
    """Nodes that run on a module, ascending. Views do not count when a group is forbidden."""
    return tuple(sorted(m.node for m in matches if m.module is not None))


def extend(
    context: MatchContext, group: PartialGroup, node: Node, forbid: Forbid = NOTHING_FORBIDDEN
) -> tuple[Match, ...] | Refusal:
    """The matches with which a node joins the group whose tail it reads, or a refusal."""
    source = context.dfg.nodes[group.tail]
    refusal = edge_refusal(context, source, node)
    if refusal is not None:
        return refusal
    if node.is_virtual:
        refusal = first_refusal(VIEW_RULES, context, context.dfg[group.base], node)
        return refusal or (Match(node=node.index, module=None),)
    # Interior values of the group have their only reader inside it, so only the tail can clash.
    if context.reads_twice(node, source.index):
        return refuse(other_operand, {"node": node.called, "other": source.called})
    if source.op == "pad":
        clash = fill_clash(source, node)
        if clash is not None:
            return clash
    return match_next(context, group, node, forbid)


def edge_refusal(context: MatchContext, source: Node, node: Node) -> Refusal | None:
    """The first broken edge rule. A sole reader of a computed value, no output, breaks none."""
    if context.leaves_only_to(source.index, node.index) and not source.is_virtual:
        return None
    return first_refusal(EDGE_RULES, context, source, node)


def fill_clash(pad: Node, node: Node) -> Refusal | None:
    """Refuses zero padding after a pad with another value: a pass has one fill value."""
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
