"""A whole network on the RTL, bit for bit against the functional engine and cycle for cycle against
the cycle engine.

    python benchmarks/rtl_network.py resnet18 [--hw opu-1024] [--image 224] [--latency 40]
    [--bytes-per-cycle 64] [--define OPU_EXACT_WIDTHS …]

Prints cycles, MAC efficiency (MACs of Conv and Gemm ÷ (MAC units × cycles from start to done),
batch 1), simulated cycles per second, and per group what it took. Exits with 1 when a single
value or counter differs. The RTL that Xilinx devices get has the define OPU_EXACT_WIDTHS, that of
Lattice's OPU_SHORT_SLICES, too.
"""

import argparse
import sys
import time

import numpy as np
from rich.console import Console

import opu_fuse
from opu_fuse import zoo
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.report.tables import groups_table
from opu_fuse.sim.compare.runs import compare
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.runner import RtlOptions

out = Console(width=150, highlight=False)


def main() -> int:
    """0 when the RTL has the functional engine's values and the cycle engine's counters."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=zoo.names())
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--image", type=int)
    parser.add_argument("--latency", type=int)
    parser.add_argument("--bytes-per-cycle", type=float)
    parser.add_argument("--define", action="append", default=[], help="of the RTL")
    args = parser.parse_args()

    hw = opu_fuse.load_hw(args.hw)
    bundle = compile_model(
        zoo.build(args.network, image=args.image), hw, Options(reuse_memory=False)
    ).bundle
    program = Program(bundle=bundle, hw=hw)
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in bundle.inputs}
    functional = program.run(inputs, capture=True)
    options = RtlOptions(
        latency=args.latency, bytes_per_cycle=args.bytes_per_cycle, defines=tuple(args.define)
    )
    small = opu_fuse.compile(zoo.build("tiny_residual"), hw)
    small.run(engine="rtl", rtl=options)  # builds the simulator when it is not in the cache
    begin = time.perf_counter()
    rtl = program.run(inputs, engine="rtl", rtl=options, capture=True)
    seconds = time.perf_counter() - begin
    checked = compare(bundle, functional, rtl)
    timed = program.run(
        engine="cycle",
        memory=MemoryOptions(latency=args.latency, bytes_per_cycle=args.bytes_per_cycle),
    )
    others = {n: v for n, v in rtl.counters.items() if timed.counters.get(n) != v}

    cycles = rtl.counters["cycles"]
    macs = sum(g.macs for g in bundle.groups)
    print(*groups_table(bundle, rtl).lines(out.width), sep="\n")
    out.print(f"{args.network} on {hw.name}: {cycles} cycles, {macs} MACs")
    out.print(f"MAC efficiency {macs / (hw.macs * cycles):.2%}")
    out.print(
        f"simulated cycles per second {cycles / seconds:.0f} ({seconds:.1f} s, start and memory "
        "image included)"
    )
    for name in ("compute", "load", "post", "store"):
        busy = rtl.counters.get(f"busy_{name}", 0)
        out.print(f"{name:8} busy {busy / cycles:6.1%}")
    out.print(
        f"against the {checked.reference}: {checked.mismatches} of {checked.elements} values "
        "differ in "
        f"{checked.tensors} tensors; not visible on RTL: {len(checked.uncompared)}"
    )
    if checked.first is not None:
        out.print(f"first difference: {checked.first}")
    out.print(f"cycle engine: {timed.counters['cycles']} cycles")
    for name, value in others.items():
        out.print(f"{name}: {value} on the RTL, {timed.counters.get(name)} in the cycle engine")
    return int(not checked.passed or bool(others) or timed.groups != rtl.groups)


if __name__ == "__main__":
    sys.exit(main())
