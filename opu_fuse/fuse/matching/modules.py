"""The machine's modules as the matcher sees them: what can follow what, and where a group may end.

Answers are remembered by state: a network asks the same few questions over and over, so matching
stays near-linear.
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
"""Kinds in front of the array that mean the same without it; of these only comparators and gates
move.
"""


class MatcherState(Struct, kw_only=True, eq=False):
    """Where a group's data stands. Invariant: one object per set of facts (`Modules.state`), so
    what is remembered here holds for every group that comes by.

    tail: the module that ran last, None before the first; used: operators run per module; full:
    modules with no use left, by themselves or by one that is used in turn with them.
    """

    tail: str | None
    used: Mapping[str, int]
    full: frozenset[str]
    modules: "Modules"
    _after: dict[str, "MatcherState"] = field(default_factory=dict)
    _candidates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nearest: dict[int, str | None] = field(default_factory=dict)
    """What `partial.place` remembers, by form of operator."""

    def after(self, module: str) -> "MatcherState":
        """The position behind one more operator."""
        found = self._after.get(module)
        if found is None:
            used = {**self.used, module: self.used.get(module, 0) + 1}
            found = self._after[module] = self.modules.state(module, used)
        return found

    def candidates(self, op: str) -> tuple[str, ...]:
        """Modules that can run an operator next, nearest first."""
        found = self._candidates.get(op)
        if found is None:
            found = self._candidates[op] = self.modules.candidates(self.tail, op, self.full)
        return found


class Modules:
    """Search over the HDFG of one spec. edges: successors by name; root: where data enters; front:
    modules before the array of a machine that is built; pools: modules of such a machine that share
    the walk over windows.
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
        """Where every group begins."""

    def state(self, tail: str | None, used: Mapping[str, int]) -> "MatcherState":
        """The one position with these facts."""
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

        tail: module that ran last, None at the start of a group (then the root is looked at first).
        Data passes only modules with `bypass` (and the entry); modules in `full` have no use left
        and let nothing pass.
        """
        kinds = self._operators.get(op, ())
        return tuple(m for m in self.search(tail, full) if self.by_name[m].kind in kinds)

    def can_end(self, module: str) -> bool:
        """True when a group whose last operator ran on this module can leave the pipeline."""
        return self._ends[module]

    def _with_kind(self, op: str) -> tuple[str, ...]:
        return tuple(n for n, m in self.by_name.items() if m.kind in self._operators[op])

    def kind(self, match: Match) -> ModuleKind | None:
        """Of the module on which an operator was matched; None for views."""
        return None if match.module is None else self.by_name[match.module].kind

    def takes_over(self, module: str, match: Match, group: Sequence[Match]) -> bool:
        """Whether a module does behind the array what a match of a group does in front of it."""
        last = all(m.module is None for m in group[group.index(match) + 1 :])
        return (
            module not in self.front
            and self.by_name[module].domain_in is Domain.ACT
            and (self.can_end(module) or not last)
        )

    def passable(self, module: str) -> bool:
        return self.by_name[module].bypass or self.by_name[module].kind is ModuleKind.MEM_RD

    def search(self, tail: str | None, full: frozenset[str]) -> list[str]:
        """Modules in breadth-first order, those in `full` left out."""
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
        """An exit, or a way to one through modules that data passes unused."""
        if self.by_name[module].exit:
            return True
        return any(
            self.by_name[m].exit and self.passable(m) for m in self.search(module, frozenset())
        )


def after_array(modules: Modules, dfg: Dfg, group: Sequence[Match]) -> Sequence[Match]:
    """The matches of a group, activations and gates in front of an array that the group does not
    use moved behind it: what stands in front serves convolutions and channel affines alone. The
    group as it is where the graph has no such way.
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
                found = state.candidates(dfg[match.node].op)
                module = next((n for n in found if modules.takes_over(n, match, group)), None)
            if module is None or module not in modules.search(state.tail, state.full):
                return group
            state = state.after(module)
        placed.append(Match(node=match.node, module=module))
    return placed or group
