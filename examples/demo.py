"""The whole flow: a trained CNN from ONNX to RTL, then ResNet-18 on a 1024-MAC machine.

Run by `make demo`. Exits with 1 when a promise is broken: float accuracy of at least 97 %, int8
at most half a point below, RTL equal to the functional engine bit for bit.
"""

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from rich.console import Console

import opu_fuse
from opu_fuse import zoo
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.report.tables import groups_table

HERE = Path(__file__).resolve().parent / "digits"
RTL_IMAGES = 24
out = Console(width=150, highlight=False)


def main() -> int:
    """Both parts; 0 when every promise holds."""
    return digits() | resnet()


def digits() -> int:
    """Digits CNN on opu-tiny: float, int8 (functional, all held-out images), RTL (some of them)."""
    out.rule("digits CNN, trained on scikit-learn's digits, on opu-tiny (32 MAC)")
    held_out = np.load(HERE / "heldout.npz")
    images, labels = held_out["images"], held_out["labels"]
    hw = opu_fuse.load_hw("opu-tiny")
    program = opu_fuse.compile(HERE / "digits.onnx", hw, calibration=HERE / "calibration.npz")
    print(*groups_table(program.bundle).lines(out.width), sep="\n")
    name = program.bundle.inputs[0].name
    result_name = program.bundle.outputs[0].name

    float_scores = _float_scores(images)
    begin = time.perf_counter()
    functional = program.run({name: images}).outputs[result_name]
    functional_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    rtl = program.run({name: images[:RTL_IMAGES]}, engine="rtl")
    rtl_seconds = time.perf_counter() - begin

    accuracy = {
        "float": _accuracy(float_scores, labels),
        "int8": _accuracy(functional, labels),
        "rtl": _accuracy(rtl.outputs[result_name], labels[:RTL_IMAGES]),
    }
    equal = np.array_equal(rtl.outputs[result_name], functional[:RTL_IMAGES])
    cycles = rtl.counters["cycles"] // RTL_IMAGES
    out.print(
        f"accuracy float         {accuracy['float']:6.2f} %  ({len(labels)} held-out images, "
        "ONNX Runtime)"
    )
    out.print(
        f"accuracy int8          {accuracy['int8']:6.2f} %  (functional engine, "
        f"{functional_seconds:.1f} s)"
    )
    out.print(
        f"accuracy RTL           {accuracy['rtl']:6.2f} %  (first {RTL_IMAGES} images, {cycles:,} "
        "cycles each, "
        f"{rtl_seconds:.1f} s with the build of the simulator)"
    )
    out.print(f"RTL = functional       {'yes, bit for bit' if equal else 'NO'}")
    broken = [
        text
        for text, holds in (
            ("float accuracy below 97 %", accuracy["float"] >= 97.0),
            ("int8 more than 0.5 points below float", accuracy["int8"] >= accuracy["float"] - 0.5),
            ("RTL differs from the functional engine", equal),
        )
        if not holds
    ]
    for text in broken:
        out.print(f"[red]broken promise: {text}")
    return int(bool(broken))


def resnet() -> int:
    """ResNet-18 at 224×224 for opu-1024 on the functional engine, against ONNX Runtime."""
    from opu_fuse.sim.compare.runs import check

    out.rule("ResNet-18, 224×224, seeded weights, on opu-1024")
    hw = opu_fuse.load_hw("opu-1024")
    begin = time.perf_counter()
    done = compile_model(zoo.build("resnet18"), hw, Options())
    compiled = time.perf_counter()
    program = Program(bundle=done.bundle, hw=hw)
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in done.bundle.inputs}
    result = program.run(inputs, capture=True)
    ran = time.perf_counter()
    checked = check(done.bundle, inputs, result)
    print(*groups_table(done.bundle, result).lines(out.width), sep="\n")
    out.print(f"compiled in {compiled - begin:.1f} s, functional engine {ran - compiled:.1f} s")
    out.print(
        f"against {checked.reference}: {checked.mismatches:,} of {checked.elements:,} int8 values "
        "differ "
        f"in {checked.tensors} tensors"
    )
    return int(not checked.passed)


def _float_scores(images: np.ndarray) -> np.ndarray:
    """Class scores of the float model, image by image."""
    session = ort.InferenceSession(HERE / "digits.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.stack([session.run(None, {name: image[None]})[0] for image in images])


def _accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return 100.0 * float(np.mean(scores.reshape(len(labels), -1).argmax(axis=1) == labels))


if __name__ == "__main__":
    sys.exit(main())
