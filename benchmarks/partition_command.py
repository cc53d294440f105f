"""How long `opu-fuse partition` takes on long chains: the whole process, from file to text.

    python benchmarks/partition_command.py [--sizes 10000 50000 100000] [--hw opu-1024]
    [--form json listing explain] [--own-weights] [--with PACKAGE_FOLDER]

A chain is Conv, Relu, Conv, Add, over and over; --own-weights gives every convolution weights of
its own. Prints wall and CPU seconds (children included), CPU microseconds per operator (flat when
linear), and memory. --with names a folder that holds another version of `opu_fuse`, which then runs
at the same time, so that a busy machine slows both: the last column is the ratio of the CPU times.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FORMS = {"json": ("--json",), "listing": (), "explain": ("--explain",)}
SHAPE = (1, 4, 8, 8)


def main() -> None:
    """One line per size and form."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--form", nargs="+", choices=FORMS, default=["json"])
    parser.add_argument("--own-weights", action="store_true")
    parser.add_argument("--with", dest="other", type=Path)
    args = parser.parse_args()
    print("operators  form     wall s  CPU s  µs/operator   MiB  of the other")
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            path = Path(folder) / f"chain{size}.onnx"
            onnx.save(chain(size, own_weights=args.own_weights), path)
            for form in args.form:
                command = ("partition", str(path), "--hw", args.hw, *FORMS[form])
                here = Path(__file__).resolve().parent.parent
                runs = [start(p, command) for p in (here, args.other) if p is not None]
                (wall, cpu, mib), *others = map(finish, runs)
                ratio = f"{cpu / others[0][1]:.2f}" if others else ""
                line = f"{size:9,}  {form:8} {wall:6.1f} {cpu:6.1f} {cpu / size * 1e6:12.0f}"
                print(f"{line} {mib:5.0f}  {ratio}", flush=True)


def start(package: Path, command: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], float]:
    """A run of the version of opu_fuse in a folder; nobody reads what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    run = subprocess.Popen(
        (sys.executable, "-m", "opu_fuse", *command),
        env=environment,
        cwd=package,
        stdout=subprocess.DEVNULL,
    )
    return run, time.monotonic()


def finish(started: tuple[subprocess.Popen[bytes], float]) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, MiB) of a run."""
    run, began = started
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise SystemExit(f"exit code {run.returncode}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def chain(count: int, *, own_weights: bool) -> onnx.ModelProto:
    """Conv, Relu, Conv, Add with the sum before, over and over."""
    nodes, weights = [], {}
    value = residual = "x"
    for i in range(count):
        kind, name = ("Conv", "Relu", "Conv", "Add")[i % 4], f"v{i}"
        operands = [value]
        if kind == "Conv":
            number = i if own_weights else 0
            operands += [f"w{number}", f"b{number}"]
            weights[operands[1]] = np.ones((SHAPE[1], SHAPE[1], 1, 1), np.float32)
            weights[operands[2]] = np.ones(SHAPE[1], np.float32)
        elif kind == "Add":
            operands, residual = [value, residual], name
        nodes.append(helper.make_node(kind, operands, [name], f"n{i}"))
        value = name
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    main()
