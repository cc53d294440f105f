"""Networks through ONNX Runtime with the provider: bits, time to load, time of a run.

    pip install ./packages/onnxruntime-ep-opu
    python benchmarks/onnxruntime_ep.py MODEL.onnx ... --hw opu-1024 [--runs 20]
    python benchmarks/onnxruntime_ep.py --real [--packages FOLDER]

Inputs are seeded noise, scales are calibrated on noise. `--real` takes the networks of
`real_models.py` that are found. `native` is the native engine alone, on the program's machine
segments, without inputs and outputs; the provider's time includes the host operators. Best of all
runs, on one processor. Exits with 1 where an output differs from that of `opu-fuse run`.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_ep_opu as ep  # type: ignore[import-not-found]  # packages/
from real_models import MACHINES, NETWORKS, network_file

from opu_fuse.bundle.memory_image import initial_image, segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model, context_of
from opu_fuse.sim.engine import run
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.ports import noise


def main() -> int:
    """0 when all outputs are those of `opu-fuse run`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--hw", default=MACHINES[0])
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ort.set_default_logger_severity(3)
    ort.register_execution_provider_library(ep.get_ep_name(), ep.get_library_path())
    networks: dict[Path, tuple[int, ...] | None] = dict.fromkeys(args.models)
    if args.real:
        files = {network_file(n.file, args.packages): n.shape for n in NETWORKS.values()}
        networks |= {f: shape for f, shape in files.items() if f.suffix == ".onnx" and f.exists()}
    hw = load_hw(args.hw)
    print("| network | segments | MB | load ms | native ms | provider ms | bits |")
    print("|---|---|---|---|---|---|---|")
    wrong = [p for p, shape in networks.items() if not _measure(p, hw, shape, args.runs)]
    return int(bool(wrong))


def _measure(path: Path, hw: HwSpec, shape: tuple[int, ...] | None, runs: int) -> bool:
    entry = onnx.load(path, load_external_data=False).graph.input[0].name
    done = compile_model(path, hw, Options(shapes={entry: shape} if shape else {}))
    bundle = done.bundle
    x = noise(bundle, seed=1)
    expected = run(bundle, hw, x, engine="native").outputs
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model_ctx.onnx"
        context_of(done, hw).save(model)
        size = model.stat().st_size / 1e6
        load, session = min((_timed(lambda: _session(model)) for _ in range(5)), key=lambda t: t[0])
    got = session.run(None, x)
    same = all(np.array_equal(a, b) for a, b in zip(got, expected.values(), strict=True))
    native = _native(bundle, hw)
    pairs = [(_timed(native)[0], _timed(lambda: session.run(None, x))[0]) for _ in range(runs)]
    alone, ours = (min(times) for times in zip(*pairs, strict=True))
    figures = f"{size:.1f} | {1e3 * load:.0f} | {1e3 * alone:.1f} | {1e3 * ours:.1f}"
    verdict = "same" if same else "DIFFER"
    print(f"| {path.stem} | {len(bundle.segments)} | {figures} | {verdict} |", flush=True)
    return same


def _session(model: Path) -> Any:
    options = ort.SessionOptions()
    devices = [d for d in ort.get_ep_devices() if d.ep_name == ep.get_ep_name()]
    options.add_provider_for_devices(devices, {})
    return ort.InferenceSession(str(model), options)


def _native(bundle: Bundle, hw: HwSpec) -> Callable[[], None]:
    """Runs all machine segments."""
    machine = NativeMachine(hw, initial_image(bundle))
    programs = [segment_words(bundle, s) for s in bundle.segments if isinstance(s, MachineSegment)]

    def once() -> None:
        for words in programs:
            machine.run(words)

    return once


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    sys.exit(main())
