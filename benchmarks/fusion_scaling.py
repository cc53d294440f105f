"""Does fusing scale? From a data-flow graph in memory to a verified partition with reasons.

    python benchmarks/fusion_scaling.py [--sizes 1000 10000 100000] [--strategies matched dominator]
    [--graphs chain residual fan-out concat] [--hw opu-classic] [--repeat 3] [--no-tvm]

Prints CPU seconds (the best of some runs), microseconds per operator, and the ratio to a tenth of
the operators (10 is linear); then TVM's own FuseOps on the same graphs when `apache-tvm` is
installed (`pip install 'opu-fuse[tvm]'`); `failed` where it crashes. Exits with 1 when a partition
is illegal.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable

import tvm_fuseops
from rich.console import Console
from rich.table import Table
from scaling_graphs import GRAPHS, onnx_model

import opu_fuse
from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.registry import STRATEGIES, partition

out = Console(width=120, highlight=False)


def main() -> int:
    """0 when every partition is legal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--strategies", nargs="+", choices=STRATEGIES, default=["matched", "dominator"]
    )
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--hw", default="opu-classic")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-tvm", action="store_true")
    args = parser.parse_args()

    hw = opu_fuse.load_hw(args.hw)
    tvm = None if args.no_tvm else tvm_fuseops.version()
    why_not = "left out" if args.no_tvm else tvm_fuseops.INSTALL
    out.print(f"machine {hw.name}; TVM: {tvm or why_not}", markup=False)
    legal = True
    for graph in args.graphs:
        rows: dict[int, dict[str, float | None]] = {}
        groups: dict[int, dict[str, int]] = {}
        for size in args.sizes:
            ops = GRAPHS[graph](size)
            dfg = build_dfg(onnx_model(ops))
            rows[size], groups[size] = {}, {}
            for strategy in args.strategies:
                seconds, result = timed(args.repeat, lambda s=strategy, d=dfg: partition(d, hw, s))
                rows[size][strategy], groups[size][strategy] = seconds, len(result.groups)
                legal = legal and result.legal
            if tvm is not None:
                rows[size]["TVM"] = tvm_fuseops.measured(graph, size, args.repeat)
        out.print(table(graph, rows, groups))
    return 0 if legal else 1


def timed(repeat: int, run: Callable[[], Partition]) -> tuple[float, Partition]:
    """Smallest CPU time of some runs, each starting with a clean heap, and the last result."""
    times: list[float] = []
    while True:
        gc.collect()
        begin = time.process_time()
        result = run()
        times.append(time.process_time() - begin)
        if len(times) == repeat:
            return min(times), result


def table(
    graph: str, rows: dict[int, dict[str, float | None]], groups: dict[int, dict[str, int]]
) -> Table:
    """One graph: a line per size and contestant."""
    result = Table(title=graph, title_justify="left")
    for name in ("operators", "who", "groups", "seconds", "µs/operator", "×10 operators", "of TVM"):
        result.add_column(name, justify="left" if name == "who" else "right")
    for size, times in rows.items():
        for who, seconds in times.items():
            cells = ["failed", "", "", ""]
            if seconds is not None:
                before = rows.get(size // 10, {}).get(who)
                tvm = times.get("TVM") if who != "TVM" else None
                cells = [f"{seconds:.3f}", f"{seconds / size * 1e6:.1f}"]
                cells += [
                    f"{seconds / other:{form}}" if other else ""
                    for other, form in ((before, ".1f"), (tvm, ".2f"))
                ]
            result.add_row(f"{size:,}", who, str(groups[size].get(who, "")), *cells)
    return result


if __name__ == "__main__":
    sys.exit(main())
