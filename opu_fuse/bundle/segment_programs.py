"""Each machine segment of a program as a program of its own, with ports.

In a whole program, machine segments share one memory window. A segment alone gets every map that
something else writes through its ports, as int8, and shows every map that something else reads.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, GroupInfo, HostSegment, MachineSegment, Port, Tensor

PACKED = ("float32", "int8", "uint8")
"""Types of arrays that libopu packs."""
OUTSIDE = -1
"""Number of the segment that writes the inputs of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentProgram:
    """A machine segment alone.

    number: of the segment in the whole program. bundle: the program; its ports are, in order,
    those of the model that the machine packs itself, then maps. maps_in, maps_out: value names of
    the latter.
    """

    number: int
    bundle: Bundle
    maps_in: tuple[str, ...]
    maps_out: tuple[str, ...]


def segment_programs(bundle: Bundle) -> tuple[SegmentProgram, ...]:
    """The machine segments in their order."""
    flow = _Flow(bundle)
    results: list[SegmentProgram] = []
    later: set[str] = set()  # maps of earlier segments that later machine segments read
    for number in reversed(range(len(bundle.segments))):
        segment = bundle.segments[number]
        if isinstance(segment, MachineSegment):
            maps = flow.read_by_host(number) | {m for m in later if number in flow.writers[m]}
            ports = tuple(p for p in bundle.outputs if flow.completes(number, p.value))
            needed = flow.needed(number, {*flow.reads(segment), *maps, *(p.value for p in ports)})
            later |= needed
            results.append(_alone(bundle, flow, number, needed, ports, sorted(maps)))
    return tuple(reversed(results))


class _Flow:
    """Which segment writes and reads which map."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.maps = {t.name: t for t in bundle.tensors}
        writers = {p.value: [OUTSIDE] for p in bundle.inputs if p.value in self.maps}
        for number, segment in enumerate(bundle.segments):
            for name in self._writes(segment):
                if name in self.maps:
                    writers.setdefault(name, []).append(number)
        self.writers: Mapping[str, Sequence[int]] = writers
        self.outside = {p.value for p in bundle.inputs} | {
            name
            for segment in bundle.segments
            if isinstance(segment, HostSegment)
            for name in self._writes(segment)
        }
        """Values that the host has as arrays."""

    def _writes(self, segment: MachineSegment | HostSegment) -> Iterable[str]:
        if isinstance(segment, HostSegment):
            return dict(segment.outputs).values()
        return [name for group in self.groups(segment) for name in group.outputs]

    def groups(self, segment: MachineSegment) -> list[GroupInfo]:
        """Groups of a segment, by number."""
        return [self.bundle.groups[index] for index in sorted({*segment.groups} - {-1})]

    def reads(self, segment: MachineSegment) -> list[str]:
        """Maps in memory that its groups read."""
        names = [name for group in self.groups(segment) for name in group.inputs]
        return [name for name in dict.fromkeys(names) if name in self.maps]

    def needed(self, number: int, names: Iterable[str]) -> set[str]:
        """Maps that others write before segment `number` and that are parts of these."""
        homes: dict[str, list[Tensor]] = {}
        for name in names:
            homes.setdefault(self.maps[name].home, []).append(self.maps[name])
        return {
            name
            for name, writers in self.writers.items()
            if any(_overlap(self.maps[name], t) for t in homes.get(self.maps[name].home, ()))
            and min(writers) < number
            and number not in writers
        }

    def read_by_host(self, number: int) -> set[str]:
        """Maps that segment `number` completes and host segments read."""
        segments = [s for s in self.bundle.segments[number:] if isinstance(s, HostSegment)]
        names = {value for segment in segments for _, value in segment.inputs}
        return {name for name in names if self.completes(number, name)}

    def completes(self, number: int, name: str) -> bool:
        """Whether segment `number` writes the last of a map that the machine computes."""
        own = self.maps.get(name)
        if own is None or name in self.outside:
            return False
        parts = [
            segment
            for other, writers in self.writers.items()
            if self.maps[other].home == own.home and _overlap(self.maps[other], own)
            for segment in writers
        ]
        return max(parts, default=OUTSIDE) == number


def _overlap(a: Tensor, b: Tensor) -> bool:
    return a.offset < b.offset + b.layout.size_bytes and b.offset < a.offset + a.layout.size_bytes


def _alone(
    bundle: Bundle,
    flow: _Flow,
    number: int,
    needed: Collection[str],
    ports: tuple[Port, ...],
    maps_out: Sequence[str],
) -> SegmentProgram:
    segment = bundle.segments[number]
    assert isinstance(segment, MachineSegment)
    users = [_packed(replace(p, unrounded="")) for p in bundle.inputs if p.value in needed]
    maps_in = sorted({*needed} - {p.value for p in users})
    groups = flow.groups(segment)
    first = groups[0].index if groups else 0

    def relative(group: int) -> int:
        return min(max(group - first, -1), len(groups))

    own = replace(segment, groups=tuple(max(g - first, -1) for g in segment.groups))
    alone = replace(
        bundle,
        model=f"{bundle.model}, segment {number}",
        tensors=tuple(
            replace(t, first_group=relative(t.first_group), last_group=relative(t.last_group))
            for t in bundle.tensors
        ),
        inputs=(*users, *(_port(flow.maps[name]) for name in maps_in)),
        outputs=(*map(_packed, ports), *(_port(flow.maps[name]) for name in maps_out)),
        groups=tuple(_renumbered(g, first) for g in groups),
        segments=(own,),
        boundaries=(),
        source_map={},
        program_offset=segment.program_offset,
        words=segment_words(bundle, segment),
        hosts={},
        qdq=b"",
        fused=b"",
    )
    return SegmentProgram(
        number=number, bundle=alone, maps_in=tuple(maps_in), maps_out=tuple(maps_out)
    )


def _renumbered(group: GroupInfo, first: int) -> GroupInfo:
    ranges = tuple(replace(r, segment=0) for r in group.instructions)
    return replace(group, index=group.index - first, instructions=ranges)


def _packed(port: Port) -> Port:
    """A port of the model in a type that libopu packs; casts between them are exact, or those that
    the engines in Python make.
    """
    return port if port.dtype in PACKED else replace(port, dtype="float32")


def _port(tensor: Tensor) -> Port:
    return Port(
        name=f"{tensor.name}:int8",
        dtype="int8",
        shape=tensor.shape,
        value=tensor.name,
        scale=tensor.scale,
        zero_point=tensor.zero_point,
    )
