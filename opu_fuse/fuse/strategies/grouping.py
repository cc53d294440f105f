"""What a strategy hands over: groups and host operators, and what only it can tell about them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import Forbid
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.rules.refusal import Refusal

if TYPE_CHECKING:
    from opu_fuse.fuse.strategies.search_report import Search  # of one strategy only

Apart = Callable[[int, int], Refusal | None]
"""(source, target) -> reason of the strategy's own."""


def no_reason(source: int, target: int) -> Refusal | None:  # noqa: ARG001  as every strategy's reason
    """Of strategies that fuse whatever no rule forbids."""
    return None


class Grouping(Struct, frozen=True, kw_only=True):
    """groups: operators in pipeline order; host: with reasons. apart: why the strategy left an edge
    open, asked only where no rule forbids it; search: of strategies that look for the best one.
    """

    groups: list[list[Match]]
    host: list[HostOp]
    apart: Apart = no_reason
    search: "Search | None" = None


Strategy = Callable[[MatchContext, Forbid], Grouping]
