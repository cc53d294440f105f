"""What a strategy hands over: groups and host operators, and what only it can tell about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.growth import Forbid
from opu_fuse.fuse.legality import Refusal
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.search import Search
from opu_fuse.hw.spec import HwSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """groups: operators in pipeline order; host: with reasons. apart: (source, target) -> why the
    strategy left an edge open that no rule forbids; search: of strategies that look for the best
    grouping.
    """

    groups: list[list[Match]]
    host: list[HostOp]
    apart: Mapping[tuple[int, int], Refusal] = field(default_factory=dict)
    search: Search | None = None


Strategy = Callable[[Dfg, HwSpec, Forbid], Grouping]
