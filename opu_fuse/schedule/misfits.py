"""Groups that have no tile, for the next fusion to leave out."""

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.partition import Group, Partition


class Misfit(Struct, frozen=True, kw_only=True):
    """A group that has no tile: its DFG nodes, ascending, and the reason."""

    nodes: tuple[int, ...]
    error: DoesNotFit


def misfits_at(dfg: Dfg, partition: Partition, node: int, error: DoesNotFit) -> tuple[Misfit, ...]:
    """Misfits of an operator that cannot start a group: by itself, and with its successors."""
    group = next(g for g in partition.groups if any(m.node == node for m in g.matches))
    return Misfit(nodes=(node,), error=error), misfit_of(dfg, group, error)


def misfit_of(dfg: Dfg, group: Group, error: DoesNotFit) -> Misfit:
    """The misfit of a group without its trailing views, which join any group."""
    last = max(i for i, m in enumerate(group.matches) if not dfg[m.node].is_virtual)
    return Misfit(nodes=tuple(sorted(m.node for m in group.matches[: last + 1])), error=error)
