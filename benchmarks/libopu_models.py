"""Trained networks through libopu in C against Python, on emulated processors too.

    python benchmarks/libopu_models.py --packages FOLDER [--hw SPEC] [--only NAME ...]
                                       [--processors NAME ...] [--json FILE]

Networks and packages are those of `real_models.py`. Each is compiled with `--host c`, calibrated on
16 parts of pictures. `opu-run` runs another one on the native engine of each processor: this one,
and others in QEMU (Debian: qemu-user, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu). Python's
result is that of the native engine with host segments in ONNX Runtime. Columns: host segments, the
largest difference of any output from Python's as a part of the output's largest value, and whether
other processors have the bits of this one.

Exits with 1 when a processor differs from this one, or outputs without host segments from Python.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from real_models import CALIBRATED, NETWORKS, Sample, samples_of

import opu_fuse
from opu_fuse.bundle.file import save
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.errors import UserError
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.resources import rtl_dir, runtime_dir
from opu_fuse.sim.engine import run

HERE = "x86-64"
EMULATED = {"aarch64": "aarch64-linux-gnu-gcc", "riscv64": "riscv64-linux-gnu-gcc"}
PROCESSORS = (HERE, *EMULATED)


def main() -> int:
    """0 when all outputs are as they should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, help="their folder if not installed")
    parser.add_argument("--hw", default="opu-light", help="the machine")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[*NETWORKS, "digits"])
    parser.add_argument("--processors", nargs="*", choices=PROCESSORS, default=PROCESSORS)
    parser.add_argument("--json", type=Path, help="add what was measured to this file")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    figures = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {p: _command(p, folder) for p in dict.fromkeys((HERE, *args.processors))}
        for network in args.only or ["digits", *NETWORKS]:
            try:
                figures[network] = _measured(network, args.packages, args.hw, commands, folder)
            except (UserError, FileNotFoundError) as error:
                figures[network] = {"refused": str(error)}
            print(f"{network}: {json.dumps(figures[network])}", file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps(figures, indent=1))
    return _report(figures)


def _command(processor: str, folder: Path) -> list[str]:
    """Build `opu-run`; the words that run it."""
    target, runtime = folder / f"opu-run-{processor}", runtime_dir()
    sources = [*runtime.glob("src/*.c"), *runtime.glob("hardware/*.c"), runtime / "tools/opu_run.c"]
    words = [EMULATED.get(processor, "cc"), "-O3", "-static", "-o", target]
    words += [f"-I{runtime / 'include'}", f"-I{rtl_dir() / 'driver'}", *sources]
    subprocess.run([str(word) for word in words], check=True)
    return [str(target)] if processor == HERE else [f"qemu-{processor}", str(target)]


def _measured(
    name: str,
    packages: Path | None,
    machine: str,
    commands: Mapping[str, Sequence[str]],
    folder: Path,
) -> dict[str, Any]:
    model, samples = samples_of(name, packages)
    sizes = {} if name == "digits" else {i: s.shape for i, s in samples[0].items()}
    calibration = {i: np.stack([s[i] for s in samples[:CALIBRATED]]) for i in samples[0]}
    hw = opu_fuse.load_hw(machine)
    options = Options(host="c", calibration=calibration, shapes=sizes)
    bundle = compile_model(model, hw, options).bundle
    save(bundle, folder / "network.opu")
    sample = samples[CALIBRATED]
    expected = run(bundle, hw, sample, engine="native").outputs
    row: dict[str, Any] = {
        "segments": sum(isinstance(s, HostSegment) for s in bundle.segments),
        "outputs": len(expected),
    }
    first: list[np.ndarray] = []
    for processor, command in commands.items():
        begun = time.monotonic()
        got = _outputs(command, bundle, sample, expected, folder)
        first = first or got
        row[processor] = {
            "difference": max(map(_difference, got, expected.values())),
            "same": all(a.tobytes() == b.tobytes() for a, b in zip(got, first, strict=True)),
            "seconds": round(time.monotonic() - begun, 1),
        }
    return row


def _outputs(
    command: Sequence[str],
    bundle: Bundle,
    sample: Sample,
    expected: Mapping[str, np.ndarray],
    folder: Path,
) -> list[np.ndarray]:
    """What `opu-run` computes of one sample, in the order of the outputs."""
    files = []
    for number, port in enumerate(bundle.inputs):
        files.append(folder / f"in{number}")
        sample[port.name].tofile(files[-1])
    made = [folder / f"out{number}" for number in range(len(expected))]
    for path in made:
        path.unlink(missing_ok=True)
    words = [*command, folder / "network.opu", *files, *made]
    subprocess.run([str(word) for word in words], check=True)
    arrays = zip(made, expected.values(), strict=True)
    return [np.fromfile(path, array.dtype).reshape(array.shape) for path, array in arrays]


def _difference(got: np.ndarray, expected: np.ndarray) -> float:
    gap = np.abs(got.astype(np.float64) - expected).max(initial=0.0)
    return float(gap / max(np.abs(expected).max(initial=0.0), np.finfo(np.float32).tiny))


def _report(figures: Mapping[str, Any]) -> int:
    """Print the table; 1 when a bar is missed."""
    failed = 0
    print("| network | host segments | largest difference from Python | other processors |")
    print("|---|---|---|---|")
    for name, row in figures.items():
        if "refused" in row:
            print(f"| {name} | – | refused: {row['refused']} | – |")
            continue
        others = {p: row[p]["same"] for p in EMULATED if p in row}
        difference = row[HERE]["difference"]
        shown = "equal" if difference == 0 else f"{difference:.1e}"
        same = ", ".join(f"{p} {'same bits' if ok else 'DIFFERS'}" for p, ok in others.items())
        print(f"| {name} | {row['segments']} | {shown} | {same or '–'} |")
        failed |= not all(others.values()) or (difference > 0 and not row["segments"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
