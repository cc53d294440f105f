"""MAC efficiency and DRAM traffic of whole networks, on the cycle engine.

    python benchmarks/efficiency.py [NETWORK[@IMAGE]:MACHINE …] [--groups] [--latency 40]
    [--bytes-per-cycle 64] [--batch 8]

Efficiency: MACs of Conv and Gemm ÷ (MAC units × cycles from start to done, summed over segments),
of one image, or of so many that run together; bytes are those of one image. The bound of the DRAM
column moves every group's maps and constants once, without padding. Columns of fewer bytes a cycle
are of programs compiled for them; DDR3-1600 x64 runs the first program, x16 that for 16 bytes.
--groups adds a table per network: what each group's engines did, and which was busy longest.
Exits with 1 when a network is under its bar.
"""

import argparse
import logging
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

import opu_fuse
from opu_fuse import zoo
from opu_fuse.bundle.result import RunResult
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.pipeline import Compilation, Options, compile_model
from opu_fuse.sim.cycle.run import MemoryOptions, run_cycle
from opu_fuse.sim.engine_names import MemoryName
from opu_fuse.tiling.dram_lower_bound import bound_bytes

BARS = {
    "vgg16:opu-1024": 87.5,
    "resnet50:opu-1024": 95.0,
    "resnet18:opu-1024": 94.0,
    "tiny_yolo:opu-1024": 96.0,
    "tiny_yolov2:opu-1024": 96.0,
    "yolov3:opu-1024": 98.0,
    "googlenet:opu-1024": 88.0,
    "squeezenet:opu-1024": 87.0,
    "densenet121:opu-1024": 94.0,
    "resnet20:opu-1024": 85.0,
    "mobilenet_v1:opu-light": 85.0,
    "mobilenet_v2:opu-light": 70.0,
}
"""MAC efficiency in percent that the project promises, at the machines' own memory."""
CONV_BARS = {"vgg16:opu-1024": 98.0}
"""The same without the groups of dense layers."""
PUBLISHED_AVERAGE = 91.0
NINE = tuple(BARS)[:9]
NINE_BAR = 93.0
DRAM_BAR = 1.4
SLOWER = (32, 16)
"""Bytes a cycle of other boards."""
LATER = MemoryOptions(latency=100)
WIDE, NARROW = (MemoryOptions(dram=name) for name in MemoryName)

BATCH_BARS = {
    "vgg16:opu-1024": 98.0,
    "resnet50:opu-1024": 98.3,
    "resnet18:opu-1024": 98.0,
    "tiny_yolo:opu-1024": 99.0,
    "yolov3:opu-1024": 99.6,
    "googlenet:opu-1024": 93.0,
    "squeezenet:opu-1024": 94.0,
    "densenet121:opu-1024": 98.0,
    "mobilenet_v1:opu-light": 95.5,
    "mobilenet_v2:opu-light": 88.0,
}
"""MAC efficiency in percent that is aimed at for eight images together."""
EIGHT = 8

out = Console(width=170, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One network on one machine. cycles: of all images; dram_bytes: moved for one; bound_bytes:
    every group's operands and result once, for one.
    """

    compiled: Compilation
    hw: HwSpec
    run: RunResult
    macs: int
    cycles: int
    efficiency: float
    dram_bytes: int
    bound_bytes: int

    @property
    def predicted(self) -> int:
        """Cycles that the compiler thought the groups would take."""
        return sum(group.cycles for group in self.compiled.bundle.groups)

    @property
    def conv_efficiency(self) -> float:
        """MAC efficiency in percent of the groups without a dense layer."""
        timed = zip(self.compiled.bundle.groups, self.run.groups, strict=True)
        convs = [(g.macs, c.cycles) for g, c in timed if all(op.op != "dense" for op in g.ops)]
        macs, cycles = (sum(column) for column in zip(*convs, strict=True))
        return 100 * macs / (self.hw.macs * cycles)

    def efficiency_with(self, memory: MemoryOptions) -> float:
        """MAC efficiency in percent of the same program with another memory."""
        cycles = run_cycle(self.compiled.bundle, self.hw, memory).counters["cycles"]
        return 100 * self.macs / (self.hw.macs * cycles)


def main() -> int:
    """0 when every bar holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=list(BARS), metavar="NETWORK[@IMAGE]:MACHINE")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--latency", type=int)
    parser.add_argument("--bytes-per-cycle", type=float)
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    memory = MemoryOptions(latency=args.latency, bytes_per_cycle=args.bytes_per_cycle)
    slower = MemoryOptions(latency=args.latency)
    table = Table(title=f"cycle engine, {_described(args)}", title_justify="left")
    for name in ("network", "machine", "operators on the host"):
        table.add_column(name)
    for name in (
        "cycles",
        "MAC eff.",
        "bar",
        "without dense",
        *(f"at {speed} B/cycle" for speed in SLOWER),
        "at latency 100",
        *MemoryName,
        "DRAM MB",
        "bound MB",
        "ratio",
    ):
        table.add_column(name, justify="right")
    bars = {1: BARS, EIGHT: BATCH_BARS}.get(args.batch, {})
    efficiencies: dict[str, float] = {}
    missed = 0
    for case in args.cases:
        m = measure(case, memory, args.batch)
        efficiencies[case] = m.efficiency
        ratio = m.dram_bytes / m.bound_bytes
        missed += m.efficiency < bars.get(case, 0) or ratio > DRAM_BAR
        missed += m.conv_efficiency < CONV_BARS.get(case, 0)
        network, machine = case.split(":")
        slow = [measure(case, slower, args.batch, speed) for speed in SLOWER]
        table.add_row(
            network,
            machine,
            str(len(m.compiled.partition.host)),
            str(m.cycles),
            f"{m.efficiency:.2f} %",
            f"{bars[case]:.1f} %" if case in bars else "",
            f"{m.conv_efficiency:.2f} %",
            *(f"{other.efficiency:.2f} %" for other in slow),
            f"{m.efficiency_with(LATER):.2f} %",
            f"{m.efficiency_with(WIDE):.2f} %",
            f"{slow[-1].efficiency_with(NARROW):.2f} %",
            f"{m.dram_bytes / 1e6:.1f}",
            f"{m.bound_bytes / 1e6:.1f}",
            f"{ratio:.2f}",
        )
        if args.groups:
            out.print(_groups(case, m))
    out.print(table)
    if all(case in efficiencies for case in NINE):
        average = sum(efficiencies[case] for case in NINE) / len(NINE)
        missed += average < NINE_BAR
        out.print(
            f"average of the first nine: {average:.2f} % "
            f"(bar {NINE_BAR} %, published machine {PUBLISHED_AVERAGE} %)"
        )
    return int(missed > 0)


def measure(
    case: str,
    memory: MemoryOptions | None = None,
    batch: int = 1,
    bytes_per_cycle: float | None = None,
) -> Measured:
    """Compile NETWORK[@IMAGE]:MACHINE for so many images together, and time it. bytes_per_cycle: of
    the board that it is compiled for.
    """
    network, machine = case.split(":")
    name, _, image = network.partition("@")
    hw = opu_fuse.load_hw(machine)
    if bytes_per_cycle is not None:
        hw = replace(hw, dram=replace(hw.dram, bytes_per_cycle=bytes_per_cycle))
    model = zoo.build(name, image=int(image) if image else None)
    compiled = compile_model(model, hw, Options(batch=batch))
    run = run_cycle(compiled.bundle, hw, memory)
    macs, cycles = sum(g.macs for g in compiled.bundle.groups), run.counters["cycles"]
    counters = run.counters
    return Measured(
        compiled=compiled,
        hw=hw,
        run=run,
        macs=macs,
        cycles=cycles,
        efficiency=100 * macs / (hw.macs * cycles),
        dram_bytes=(counters["dram_bytes_read"] + counters["dram_bytes_written"]) // batch,
        bound_bytes=bound_bytes(compiled.dfg, _members(compiled)),
    )


def _members(compiled: Compilation) -> list[list[int]]:
    return [[m.node for m in group.matches] for group in compiled.partition.groups]


def _groups(case: str, m: Measured) -> Table:
    """What the engines did for each group, and the one that was busy longest."""
    hw = m.hw
    busy: Counter[tuple[int, str]] = Counter()
    for retired in m.run.trace:
        busy[retired.group, retired.engine] += retired.end - retired.start
    table = Table(title=case, title_justify="left")
    table.add_column("group")
    for name in ("cycles", "ideal", "compute", "post", "DRAM"):
        table.add_column(name, justify="right")
    table.add_column("bound by")
    for group, counters in zip(m.compiled.bundle.groups, m.run.groups, strict=True):
        ideal = group.macs / hw.macs
        moved = counters.dram_bytes_read + counters.dram_bytes_written
        times = {
            "array": busy[group.index, "compute"],
            "post": busy[group.index, "post"],
            "DRAM": round(moved / hw.dram.bytes_per_cycle),
        }
        table.add_row(
            group.name,
            str(counters.cycles),
            f"{ideal:.0f}",
            *map(str, times.values()),
            max(times, key=lambda name: times[name]),
        )
    return table


def _described(args: argparse.Namespace) -> str:
    latency = "its own" if args.latency is None else args.latency
    speed = "its own" if args.bytes_per_cycle is None else args.bytes_per_cycle
    return f"batch {args.batch}, memory latency {latency}, bytes per cycle {speed}"


if __name__ == "__main__":
    sys.exit(main())
