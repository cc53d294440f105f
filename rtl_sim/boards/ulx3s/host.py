"""`python -m rtl_sim.boards.ulx3s.host PROGRAM.opu --port /dev/ttyUSB0`: runs a program on a board
and prints its cycles; inputs, outputs and `--check` as `opu-fuse run` has them.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from opu_fuse.bundle.memory_image import initial_image, read_by_host, written_by_host
from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor
from opu_fuse.errors import OpuFuseError, ProgramError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.pipeline import Program
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs, write_arrays
from opu_fuse.sim.engine import run_on
from opu_fuse.sim.rtl.machine_run import MachineStop
from opu_fuse.sim.rtl.segment_runs import Segments
from opu_fuse.sim.runner import SegmentRun
from rtl_sim.boards.ulx3s.link import Board, Stopped, serial

BAUD = 1_000_000
LONGEST_RUN_SECONDS = 600.0


class BoardRunner:
    """A board as a `Runner` (opu_fuse.sim.runner).

    window: what the board's memory holds, as far as it is known here: constants, and what the host
    writes and reads.
    """

    def __init__(self, bundle: Bundle, hw: HwSpec, board: Board) -> None:
        probed = board.probe()
        if probed.spec_hash != hw.spec_hash:
            raise ProgramError(
                bundle.model,
                f"is for machine {hw.spec_hash:011x}, the board is {probed.spec_hash:011x}",
                "compile the model for the machine of the bitstream",
            )
        self.window = initial_image(bundle)
        self.clock_khz = probed.clock_khz
        self._bundle, self._board, self._segments = bundle, board, Segments(bundle, hw)
        self._size = -(-bundle.window_bytes // 4096) * 4096
        board.clear(0, self._size)
        self._send(0, bundle.constants.size)
        self._send(bundle.program_offset, 4 * bundle.words.size)

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        del sample  # the trace of the first one is nothing that a board has
        for tensor in written_by_host(self._bundle, number):
            self._send_tensor(tensor)
        launch = (self._size, segment.program_offset, segment.words)
        result = self._board.run(*launch, LONGEST_RUN_SECONDS)
        if isinstance(result, Stopped):
            stop = MachineStop(code=result.code, engine=result.engine, pc=result.pc)
            raise self._segments.stopped(number, segment, stop)
        for tensor in read_by_host(self._bundle, number):
            self._fetch(tensor.offset, tensor.layout.size_bytes)
        return SegmentRun(counters={"cycles": result})

    def fetch_all(self) -> None:
        """Everything that the memory window holds on the board."""
        data = np.frombuffer(self._board.read(0, self._size), np.uint8)
        self.window[:] = data[: self.window.size]

    def close(self) -> None:
        """The state of the board is left unchanged."""

    def _send_tensor(self, tensor: Tensor) -> None:
        """Bytes in the holes of its layout belong to other tensors; only the board knows them."""
        offset, layout = tensor.offset, tensor.layout
        current = self.window[offset : offset + layout.size_bytes]
        if layout.pieces:
            values = layout.unpack(current)
            self._fetch(offset, layout.size_bytes)
            current[:] = layout.pack(values, under=current)
        self._send(offset, layout.size_bytes)

    def _fetch(self, offset: int, count: int) -> None:
        begin, end = _words(offset, count)
        data = np.frombuffer(self._board.read(begin, end - begin), np.uint8)
        self.window[begin:end] = data[: self.window.size - begin]

    def _send(self, offset: int, count: int) -> None:
        begin, end = _words(offset, count)
        self._board.write(begin, self.window[begin:end].tobytes().ljust(end - begin, b"\0"))


def _words(offset: int, count: int) -> tuple[int, int]:
    """First byte and end of the 32-bit words that hold these bytes."""
    return offset // 4 * 4, -(-(offset + count) // 4) * 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--port", type=Path, required=True, help="serial port of the board")
    parser.add_argument("--baud", type=int, default=BAUD)
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
    program = Program.load(options.program)
    inputs = read_inputs(options.input) or ports.noise(program.bundle)
    line = serial(options.port, options.baud)
    try:
        runner = BoardRunner(program.bundle, program.hw, Board(line))
        result = run_on(runner, program.bundle, inputs, engine="board")
    finally:
        line.close()
    cycles = result.counters["cycles"]
    seconds = cycles / runner.clock_khz / 1000
    print(f"{cycles} cycles at {runner.clock_khz / 1000:g} MHz, {1000 * seconds:.3f} ms")
    if options.output is not None:
        write_arrays(options.output, result.outputs)
    if not options.check:
        return 0
    wanted = program.run(inputs).outputs
    wrong = [n for n, array in wanted.items() if not np.array_equal(array, result.outputs[n])]
    good = "outputs are those of the functional engine"
    print(f"outputs differ: {', '.join(wrong)}" if wrong else good)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
