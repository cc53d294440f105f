"""Counters of groups, from the retire records of an engine that has time."""

from collections.abc import Sequence

from opu_fuse.bundle.program import MachineSegment
from opu_fuse.bundle.result import GroupCounters, Retire
from opu_fuse.hw.footprint import moved_bytes
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.spec import HwSpec


def group_counters(
    instructions: Sequence[Instruction],
    segment: MachineSegment,
    trace: Sequence[Retire],
    cycles: int,
    hw: HwSpec,
) -> tuple[GroupCounters, ...]:
    """Per group, by index. A group's cycles run from the previous group's last retirement to its
    own; the last one's to the end of the segment, so that they sum to its cycles."""
    members: dict[int, list[Instruction]] = {}
    for instruction, group in zip(instructions, segment.groups, strict=True):
        if group >= 0:
            members.setdefault(group, []).append(instruction)
    last = dict.fromkeys(sorted(members), 0)
    for r in trace:
        if r.group >= 0:
            last[r.group] = max(last[r.group], r.end)
    if last:
        last[max(last)] = cycles
    result, before = [], 0
    for index, end in last.items():
        end = max(before, end)
        moved = {
            engine: sum(moved_bytes(x, hw) for x in members[index] if x.engine is engine)
            for engine in (Engine.LOAD, Engine.STORE)
        }
        result.append(
            GroupCounters(
                index=index,
                instructions=len(members[index]),
                dram_bytes_read=moved[Engine.LOAD],
                dram_bytes_written=moved[Engine.STORE],
                cycles=end - before,
            )
        )
        before = end
    return tuple(result)
