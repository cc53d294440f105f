"""Speed of the three engines on one program, in one run.

    python benchmarks/simulators.py [NETWORK] [--hw opu-1024] [--image 224] [--skip-rtl]

A row per engine: what it gives, seconds, and simulated cycles per second. The engines that have no
time of their own are counted with the cycles of the cycle engine. Every engine has run a small
program before, so that nothing is built or imported while the clock runs.
"""

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import opu_fuse
from opu_fuse import zoo
from opu_fuse.bundle.result import RunResult
from opu_fuse.pipeline import Program
from opu_fuse.sim.engine_names import EngineName
from opu_fuse.sim.ports import noise

GIVES = {
    EngineName.FUNCTIONAL: "bits",
    EngineName.CYCLE: "cycles",
    EngineName.RTL: "bits and cycles",
}
CYCLE_BAR = 5_000_000
"""Cycles per second that the cycle engine reaches at least."""

out = Console(width=120, highlight=False)


def main() -> int:
    """0 when the cycle engine is as fast as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", nargs="?", default="resnet50", choices=zoo.names())
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--image", type=int)
    parser.add_argument("--skip-rtl", action="store_true")
    args = parser.parse_args()
    hw = opu_fuse.load_hw(args.hw)
    program: Program = opu_fuse.compile(zoo.build(args.network, image=args.image), hw)
    small: Program = opu_fuse.compile(zoo.build("tiny_residual"), hw)
    names = [name for name in GIVES if name != EngineName.RTL or not args.skip_rtl]
    runs = {name: _runner(program, name) for name in names}
    for name in names:
        _runner(small, name)()
    seconds, results = {}, {}
    for name, run in runs.items():
        begin = time.perf_counter()
        results[name] = run()
        seconds[name] = time.perf_counter() - begin
    cycles = results[EngineName.CYCLE].counters["cycles"]
    table = Table(title=f"{args.network} on {hw.name}: {cycles} cycles", title_justify="left")
    table.add_column("engine")
    table.add_column("gives")
    for name in ("seconds", "cycles per second"):
        table.add_column(name, justify="right")
    for name in runs:
        own = results[name].counters.get("cycles", cycles)
        speed = f"{own / seconds[name]:_.0f}".replace("_", " ")
        table.add_row(name, GIVES[name], f"{seconds[name]:.2f}", speed)
    out.print(table)
    return int(cycles / seconds[EngineName.CYCLE] < CYCLE_BAR)


def _runner(program: Program, engine: EngineName) -> Callable[[], RunResult]:
    if engine == EngineName.CYCLE:
        return lambda: program.run(engine=engine)
    inputs: dict[str, np.ndarray] = noise(program.bundle)
    return lambda: program.run(inputs, engine=engine)


if __name__ == "__main__":
    sys.exit(main())
