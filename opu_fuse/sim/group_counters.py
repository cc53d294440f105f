"""Counters of groups, from the retire records of an engine that has time."""

from collections.abc import Sequence

from opu_fuse.bundle.program import MachineSegment
from opu_fuse.bundle.result import GroupCounters, Retire, with_head_cycle
from opu_fuse.hw.isa.footprint import moved_bytes
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec

_ARRAY = Engine.COMPUTE.name.lower()


def group_counters(
    instructions: Sequence[Instruction],
    segment: MachineSegment,
    trace: Sequence[Retire],
    cycles: int,
    hw: HwSpec,
) -> tuple[GroupCounters, ...]:
    """Per group, by index; their cycles are those of `apportion_cycles`."""
    members: dict[int, list[Instruction]] = {}
    for instruction, group in zip(instructions, segment.groups, strict=True):
        if group >= 0:
            members.setdefault(group, []).append(instruction)
    shares = apportion_cycles(trace, cycles)
    result = []
    for index in sorted(members):
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
                cycles=shares.get(index, 0),
            )
        )
    return tuple(result)


def apportion_cycles(trace: Sequence[Retire], cycles: int) -> dict[int, int]:
    """Group -> its share of a segment's cycles; the shares add up to all of them.

    Groups overlap: one is loaded while another is computed. A cycle counts for the group that the
    array computes; while the array stalls, for the groups of the other busy engines, in equal
    parts; while all stall, for the next group that is busy. So no group has fewer cycles than
    its multiplications take.
    """
    begins: dict[int, list[Retire]] = {}
    ends: dict[int, list[Retire]] = {}
    for r, start in with_head_cycle(trace):
        if r.group >= 0 and start < r.end:
            begins.setdefault(start, []).append(r)
            ends.setdefault(r.end, []).append(r)
    shares = dict.fromkeys(sorted({r.group for r in trace if r.group >= 0}), 0)
    working: dict[str, int] = {}  # engine -> group
    before = waited = 0
    for at in sorted(begins.keys() | ends.keys()):
        if working:
            _apportion(shares, working, at - before + waited)
            waited = 0
        else:
            waited += at - before
        for r in ends.get(at, ()):
            del working[r.engine]
        working |= {r.engine: r.group for r in begins.get(at, ())}
        before = at
    if shares:
        shares[max(shares)] += cycles - before
    return shares


def _apportion(shares: dict[int, int], working: dict[str, int], cycles: int) -> None:
    """Whole cycles: what is left over of a division goes to the first groups."""
    array = working.get(_ARRAY)
    groups = sorted(set(working.values())) if array is None else [array]
    each, left = divmod(cycles, len(groups))
    for index, group in enumerate(groups):
        shares[group] += each + (index < left)
