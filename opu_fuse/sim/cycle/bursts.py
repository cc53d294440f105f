"""Address generator of load and store: splits the transfer of an instruction into bus bursts.

It follows the RTL's `opu_walk`. Contiguous runs are merged into stretches. Each stretch is split
into bursts of at most `max_burst` beats that never cross a page.
"""

from functools import lru_cache

from msgspec import Struct

PAGE_BYTES = 4096


class Burst(Struct, frozen=True, kw_only=True):
    """One burst of a stretch; runs are numbered from 0.

    offset: from the first beat of the transfer, in beats. beats: length in beats. needs: run after
    which the burst may issue. grown: first run that extends the stretch past the end of this burst;
    `last` + 1 where the burst ends the stretch. last: final run of the stretch.
    """

    offset: int
    beats: int
    needs: int
    grown: int
    last: int


class Transfer(Struct, frozen=True, kw_only=True):
    """The bursts of one instruction, in order. at: place of the first beat in the window."""

    at: int
    bursts: tuple[Burst, ...]


def transfer(*, at: int, page: int, **shape: int) -> Transfer:
    """The bursts of a transfer whose first beat is at `at`; for the rest see `_bursts`."""
    return Transfer(at=at, bursts=_bursts(at=at % page, page=page, **shape))


@lru_cache(maxsize=4096)
def _bursts(
    *,
    at: int,
    run: int,
    rows: int,
    row_pitch: int,
    blocks: int,
    block_pitch: int,
    page: int,
    longest: int,
) -> tuple[Burst, ...]:
    """Bursts of `blocks` x `rows` runs of `run` beats. All sizes in beats.

    at: offset of the first one in its page
    page: of a page
    longest: of the longest burst
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
        offset, last = begin, number - 1
        while offset < end:
            piece = min(longest, page - offset % page, end - offset)
            offset += piece
            inside = offset - begin
            needs = min(last, first + (inside - 1) // run)
            bursts.append(
                Burst(
                    offset=offset - piece - at,
                    beats=piece,
                    needs=needs,
                    grown=first + inside // run,
                    last=last,
                )
            )
        begin, end, first = start, start + run, number
    return tuple(bursts)
