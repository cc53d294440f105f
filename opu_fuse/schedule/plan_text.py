"""Tiles and the plan as text, in the order in which groups run."""

from collections.abc import Iterator
from itertools import pairwise

from opu_fuse.dfg.graph import Dfg
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.number_text import counted
from opu_fuse.schedule.fused_stack_text import unit_lines
from opu_fuse.schedule.plan import OUTSIDE, Plan
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.schedule.tensors import BEFORE
from opu_fuse.schedule.tile_choice import PlannedLayer, Tiling
from opu_fuse.schedule.tile_trace import cost_text, size_text


def tiling_lines(tiling: Tiling, hw: HwSpec) -> Iterator[str]:
    """Yield the tile of every layer (rows x columns x channel blocks) and its estimated cost."""
    where: dict[int, str] = {}
    for unit in tiling.units:
        for before, group in pairwise(unit.groups):
            if unit.interleaved:
                where[group] = f", between the tiles of group {before}"
            elif unit.two_results:
                where[group] = f", in the passes of group {before}"
    for index, parts in tiling.layers.items():
        for p in parts:
            cost = cost_text(p.tile, p.estimate, p.layer.shape, hw)
            yield f"tiles of group {index}: {p.pieces} of {cost}{where.get(index, '')}"


def plan_lines(dfg: Dfg, plan: Plan) -> Iterator[str]:
    """Yield the addresses of all maps, then segments with what their groups read and write."""
    memory = plan.memory
    yield (
        f"memory window: {plan.window_bytes} bytes; constants from 0x0, {plan.constants_bytes} "
        f"bytes; feature maps after them, {memory.total_bytes} bytes; programs from "
        f"{plan.program_offset:#x}"
    )
    placements = plan.placements
    for node in sorted(placements, key=lambda node: placements[node].offset):
        use = plan.uses[node]
        layout = use.storage.layout
        first = "the start" if use.first == BEFORE else f"step {use.first}"
        yield (
            f"map {_at(dfg, plan, node)}: {layout.size_bytes} bytes, "
            f"{layout.channels}x{layout.rows}x{layout.cols}, "
            f"slots of {layout.slot}, alive from {first} to step {use.last}"
        )
    yield from unit_lines(plan)
    for number, segment in enumerate(plan.segments):
        if isinstance(segment, HostWork):
            yield f"segment {number}: host: {', '.join(dfg[n].name for n in segment.nodes)}"
            continue
        words = f"{counted(len(segment.words), 'word')} at {segment.program_offset:#x}"
        count = counted(len(segment.instructions), "instruction")
        yield f"segment {number}: machine, {count}, {words}"
        for group in dict.fromkeys(segment.groups):
            if group != OUTSIDE:
                count = counted(segment.groups.count(group), "instruction")
                yield f"  group {group} {plan.layers[group][0].layer.name}: {count}"
                for planned in plan.layers[group]:
                    yield from (f"    {line}" for line in _layer(dfg, plan, planned))


def _layer(dfg: Dfg, plan: Plan, planned: PlannedLayer) -> Iterator[str]:
    layer, tile = planned.layer, planned.tile
    source = "a constant matrix" if layer.shape.unit else _at(dfg, plan, layer.source)
    yield "reads the partial sums of the group before" if layer.further else f"reads {source}"
    if layer.second is not None:
        zeros = ", lanes of other heads as zeros" if layer.zeroes else ""
        yield f"takes as weights {_at(dfg, plan, layer.second)}{zeros}"
    for node in layer.residuals:
        yield f"adds {_at(dfg, plan, node)}"
    if layer.gate is not None:
        yield f"multiplies by {_at(dfg, plan, layer.gate)}"
    resident = ", resident" if layer.group in plan.resident_groups else ""
    yield f"writes {_at(dfg, plan, layer.output)}{resident}"
    if planned.end > planned.weights:
        unit = ("unit",) if layer.shape.unit else ()
        names = ("weights", "params", "pre", "table", *unit, "end")
        yield "constants: " + ", ".join(f"{name} {getattr(planned, name):#x}" for name in names)
    chunk = f", {tile.in_blocks} input blocks by {size_text(*tile.kernel)} of the kernel at a time"
    size = size_text(tile.rows, tile.cols, tile.blocks, images=tile.images)
    yield f"tiles: {planned.pieces} of {size}{chunk if layer.shape.array else ''}"
    yield f"post: {' '.join(layer.order) or 'none'}"


def _at(dfg: Dfg, plan: Plan, node: int) -> str:
    placement = plan.placements.get(node)
    return f"{dfg[node].name} {f'at {placement.offset:#x}' if placement else 'not in DRAM'}"
