"""What fusing produces: groups of DFG nodes, host operators, and a reason at every boundary."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.rules.refusal import Refusal

if TYPE_CHECKING:
    from opu_fuse.fuse.strategies.search_report import Search  # of one strategy only

Misfits = Mapping[tuple[int, ...], DoesNotFit | None]
"""Groups that must not be formed, by their nodes (views left out), and what the scheduler said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One operator of a group. node: DFG index; module: HDFG module name, None for virtual
    operators.
    """

    node: int
    module: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One pass through the machine.

    matches: operators in pipeline order (the anchor's owned bias included). inputs: DFG indices of
    the non-constant values read from outside, each once, in first-use order; constants: const nodes
    absorbed; outputs: DFG indices of the values that are read outside or are model outputs (legal
    groups of today: exactly one, the last match).
    """

    index: int
    matches: tuple[Match, ...]
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOp:
    """An operator that stays on the host, and the rule that kept it there."""

    node: int
    why: Refusal

    @property
    def reason(self) -> str:
        """The rule, and what would help, as one sentence."""
        return self.why.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """An edge of the DFG that leaves a group (or the host) and the rule that stopped the fusion."""

    source: int
    target: int
    why: Refusal

    @property
    def rule(self) -> str:
        """The rule's name."""
        return self.why.rule

    @property
    def reason(self) -> str:
        """The rule, and what would help, as one sentence."""
        return self.why.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken legality rule: rule name, nodes involved, one sentence."""

    rule: str
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """groups in an order in which they can execute (if legal); every call node is in exactly one
    group or on the host. search: what a strategy that looks for the best grouping has gained;
    misfits: groups that the scheduler forbade. copies: operators that the compiler adds behind
    these groups, rewrites: operators it changed before them; by name, with the reason.
    """

    strategy: str
    groups: tuple[Group, ...]
    host: tuple[HostOp, ...]
    boundaries: tuple[Boundary, ...]
    violations: tuple[Violation, ...] = ()
    search: "Search | None" = None
    misfits: Misfits = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    rewrites: Mapping[str, str] = field(default_factory=dict)

    @property
    def legal(self) -> bool:
        return not self.violations


def added_lines(partition: Partition) -> Iterator[str]:
    """What the compiler changed before the groups, and adds behind them, with the reasons."""
    yield from (f"rewrite: {name}: {reason}" for name, reason in partition.rewrites.items())
    yield from (f"copy: {name}: {reason}" for name, reason in partition.copies.items())
