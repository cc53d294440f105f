"""The schedule of a tiled model: DRAM placement and proved instructions with tokens."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa.encoding import decode_with_positions, encode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout
from opu_fuse.schedule.batch_blocks import with_cascades_or_rounds
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.dependencies import latest_conflicts, synchronise
from opu_fuse.schedule.emit_sink import EmitSink
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.memory_plan import LiveRange, MemoryPlan, align, plan_memory
from opu_fuse.schedule.placement import Placement, PostTile
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race, prove_same
from opu_fuse.schedule.slow_memory import with_timed_tiles
from opu_fuse.schedule.tensors import TensorUse, require_countable
from opu_fuse.schedule.tile_choice import BatchBlock, PlannedLayer, Tiling, Together, Weighed
from opu_fuse.tile_schedule.traversal import TileSchedule
from opu_fuse.timing.segment_cycles import cycles_by_output

HASH_HALF = 22
OUTSIDE = -1
"""Group of instructions that belong to no group: prologue and end."""


class MachineProgram(Struct, frozen=True, kw_only=True):
    """One machine segment. words: encoded; instructions, groups: per C-type in program order;
    tiles: per post.run.
    """

    program_offset: int
    words: np.ndarray
    instructions: tuple[Instruction, ...]
    groups: tuple[int, ...]
    tiles: tuple[PostTile, ...]


class HostWork(Struct, frozen=True, kw_only=True):
    """One host segment: DFG nodes in order."""

    nodes: tuple[int, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """A complete schedule.

    layers: group index -> tiled layers, one per phase (groups of views only have none);
    beside: group -> co-scheduled group, whose instructions are interleaved with its own;
    cascades: fused stacks;
    weighed: fused stacks that were tried;
    rounds: batch blocks;
    placements: DFG index -> DRAM placement, without values that are on chip only;
    uses: live ranges of all tensors;
    layout, memory: the layout and memory plan that they follow from;
    cycles: DFG index of a group's output -> predicted cycles;
    constants_bytes: weights, parameters and constant maps, from offset 0 of the window.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    beside: Mapping[int, int]
    cascades: tuple[Together, ...]
    weighed: tuple[Weighed, ...]
    rounds: tuple[BatchBlock, ...]
    uses: Mapping[int, TensorUse]
    placements: Mapping[int, Placement]
    layout: DataLayout
    segments: tuple[MachineProgram | HostWork, ...]
    memory: MemoryPlan
    cycles: Mapping[int, float]
    constants_bytes: int
    program_offset: int
    window_bytes: int

    @property
    def kept(self) -> frozenset[int]:
        """Groups whose output is a resident map for the next group."""
        return frozenset(
            group
            for program in self.segments
            if isinstance(program, MachineProgram)
            for x, group in zip(program.instructions, program.groups, strict=True)
            if x.engine is Engine.POST and x.post["keep"]
        )

    @property
    def not_stored(self) -> frozenset[int]:
        """Groups whose output is on chip only."""
        made = {group: parts[0].layer.output for group, parts in self.layers.items()}
        return frozenset(group for group, node in made.items() if node not in self.placements)


def schedule(
    dfg: Dfg,
    tiling: Tiling,
    hw: HwSpec,
    *,
    reuse_memory: bool,
    cascades: FusedStackChoice,
) -> Plan:
    """Place the tensors in DRAM and emit the instructions.

    reuse_memory=False: every map is stored, at an address of its own; cascades: choice of the fused
    stacks. Raises DoesNotFit when the window exceeds the DRAM.
    """
    require_countable(dfg, tiling.uses)
    tiling = with_cascades_or_rounds(dfg, with_timed_tiles(tiling, hw), hw, cascades)
    constants = tiling.constants_bytes
    units = planned_units(tiling, hw, store_all=not reuse_memory)
    on_chip = {home for unit in chain.from_iterable(units) for home in unit.on_chip}
    cycles: dict[int, float] = {}
    for found in units:
        cycles |= cycles_by_output(found, [unit.keep for unit in found], hw)
    uses = {node: use for node, use in tiling.uses.items() if use.place.home not in on_chip}
    placements: dict[int, Placement] = {}
    for node in [node for node in uses if dfg[node].kind is Kind.CONST]:
        place = uses.pop(node).place
        placements[node] = Placement(offset=constants, layout=place.layout, skips=place.skips)
        constants = align(constants + place.layout.size_bytes)
    memory = plan_memory(_live_ranges(uses.values()), reuse=reuse_memory)
    for node, use in uses.items():
        place = use.place
        offset = constants + memory.offsets[place.home] + place.offset
        placements[node] = Placement(offset=offset, layout=place.layout, skips=place.skips)
    program_offset = align(constants + memory.total_bytes)
    emitted: list[MachineProgram | HostWork] = []
    at = program_offset
    for segment, found in zip(tiling.segments, units, strict=True):
        if not segment.machine:
            emitted.append(
                HostWork(nodes=tuple(t.node for t in segment.steps if t.node is not None))
            )
            continue
        if found:
            program = _emit(found, placements, hw, at)
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
        beside=tiling.beside,
        cascades=tiling.cascades,
        weighed=tiling.weighed,
        rounds=tiling.rounds,
        uses=tiling.uses,
        placements=placements,
        layout=tiling.layout,
        segments=tuple(emitted),
        memory=memory,
        cycles=cycles,
        constants_bytes=constants,
        program_offset=program_offset,
        window_bytes=window,
    )


def _live_ranges(uses: Iterable[TensorUse]) -> list[LiveRange]:
    """One live range per base allocation: the union of its own and its aliases' live ranges."""
    inside: dict[int, list[TensorUse]] = {}
    for use in uses:
        inside.setdefault(use.place.home, []).append(use)
    return [
        LiveRange(
            key=home,
            size_bytes=max(u.place.offset + u.place.layout.size_bytes for u in found),
            first=min(u.first for u in found),
            last=max(u.last for u in found),
        )
        for home, found in inside.items()
    ]


def _emit(
    units: Sequence[PlannedUnit],
    placements: Mapping[int, Placement],
    hw: HwSpec,
    program_offset: int,
) -> MachineProgram:
    """Instructions of one segment, with tokens, encoded, decoded again and proved."""
    sink = EmitSink(hw, placements)
    spec_hash = hw.spec_hash
    halves = {"hash_lo": spec_hash & ((1 << HASH_HALF) - 1), "hash_hi": spec_hash >> HASH_HALF}
    sink.append(OUTSIDE, Engine.FETCH, "check", halves)
    TileSchedule(hw, sink).units(units, [unit.keep for unit in units])
    sink.append(OUTSIDE, Engine.FETCH, "end", {})
    steps = sink.steps
    plain = [s.instruction for s in steps]
    conflicts = latest_conflicts(plain, hw)
    synchronised = synchronise(plain, hw, conflicts)
    words = encode(synchronised)
    program, positions = decode_with_positions(words)
    prove_same(program, synchronised)  # so the conflicts are those of the words, too
    prove_no_deadlock(program, positions, hw)
    prove_no_race(program, hw, conflicts)
    return MachineProgram(
        program_offset=program_offset,
        words=words,
        instructions=tuple(program),
        groups=tuple(s.group for s in steps),
        tiles=tuple(s.tile for s in steps if s.tile is not None),
    )
