"""Which instructions are a group's: the last step of the debug database.

A run of consecutive C-type words of one group is a range; groups whose instructions interleave
have several. The U-type words before a C-type belong to it.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from opu_fuse.bundle.program import InstructionRange, MachineSegment, Segment


def instruction_ranges(
    segments: Sequence[Segment], words: np.ndarray, program_offset: int
) -> dict[int, tuple[InstructionRange, ...]]:
    """Group -> its ranges in program order; -1 for instructions of no group.

    words: uint32 of all segments, the first at byte `program_offset` of the window.
    """
    results: dict[int, list[InstructionRange]] = {}
    for number, segment in enumerate(segments):
        if not isinstance(segment, MachineSegment):
            continue
        start = (segment.program_offset - program_offset) // 4
        ends = np.flatnonzero(words[start : start + segment.words] >> 31)
        for group, first, last in _runs(segment.groups):
            results.setdefault(group, []).append(
                InstructionRange(
                    segment=number,
                    first=first,
                    last=last,
                    first_word=int(ends[first - 1]) + 1 if first else 0,
                    last_word=int(ends[last]),
                )
            )
    return {group: tuple(ranges) for group, ranges in results.items()}


def _runs(groups: Iterable[int]) -> list[tuple[int, int, int]]:
    """(group, first, last) of every run of equal groups."""
    runs: list[tuple[int, int, int]] = []
    for index, group in enumerate(groups):
        if runs and runs[-1][0] == group:
            runs[-1] = (group, runs[-1][1], index)
        else:
            runs.append((group, index, index))
    return runs
