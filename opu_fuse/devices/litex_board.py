"""A board with a SoC of LiteX at the end of a serial line. Its processor runs all segments.

`rtl_sim.litex.host` sends the program and reads the outputs. It runs as a process, since nothing in
this package imports `rtl_sim`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from opu_fuse.bundle.result import RunResult
from opu_fuse.devices.device import Device
from opu_fuse.errors import RunError
from opu_fuse.extras import library
from opu_fuse.input_arrays import Arrays
from opu_fuse.program import Program
from opu_fuse.program_run import ProgramRun
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import file_name, read_array, write_arrays
from opu_fuse.sim.rtl.process import child_environment

_PAGE = "see docs/litex.md, Programs from a host"
_CYCLES = re.compile(r"^machine (\d+), ", re.MULTILINE)


class LitexBoard(Device):
    """where: its name in messages; port: a serial port; build: folder of the board's build
    (`rtl_sim.litex.target`); timeout: seconds of silence that an image may take.
    """

    def __init__(self, where: str, port: str, build: Path, *, timeout: float) -> None:
        for name in ("serial", "litex"):
            library(name, where=where, purpose="the serial line is that of", extra="litex")
        self._where, self._port, self._build, self._timeout = where, port, build, timeout

    def run(self, program: Program, inputs: Arrays | None = None) -> ProgramRun:
        """Run a program of `compile(host="c")`. What the board has already is not sent again.

        Raises RunError where the line, the board or its machine refuses the program.
        """
        arrays, count = ports.samples_of(program.bundle, inputs)
        with tempfile.TemporaryDirectory(prefix="opu_fuse-litex-") as name:
            folder = Path(name)
            program.save(folder / "program.opu")
            write_arrays(folder / "inputs", arrays)
            said = self._host(folder, arrays.keys(), count)
            outputs = {
                port.name: read_array(folder / "outputs" / f"{file_name(port.name)}.npy")
                for port in program.bundle.outputs
            }
        cycles = _CYCLES.search(said)
        assert cycles is not None, said
        result = RunResult(
            engine=self._where,
            outputs=outputs,
            counters={"cycles": int(cycles[1])},
            samples=count,
        )
        return ProgramRun.of(result, program.bundle, program.hw)

    def _host(self, folder: Path, inputs: Iterable[str], images: int) -> str:
        """What the host program says about a run of the program and inputs in a folder."""
        command = [sys.executable, "-m", "rtl_sim.litex.host", f"{folder / 'program.opu'}"]
        command += [f"--port={self._port}", f"--folder={self._build.resolve()}"]
        command += [f"--timeout={self._timeout * images}", f"--output={folder / 'outputs'}"]
        command += [f"--input={n}={folder / 'inputs' / file_name(n)}.npy" for n in inputs]
        done = subprocess.run(
            command,
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            why = done.stderr.strip().rpartition("\n")[2].removeprefix("error: ")
            raise RunError(self._where, f"does not run the program: {why}", _PAGE)
        return done.stdout
