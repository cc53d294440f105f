"""The schedule of a tiled model: DRAM placement and proved instructions with tokens."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa.encoding import decode_with_positions, encode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.batch_blocks import with_fused_stacks_and_batch_blocks
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.dependencies import latest_conflicts, synchronise
from opu_fuse.schedule.emit_sink import EmitSink
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.memory_plan import LiveRange, MemoryPlan, align, plan_memory
from opu_fuse.schedule.placement import Placement, PostTile
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race, prove_same
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.schedule.tensors import TensorUse, require_countable, tensor_uses
from opu_fuse.schedule.tile_choice import Tiling
from opu_fuse.schedule.timed_tiles import with_tiles_without_waits
from opu_fuse.tile_schedule.traversal import TileSchedule
from opu_fuse.timing.segment_cycles import timed

HASH_HALF = 22
"""Bits of each half of the spec hash in the check instruction: the width of its registers."""
OUTSIDE = -1
"""Group of instructions that belong to no group: prologue and end."""


class MachineProgram(Struct, frozen=True, kw_only=True):
    """One machine segment.

    program_offset: byte offset of its first word;
    words: the encoded instructions;
    instructions, groups: per C-type in program order, the instruction and its group;
    tiles: per post.run, the first element that it computes.
    """

    program_offset: int
    words: np.ndarray
    instructions: tuple[Instruction, ...]
    groups: tuple[int, ...]
    tiles: tuple[PostTile, ...]


class Plan(Tiling, frozen=True, kw_only=True):
    """A complete schedule: a tiling with its memory and its programs.

    uses: live ranges of all values in memory;
    placements: DFG index -> DRAM placement, without values that are not stored to DRAM;
    memory: the memory plan that they follow from;
    segments: machine programs and host segments, in execution order;
    cycles: DFG index of a group's output -> predicted cycles;
    constants_bytes: maps included; constants are stored first;
    program_offset: byte offset of the first program;
    window_bytes: bytes of the whole memory window.
    """

    uses: Mapping[int, TensorUse]
    placements: Mapping[int, Placement]
    segments: tuple[MachineProgram | HostWork, ...]
    memory: MemoryPlan
    cycles: Mapping[int, float]
    program_offset: int
    window_bytes: int

    @property
    def resident_groups(self) -> frozenset[int]:
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
        """Groups whose output is a resident map that is not stored to DRAM."""
        outputs = {group: parts[0].layer.output for group, parts in self.layers.items()}
        return frozenset(group for group, node in outputs.items() if node not in self.placements)


def schedule(
    dfg: Dfg,
    tiling: Tiling,
    hw: HwSpec,
    *,
    reuse_memory: bool,
    fused_stacks: FusedStackChoice,
) -> Plan:
    """Place the tensors in DRAM and emit the instructions.

    reuse_memory: False: every map is stored, at an address of its own;
    fused_stacks: which groups form fused stacks.

    Raises DoesNotFit when the window exceeds the DRAM.
    """
    uses = tensor_uses(dfg, tiling, hw)
    require_countable(dfg, uses)
    storages = {node: use.storage for node, use in uses.items()}
    tiling = with_fused_stacks_and_batch_blocks(tiling, hw, fused_stacks, storages)
    tiling = with_tiles_without_waits(tiling, hw)
    uses = tensor_uses(dfg, tiling, hw)
    constants = tiling.constants_bytes
    _require_room(dfg, hw, "weights", constants)  # before their instructions, which are many
    units = planned_units(tiling, hw, store_all=not reuse_memory)
    not_stored = [value for unit in chain.from_iterable(units) for value in unit.not_stored]
    cycles: dict[int, float] = {}
    for segment_units in units:
        cycles |= timed(segment_units, hw).spent
    hidden = {(at.alias_root, block) for at in not_stored for block in at.channel_blocks}
    stored = {
        node: use
        for node, use in uses.items()
        if hidden.isdisjoint((use.storage.alias_root, n) for n in use.storage.channel_blocks)
    }
    placements: dict[int, Placement] = {}
    for node in [node for node in stored if dfg[node].kind is Kind.CONST]:
        storage = stored.pop(node).storage
        placements[node] = Placement(offset=constants, layout=storage.layout, skips=storage.skips)
        constants = align(constants + storage.layout.size_bytes)
    memory = plan_memory(_live_ranges(stored.values()), reuse=reuse_memory)
    for node, use in stored.items():
        storage = use.storage
        offset = constants + memory.offsets[storage.alias_root] + storage.offset
        placements[node] = Placement(offset=offset, layout=storage.layout, skips=storage.skips)
    program_offset = align(constants + memory.total_bytes)
    emitted: list[MachineProgram | HostWork] = []
    at = program_offset
    for segment, segment_units in zip(tiling.order, units, strict=True):
        if isinstance(segment, HostWork):
            emitted.append(segment)
        elif segment_units:
            program = _emit(segment_units, placements, hw, at)
            emitted.append(program)
            at = align(at + 4 * len(program.words))
    window = align(at, 4096)
    _require_room(dfg, hw, "weights, feature maps and program", window)
    return Plan(
        **asdict(replace(tiling, constants_bytes=constants)),
        uses=uses,
        placements=placements,
        segments=tuple(emitted),
        memory=memory,
        cycles=cycles,
        program_offset=program_offset,
        window_bytes=window,
    )


def _require_room(dfg: Dfg, hw: HwSpec, what: str, size: int) -> None:
    if size > hw.dram.capacity:
        raise DoesNotFit(
            dfg.name,
            f"{what} take {size} bytes, {hw.name} has {hw.dram.capacity} bytes of DRAM",
            "raise dram.capacity in the spec, or use a smaller model",
        )


def _live_ranges(uses: Iterable[TensorUse]) -> list[LiveRange]:
    """One live range per base allocation: the union of its own and its aliases' live ranges."""
    by_root: dict[int, list[TensorUse]] = {}
    for use in uses:
        by_root.setdefault(use.storage.alias_root, []).append(use)
    return [
        LiveRange(
            key=root,
            size_bytes=max(u.storage.offset + u.storage.layout.size_bytes for u in aliases),
            first=min(u.first for u in aliases),
            last=max(u.last for u in aliases),
        )
        for root, aliases in by_root.items()
    ]


def _emit(
    units: Sequence[PlannedUnit],
    placements: Mapping[int, Placement],
    hw: HwSpec,
    program_offset: int,
) -> MachineProgram:
    """Emit one segment: insert tokens, encode, decode again and prove."""
    sink = EmitSink(hw, placements)
    spec_hash = hw.spec_hash
    halves = {"hash_lo": spec_hash & ((1 << HASH_HALF) - 1), "hash_hi": spec_hash >> HASH_HALF}
    sink.append(OUTSIDE, Engine.FETCH, "check", halves)
    TileSchedule(hw, sink).units(units)
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
