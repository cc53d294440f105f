"""How much memory compiling needs, from float ONNX to a program file.

    python benchmarks/compile_memory.py [NETWORK|FILE.onnx …] [--hw opu-1024] [--repeat 3]
    [--base CHECKOUT]

Networks come from the zoo. Each is compiled by the command line with its defaults. `peak` is the
kernel's figure (`ru_maxrss`) for the process, or for a child of it where that is larger; the bound
is three times the file and 300 MiB. `wall` and `CPU` seconds are the least of the repeats. With
--base, another checkout of this project compiles the same models, alternately, and the last columns
are ours divided by its. Exits with 1 when a model takes more than its bound.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Nothing large is imported here: what this process holds counts in those that it starts.

HERE = Path(__file__).resolve().parent.parent
NETWORKS = ("tiny_residual", "mobilenet_v2", "googlenet", "resnet18", "resnet50", "yolov3", "vgg16")
MIB = 1 << 20
TIMES, MORE_MIB = 3, 300
"""The bound: so often the file, and so much more."""
COLUMNS = ("model", "file MiB", "peak MiB", "bound", "wall s", "CPU s")
RATIOS = ("/ peak", "/ wall", "/ CPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one compilation, or of the best of several. Seconds and MiB."""

    peak: float
    wall: float
    cpu: float


def main() -> int:
    """0 when every model is below its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="NETWORK|FILE.onnx", default=NETWORKS)
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--base", type=Path, metavar="CHECKOUT")
    args = parser.parse_args()
    trees = [HERE] if args.base is None else [HERE, args.base.resolve()]
    above = []
    with tempfile.TemporaryDirectory() as folder:
        print(row(*COLUMNS, *(RATIOS if args.base else ())))
        for name, model in files(args.models, Path(folder)):
            file_mib = model.stat().st_size / MIB
            costs = compare(trees, model, args.hw, args.repeat)
            bound = TIMES * file_mib + MORE_MIB
            print(line(name, file_mib, bound, costs), flush=True)
            if costs[0].peak > bound:
                above.append(name)
    if above:
        print("above their bound:", ", ".join(above))
    return int(bool(above))


def row(*cells: str) -> str:
    """The name to the left, figures to the right."""
    return f"{cells[0]:<16}" + "".join(f"{cell:>10}" for cell in cells[1:])


def line(name: str, file_mib: float, bound: float, costs: Sequence[Cost]) -> str:
    """One model."""
    own = costs[0]
    figures = (f"{file_mib:.1f}", f"{own.peak:.0f}", f"{bound:.0f}")
    ratios = (
        f"{value:.2f}"
        for base in costs[1:]
        for value in (own.peak / base.peak, own.wall / base.wall, own.cpu / base.cpu)
    )
    return row(name, *figures, f"{own.wall:.2f}", f"{own.cpu:.2f}", *ratios)


def files(models: Sequence[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of every model; those of the zoo are written to a folder."""
    for name in models:
        if name.endswith(".onnx"):
            yield Path(name).stem, Path(name).resolve()
            continue
        file = folder / f"{name}.onnx"
        run(HERE, ["zoo", "export", name, "-o", str(file)])
        yield name, file
        file.unlink()


def compare(trees: Sequence[Path], model: Path, hw: str, repeat: int) -> list[Cost]:
    """The best of the repeats for each checkout; they alternate."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["compile", str(model), "--hw", hw, "-o", f"{folder}/out.opu"]
        rounds = [[run(tree, command) for tree in trees] for _ in range(repeat)]
    return [
        Cost(
            peak=min(c.peak for c in costs),
            wall=min(c.wall for c in costs),
            cpu=min(c.cpu for c in costs),
        )
        for costs in zip(*rounds, strict=True)
    ]


def run(tree: Path, command: Sequence[str]) -> Cost:
    """Run the command line of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "opu_fuse", *command],
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"opu_fuse {' '.join(command)}: exit code {process.returncode}")
    return Cost(peak=usage.ru_maxrss / 1024, wall=wall, cpu=usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    sys.exit(main())
