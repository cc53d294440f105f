"""How long compiling takes, from quantised ONNX to a program file, and how it grows.

    python benchmarks/compile_time.py [NETWORK[@IMAGE]:MACHINE …] [--no-growth] [--repeat 3]
    [--tflite NETWORK=FILE.tflite …]

Networks come from the zoo; NETWORK can also be blocksN: N residual blocks of 64 channels. Each is
quantised once (column `quantise`, this process) and then compiled by the command line in a process
of its own: `wall` and `CPU` are of that whole process, the best of the repeats. The stages are CPU
milliseconds of one more process that runs the same steps. Compiling is linear when the last two
columns are flat over the rows of growing networks. Then `vela` on the TFLite models named, when it
is installed (`pip install ethos-u-vela`). Exits with 1 when a network takes longer than its bar.
"""

import argparse
import compileall
import itertools
import json
import logging
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BARS = {"resnet50:opu-1024": 3.0, "mobilenet_v2:opu-light": 1.5, "vgg16:opu-1024": 8.0}
"""Seconds of wall time on two cores with nothing else to do."""
GROWTH = tuple(f"blocks{n}@56:opu-1024" for n in (4, 16, 64)) + tuple(
    f"blocks4@{n}:opu-1024" for n in (112, 224)
)
STAGES = {
    "start": "start",
    "quantise": "load",
    "build the data-flow graph": "graph",
    "fuse and tile": "fuse",
    "schedule": "schedule",
    "generate the program": "generate",
    "write": "write",
}
"""Stages as the compiler calls them, and their columns. A quantised model is only loaded."""
COMPILE = (sys.executable, "-m", "opu_fuse", "compile")
VELA = ("vela", "--accelerator-config", "ethos-u85-1024")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One network on one machine. Seconds; stages: CPU seconds by column."""

    quantise: float
    wall: float
    cpu: float
    stages: dict[str, float]
    layers: int
    tiles: int


def main() -> int:
    """0 when every network is below its bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK[@IMAGE]:MACHINE")
    parser.add_argument("--no-growth", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tflite", nargs="*", default=[], metavar="NETWORK=FILE")
    args = parser.parse_args()
    if args.networks[:1] == ["stages"]:
        print(json.dumps(stages(*args.networks[1:])))  # for the process that asked
        return 0

    from rich.console import Console
    from rich.progress import track

    logging.disable(logging.WARNING)  # noise for calibration is as good as images here

    package = Path(__file__).parent.parent / "opu_fuse"
    compileall.compile_dir(package, quiet=1)  # as it is after installing, whatever Python may write

    cases = [*(args.networks or BARS), *([] if args.no_growth else GROWTH)]
    with tempfile.TemporaryDirectory() as folder:
        asked = track(cases, "compile", console=Console(stderr=True), transient=True)
        rows = {case: measure(case, Path(folder), args.repeat) for case in asked}
    out = Console(width=160, highlight=False)
    out.print(table(rows))
    models = dict(pair.split("=", 1) for pair in args.tflite)
    for line in vela_lines(models):
        out.print(line, markup=False)
    slow = [case for case, row in rows.items() if row.wall > BARS.get(case, row.wall)]
    for case in slow:
        out.print(f"{case}: {rows[case].wall:.2f} s, its bar is {BARS[case]} s", markup=False)
    return int(bool(slow))


def measure(case: str, folder: Path, repeat: int) -> Measured:
    """Quantise a network here, compile it in processes of their own."""
    import onnx

    from opu_fuse.frontend.prepare import prepare

    network, machine = case.split(":")
    model, program = folder / "model.onnx", folder / "model.opu"
    floating = build(network)
    begin = time.process_time()
    qdq = prepare(floating).qdq
    assert qdq is not None
    onnx.save(qdq, model)
    quantise = time.process_time() - begin
    compile_ = (*COMPILE, str(model), "--hw", machine, "-o", str(program))
    walls, cpus = zip(*(run(compile_) for _ in range(repeat)), strict=True)
    command = (sys.executable, __file__, "stages", str(model), machine, str(program))
    figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return Measured(quantise=quantise, wall=min(walls), cpu=min(cpus), **figures)


def build(network: str) -> Any:
    """A float model by its name, NETWORK[@IMAGE]."""
    from opu_fuse import zoo
    from opu_fuse.zoo.builder import Net

    name, _, image = network.partition("@")
    if not name.startswith("blocks"):
        return zoo.build(name, image=int(image) if image else None)
    net = Net(name, seed=0)
    x = net.input("input", (1, 3, int(image), int(image)))
    x = net.conv(x, "conv", out=64, kernel=3, pads=1)
    for i in range(int(name.removeprefix("blocks"))):
        y = net.relu(net.conv(x, f"{i}.conv1", out=64, kernel=3, pads=1), f"{i}.relu1")
        y = net.conv(y, f"{i}.conv2", out=64, kernel=3, pads=1)
        x = net.relu(net.add(y, x, f"{i}.add"), f"{i}.relu")
    return net.finish(x)


def run(command: tuple[str, ...]) -> tuple[float, float]:
    """(wall, CPU) seconds of a process."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def stages(model: str, machine: str, output: str) -> dict[str, Any]:
    """CPU seconds of every stage of a compilation, and the size of what came out."""
    marks: list[tuple[str, float]] = [("start", 0.0)]

    def begin(stage: str) -> None:
        marks.append((stage, time.process_time()))

    from opu_fuse.process.startup import start_quickly

    start_quickly()
    from opu_fuse import load_hw
    from opu_fuse.bundle.program import MachineSegment
    from opu_fuse.pipeline import Program, compile_model

    hw = load_hw(machine)
    done = compile_model(model, hw, progress=begin)
    begin("write")
    Program(bundle=done.bundle, hw=hw).save(output)
    begin("end")
    pairs = itertools.pairwise(marks)
    segments = (s for s in done.bundle.segments if isinstance(s, MachineSegment))
    return {
        "stages": {STAGES[name]: end - start for (name, start), (_, end) in pairs},
        "layers": len(done.bundle.groups),
        "tiles": sum(len(s.tiles) for s in segments),
    }


def table(rows: dict[str, Measured]) -> Any:
    """One row a network."""
    from rich.table import Table

    result = Table(title="compile time: stages in CPU ms, the rest in seconds")
    result.add_column("network", no_wrap=True)
    for name in ("groups", "tiles", "quantise", *STAGES.values(), "CPU", "wall", "bar"):
        result.add_column(name, justify="right")
    result.add_column("ms/group", justify="right")
    result.add_column("ms/100 tiles", justify="right")
    for case, row in rows.items():
        work = 1000 * (sum(row.stages.values()) - row.stages["start"])
        result.add_row(
            case,
            *(str(row.layers), str(row.tiles), f"{row.quantise:.2f}"),
            *(f"{1000 * row.stages[name]:.0f}" for name in STAGES.values()),
            *(f"{row.cpu:.2f}", f"{row.wall:.2f}", str(BARS.get(case, "–"))),
            *(f"{work / row.layers:.1f}", f"{100 * work / row.tiles:.1f}"),
        )
    return result


def vela_lines(models: dict[str, str]) -> list[str]:
    """What Vela takes for the same networks, or why that is not said."""
    if not models:
        return ["Vela: no TFLite models named (--tflite)"]
    if shutil.which(VELA[0]) is None:
        return ["Vela: not installed (pip install ethos-u-vela)"]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for network, file in models.items():
            wall, cpu = run((*VELA, "--output-dir", folder, file))
            lines.append(f"Vela U85-1024, {network}: CPU {cpu:.2f} s, wall {wall:.2f} s")
    return lines


if __name__ == "__main__":
    sys.exit(main())
