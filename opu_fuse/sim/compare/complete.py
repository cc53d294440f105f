"""When every tensor of the memory window is complete.

A zero-copy concatenation has several writers, machine groups and host values, and its groups may
end in any order: pools run between the tiles of a convolution. It is complete after the last one.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from opu_fuse.bundle.program import Bundle, HostSegment, MachineSegment, Tensor

INPUTS = -1
"""Segment index that denotes the model's inputs."""


class Whole(Struct, frozen=True, kw_only=True):
    """A tensor, the segment (or INPUTS) that writes the last of it, the groups of that segment that
    write to it.
    """

    tensor: Tensor
    segment: int
    groups: frozenset[int]


def whole_tensors(bundle: Bundle) -> tuple[Whole, ...]:
    """Every tensor that something writes, in the bundle's order."""
    writers = _writers(bundle)
    neighbours: dict[str, list[Tensor]] = {}
    for t in bundle.tensors:
        if t.name in writers:
            neighbours.setdefault(t.home, []).append(t)
    results = []
    for t in bundle.tensors:
        parts = [writers[u.name] for u in neighbours.get(t.home, ()) if overlap(u, t)]
        if not parts:
            continue
        last = max(segment for segment, _ in parts)
        groups = frozenset(group for segment, group in parts if segment == last and group >= 0)
        results.append(Whole(tensor=t, segment=last, groups=groups))
    return tuple(results)


def surviving(wholes: Sequence[Whole], segment: int) -> tuple[Tensor, ...]:
    """Tensors that a machine segment completes and that no later group of it overwrites."""
    completed = [w for w in wholes if w.segment == segment and w.groups]

    def overwritten(w: Whole) -> bool:
        return any(
            max(u.groups) > max(w.groups)
            and u.tensor.home != w.tensor.home
            and overlap(u.tensor, w.tensor)
            for u in completed
        )

    return tuple(w.tensor for w in completed if not overwritten(w))


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have a byte in common."""
    return a.offset < b.offset + b.layout.size_bytes and b.offset < a.offset + a.layout.size_bytes


def _writers(bundle: Bundle) -> Mapping[str, tuple[int, int]]:
    """Value name -> (segment, group) that writes it; group -1 for inputs and the host."""
    writing_group = {name: g.index for g in bundle.groups for name in g.outputs}
    source = {INPUTS: INPUTS}
    results = {port.value: (INPUTS, -1) for port in bundle.inputs}
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, MachineSegment):
            source |= dict.fromkeys(segment.groups, number)
        if isinstance(segment, HostSegment):
            results |= dict.fromkeys(segment.results.values(), (number, -1))
    return results | {
        name: (source[group], group) for name, group in writing_group.items() if group in source
    }
