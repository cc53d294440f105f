"""`python -m rtl_sim.litex.host PROGRAM.opu --port /dev/ttyUSB0`: runs a program on a board with a
LiteX SoC and prints its cycles; inputs, outputs and `--check` as `opu-fuse run` has them.

The board's build (`rtl_sim.litex.target`) has the firmware. It and the program file are sent unless
the board has them already. All segments run on the board: compile with `--host c`.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import OpuFuseError, RunError
from opu_fuse.program import Program
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs, write_arrays
from rtl_sim.litex import image
from rtl_sim.litex.boards import BAUD
from rtl_sim.litex.console import Outcome, outcome
from rtl_sim.litex.link import ATTEMPTS, Board, opened
from rtl_sim.litex.simulate import RELATIVE, difference

LONGEST_RUN_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a host must know of a board: firmware, main memory, machine, clock."""

    firmware: bytes
    memory: int
    memory_bytes: int
    spec_hash: int
    clock_hz: int

    @property
    def payload(self) -> int:
        return self.memory + image.PAYLOAD_OFFSET


def read_build(folder: Path) -> Build:
    """A folder that `rtl_sim.litex.target` wrote. RunError where it has none."""
    try:
        soc: dict[str, Any] = json.loads((folder / "csr.json").read_bytes())
        firmware = (folder / "firmware.bin").read_bytes()
        memory, constants = soc["memories"]["main_ram"], soc["constants"]
        low, high = constants["opu_machine_lo"], constants["opu_machine_hi"]
        return Build(
            firmware=firmware,
            memory=memory["base"],
            memory_bytes=memory["size"],
            spec_hash=low | high << 32,
            clock_hz=constants["config_clock_frequency"],
        )
    except (OSError, ValueError, KeyError) as error:
        what = f"is no build of a board: {error!r}"
        builder = "make it with `python -m rtl_sim.litex.target --board NAME`"
        raise RunError(str(folder), what, builder) from error


def run(
    board: Board,
    build: Build,
    program: Path,
    bundle: Bundle,
    inputs: Mapping[str, np.ndarray],
    seconds: float = LONGEST_RUN_SECONDS,
) -> Outcome:
    """Boot, load, and run all images, as many at once as main memory holds.

    seconds: how long a run may say nothing. RunError for a program of another machine or too large
    for the board, and where the line or the machine fails.
    """
    if bundle.spec_hash != build.spec_hash:
        raise RunError(
            bundle.model,
            f"is for machine {bundle.spec_hash:011x}, the board has {build.spec_hash:011x}",
            "compile the model for the machine of the bitstream",
        )
    board.boot(build.firmware, build.memory, build.payload)
    images = image.images_of(bundle, inputs)
    at_once = images_at_once(build, program, bundle)
    whole = [
        _run_some(board, build, program, bundle, some, seconds)
        for some in _parts(inputs, images, at_once)
    ]
    return Outcome(
        outputs={
            name: np.concatenate([part.outputs[name] for part in whole])
            for name in whole[0].outputs
        },
        cycles=sum(part.cycles for part in whole),
        machine=sum(part.machine for part in whole),
    )


def images_at_once(build: Build, program: Path, bundle: Bundle) -> int:
    """Images that memory holds with their outputs; half of what is left stays for work memory."""
    payload_bytes = image.ALIGNMENT + len(image.members(program))
    fixed = image.memory_bytes(bundle, payload_bytes, 0)
    one = sum(
        math.prod(port.shape) * np.dtype(port.dtype).itemsize
        for port in (*bundle.inputs, *bundle.outputs)
    )
    return max(1, (build.memory_bytes - fixed) // 2 // one)


def _parts(
    inputs: Mapping[str, np.ndarray], images: int, at_once: int
) -> Iterator[dict[str, np.ndarray]]:
    whole = {name: array.reshape(images, -1) for name, array in inputs.items()}
    for first in range(0, images, at_once):
        yield {name: array[first : first + at_once] for name, array in whole.items()}


def _run_some(
    board: Board,
    build: Build,
    program: Path,
    bundle: Bundle,
    inputs: Mapping[str, np.ndarray],
    seconds: float,
) -> Outcome:
    payload, at = image.payload(program, bundle, inputs), build.payload
    file = at + len(payload.head)
    if not board.holds(file, payload.file):
        board.load(file, payload.file)
    board.load(at, payload.head)
    board.load(file + len(payload.file), payload.images)
    if not board.holds(at, bytes(payload)):
        raise RunError("board", "what was sent is not in its memory", "is the line disturbed?")
    for _ in range(ATTEMPTS):  # a run leaves file and images as they are
        board.start(build.memory)
        result = outcome(board.lines(seconds), bundle, image.images_of(bundle, inputs))
        if result is not None:
            return result
    raise RunError("board", "its outputs arrive damaged", "is the line disturbed?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="of opu-fuse compile --host c")
    parser.add_argument(
        "--port", required=True, help="serial port of the board, or URL of pySerial"
    )
    parser.add_argument("--folder", type=Path, default=Path("out/ulx3s"), help="of the build")
    parser.add_argument("--baud", type=int, default=BAUD)
    parser.add_argument(
        "--timeout", type=float, default=LONGEST_RUN_SECONDS, help="seconds of silence of a run"
    )
    parser.add_argument("--input", action="append", metavar="NAME=X.npy", help="else seeded noise")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write outputs as .npy")
    parser.add_argument("--check", action="store_true", help="compare with the functional engine")
    options = parser.parse_args()
    try:
        return _run(options)
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    program, build = Program.load(options.program), read_build(options.folder)
    inputs = read_inputs(options.input) or ports.noise(program.bundle)
    with opened(options.port, options.baud) as line:
        result = run(Board(line), build, options.program, program.bundle, inputs, options.timeout)
    milliseconds = 1000 * result.cycles / build.clock_hz
    rest = result.cycles - result.machine
    print(f"{result.cycles} cycles at {build.clock_hz / 1e6:g} MHz, {milliseconds:.3f} ms")
    print(f"machine {result.machine}, processor and driver {rest}")
    if options.output is not None:
        write_arrays(options.output, result.outputs)
    if not options.check:
        return 0
    worst = difference(result.outputs, program.run(inputs).outputs)
    good = "outputs are those of the functional engine"
    print(f"outputs differ by {worst:.1e} of the largest" if worst else good)
    return int(worst > RELATIVE)


if __name__ == "__main__":
    raise SystemExit(main())
