"""Speed of the native engine against the Python engine and ONNX Runtime.

    python benchmarks/native_engine.py [NETWORK ...] [--hw opu-1024] [--samples 8]

A row per network. First processor seconds an image, on one processor: the functional engine in
Python, the native one, and ONNX Runtime on the quantised model (int8 kernels). They do not depend
on what else the machine does. Then seconds an image of several images on all processors. Each is
the shortest of three runs; programs are compiled, and libraries loaded, before.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import opu_fuse
from opu_fuse import zoo
from opu_fuse.pipeline import Program
from opu_fuse.sim.native.library import library
from opu_fuse.sim.ports import noise

NETWORKS = (
    *("resnet18", "resnet50", "vgg16", "googlenet", "squeezenet", "densenet121"),
    *("mobilenet_v2", "shufflenet_v2", "efficientnet_b0", "yolov3_tiny", "unet"),
)
RUNS = 3

out = Console(width=120, highlight=False)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--samples", type=int, default=8, help="images that run in one call")
    args = parser.parse_args()
    library()  # compiled where it is not in the cache
    processors = len(os.sched_getaffinity(0))
    table = Table(
        title=f"an image on {args.hw}, load {os.getloadavg()[0]:.1f}", title_justify="left"
    )
    table.add_column("network")
    for name in ("Python", "native", "ONNX Runtime", f"native, {processors} threads"):
        table.add_column(name, justify="right")
    table.add_column("Python / native", justify="right")
    table.add_column("native / ONNX Runtime", justify="right")
    for network in args.networks:
        program = opu_fuse.compile(zoo.build(network), opu_fuse.load_hw(args.hw))
        python, native, reference, threads = seconds(program, args.samples)
        table.add_row(
            network,
            *(f"{s:.3f}" for s in (python, native, reference, threads)),
            f"{python / native:.0f}",
            f"{native / reference:.1f}",
        )
    out.print(table)
    return 0


def seconds(program: Program, samples: int) -> tuple[float, float, float, float]:
    """Processor seconds of an image: Python engine, native engine, ONNX Runtime; seconds of an
    image on the native engine with a thread for each processor.
    """
    one = noise(program.bundle)
    many = {name: np.concatenate([array] * samples) for name, array in one.items()}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(program.bundle.qdq, options, providers=["CPUExecutionProvider"])
    threads = _shortest(lambda: program.run(many, engine="native"), time.perf_counter) / samples
    processors = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(processors)})
        python = _shortest(lambda: program.run(one), time.process_time)
        native = _shortest(lambda: program.run(many, engine="native"), time.process_time) / samples
        reference = _shortest(lambda: session.run(None, one), time.process_time)
    finally:
        os.sched_setaffinity(0, processors)
    return python, native, reference, threads


def _shortest(run: Callable[[], object], clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(RUNS):
        begin = clock()
        run()
        taken.append(clock() - begin)
    return min(taken)


if __name__ == "__main__":
    raise SystemExit(main())
