"""The numbers that tables and JSON show for every group: predicted, or measured by a run."""

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from opu_fuse.bundle.derived_facts import mac_efficiency, machine_of
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, GroupInfo, HostSegment

if TYPE_CHECKING:
    from opu_fuse.bundle.result import RunResult  # only for types: `compile` imports no results


class GroupRow(Struct, frozen=True, kw_only=True):
    """One group, for all images of the batch.

    cycles: predicted unless `measured`. dram_bytes: loads and stores.
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
    """Whether the run has measured cycles (not on the functional engine)."""
    return result is not None and result.counters.get("cycles", 0) > 0


def per_run(result: "RunResult", counter: str) -> int:
    """A counter per run of the program, rounded. `result` holds sums over all runs."""
    return round(result.counters.get(counter, 0) / result.runs)


def group_rows(bundle: Bundle, result: "RunResult | None" = None) -> tuple[GroupRow, ...]:
    """One row per group, in execution order.

    With `result`: measured numbers per run where available, otherwise predictions.
    """
    hw = machine_of(bundle)
    measured = {g.index: g for g in result.groups} if result is not None else {}
    runs = result.runs if result is not None else 1
    timed = has_cycles(result)
    rows = []
    for group in bundle.groups:
        counters = measured.get(group.index)
        cycles, dram_bytes = group.cycles, group.dram_bytes
        if counters is not None:
            dram_bytes = round((counters.dram_bytes_read + counters.dram_bytes_written) / runs)
            cycles = round(counters.cycles / runs) if timed else cycles
        rows.append(
            GroupRow(
                group=group,
                cycles=cycles,
                measured=timed and counters is not None,
                mac_efficiency=mac_efficiency(hw.macs, group.macs, cycles),
                dram_bytes=dram_bytes,
            )
        )
    return tuple(rows)


class HostSummary(Struct, frozen=True, kw_only=True):
    """Operators that the host runs, counted over all host segments.

    operators: all of them.
    fused: wholly in fused kernels. The others run, at least in part, in ONNX models.
    kernels, models: number of pieces.
    conversions: kernels that only convert between int8 and float.
    not_fused: (reason, operators), most frequent first.
    cuts: producer-consumer pairs that a rule does not fuse.
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
    """Summary of all host segments of a program."""
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    pieces = [piece for s in hosts for piece in s.pieces]
    kernels = [piece for piece in pieces if piece.member.endswith(KERNEL_SUFFIX)]
    with_operators = [piece for piece in kernels if piece.ops]
    # An operator in several pieces counts once, with the reason of its first piece.
    why_not = {name: why for piece in reversed(pieces) for name, why in piece.ops if why}
    reasons = Counter(why_not.values())
    return HostSummary(
        segments=len(hosts),
        operators=sum(len(s.ops) for s in hosts),
        # An operator with one part in a model is not fused.
        fused=len({name for piece in with_operators for name, _ in piece.ops} - why_not.keys()),
        kernels=len(with_operators),
        conversions=len(kernels) - len(with_operators),
        models=len(pieces) - len(kernels),
        not_fused=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        cuts=sum(len(s.cuts) for s in hosts),
    )
