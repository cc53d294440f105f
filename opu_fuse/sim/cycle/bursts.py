"""Address walk of load and store: the shape of an instruction as bursts on the bus.

As the RTL's `opu_walk`: runs that continue each other are merged to stretches, stretches cut into
bursts of at most `max_burst` beats that never cross a page.
"""

from functools import lru_cache

from msgspec import Struct

PAGE_BYTES = 4096


class Burst(Struct, frozen=True, kw_only=True):
    """beats: of it; needs: run, from 0, with which it may go; grown: run with which the stretch is
    longer than up to its end, one behind the stretch where it ends that; last: run that the stretch
    ends with.
    """

    beats: int
    needs: int
    grown: int
    last: int


class Transfer(Struct, frozen=True, kw_only=True):
    """The bursts of one instruction, in order."""

    bursts: tuple[Burst, ...]


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
    bursts: list[Burst] = []
    begin, end, first = at, at + run, 0  # the stretch, and its first run
    runs = rows * blocks
    for number in range(1, runs + 1):
        block, row = divmod(number, rows)
        start = at + block * block_pitch + row * row_pitch
        if number < runs and start == end:
            end += run
            continue
        place, last = begin, number - 1
        while place < end:
            piece = min(longest, page - place % page, end - place)
            place += piece
            inside = place - begin
            needs = min(last, first + (inside - 1) // run)
            bursts.append(Burst(beats=piece, needs=needs, grown=first + inside // run, last=last))
        begin, end, first = start, start + run, number
    return Transfer(bursts=tuple(bursts))
