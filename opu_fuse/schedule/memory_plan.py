"""DRAM memory plan: later feature maps reuse the memory of dead ones.

Live ranges are intervals of execution steps; two tensors whose ranges overlap never share a
byte. Largest first, each at the lowest address free over its whole range (first fit by size).
"""

from collections.abc import Sequence

from msgspec import Struct

ALIGNMENT = 64
"""Bytes, a multiple of all common bus widths: transfers start at the start of a bus word."""


class LiveRange(Struct, frozen=True, kw_only=True):
    """A tensor of size_bytes needed from step `first` to step `last`, both included."""

    key: int
    size_bytes: int
    first: int
    last: int


class MemoryPlan(Struct, frozen=True, kw_only=True):
    """The memory of all feature maps.

    offsets: key -> byte offset from the start of the feature map region;
    total_bytes: size of the region;
    lower_bound_bytes: the most bytes live at one step, which no plan can undercut.
    """

    offsets: dict[int, int]
    total_bytes: int
    lower_bound_bytes: int


def align(value: int, alignment: int = ALIGNMENT) -> int:
    """Next multiple of `alignment`."""
    return -(-value // alignment) * alignment


def plan_memory(ranges: Sequence[LiveRange], *, reuse: bool = True) -> MemoryPlan:
    """Assign offsets to all ranges.

    Without `reuse`, no two tensors share memory, so that all can be compared after the run.
    """
    placed: list[tuple[int, int, LiveRange]] = []
    offsets: dict[int, int] = {}
    for tensor in sorted(ranges, key=lambda r: (-r.size_bytes, r.first, r.key)):
        size = align(tensor.size_bytes)
        taken = sorted(
            (start, end)
            for start, end, other in placed
            if not reuse or (other.first <= tensor.last and tensor.first <= other.last)
        )
        at = 0
        for start, end in taken:
            if at + size <= start:
                break
            at = max(at, end)
        offsets[tensor.key] = at
        placed.append((at, at + size, tensor))
    return MemoryPlan(
        offsets=offsets,
        total_bytes=max((end for _, end, _ in placed), default=0),
        lower_bound_bytes=_peak(ranges),
    )


def _peak(ranges: Sequence[LiveRange]) -> int:
    events = sorted(
        event
        for r in ranges
        for event in ((r.first, 0, align(r.size_bytes)), (r.last, 1, -align(r.size_bytes)))
    )
    now = most = 0
    for _, _, change in events:
        now += change
        most = max(most, now)
    return most
