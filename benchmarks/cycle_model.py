"""The cycle engine against the counters of the RTL, network by network and group by group.

    python benchmarks/cycle_model.py [--quick]

Every program runs on both, at two latencies and two bandwidths of the memory. A row says how far
the cycle engine is off in all, and in the group it knows worst. Exits with 1 when a network is off
by more than 0.5 %, a group by more than 1 % and 20 cycles, or an engine retires in another order.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import opu_fuse
from opu_fuse import zoo
from opu_fuse.bundle.result import GroupCounters, Retire, RunResult
from opu_fuse.pipeline import Program
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.ports import noise
from opu_fuse.sim.runner import RtlOptions

NETWORK_SHARE, GROUP_SHARE, GROUP_CYCLES = 0.005, 0.01, 20

# Machine, network, image (None: its own).
QUICK = (
    ("opu-tiny", "tiny_residual", None),
    ("opu-1024", "resnet20", None),
    ("opu-light", "mobilenet_v1_025", 64),
)
ALL = (
    *QUICK,
    ("opu-tiny", "tiny_tiles", None),
    ("opu-tiny", "resnet20", 16),
    ("opu-micro", "squeezenet", 48),
    ("opu-micro", "mobilenet_v1_025", 64),
    ("opu-1024", "resnet18", 64),
    ("opu-1024", "googlenet", 64),
    ("opu-1024", "yolov3_tiny", 64),
    ("opu-light", "mobilenet_v2", 64),
    ("opu-light", "shufflenet_v2", 64),
    ("opu-light", "efficientnet_b0", 32),
)
LATENCIES = (0, 40)
BUS_SHARES = (1.0, 0.5)
"""Bandwidths, as shares of the bus."""

out = Console(width=130, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """worst: the group that is off most, in cycles; ordered: every engine retires the same
    instructions in the same order.
    """

    rtl: int
    cycle: int
    worst: tuple[GroupCounters, GroupCounters]
    broken: int
    ordered: bool

    @property
    def passed(self) -> bool:
        share = abs(self.cycle - self.rtl) / self.rtl
        return share <= NETWORK_SHARE and not self.broken and self.ordered


def compare(rtl: RunResult, cycle: RunResult) -> Comparison:
    """RTL run against cycle engine's run of one program."""
    pairs = list(zip(rtl.groups, cycle.groups, strict=True))
    return Comparison(
        rtl=rtl.counters["cycles"],
        cycle=cycle.counters["cycles"],
        worst=max(pairs, key=lambda pair: abs(_off(*pair))),
        broken=sum(not _close(*pair) for pair in pairs),
        ordered=_orders(rtl.trace) == _orders(cycle.trace),
    )


def _off(rtl: GroupCounters, cycle: GroupCounters) -> int:
    return cycle.cycles - rtl.cycles


def _close(rtl: GroupCounters, cycle: GroupCounters) -> bool:
    return abs(_off(rtl, cycle)) <= max(GROUP_CYCLES, GROUP_SHARE * rtl.cycles)


def _orders(trace: Sequence[Retire]) -> dict[str, list[tuple[int, int]]]:
    orders: dict[str, list[tuple[int, int]]] = {}
    for r in trace:
        orders.setdefault(r.engine, []).append((r.segment, r.instruction))
    return orders


def comparisons(
    machine: str, network: str, image: int | None
) -> Iterator[tuple[int, float, Comparison]]:
    """(latency, bytes per cycle, comparison) of one network."""
    hw = opu_fuse.load_hw(machine)
    program: Program = opu_fuse.compile(zoo.build(network, image=image), hw)
    for share in BUS_SHARES:
        for latency in LATENCIES:
            speed = share * hw.dram.bus_bytes
            options = RtlOptions(latency=latency, bytes_per_cycle=speed)
            rtl = program.run(noise(program.bundle), engine="rtl", rtl=options)
            memory = MemoryOptions(latency=latency, bytes_per_cycle=speed)
            yield latency, speed, compare(rtl, program.run(engine="cycle", memory=memory))


def main() -> int:
    """0 when all are as close as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three networks")
    cases = QUICK if parser.parse_args().quick else ALL
    table = Table(title="Cycle engine against RTL", title_justify="left")
    for name in ("network", "machine"):
        table.add_column(name)
    for name in ("latency", "B/cycle", "RTL", "cycle engine", "off", "worst group", "off", "order"):
        table.add_column(name, justify="right")
    failed = 0
    for machine, network, image in cases:
        name = network if image is None else f"{network} {image}"
        for latency, speed, comparison in comparisons(machine, network, image):
            rtl, cycle = comparison.worst
            table.add_row(
                *(name, machine, str(latency), f"{speed:g}"),
                *(
                    str(comparison.rtl),
                    str(comparison.cycle),
                    f"{comparison.cycle / comparison.rtl - 1:+.3%}",
                ),
                f"{rtl.index} of {rtl.cycles}",
                f"{_off(rtl, cycle):+d}"
                + f", {comparison.broken} broken" * bool(comparison.broken),
                "equal" if comparison.ordered else "DIFFERS",
            )
            failed += not comparison.passed
            out.print(f"{name} on {machine}, latency {latency}, {speed:g} B/cycle", style="dim")
    out.print(table)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
