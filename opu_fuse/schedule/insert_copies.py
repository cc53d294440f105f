"""Insert copies after a strategy's groups, for maps that are needed at two addresses.

The strategy knows nothing of memory. Which maps two concatenations need at different addresses
follows from the concatenations of its groups.
"""

import dataclasses
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from opu_fuse.dfg.concat_copies import Copied, copy_name, insert_copies
from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.copy_groups import with_copies
from opu_fuse.fuse.partition import Partition, members
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import layouts
from opu_fuse.layout.zero_copy_joins import misplaced
from opu_fuse.schedule.misfits import Misfit, misfits_at
from opu_fuse.schedule.tile_choice import Tiling, tile

Tiles = TypeVar("Tiles")


class Fused(NamedTuple, Generic[Tiles]):
    """A graph with copies, and its groups.

    partition: includes the groups of the copies (`Partition.copies` names them);
    tiling: its tiles, which fit the machine; None where none are chosen.
    """

    dfg: Dfg
    partition: Partition
    tiling: Tiles


Fitted = Fused[Tiling]


def needed_copies(dfg: Dfg, partition: Partition, hw: HwSpec) -> dict[tuple[int, int], str]:
    """(concatenation, operand position) -> why the machine needs a copy of that operand."""
    return misplaced(dfg, hw, layouts(dfg, members(partition)))


def tile_with_copies(
    dfg: Dfg, partition: Partition, hw: HwSpec, images: int
) -> Fitted | tuple[Misfit, ...]:
    """Insert the copies that a partition needs, then `tile`. Misfits name nodes of `dfg`."""
    wanted = needed_copies(dfg, partition, hw)
    if not wanted:
        tiling = tile(dfg, partition, hw, images)
        return Fused(dfg, partition, tiling) if isinstance(tiling, Tiling) else tiling
    added = insert_copies(dfg, wanted)
    copied = _with_copy_groups(dfg, partition, wanted, added, hw)
    if not isinstance(copied, Partition):
        return copied
    tiling = tile(added.dfg, copied, hw, images)
    if isinstance(tiling, Tiling):
        return Fused(added.dfg, copied, tiling)
    return tuple(m for misfit in tiling for m in _of_the_graph(dfg, partition, misfit, added))


def misfits_by_copies(dfg: Dfg, partition: Partition, hw: HwSpec) -> tuple[Misfit, ...]:
    """Concatenations that need a copy that no module of the machine can make."""
    wanted = needed_copies(dfg, partition, hw)
    if not wanted:
        return ()
    copied = _with_copy_groups(dfg, partition, wanted, insert_copies(dfg, wanted), hw)
    return () if isinstance(copied, Partition) else copied


def _with_copy_groups(
    dfg: Dfg,
    partition: Partition,
    wanted: Mapping[tuple[int, int], str],
    added: Copied,
    hw: HwSpec,
) -> Partition | tuple[Misfit, ...]:
    """The partition of the graph with copies; the misfits if no module can make one."""
    found = with_copies(name_copies(dfg, partition, wanted), added, hw)
    if isinstance(found, Partition):
        return found
    copy, why = found
    error = _no_copy(dfg, added, copy, why.reason)
    return misfits_at(dfg, partition, added.copies[copy], error)


def name_copies(dfg: Dfg, partition: Partition, wanted: Mapping[tuple[int, int], str]) -> Partition:
    """The partition with the names of the copies that it needs."""
    copies = {copy_name(dfg, concat, at): why for (concat, at), why in wanted.items()}
    return dataclasses.replace(partition, copies=copies)


def _no_copy(dfg: Dfg, added: Copied, copy: int, why: str) -> DoesNotFit:
    (value,) = added.dfg[copy].operands
    what = f"{added.dfg[value].name} must be copied for it, and no module can ({why})"
    return DoesNotFit(
        dfg[added.copies[copy]].name, what, "map max_pool to a module that can, or compute it twice"
    )


def _of_the_graph(
    dfg: Dfg, partition: Partition, misfit: Misfit, added: Copied
) -> tuple[Misfit, ...]:
    """Report a copy that does not fit as the concatenation that needs it."""
    if misfit.nodes[0] in added.copies:  # alone in its group
        return misfits_at(dfg, partition, added.copies[misfit.nodes[0]], misfit.error)
    back = {new: old for old, new in enumerate(added.moved)}
    return (replace(misfit, nodes=tuple(sorted(back[n] for n in misfit.nodes))),)
