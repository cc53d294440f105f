"""Speed of the native engine against the Python engine and ONNX Runtime.

    python benchmarks/native_engine.py [NETWORK ...] [--hw opu-1024] [--samples 8]

A row per network: seconds an image of the functional engine in Python, of the native engine on one
processor and on all, and of ONNX Runtime on the quantised model (int8 kernels, all processors).
Times are the shortest of three runs; programs are compiled, and libraries loaded, before.
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
    processors = os.sched_getaffinity(0)
    table = Table(
        title=f"seconds an image on {args.hw}, load {os.getloadavg()[0]:.1f}", title_justify="left"
    )
    for name in ("network", "Python", "native, 1", f"native, {len(processors)}", "ONNX Runtime"):
        table.add_column(name, justify="left" if name == "network" else "right")
    table.add_column("Python / native", justify="right")
    table.add_column("native / ONNX Runtime", justify="right")
    for network in args.networks:
        program = opu_fuse.compile(zoo.build(network), opu_fuse.load_hw(args.hw))
        python, one, several, reference = seconds(program, args.samples)
        table.add_row(
            network,
            *(f"{s:.3f}" for s in (python, one, several, reference)),
            f"{python / several:.0f}",
            f"{several / reference:.1f}",
        )
    out.print(table)
    return 0


def seconds(program: Program, samples: int) -> tuple[float, float, float, float]:
    """An image on the Python engine, on the native one (one processor, all), in ONNX Runtime."""
    one = noise(program.bundle)
    many = {name: np.concatenate([array] * samples) for name, array in one.items()}
    processors = os.sched_getaffinity(0)
    python = _shortest(lambda: program.run(one))
    several = _shortest(lambda: program.run(many, engine="native")) / samples
    try:
        os.sched_setaffinity(0, {min(processors)})
        alone = _shortest(lambda: program.run(many, engine="native")) / samples
    finally:
        os.sched_setaffinity(0, processors)
    options = ort.SessionOptions()
    options.intra_op_num_threads = len(processors)
    session = ort.InferenceSession(program.bundle.qdq, options, providers=["CPUExecutionProvider"])
    return python, alone, several, _shortest(lambda: session.run(None, one))


def _shortest(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken)


if __name__ == "__main__":
    raise SystemExit(main())
