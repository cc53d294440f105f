"""Tries a remedy about the spec before it is shown: the spec, changed in memory, must then run the
operator.

Remedies are evaluated lazily, when a reason is read, so they cost partitioning no time. Results are
memoised by the operator's form and the matcher state.
"""

import dataclasses
import functools
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.integer import ACCUMULATING, owned_bias
from opu_fuse.fuse.matching.context import MatchContext, context_of
from opu_fuse.fuse.matching.modules import MatcherState
from opu_fuse.fuse.rules.module_rules import fits
from opu_fuse.fuse.rules.operator_rules import broken_rule
from opu_fuse.fuse.rules.refusal import Lever, Refusal
from opu_fuse.fuse.rules.spec_changes import NewModule, changed_spec, forms
from opu_fuse.hw.spec.check import check_spec
from opu_fuse.hw.spec.hw_spec import HwSpec

_PARTITION_ONLY = "for partitioning only (`build: false`), "


class Trial(Struct, frozen=True, kw_only=True, eq=False):
    """The case on which remedies of a refusal are tried: an operator after a matcher state."""

    context: MatchContext
    state: MatcherState
    node: Node

    def __eq__(self, other: object) -> bool:
        """Always true: refusals compare equal whatever network their remedies are tried on."""
        return isinstance(other, Trial)

    def __hash__(self) -> int:
        return hash(Trial)

    def __call__(self, lever: Lever) -> Lever | None:
        """The remedy as it is shown; None where the changed spec does not run the operator.

        Remedies about the model are not tried.
        """
        if not lever.spec:
            return lever
        known = self.context.remedies
        key = (self.state, self.context.forms[self.node.index], lever.text)
        if key not in known:
            known[key] = self._first_buildable(lever)
        return known[key]

    def _first_buildable(self, lever: Lever) -> Lever | None:
        """The first form of a remedy that can be built, else the first for partitioning only."""
        unbuilt: Lever | None = None
        for placed in self._placed(lever):
            changed = _legal_change(self.context.hw, placed)
            if changed is None or not self._runs_on(changed):
                continue
            if not self.context.hw.build or _buildable(changed):
                return placed
            unbuilt = unbuilt or replace(placed, text=_PARTITION_ONLY + placed.text)
        return unbuilt

    def _placed(self, lever: Lever) -> Iterator[Lever]:
        """The remedy with each position for the module that it adds, last reachable first."""
        new, modules, state = lever.added, self.context.modules, self.state
        if not isinstance(new, NewModule) or new.at:
            yield lever
            return
        reachable = modules.search(state.tail, state.full)
        positions_after = [module for module in reversed(reachable) if modules.passable(module)]
        predecessors = tuple(dict.fromkeys((*positions_after, state.tail or modules.root)))
        for form in forms(self.context.hw, new, predecessors):
            yield replace(lever, text=lever.text.replace(str(new), str(form)), added=form)

    def _runs_on(self, hw: HwSpec) -> bool:
        """Whether a machine can run the operator, and the bias it owns, from this matcher state."""
        changed = self.context.changed.get(hw)
        if changed is None:
            changed = self.context.changed[hw] = context_of(self.context.dfg, hw)
        bias = None
        if self.node.op in ACCUMULATING:
            bias = owned_bias(changed.dfg, self.node.index)
        if self.node.owner is None and broken_rule(changed, self.node) is not None:
            return False
        state = changed.modules.state(self.state.tail, self.state.used)
        for node in (self.node,) if bias is None else (self.node, bias):
            candidates = state.candidates(changed.runs_as(node))
            module = next((m for m in candidates if fits(changed, node, m)), None)
            if module is None:
                return False
            state = state.after(module)
        return state.tail is not None and changed.modules.can_end(state.tail)


@functools.lru_cache(maxsize=1024)
def _legal_change(hw: HwSpec, lever: Lever) -> HwSpec | None:
    """The changed spec; None where it breaks a rule of specs. Most operators of a network, and most
    networks for a machine, try the same changes.
    """
    changed = changed_spec(hw, lever)
    return None if check_spec(changed) else changed


@functools.lru_cache(maxsize=1024)
def _buildable(changed: HwSpec) -> bool:
    """Whether the RTL has the changed machine."""
    return not check_spec(dataclasses.replace(changed, build=True))


def operator_refusal(context: MatchContext, node: Node) -> Refusal | None:
    """The first broken operator rule, with remedies that have been tried."""
    refusal = broken_rule(context, node)
    if refusal is None or refusal.trial is not None:
        return refusal
    trial = Trial(context=context, state=context.modules.start, node=node)
    context.operators[node.index] = replace(refusal, trial=trial)
    return context.operators[node.index]
