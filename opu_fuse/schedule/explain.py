"""Why a group has the tiles that it has: every cut that was tried, with its cost or its refusal."""

from collections.abc import Iterator

from opu_fuse.cost.tiles import Tile
from opu_fuse.cost.tiling import Candidate, candidates
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.explain import operators_named
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.tiling import PlannedLayer

SHOWN = 8
"""Cuts listed of those that fit, and of those that do not."""


def explain_tiles(
    dfg: Dfg, partition: Partition, plan: Plan, hw: HwSpec, name: str
) -> Iterator[str]:
    """Lines of text about the tiles of the groups that run an operator.

    name: of a DFG operator or of a node of the user's model. Raises PartitionError when there is
    none of that name.
    """
    nodes = {n.index for n in operators_named(dfg, name, "--explain-tiles")}
    groups = [g for g in partition.groups if nodes & {m.node for m in g.matches}]
    partner = {companion: group for group, companion in plan.beside.items()}
    tiled = [g.index for g in groups if g.index in plan.layers]
    if not tiled:
        where = "is a matter of layout" if groups else "runs on the host"
        yield f"{name} {where}: it has no tiles"
    for index in tiled:
        for planned in plan.layers[index]:
            yield from _layer(planned, hw, beside=index in partner)
        if index in partner:
            ours = plan.layers[partner[index]][0].layer.name
            yield f"  it runs between the tiles of {ours}, hence the largest cut"


def _layer(planned: PlannedLayer, hw: HwSpec, *, beside: bool) -> Iterator[str]:
    tried = tuple(candidates(planned.layer.shape, hw))
    fit = [c for c in tried if c.refused is None]
    refused = [c for c in tried if c.refused is not None]
    counts = f"{len(fit)} cuts fit, {len(refused)} do not"
    yield f"{planned.layer.name}: {counts} (rows x columns x channel blocks of a tile)"
    if beside:
        fit.sort(key=lambda c: (c.tile != planned.tile, -c.rows * c.cols * c.blocks))
    else:
        fit.sort(key=lambda c: c.cost.total_cycles if c.cost else 0)
    for c in fit[:SHOWN]:
        yield f"  {'taken' if c.tile == planned.tile else 'fits'} {_fitting(c, planned, hw)}"
    if len(fit) > SHOWN:
        yield f"  ... and {len(fit) - SHOWN} more"
    refused.sort(key=lambda c: c.refused.gap if c.refused else 0)
    for c in refused[:SHOWN]:
        assert c.refused is not None
        need = f"{c.refused.needed} words of the {c.refused.buffer} buffer"
        yield f"  refused {c.name}: needs {need}, a bank holds {c.refused.limit}"
    if len(refused) > SHOWN:
        yield f"  ... and {len(refused) - SHOWN} more"


def _fitting(c: Candidate, planned: PlannedLayer, hw: HwSpec) -> str:
    assert c.tile is not None
    assert c.cost is not None
    memory = round(c.cost.dram_bytes / hw.dram.bytes_per_cycle)
    parts = f"array {c.cost.compute_cycles}, post {c.cost.post_cycles}, memory {memory}"
    how = _order(c.tile, hw) if planned.layer.shape.array else ""
    return f"{c.name}{how}: {round(c.cost.total_cycles)} cycles ({parts})"


def _order(tile: Tile, hw: HwSpec) -> str:
    mode = hw.array.modes[tile.mode]
    stays = "weights" if tile.weights_outer else "features"
    return f", mode {mode.ic}x{mode.oc}x{mode.px}, {stays} stay"
