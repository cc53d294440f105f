"""Address walk of load and store: the shape of an instruction as bursts on the bus.

As the RTL's `opu_walk`: runs that continue each other are merged to stretches, stretches cut into
bursts of at most `max_burst` beats that never cross a page.
"""

from dataclasses import dataclass
from functools import lru_cache

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The bursts of one instruction, in order.

    beats: of every burst; offered: cycle in which it may go at the earliest, the first run being
    taken at cycle 0; runs: before merging; last_stretch: runs merged to the last stretch; before:
    bursts before it.
    """

    beats: tuple[int, ...]
    offered: tuple[int, ...]
    runs: int
    last_stretch: int
    before: int


@lru_cache(maxsize=4096)
def transfer(
    *,
    at: int,
    run: int,
    rows: int,
    row_pitch: int,
    blocks: int,
    block_pitch: int,
    page: int,
    longest: int,
) -> Transfer:
    """Bursts of `blocks` x `rows` runs of `run` beats. All sizes in beats: at: first one's place
    in its page; page: beats of a page; longest: of the longest burst.
    """
    beats: list[int] = []
    offered: list[int] = []
    begin, end, first = at, at + run, 0  # the stretch, and its first run
    before = last_stretch = 0
    runs = rows * blocks
    for number in range(1, runs + 1):
        block, row = divmod(number, rows)
        start = at + block * block_pitch + row * row_pitch
        if number < runs and start == end:
            end += run
            continue
        before, last_stretch = len(beats), number - first
        place = begin
        while place < end:
            piece = min(longest, page - place % page, end - place)
            place += piece
            beats.append(piece)
            offered.append(1 + min(number - 1, first + (place - begin - 1) // run))
        begin, end, first = start, start + run, number
    return Transfer(
        beats=tuple(beats),
        offered=tuple(offered),
        runs=runs,
        last_stretch=last_stretch,
        before=before,
    )
