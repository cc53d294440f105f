"""The result of fusion: groups of DFG nodes, host operators, and a reason at every boundary."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.rules.refusal import Refusal
from opu_fuse.number_text import counted
from opu_fuse.summaries import summary

if TYPE_CHECKING:
    from opu_fuse.fuse.strategies.search_report import Search  # of one strategy only

Misfits = Mapping[tuple[int, ...], DoesNotFit | None]
"""Groups that must not be formed, by their nodes (without views) -> the scheduler's error."""


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
    absorbed; outputs: DFG indices of the values that are read outside or are model outputs (in a
    legal group exactly one: the last match).
    """

    index: int
    matches: tuple[Match, ...]
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]

    def __repr__(self) -> str:
        modules = " > ".join(dict.fromkeys(m.module for m in self.matches if m.module))
        return summary(self, str(self.index), counted(len(self.matches), "operator"), modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOp:
    """An operator on the host, and the rule that it breaks on the machine."""

    node: int
    why: Refusal

    def __repr__(self) -> str:
        return summary(self, f"node {self.node}", self.why.rule, self.why.text)

    @property
    def reason(self) -> str:
        """The rule, and what would help, as one sentence."""
        return self.why.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """An edge of the DFG that leaves a group (or the host), and the rule that cuts it."""

    source: int
    target: int
    why: Refusal

    def __repr__(self) -> str:
        return summary(self, f"node {self.source} to {self.target}", self.rule, self.why.text)

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

    def __repr__(self) -> str:
        return summary(self, self.rule, self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Groups and host operators of a DFG. Every call node is in exactly one group or on the host.

    groups: in execution order if legal.
    search: report of a searching strategy.
    misfits: groups that the scheduler forbade.
    copies: name -> reason of operators that the compiler adds after partitioning.
    rewrites: name -> reason of operators that it changed before partitioning.
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

    def __repr__(self) -> str:
        return summary(self, self.strategy, *self._facts())

    def _facts(self) -> Iterator[str]:
        """What a line about the partition says."""
        yield counted(len(self.groups), "group")
        yield f"{counted(len(self.host), 'operator')} on the host CPU"
        yield "legal" if self.legal else f"illegal: {counted(len(self.violations), 'violation')}"

    @property
    def legal(self) -> bool:
        return not self.violations


def added_lines(partition: Partition) -> Iterator[str]:
    """Lines about operators that the compiler rewrote or adds as copies, with the reasons."""
    yield from (f"rewrite: {name}: {reason}" for name, reason in partition.rewrites.items())
    yield from (f"copy: {name}: {reason}" for name, reason in partition.copies.items())


def views_of_groups(dfg: Dfg, partition: Partition) -> frozenset[int]:
    """Host operators that only view a map of a group: their readers find it in memory, so nothing
    runs on the host.
    """
    on_host = {op.node for op in partition.host}
    producers = {node: dfg.producer(dfg.base(node)) for node in on_host}
    return frozenset(
        node
        for node, producer in producers.items()
        if dfg[producer].kind is Kind.CALL and producer not in on_host
    )


def members(partition: Partition) -> list[list[int]]:
    """DFG nodes of every group, in pipeline order."""
    return [[m.node for m in group.matches] for group in partition.groups]
