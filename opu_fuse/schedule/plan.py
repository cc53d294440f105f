"""The schedule of a whole model: tiles, memory, instructions with tokens, proved."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opu_fuse.cost.lanes import LAYOUT, map_lanes
from opu_fuse.cost.layer import Shape
from opu_fuse.cost.tiles import Estimate, Tile, ceil_div, unfold
from opu_fuse.cost.tiling import choose_tile
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import follow_views
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.hw.encoding import decode_with_positions, encode
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import PARAM_WORDS, TABLE_WORDS, Engine
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.chunks import OutputRange, output_ranges, weight_bytes
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.emit import Emitter
from opu_fuse.schedule.job import Job, Placement, Step
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.lower import lower_group
from opu_fuse.schedule.memory import LiveRange, MemoryPlan, align, plan_memory
from opu_fuse.schedule.order import SegmentSteps, order_segments
from opu_fuse.schedule.packing import choose_slots
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race
from opu_fuse.schedule.sharing import choose_shifts
from opu_fuse.schedule.tensors import CannotJoin, TensorUse, find_joins, tensor_uses

HASH_HALF = 22
OUTSIDE = -1
"""Group of instructions that belong to no group: prologue and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLayer:
    """A layer with its tile and the place of its constants (byte offsets; `end` is behind them).

    unfold: kernel columns per visit, side by side in the lanes (`cost.tiles.unfold`).
    """

    layer: Layer
    tile: Tile
    estimate: Estimate
    ranges: tuple[OutputRange, ...]
    weights: int
    params: int
    pre: int
    table: int
    end: int
    unfold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProgram:
    """One machine segment. words: encoded; instructions, groups: per C-type in program order;
    tiles: per post.run.
    """

    program_offset: int
    words: np.ndarray
    instructions: tuple[Instruction, ...]
    groups: tuple[int, ...]
    tiles: tuple[tuple[int, int, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """One host segment: DFG nodes in order."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """layers: group index -> planned layers, one per phase (groups of views only have none);
    placements: DFG index -> place in memory; uses: their live ranges; joined: concatenations and
    splits that are a matter of layout; memory: the plan that the placements came from.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    uses: Mapping[int, TensorUse]
    placements: Mapping[int, Placement]
    joined: frozenset[int]
    segments: tuple[MachineProgram | HostWork, ...]
    memory: MemoryPlan
    constants_bytes: int
    program_offset: int
    window_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A group that has no tile: its DFG nodes, ascending, and the reason."""

    nodes: tuple[int, ...]
    error: DoesNotFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """layers: group index -> layers with their tiles; segments and uses: execution order and live
    ranges that follow from it.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    segments: tuple[SegmentSteps, ...]
    uses: Mapping[int, TensorUse]
    joined: frozenset[int]
    constants_bytes: int


TileCache = dict[Shape, tuple[Tile, Estimate]]
"""Tiles of one machine by layer shape: equal layers share a search, also over repeated
partitions.
"""


def tile(dfg: Dfg, partition: Partition, hw: HwSpec, cache: TileCache) -> Tiling | Misfit:
    """Lower every group and choose its tile; the first group that does not fit is returned as a
    value.
    """
    lowered: dict[int, tuple[Layer, ...]] = {}
    members = (m.node for g in partition.groups for m in g.matches)
    joined = frozenset(i for i in members if dfg[i].op in LAYOUT)
    shifts = choose_shifts(dfg, partition, joined, hw)
    lanes = map_lanes(dfg, hw, joined, shifts)
    try:
        joins = find_joins(dfg, joined, lanes, hw.word_channels, shifts)
    except CannotJoin as error:
        return Misfit(nodes=(error.node,), error=error)
    for group in partition.groups:
        try:
            found = lower_group(dfg, group, hw, lanes)
        except DoesNotFit as error:
            return _misfit(dfg, group, error)
        if found:
            lowered[group.index] = found
    layers = {index: parts[0] for index, parts in lowered.items()}
    stored = {n for layer in layers.values() for n in (layer.source, layer.residual, layer.output)}
    free = {op.node for op in partition.host if _is_free(dfg, op.node, stored)}
    segments = order_segments(dfg, partition, free)
    steps = (t.group for s in segments for t in s.steps)
    order = [g for g in steps if g is not None and g in layers]
    fixed = {*joins, *(join.home for join in joins.values())}
    slots = choose_slots(dfg, [layers[i] for i in order], fixed, hw)
    uses = tensor_uses(dfg, layers, segments, hw, joins, lanes, slots, shifts)
    planned: dict[int, tuple[PlannedLayer, ...]] = {}
    offset = 0
    for index in order:
        px = hw.word_bytes // uses[layers[index].output].layout.slot
        slot = uses[layers[index].source].layout.slot
        parts = []
        for part in lowered[index]:
            layer = replace(part, shape=replace(part.shape, slot=slot, px=px))
            try:
                parts.append(_tile_layer(layer, hw, offset, cache))
            except DoesNotFit as error:
                return _misfit(dfg, partition.groups[index], error)
            offset = parts[-1].end
        planned[index] = tuple(parts)
    return Tiling(
        layers=planned, segments=segments, uses=uses, joined=joined, constants_bytes=offset
    )


def schedule(dfg: Dfg, tiling: Tiling, hw: HwSpec, *, reuse_memory: bool = True) -> Plan:
    """Places in memory and instructions. Raises DoesNotFit when the window exceeds the DRAM."""
    constants, uses = tiling.constants_bytes, tiling.uses
    memory = plan_memory(_live_ranges(uses.values()), reuse=reuse_memory)
    placements = {}
    for node, use in uses.items():
        blocks = use.block * use.layout.block_words * use.layout.word
        offset = constants + memory.offsets[use.home] + blocks
        placements[node] = Placement(offset=offset, layout=use.layout, skips=use.skips)
    program_offset = align(constants + memory.total_bytes)
    emitted: list[MachineProgram | HostWork] = []
    at = program_offset
    for segment in tiling.segments:
        if not segment.machine:
            emitted.append(
                HostWork(nodes=tuple(t.node for t in segment.steps if t.node is not None))
            )
            continue
        groups = [t.group for t in segment.steps if t.group is not None]
        jobs = [part for g in groups if g in tiling.layers for part in tiling.layers[g]]
        if jobs:
            program = _emit(jobs, placements, hw, at)
            emitted.append(program)
            at = align(at + 4 * len(program.words))
    window = align(at, 4096)
    if window > hw.dram.capacity:
        raise DoesNotFit(
            dfg.name,
            f"weights, feature maps and program take {window} bytes, {hw.name} has "
            f"{hw.dram.capacity} bytes of DRAM",
            "raise dram.capacity in the spec, or use a smaller model",
        )
    return Plan(
        layers=tiling.layers,
        uses=uses,
        placements=placements,
        joined=tiling.joined,
        segments=tuple(emitted),
        memory=memory,
        constants_bytes=constants,
        program_offset=program_offset,
        window_bytes=window,
    )


def _live_ranges(uses: Iterable[TensorUse]) -> list[LiveRange]:
    """One per home: as large as it is, alive as long as anything in it."""
    inside: dict[int, list[TensorUse]] = {}
    for use in uses:
        inside.setdefault(use.home, []).append(use)
    return [
        LiveRange(
            key=home,
            size_bytes=max(u.layout.size_bytes for u in found),
            first=min(u.first for u in found),
            last=max(u.last for u in found),
        )
        for home, found in inside.items()
    ]


def _is_free(dfg: Dfg, node: int, stored: Collection[int | None]) -> bool:
    """A view on the host that nobody has to run: its bytes are those of a stored map."""
    base = follow_views(dfg, node)
    return base != node and base in stored


def _misfit(dfg: Dfg, group: Group, error: DoesNotFit) -> Misfit:
    """Without the views at the end, which join whatever group is made."""
    last = max(i for i, m in enumerate(group.matches) if not dfg[m.node].is_virtual)
    return Misfit(nodes=tuple(sorted(m.node for m in group.matches[: last + 1])), error=error)


def _tile_layer(layer: Layer, hw: HwSpec, offset: int, cache: TileCache) -> PlannedLayer:
    if layer.shape not in cache:
        cache[layer.shape] = choose_tile(layer.name, layer.shape, hw)
    tile, estimate = cache[layer.shape]
    ranges = output_ranges(layer.shape, tile, hw)
    block_bytes = PARAM_WORDS * hw.word_bytes
    params = align(offset + weight_bytes(ranges, hw))
    blocks = ceil_div(layer.shape.mid_channels, hw.word_channels) if layer.anchor is not None else 0
    pre = align(params + blocks * block_bytes)
    blocks = ceil_div(layer.shape.in_channels, hw.word_channels) if layer.pre else 0
    table = align(pre + blocks * block_bytes)
    return PlannedLayer(
        layer=layer,
        tile=tile,
        estimate=estimate,
        ranges=ranges,
        weights=offset,
        params=params,
        pre=pre,
        table=table,
        end=align(table + (0 if layer.table is None else TABLE_WORDS * hw.word_bytes)),
        unfold=unfold(layer.shape, hw.array.modes[tile.mode], hw),
    )


def _emit(
    jobs: Sequence[PlannedLayer],
    placements: Mapping[int, Placement],
    hw: HwSpec,
    program_offset: int,
) -> MachineProgram:
    """Instructions of one segment, with tokens, encoded, decoded again and proved."""
    emitter = Emitter(hw)
    spec_hash = hw.spec_hash
    halves = {"hash_lo": spec_hash & ((1 << HASH_HALF) - 1), "hash_hi": spec_hash >> HASH_HALF}
    steps = [Step(instruction=emitter.instruction(Engine.FETCH, "check", halves), group=OUTSIDE)]
    for planned in jobs:
        layer = planned.layer
        job = Job(
            layer=layer,
            tile=planned.tile,
            ranges=planned.ranges,
            source=placements[layer.source],
            residual=None if layer.residual is None else placements[layer.residual],
            output=placements[layer.output],
            weights=planned.weights,
            params=planned.params,
            pre=planned.pre,
            table=planned.table,
        )
        steps.extend(emitter.layer(job))
    steps.append(Step(instruction=emitter.instruction(Engine.FETCH, "end", {}), group=OUTSIDE))
    words = encode(synchronise([s.instruction for s in steps], hw))
    program, positions = decode_with_positions(words)
    prove_no_deadlock(program, positions, hw)
    prove_no_race(program, hw)
    return MachineProgram(
        program_offset=program_offset,
        words=words,
        instructions=tuple(program),
        groups=tuple(s.group for s in steps),
        tiles=tuple(s.tile for s in steps if s.tile is not None),
    )
