"""The schedule of a tiled model: places in memory, instructions with tokens, proved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opu_fuse.cost.keeping import find_kept
from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.encoding import decode_with_positions, encode
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.decided import DataLayout
from opu_fuse.schedule.dependencies import latest_conflicts, synchronise
from opu_fuse.schedule.emit import Emitter
from opu_fuse.schedule.job import Job, Placement, Step
from opu_fuse.schedule.memory import LiveRange, MemoryPlan, align, plan_memory
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race, prove_same
from opu_fuse.schedule.tensors import TensorUse
from opu_fuse.schedule.tiling import PlannedLayer, Tiling

HASH_HALF = 22
OUTSIDE = -1
"""Group of instructions that belong to no group: prologue and end."""


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
    beside: group -> the one whose instructions come between its own; placements: DFG index -> place
    in memory; uses: their live ranges; layout, memory: what they follow from.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    beside: Mapping[int, int]
    uses: Mapping[int, TensorUse]
    placements: Mapping[int, Placement]
    layout: DataLayout
    segments: tuple[MachineProgram | HostWork, ...]
    memory: MemoryPlan
    constants_bytes: int
    program_offset: int
    window_bytes: int

    @property
    def kept(self) -> frozenset[int]:
        """Groups whose output the next group reads on chip."""
        return frozenset(
            group
            for program in self.segments
            if isinstance(program, MachineProgram)
            for x, group in zip(program.instructions, program.groups, strict=True)
            if x.engine is Engine.POST and x.post["keep"]
        )


def schedule(dfg: Dfg, tiling: Tiling, hw: HwSpec, *, reuse_memory: bool = True) -> Plan:
    """Places in memory and instructions. Raises DoesNotFit when the window exceeds the DRAM."""
    constants, uses = tiling.constants_bytes, tiling.uses
    memory = plan_memory(_live_ranges(uses.values()), reuse=reuse_memory)
    placements = {}
    for node, use in uses.items():
        place = use.place
        offset = constants + memory.offsets[place.home] + place.offset
        placements[node] = Placement(offset=offset, layout=place.layout, skips=place.skips)
    program_offset = align(constants + memory.total_bytes)
    emitted: list[MachineProgram | HostWork] = []
    at = program_offset
    for segment in tiling.segments:
        if not segment.machine:
            emitted.append(
                HostWork(nodes=tuple(t.node for t in segment.steps if t.node is not None))
            )
            continue
        groups = [
            t.group for t in segment.steps if t.group is not None and t.group in tiling.layers
        ]
        if groups:
            program = _emit(tiling, groups, placements, hw, at)
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
        uses=uses,
        placements=placements,
        layout=tiling.layout,
        segments=tuple(emitted),
        memory=memory,
        constants_bytes=constants,
        program_offset=program_offset,
        window_bytes=window,
    )


def _live_ranges(uses: Iterable[TensorUse]) -> list[LiveRange]:
    """One per home: as large as it and all that lies in it, alive as long as anything of that."""
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
    tiling: Tiling,
    groups: Sequence[int],
    placements: Mapping[int, Placement],
    hw: HwSpec,
    program_offset: int,
) -> MachineProgram:
    """Instructions of one segment, with tokens, encoded, decoded again and proved."""
    emitter = Emitter(hw)
    spec_hash = hw.spec_hash
    halves = {"hash_lo": spec_hash & ((1 << HASH_HALF) - 1), "hash_hi": spec_hash >> HASH_HALF}
    steps = [Step(instruction=emitter.instruction(Engine.FETCH, "check", halves), group=OUTSIDE)]
    companions = set(tiling.beside.values())
    alone = [g for g in groups if g not in companions]
    together = [[g, tiling.beside[g]] if g in tiling.beside else [g] for g in alone]
    units = [
        [_job(p, tiling, placements) for g in pair for p in tiling.layers[g]] for pair in together
    ]
    kept = find_kept([[job.work for job in unit] for unit in units], hw)
    for group, unit, keep in zip(alone, units, kept, strict=True):
        if group in tiling.beside:
            steps.extend(emitter.side_by_side(*unit))
        else:
            steps.extend(step for job in unit for step in emitter.layer(job, keep))
    steps.append(Step(instruction=emitter.instruction(Engine.FETCH, "end", {}), group=OUTSIDE))
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


def _job(planned: PlannedLayer, tiling: Tiling, placements: Mapping[int, Placement]) -> Job:
    layer, uses = planned.layer, tiling.uses
    reads, writes = uses[layer.source].place, uses[layer.output].place
    return Job(
        planned=planned,
        work=layer.work(planned.tile, planned.ranges, planned.unfold, reads, writes),
        source=placements[layer.source],
        residuals=tuple(placements[node] for node in layer.residuals),
        output=placements[layer.output],
    )
