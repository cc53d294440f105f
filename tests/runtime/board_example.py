"""The example of examples/board/: a payload of digits, and what each processor prints of it."""

from pathlib import Path

import numpy as np

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from rtl_sim.litex.image import payload

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
IMAGES = 4


def digits_payload(folder: Path) -> bytes:
    """Program file and images."""
    calibration = DIGITS / "calibration.npz"
    program = compile_program(
        DIGITS / "digits.onnx", load_hw("opu-tiny"), calibration=calibration, host="c"
    )
    program.save(folder / "digits.opu")
    with np.load(DIGITS / "heldout.npz") as heldout:
        images = {"image": heldout["images"][:IMAGES]}
    return bytes(payload(folder / "digits.opu", program.bundle, images))


def printed_classes() -> str:
    """By the labels of the images."""
    with np.load(DIGITS / "heldout.npz") as heldout:
        labels = heldout["labels"][:IMAGES]
    lines = [f"opu: digits, 1 segments, {IMAGES} images"]
    lines += [f"opu: image {n}: class {label}" for n, label in enumerate(labels)]
    return "".join(f"{line}\n" for line in lines)
