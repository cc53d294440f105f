"""The numbers that tables and JSON show for every group: predicted, or measured by a run."""

from dataclasses import dataclass

from opu_fuse.bundle.facts import mac_efficiency, machine_of
from opu_fuse.bundle.program import Bundle, GroupInfo
from opu_fuse.bundle.result import RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group, batch 1. cycles: predicted unless `measured`; dram_bytes: loads and stores."""

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


def has_cycles(result: RunResult | None) -> bool:
    """True when the run has measured cycles (the functional engine has no time)."""
    return result is not None and result.counters.get("cycles", 0) > 0


def per_sample(result: RunResult, counter: str) -> int:
    """A total of a run divided by its samples, rounded."""
    return round(result.counters.get(counter, 0) / result.samples)


def group_rows(bundle: Bundle, result: RunResult | None = None) -> tuple[GroupRow, ...]:
    """A row per group, in order; with a run: what it measured, per sample."""
    hw = machine_of(bundle)
    measured = {g.index: g for g in result.groups} if result is not None else {}
    samples = result.samples if result is not None else 1
    timed = has_cycles(result)
    rows = []
    for group in bundle.groups:
        found = measured.get(group.index)
        cycles, moved = group.cycles, group.dram_bytes
        if found is not None:
            moved = round((found.dram_bytes_read + found.dram_bytes_written) / samples)
            cycles = round(found.cycles / samples) if timed else cycles
        rows.append(
            GroupRow(
                group=group,
                cycles=cycles,
                measured=timed and found is not None,
                mac_efficiency=mac_efficiency(hw.macs, group.macs, cycles),
                dram_bytes=moved,
            )
        )
    return tuple(rows)
