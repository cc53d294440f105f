"""Why a group has the tiles that it has: every cut that was tried, with its cost or its refusal."""

from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.explain.partition_text import operators_named
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.fused_stack_text import both, compared, in_rounds, names
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tiling.candidates import Fit, Refused, candidates, has_large_window
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.tile import Tile

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
    partner = {co_scheduled: group for group, co_scheduled in plan.beside.items()}
    together = {group: "strips" for found in plan.cascades for group in found.groups}
    together |= {group: "rounds" for found in plan.rounds for group in found.groups}
    tiled = [g.index for g in groups if g.index in plan.layers]
    if not tiled:
        where = "is a matter of layout" if groups else "runs on the host"
        yield f"{name} {where}: it has no tiles"
    for index in tiled:
        for planned in plan.layers[index]:
            yield from _layer(planned, hw, together.get(index), beside=index in partner)
        if index in partner:
            ours = plan.layers[partner[index]][0].layer.name
            yield f"  it runs between the tiles of {ours}, hence the largest cut"
        yield from (f"  {line}" for line in _cascades_of(plan, index))


def _cascades_of(plan: Plan, group: int) -> Iterator[str]:
    """Why a group is in a fused stack, or not."""
    told = False
    for found in plan.cascades:
        if group in found.groups:
            strip = found.stack.works[-1].tile.rows
            line_buffers = sum(line_buffer.words for line_buffer in found.stack.line_buffers)
            yield (
                f"computed strip by strip with {names(plan, found)}{compared(plan, found)}; its "
                f"last layer makes {strip} rows at a time, rings of rows take "
                f"{line_buffers} feature words"
            )
            told = True
    for found in plan.rounds:
        if group in found.groups:
            yield in_rounds(plan, found)
            told = True
    for tried in plan.weighed:
        if group in tried.together.groups and not tried.taken:
            why = "; the batch is better without cascades" if tried.outdone else ""
            yield (
                f"alone, not strip by strip with {names(plan, tried.together)}: {both(tried)}{why}"
            )
            told = True
    if not told:
        yield "not strip by strip: no cascade with its neighbours fits, gains or was asked for"


def _layer(
    planned: PlannedLayer, hw: HwSpec, together: str | None, *, beside: bool
) -> Iterator[str]:
    tried = tuple(candidates(planned.layer.shape, hw))
    fits = sorted((c for c in tried if isinstance(c, Fit)), key=lambda c: c.rank(beside=beside))
    refused = sorted((c for c in tried if isinstance(c, Refused)), key=lambda c: c.why.gap)
    counts = f"{len(fits)} cuts fit, {len(refused)} do not"
    yield f"{planned.layer.name}: {counts} (rows x columns x channel blocks of a tile)"
    cheapest = together is None and planned.tile == fits[0].tile
    taken = cost_text(planned.tile, planned.estimate, planned.layer.shape, hw)
    if together is not None:
        yield f"  taken for {together} {taken}"
    elif not cheapest:
        why = "fastest beside the layers before and behind, timed tile by tile"
        if has_large_window(planned.layer.shape, hw, planned.tile):
            why = "fewest loads of a large window"
        if planned.tile.undivided:
            why += ", its tiles use whole buffers"
        yield f"  taken {taken}; {why}"
    for fit in fits[:SHOWN]:
        verdict = "taken" if cheapest and fit is fits[0] else "fits"
        yield f"  {verdict} {cost_text(fit.tile, fit.cost, planned.layer.shape, hw)}"
    if len(fits) > SHOWN:
        yield f"  ... and {len(fits) - SHOWN} more"
    for c in refused[:SHOWN]:
        size = size_text(*c.size, images=c.images)
        need = f"{c.why.needed} words of the {c.why.buffer} buffer"
        yield f"  refused {size}: needs {need}, a bank holds {c.why.limit}"
    if len(refused) > SHOWN:
        yield f"  ... and {len(refused) - SHOWN} more"


def cost_text(tile: Tile, cost: Estimate, shape: Shape, hw: HwSpec) -> str:
    """A tile of a layer, the loop order of its tiles, and cycles."""
    memory = round(cost.dram_bytes / hw.dram.rate)
    parts = f"array {cost.compute_cycles}, post {cost.post_cycles}, memory {memory}"
    how = _order(tile, shape, hw) if shape.array else ""
    size = size_text(tile.rows, tile.cols, tile.blocks, images=tile.images)
    return f"{size}{how}: {round(cost.total_cycles)} cycles ({parts})"


def size_text(*sizes: int, images: int = 1) -> str:
    """`4x8x2`, or of several images `3 images of 4x8x2`"""
    several = f"{images} images of " if images > 1 else ""
    return several + "x".join(map(str, sizes))


def _order(tile: Tile, shape: Shape, hw: HwSpec) -> str:
    mode = hw.array.modes[tile.mode]
    stays = "weights" if tile.weights_outer else "features"
    spread = " (spread)" if shape.spread else ""
    return f", mode {mode.ic}x{mode.oc}x{mode.px}{spread}, {stays} stay"
