"""The hardware data-flow graph (HDFG) as the matcher sees it: successors of a module, and exits.

Answers are memoised by matcher state. A network asks the same few questions again and again, so
matching remains near-linear.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Match
from opu_fuse.hw.spec.chain import chain_of, exclusive
from opu_fuse.hw.spec.hw_spec import HwSpec, Module
from opu_fuse.quant import Domain
from opu_fuse.units.base import ModuleKind

_MOVED = (ModuleKind.COMPARATOR, ModuleKind.SE, ModuleKind.PAD, ModuleKind.MEM_RD)
"""Kinds before the array that compute the same without it; of these only comparators and gates
move after it.
"""


class MatcherState(Struct, kw_only=True, eq=False):
    """The matcher state: which modules a partial group has used.

    Invariant: one object per state (`Modules.state`), so the memo tables here serve every group
    that reaches it.

    tail: the module that ran last, None before the first; used: operators run per module; full:
    modules with no use left, because of their own uses or of a mutually exclusive module's.
    """

    tail: str | None
    used: Mapping[str, int]
    full: frozenset[str]
    modules: "Modules"
    _after: dict[str, "MatcherState"] = field(default_factory=dict)
    _candidates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nearest: dict[int, str | None] = field(default_factory=dict)
    """Memo of `partial_group.match_next`: the nearest fitting module, by form of operator."""

    def after(self, module: str) -> "MatcherState":
        """The state after one more operator on this module."""
        successor = self._after.get(module)
        if successor is None:
            used = {**self.used, module: self.used.get(module, 0) + 1}
            successor = self._after[module] = self.modules.state(module, used)
        return successor

    def candidates(self, op: str) -> tuple[str, ...]:
        """Modules that can run an operator next, nearest first."""
        cached = self._candidates.get(op)
        if cached is None:
            cached = self._candidates[op] = self.modules.candidates(self.tail, op, self.full)
        return cached


class Modules:
    """Search over the HDFG of one spec. edges: successors by name; root: where data enters; front:
    modules before the array of a buildable machine; pools: modules of such a machine that share
    the window address generator.
    """

    def __init__(self, hw: HwSpec) -> None:
        flow = hw.dataflow
        self.by_name: dict[str, Module] = dict(flow.modules)
        self.root = flow.root
        self.edges = {name: flow.edges.get(name, ()) for name in flow.modules}
        self._operators = dict(flow.operators)
        self._runners = {op: self._with_kind(op) for op in flow.operators}
        self.front = chain_of(hw).front if hw.build else frozenset()
        self.pools = {n for n, m in flow.modules.items() if hw.build and m.kind is ModuleKind.POOL}
        self._ends = {name: self._reaches_exit(name) for name in flow.modules}
        self._sharing = {name: (name,) for name in flow.modules} | exclusive(hw)
        self._positions: dict[tuple[str | None, frozenset[tuple[str, int]]], MatcherState] = {}
        self.start = self.state(None, {})
        """The initial state of every group."""

    def state(self, tail: str | None, used: Mapping[str, int]) -> "MatcherState":
        """The unique state object for this tail and these uses."""
        key = (tail, frozenset(used.items()))
        if key not in self._positions:
            full = frozenset(
                other
                for m, uses in used.items()
                if uses >= self.by_name[m].uses
                for other in self._sharing[m]
            )
            self._positions[key] = MatcherState(tail=tail, used=dict(used), full=full, modules=self)
        return self._positions[key]

    def runners(self, op: str) -> tuple[str, ...]:
        """Modules able to run an operator, in the spec's order; empty when the operator map does
        not name it.
        """
        return self._runners.get(op, ())

    def candidates(
        self, tail: str | None, op: str, full: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """Modules that can run `op` next, nearest first.

        tail: module that ran last, None at the start of a group (the search then begins with the
        root). Data passes only modules with `bypass` and the entry; modules in `full` have no use
        left and block data.
        """
        kinds = self._operators.get(op, ())
        return tuple(m for m in self.search(tail, full) if self.by_name[m].kind in kinds)

    def can_end(self, module: str) -> bool:
        """True when a group whose last operator ran on this module can leave the pipeline."""
        return self._ends[module]

    def _with_kind(self, op: str) -> tuple[str, ...]:
        return tuple(n for n, m in self.by_name.items() if m.kind in self._operators[op])

    def kind(self, match: Match) -> ModuleKind | None:
        """Kind of the module on which an operator was matched; None for views."""
        return None if match.module is None else self.by_name[match.module].kind

    def takes_over(self, module: str, match: Match, group: Sequence[Match]) -> bool:
        """Whether a module after the array can run a match that the group placed before it."""
        last = all(m.module is None for m in group[group.index(match) + 1 :])
        return (
            module not in self.front
            and self.by_name[module].domain_in is Domain.ACT
            and (self.can_end(module) or not last)
        )

    def passable(self, module: str) -> bool:
        return self.by_name[module].bypass or self.by_name[module].kind is ModuleKind.MEM_RD

    def search(self, tail: str | None, full: frozenset[str]) -> list[str]:
        """Modules reachable from `tail` in breadth-first order, without those in `full`."""
        start = (self.root,) if tail is None else self.edges[tail]
        queue = deque(m for m in start if m not in full)
        seen = {tail, *start, *full}
        order: list[str] = []
        while queue:
            module = queue.popleft()
            order.append(module)
            if not self.passable(module):
                continue
            for successor in self.edges[module]:
                if successor not in seen:
                    seen.add(successor)
                    queue.append(successor)
        return order

    def _reaches_exit(self, module: str) -> bool:
        """Whether a module is an exit or reaches one through modules that can be bypassed."""
        if self.by_name[module].exit:
            return True
        return any(
            self.by_name[m].exit and self.passable(m) for m in self.search(module, frozenset())
        )


def after_array(modules: Modules, dfg: Dfg, group: Sequence[Match]) -> Sequence[Match]:
    """The matches of a group, with activations and gates moved after an array that it does not use.

    Modules before the array serve convolutions and channel affines only. Returns the group
    unchanged when the HDFG has no path that allows the move.
    """
    front = [m for m in group if m.module is not None and m.module in modules.front]
    if not front or any(modules.kind(m) is ModuleKind.IPA for m in group):
        return group
    if any(modules.kind(m) not in _MOVED for m in front):
        return group
    moves = (ModuleKind.COMPARATOR, ModuleKind.SE)
    moved = [m for m in front if modules.kind(m) in moves]
    placed: list[Match] = []
    state = modules.start
    for match in group if moved else ():
        module = match.module
        if module is not None:
            if match in moved:
                candidates = state.candidates(dfg[match.node].op)
                module = next((n for n in candidates if modules.takes_over(n, match, group)), None)
            if module is None or module not in modules.search(state.tail, state.full):
                return group
            state = state.after(module)
        placed.append(Match(node=match.node, module=module))
    return placed or group
