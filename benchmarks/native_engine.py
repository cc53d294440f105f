"""Speed of the native engine against the Python engine and ONNX Runtime.

    python benchmarks/native_engine.py [NETWORK ...] [--hw opu-1024] [--samples 8]

A row per network, of the whole zoo unless some are named. First processor seconds an image, on one
processor: the functional engine in Python, the native one, and ONNX Runtime on the quantised model
(int8 kernels). Then seconds an image by the clock, of several images on all processors: they say
nothing while others use the machine. Each is the shortest of three runs; programs are compiled, and
libraries loaded, before.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import opu_fuse
from opu_fuse import zoo
from opu_fuse.sim.native.library import library
from opu_fuse.sim.ports import noise

RUNS = 3

out = Console(width=120, highlight=False)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=zoo.names())
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--samples", type=int, default=8, help="images that run in one call")
    args = parser.parse_args()
    library()  # compiled where it is not in the cache
    processors = sorted(os.sched_getaffinity(0))
    alone = _on(processors[:1], args.networks, args.hw, args.samples)
    together = _on(processors, args.networks, args.hw, args.samples)
    table = Table(
        title=f"an image on {args.hw}, load {os.getloadavg()[0]:.1f}", title_justify="left"
    )
    table.add_column("network")
    for name in ("Python", "native", "ONNX Runtime", f"native, {len(processors)} threads"):
        table.add_column(name, justify="right")
    table.add_column("Python / native", justify="right")
    table.add_column("native / ONNX Runtime", justify="right")
    for network, one, many in zip(args.networks, alone, together, strict=True):
        table.add_row(
            network,
            *(f"{s:.4f}" for s in (one.python, one.native, one.reference, many.clock)),
            f"{one.python / one.native:.0f}",
            f"{one.native / one.reference:.1f}",
        )
    out.print(table)
    return 0


class Seconds(NamedTuple):
    """Of one image. Processor seconds: the Python engine, the native one, ONNX Runtime. By the
    clock: the native engine.
    """

    python: float
    native: float
    reference: float
    clock: float


def _on(processors: Sequence[int], networks: Sequence[str], hw: str, samples: int) -> list[Seconds]:
    """Measured by a process of its own: ONNX Runtime, which runs host segments, takes as many
    threads as there are processors when a session is made, and keeps them busy.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, os.sched_setaffinity, (0, processors)) as pool:
        return list(pool.map(seconds, networks, repeat(hw), repeat(samples)))


def seconds(network: str, hw: str, samples: int) -> Seconds:
    """Of a network of the zoo on the machine `hw`, `samples` images in one call."""
    program = opu_fuse.compile(zoo.build(network), opu_fuse.load_hw(hw))
    one = noise(program.bundle)
    many = {name: np.concatenate([array] * samples) for name, array in one.items()}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(program.bundle.qdq, options, providers=["CPUExecutionProvider"])
    return Seconds(
        _shortest(lambda: program.run(one), time.process_time),
        _shortest(lambda: program.run(many, engine="native"), time.process_time) / samples,
        _shortest(lambda: session.run(None, one), time.process_time),
        _shortest(lambda: program.run(many, engine="native"), time.perf_counter) / samples,
    )


def _shortest(run: Callable[[], object], clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(RUNS):
        begin = clock()
        run()
        taken.append(clock() - begin)
    return min(taken)


if __name__ == "__main__":
    raise SystemExit(main())
