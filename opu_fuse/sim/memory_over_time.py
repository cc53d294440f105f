"""Memory traffic and occupancy over the cycles of a timed run, from its retire records."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from msgspec import Struct

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import RunResult, with_head_cycle
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.footprint import footprint, moved_bytes, space_limit
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import Space

_NEVER = -1


class OverTime(Struct, frozen=True, kw_only=True):
    """cycles: the (n + 1,) ends of n equal spans of the run. read, written: bytes a cycle that
    loads and stores move in each span, (n,). on_chip: memory -> words at the end of each span that
    are still going to be read, (n,); capacity: memory -> words it has.
    """

    cycles: np.ndarray
    read: np.ndarray
    written: np.ndarray
    on_chip: Mapping[str, np.ndarray]
    capacity: Mapping[str, int]


class _Timed(Struct, frozen=True):
    """An instruction with the cycles in which it was open and first on its engine."""

    instruction: Instruction
    start: int
    end: int


def memory_over_time(bundle: Bundle, hw: HwSpec, result: RunResult, spans: int = 400) -> OverTime:
    """The memory of one sample's run on an engine that has time. Bytes of a load or store count
    evenly over the cycles in which it was open; instruction fetch is not in it.
    """
    timed = list(_timed(bundle, result))
    cycles = np.linspace(0, max((t.end for t in timed), default=1), spans + 1)
    capacity = {
        s.value: words for s in Space if s is not Space.DRAM and (words := space_limit(s, hw))
    }
    return OverTime(
        cycles=cycles,
        read=_rate(timed, Engine.LOAD, hw, cycles),
        written=_rate(timed, Engine.STORE, hw, cycles),
        on_chip=_occupied(timed, hw, capacity, cycles[1:]),
        capacity=capacity,
    )


def _timed(bundle: Bundle, result: RunResult) -> Iterator[_Timed]:
    """In program order, in which every word is written before it is read."""
    starts = result.segment_starts
    times: dict[tuple[int, int], tuple[int, int]] = {}
    for r, start in with_head_cycle(result.trace):
        begin = starts[r.segment]
        times[r.segment, r.instruction] = (begin + start, begin + r.end)
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, MachineSegment):
            for index, instruction in enumerate(decode(segment_words(bundle, segment))):
                yield _Timed(instruction, *times[number, index])


def _rate(timed: list[_Timed], engine: Engine, hw: HwSpec, cycles: np.ndarray) -> np.ndarray:
    """Bytes a cycle that an engine moves in each span: differences of what it has moved by then."""
    own = [t for t in timed if t.instruction.engine is engine]
    moved = np.cumsum([0, *(moved_bytes(t.instruction, hw) for t in own)])
    times = np.array([0, *(at for t in own for at in (t.start, t.end))])
    so_far = np.interp(cycles, times, [0, *(b for pair in pairwise(moved) for b in pair)])
    return np.diff(so_far) / np.diff(cycles)


def _occupied(
    timed: list[_Timed], hw: HwSpec, capacity: Mapping[str, int], at: np.ndarray
) -> dict[str, np.ndarray]:
    """A word is occupied from where it is written until it is read for the last time before it is
    written again.
    """
    changes = {name: np.zeros(len(at) + 1, np.int64) for name in capacity}
    written = {name: np.full(words, _NEVER) for name, words in capacity.items()}
    read = {name: np.full(words, _NEVER) for name, words in capacity.items()}

    def settle(name: str, words: slice) -> None:
        begin, end = written[name][words], read[name][words]
        lived = (begin != _NEVER) & (end > begin)
        np.add.at(changes[name], np.searchsorted(at, begin[lived]), 1)
        np.add.at(changes[name], np.searchsorted(at, end[lived]), -1)

    for t in timed:
        continues_accumulation = (
            t.instruction.engine is Engine.COMPUTE and t.instruction.compute["accumulate"]
        )
        for access in footprint(t.instruction, hw):
            if (name := access.space.value) not in capacity:
                continue
            for words in (slice(*interval) for interval in access.intervals):
                if not access.write:
                    read[name][words] = np.maximum(read[name][words], t.end)
                elif not continues_accumulation:
                    settle(name, words)
                    written[name][words], read[name][words] = t.start, _NEVER
    for name, words in capacity.items():
        settle(name, slice(words))
    return {name: np.cumsum(change[:-1]) for name, change in changes.items()}
