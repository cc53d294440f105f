"""The result of a strategy: groups, host operators, and the strategy's own reasons."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import Forbid
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.rules.refusal import Refusal

if TYPE_CHECKING:
    from opu_fuse.fuse.strategies.search_report import Search  # of one strategy only

OwnReason = Callable[[int, int], Refusal | None]
"""(source, target) -> reason of the strategy's own."""


def no_reason(source: int, target: int) -> Refusal | None:  # noqa: ARG001  as every strategy's reason
    """No reason: for strategies that fuse every edge that no rule forbids."""
    return None


class Grouping(Struct, frozen=True, kw_only=True):
    """The groups and host operators that a strategy chose.

    groups: operators in pipeline order.
    host: operators with reasons.
    own_reason: why the strategy did not fuse an edge, called only where no rule forbids it.
    search: report of a searching strategy.
    """

    groups: list[list[Match]]
    host: list[HostOp]
    own_reason: OwnReason = no_reason
    search: "Search | None" = None


Strategy = Callable[[MatchContext, Forbid], Grouping]
