"""Explanation of a group's tiles: every tile that was tried, with its cost or its refusal."""

from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.explain.partition_text import operators_named
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.fused_stack_text import (
    batch_block_text,
    comparison,
    group_names,
    trial_text,
)
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.segment_order import UnitGroups
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tiling.candidates import Fit, Refused, candidates, has_large_window
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.tile import Tile

SHOWN = 8
"""Tiles listed of those that fit, and of those that do not: a reader studies no more."""


def explain_tiles(
    dfg: Dfg, partition: Partition, plan: Plan, hw: HwSpec, name: str
) -> Iterator[str]:
    """Yield lines of text about the tiles of the groups that run an operator.

    name: name of a DFG operator, or of a node of the user's model.

    Raises PartitionError when no operator has that name.
    """
    nodes = {n.index for n in operators_named(dfg, name, "--explain-tiles")}
    groups = [g for g in partition.groups if nodes & {m.node for m in g.matches}]
    unit_of = {group: unit for unit in plan.units for group in unit.groups}
    tiled = [g.index for g in groups if g.index in plan.layers]
    if not tiled:
        where = "is a matter of layout" if groups else "runs on the host"
        yield f"{name} {where}: it has no tiles"
    for index in tiled:
        unit = unit_of[index]
        names = [plan.layers[group][0].layer.name for group in unit.groups]
        number = unit.groups.index(index)
        filler = unit.interleaved and number > 0
        for planned in plan.layers[index]:
            yield from _layer(planned, hw, _shared(unit), co_scheduled=filler)
        if filler:
            yield f"  it runs between the tiles of {names[number - 1]}, hence the largest cut"
        if unit.two_results:
            yield f"  its passes have two results, its own and that of {names[1 - number]}"
        alone = "in no fused stack: none with its neighbours fits, gains or was asked for"
        yield from (f"  {line}" for line in [*_stack_lines(plan, index, unit)] or [alone])


def _shared(unit: UnitGroups) -> str | None:
    """What a tile is chosen for, other than its layer."""
    if unit.heads is not None:
        return "fused heads"
    if unit.stack is not None:
        return "a fused stack"
    return "two results" if unit.two_results else "batch blocks" if unit.images else None


def _stack_lines(plan: Plan, group: int, unit: UnitGroups) -> Iterator[str]:
    """Explain why a group is in a fused stack or in batch blocks, or was tried in one."""
    if unit.stack is not None:
        strip = unit.stack.layers[-1].tile.rows
        words = sum(line_buffer.words for line_buffer in unit.stack.line_buffers)
        yield (
            f"in a fused stack: {group_names(plan, unit)}{comparison(plan, unit)}; its last "
            f"layer computes {strip} rows at a time, line buffers take {words} feature words"
        )
    if unit.images:
        yield batch_block_text(plan, unit)
    for trial in plan.stack_trials:
        if group in trial.fused.groups and not trial.chosen:
            why = "; the batch is better without fused stacks" if trial.outdone else ""
            names = group_names(plan, trial.fused)
            yield f"alone, not in a fused stack of {names}: {trial_text(trial)}{why}"


def _layer(
    planned: PlannedLayer, hw: HwSpec, shared: str | None, *, co_scheduled: bool
) -> Iterator[str]:
    tried = tuple(candidates(planned.layer.shape, hw))
    fits = sorted(
        (c for c in tried if isinstance(c, Fit)), key=lambda c: c.rank(co_scheduled=co_scheduled)
    )
    refused = sorted((c for c in tried if isinstance(c, Refused)), key=lambda c: c.why.gap)
    counts = f"{len(fits)} cuts fit, {len(refused)} do not"
    yield f"{planned.layer.name}: {counts} (rows x columns x channel blocks of a tile)"
    cheapest = shared is None and planned.tile == fits[0].tile
    taken = cost_text(planned.tile, planned.estimate, planned.layer.shape, hw)
    if shared is not None:
        yield f"  taken for {shared} {taken}"
    elif not cheapest:
        why = "fastest with the layers before and after it, timed tile by tile"
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
    """A tile of a layer, the loop order of its tiles, and its predicted cycles."""
    memory = round(cost.dram_bytes / hw.dram.rate)
    parts = f"array {cost.compute_cycles}, post {cost.post_cycles}, memory {memory}"
    how = _order(tile, shape, hw) if shape.array else ""
    size = size_text(tile.rows, tile.cols, tile.blocks, images=tile.images)
    return f"{size}{how}: {round(cost.total_cycles)} cycles ({parts})"


def size_text(*sizes: int, images: int = 1) -> str:
    """`4x8x2`, or `3 images of 4x8x2` if a tile covers several images."""
    several = f"{images} images of " if images > 1 else ""
    return several + "x".join(map(str, sizes))


def _order(tile: Tile, shape: Shape, hw: HwSpec) -> str:
    mode = hw.array.modes[tile.mode]
    stationary = "weights" if tile.weights_outer else "features"
    spread = " (spread)" if shape.spread else ""
    return f", mode {mode.ic}x{mode.oc}x{mode.px}{spread}, {stationary} stay"
