"""What the firmware of a LiteX SoC finds in main memory: its own code, and a payload of a program
file and images. `python -m rtl_sim.litex.image PROGRAM.opu -o FILE` writes a payload.

    payload = 64 bytes: "OPUL", bytes of the file, images, 0 (little-endian, 32 bits each)
              the program file, reduced to the members that libopu reads
              the images of each input, aligned to 64 bytes, in the order of the file
"""

import argparse
import io
import math
import struct
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.program import Program
from opu_fuse.resources import rtl_dir, runtime_dir
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs

PAYLOAD_OFFSET = 1 << 17
"""Of the payload in main memory; firmware/main.c has the same number."""
ALIGNMENT, _WINDOW_ALIGNMENT = 64, 4096


def images_of(bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> int:
    """How many images the arrays hold; RunError where they do not agree with the ports."""
    counts: dict[str, int] = {}
    for port in bundle.inputs:
        if port.name not in inputs:
            raise RunError(f"input {port.name}", "is missing", "give --input NAME=FILE.npy")
        array, one = inputs[port.name], math.prod(port.shape)
        counts[port.name] = array.size // one
        if not array.size or array.size % one or str(array.dtype) != port.dtype:
            raise RunError(
                f"input {port.name}",
                f"is {array.dtype} of {array.shape}, the program takes {port.dtype}, {port.shape}",
                "give images of that shape, one after the other",
            )
    if len(set(counts.values())) > 1:
        raise RunError("inputs", f"hold different numbers of images: {counts}", "give as many")
    return next(iter(counts.values()), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The parts of a payload, one after the other in main memory."""

    head: bytes
    file: bytes
    images: bytes
    """Aligned, so with bytes before the first one."""

    def __bytes__(self) -> bytes:
        return self.head + self.file + self.images


def payload(program: Path, bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> Payload:
    """Program file and images. RunError for arrays that are not those of the ports."""
    file = members(program)
    head = struct.pack("<4sIII", b"OPUL", len(file), images_of(bundle, inputs), 0)
    head = head.ljust(ALIGNMENT, b"\0")
    images, before = b"", len(head) + len(file)
    for port in bundle.inputs:
        images = images.ljust(aligned(before + len(images)) - before, b"\0")
        images += inputs[port.name].tobytes()
    return Payload(head=head, file=file, images=images)


def members(program: Path) -> bytes:
    """A program file of what libopu reads: the rest takes memory, and time for its checksums."""
    reduced = io.BytesIO()
    with zipfile.ZipFile(program) as whole, zipfile.ZipFile(reduced, "w") as archive:
        for name in ("runtime.bin", "dram.bin", "program.bin"):
            archive.writestr(zipfile.ZipInfo(name), whole.read(name))
    return reduced.getvalue()


def memory_bytes(bundle: Bundle, payload_bytes: int, images: int) -> int:
    """Main memory that firmware, payload, window and outputs need; work memory comes on top."""
    outputs = sum(
        aligned(images * math.prod(p.shape) * np.dtype(p.dtype).itemsize) for p in bundle.outputs
    )
    window = aligned(bundle.window_bytes, _WINDOW_ALIGNMENT) + _WINDOW_ALIGNMENT
    return PAYLOAD_OFFSET + payload_bytes + window + outputs


def compile_firmware(build: Path) -> bytes:
    """The firmware for a SoC whose software LiteX has built in `build`."""
    place, sources = build / "firmware", Path(__file__).parent / "firmware"
    place.mkdir(exist_ok=True)
    folders = {
        "BUILD_DIR": build.resolve(),
        "SOURCES": sources,
        "RUNTIME": runtime_dir(),
        "DRIVER": rtl_dir() / "driver",
    }
    settings = [f"{name}={folder}" for name, folder in folders.items()]
    make(["make", "-s", "-f", str(sources / "Makefile"), *settings], place, "the firmware")
    firmware = (place / "firmware.bin").read_bytes()
    if len(firmware) > PAYLOAD_OFFSET:
        raise InternalError("LiteX SoC", f"the firmware has {len(firmware)} bytes, payloads follow")
    return firmware


def make(command: list[str], folder: Path, what: str) -> None:
    """Run a build; InternalError with its last words where it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise InternalError("LiteX SoC", f"{what} does not build:\n{said}")


def aligned(size: int, unit: int = ALIGNMENT) -> int:
    """The next multiple of a unit."""
    return -(-size // unit) * unit


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a program file with images as a payload.")
    parser.add_argument("program", type=Path)
    parser.add_argument("--input", action="append", metavar="NAME=X.npy", help="else seeded noise")
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    try:
        bundle = Program.load(options.program).bundle
        inputs = read_inputs(options.input) or ports.noise(bundle)
        options.output.write_bytes(bytes(payload(options.program, bundle, inputs)))
    except (OpuFuseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
