"""The numbers that tables and JSON show for every group: predicted, or measured by a run."""

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from opu_fuse.bundle.derived_facts import mac_efficiency, machine_of
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, GroupInfo, HostSegment

if TYPE_CHECKING:
    from opu_fuse.bundle.result import RunResult  # compiling has none


class GroupRow(Struct, frozen=True, kw_only=True):
    """One group, for all images of the batch. cycles: predicted unless `measured`; dram_bytes:
    loads and stores.
    """

    group: GroupInfo
    cycles: int
    measured: bool
    mac_efficiency: float
    dram_bytes: int

    @property
    def operators(self) -> str:
        return ", ".join(op.op for op in self.group.ops)

    @property
    def modules(self) -> str:
        """Modules in order of use, each once."""
        return " > ".join(dict.fromkeys(op.module for op in self.group.ops if op.module))


def has_cycles(result: "RunResult | None") -> bool:
    """True when the run has measured cycles (the functional engine has no time)."""
    return result is not None and result.counters.get("cycles", 0) > 0


def per_run(result: "RunResult", counter: str) -> int:
    """A total divided by how often the program ran, rounded."""
    return round(result.counters.get(counter, 0) / result.runs)


def group_rows(bundle: Bundle, result: "RunResult | None" = None) -> tuple[GroupRow, ...]:
    """A row per group, in order; with a run: what it measured, each time the program ran."""
    hw = machine_of(bundle)
    measured = {g.index: g for g in result.groups} if result is not None else {}
    runs = result.runs if result is not None else 1
    timed = has_cycles(result)
    rows = []
    for group in bundle.groups:
        counters = measured.get(group.index)
        cycles, moved = group.cycles, group.dram_bytes
        if counters is not None:
            moved = round((counters.dram_bytes_read + counters.dram_bytes_written) / runs)
            cycles = round(counters.cycles / runs) if timed else cycles
        rows.append(
            GroupRow(
                group=group,
                cycles=cycles,
                measured=timed and counters is not None,
                mac_efficiency=mac_efficiency(hw.macs, group.macs, cycles),
                dram_bytes=moved,
            )
        )
    return tuple(rows)


class HostSummary(Struct, frozen=True, kw_only=True):
    """What the host does: operators in all, `fused` of them in `kernels`, the others, at least in
    part, in `models` for ONNX Runtime. conversions: kernels that only change between int8 and
    floats. not_fused: reason -> operators, most frequent first; cuts: pairs a rule does not fuse.
    """

    segments: int
    operators: int
    fused: int
    kernels: int
    conversions: int
    models: int
    not_fused: tuple[tuple[str, int], ...]
    cuts: int


def host_summary(bundle: Bundle) -> HostSummary:
    """Of all host segments together."""
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    pieces = [piece for s in hosts for piece in s.pieces]
    kernels = [piece for piece in pieces if piece.member.endswith(KERNEL_SUFFIX)]
    working = [piece for piece in kernels if piece.ops]
    why_not = {name: why for piece in reversed(pieces) for name, why in piece.ops if why}
    reasons = Counter(why_not.values())
    return HostSummary(
        segments=len(hosts),
        operators=sum(len(s.ops) for s in hosts),
        fused=len({name for piece in working for name, _ in piece.ops} - why_not.keys()),
        kernels=len(working),
        conversions=len(kernels) - len(working),
        models=len(pieces) - len(kernels),
        not_fused=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        cuts=sum(len(s.cuts) for s in hosts),
    )
