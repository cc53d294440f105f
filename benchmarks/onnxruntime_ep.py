"""Networks through ONNX Runtime with the provider: bits, time to load, time of a run.

    pip install ./packages/onnxruntime-ep-opu
    python benchmarks/onnxruntime_ep.py MODEL.onnx ... --hw opu-1024 [--runs 20]
    python benchmarks/onnxruntime_ep.py --real [--packages FOLDER]

Inputs are seeded noise, scales are calibrated on noise. `--real` takes the networks of
`real_models.py` that are found; those of TFLite as the ONNX models that the compiler makes of them
(extra `tflite`). Columns:

    groups     of all nodes, which are those that `partition` finds
    load       to open the session, and in multiples of what a plain session on the model takes
    native     the native engine alone: machine segments, without packing inputs and outputs
    operators  those of the host, in ONNX Runtime
    provider   a whole run of the session
    more       what the provider adds to native and operators

Best of all runs, in time of the processor, on one of them. Exits with 1 where an output differs
from that of `opu-fuse run`, or the groups from those of `opu-fuse partition`.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_ep_opu as ep  # type: ignore[import-not-found]  # packages/
from real_models import MACHINES, NETWORKS, network_file

import opu_fuse
from opu_fuse.bundle.memory_image import initial_image, segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.segment_programs import segment_programs
from opu_fuse.frontend.importing.tflite import to_onnx
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model, context_of
from opu_fuse.sim.engine import run_on
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.ports import noise
from opu_fuse.sim.runner import SegmentRun


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
        networks |= {f: shape for f, shape in files.items() if f.exists()}
    hw = load_hw(args.hw)
    columns = (
        "network",
        "segments",
        "groups",
        "MB",
        "load",
        "native",
        "operators",
        "provider",
        "more",
        "bits",
    )
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        wrong = [
            path
            for path, shape in networks.items()
            if not _measure(_as_onnx(path, Path(folder)), hw, shape, args.runs)
        ]
    return int(bool(wrong))


def _as_onnx(path: Path, folder: Path) -> Path:
    if path.suffix != ".tflite":
        return path
    target = folder / f"{path.stem}.onnx"
    target.write_bytes(to_onnx(path.read_bytes(), str(path)))
    return target


def _measure(path: Path, hw: HwSpec, shape: tuple[int, ...] | None, runs: int) -> bool:
    entry = onnx.load(path, load_external_data=False).graph.input[0].name
    sizes = {entry: shape} if shape else {}
    done = compile_model(path, hw, Options(shapes=sizes))
    bundle = done.bundle
    found, wanted = _groups(bundle), _groups_of_partition(path, hw, sizes)
    x = noise(bundle, seed=1)
    native = _Native(bundle, hw)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model_ctx.onnx"
        context_of(done, hw).save(model)
        size = model.stat().st_size / 1e6
        load, session = min((_timed(lambda: _session(model)) for _ in range(9)), key=lambda t: t[0])
        plain = min(_timed(lambda: _session(path))[0] for _ in range(9))
        operators = _operators(model, x, runs)
    got = session.run(None, x)
    same = all(np.array_equal(a, b) for a, b in zip(got, native.outputs(x).values(), strict=True))
    alone, ours = np.inf, np.inf
    for _ in range(runs):
        native.outputs(x)
        alone = min(alone, native.seconds)
        session.run(None, x)  # the cache has its memory, as that of the engine between segments
        ours = min(ours, _timed(lambda: session.run(None, x))[0])
    more = ours / (alone + operators) - 1
    figures = (
        f"{size:.1f} | {1e3 * load:.1f} ms, {load / plain:.1f}× | {1e3 * alone:.1f} ms "
        f"| {1e3 * operators:.1f} ms | {1e3 * ours:.1f} ms | {100 * more:+.1f} %"
    )
    verdict = "same" if same else "DIFFER"
    counts = f"{len(bundle.segments)} | {len(found)}{'' if found == wanted else ' DIFFER'}"
    print(f"| {path.stem} | {counts} | {figures} | {verdict} |", flush=True)
    return same and found == wanted


def _groups(bundle: Bundle) -> set[tuple[str, ...]]:
    """Operators of the groups in all nodes."""
    programs = segment_programs(bundle)
    return {tuple(op.name for op in g.ops) for p in programs for g in p.bundle.groups}


def _groups_of_partition(
    path: Path, hw: HwSpec, sizes: Mapping[str, tuple[int, ...]]
) -> set[tuple[str, ...]]:
    """Without splits and concats, which are addresses: no instruction runs them."""
    partition = opu_fuse.partition(path, hw, shapes=sizes)
    groups = partition_to_json(partition.dfg, hw, partition)["groups"]
    kinds = [{op["op"] for op in group["ops"]} for group in groups]
    return {
        tuple(op["name"] for op in group["ops"])
        for group, ops in zip(groups, kinds, strict=True)
        if not ops <= {"split", "concat"}
    }


def _session(model: Path, profile: str = "") -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    devices = [d for d in ort.get_ep_devices() if d.ep_name == ep.get_ep_name()]
    options.add_provider_for_devices(devices, {})
    return ort.InferenceSession(str(model), options)


def _operators(model: Path, x: Mapping[str, np.ndarray], runs: int) -> float:
    """Seconds of the operators on the host in a run, each one's best."""
    session = _session(model, str(model.with_name("profile")))
    for _ in range(runs):
        session.run(None, x)
    best: dict[str, float] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        provider = event.get("args", {}).get("provider", ep.get_ep_name())
        if event["name"].endswith("_kernel_time") and provider != ep.get_ep_name():
            best[event["name"]] = min(event["dur"] / 1e6, best.get(event["name"], np.inf))
    return sum(best.values())


class _Native:
    """The native engine, which counts the seconds of its machine segments."""

    def __init__(self, bundle: Bundle, hw: HwSpec) -> None:
        self.window, self.seconds, self._program = initial_image(bundle), 0.0, bundle
        self._machine = NativeMachine(hw, self.window)

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        """As a `Runner`."""
        del number, sample
        words = segment_words(self._program, segment)
        self.seconds += _timed(lambda: self._machine.run(words))[0]
        return SegmentRun(counters={})

    def close(self) -> None:
        """Nothing was started."""

    def outputs(self, x: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Of a whole run, after which `seconds` are its own."""
        self.seconds = 0.0
        return run_on(self, self._program, x, engine="native").outputs


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor: others may use it as well."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


if __name__ == "__main__":
    sys.exit(main())
