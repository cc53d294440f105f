"""The board in simulation: what LiteX wrote for it (`rtl_sim.litex.target`), the SDRAM, and a
serial line that ends in a terminal, which the host program opens as its port.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from serial import Serial

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.resources import rtl_dir
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests
from rtl_sim.litex.boards import BAUD
from rtl_sim.litex.link import opened

HERE = Path(__file__).parent
NAME = "radiona_ulx3s"
BENCH = ("ecp5_models.v", "sdram_model.sv", "ulx3s_board.sv")
MEMORY_BYTES = 32 << 20
SECONDS = 300.0
"""An answer of a simulated board may take that long."""


def simulator(hw: HwSpec, build: Path) -> Path:
    """The simulator of a board with this machine. build: a folder of `rtl_sim.litex.target`; the
    machine in it is the SystemVerilog of this repository, with its assertions.
    """
    processor = import_module("pythondata_cpu_vexriscv")
    cpu = Path(processor.data_location) / "VexRiscv.v"
    tb = (rtl_dir() / "tb" / "opu_image.cpp", HERE / "ulx3s_link.cpp")
    soc = build / "gateware" / f"{NAME}.v"
    sources = (*tb, cpu, soc, *(HERE / name for name in BENCH))
    return executable(Design(top="ulx3s_board", spec=hw, sources=sources, fast=True))


@contextlib.contextmanager
def simulated(hw: HwSpec, build: Path, folder: Path) -> Iterator[Serial]:
    """The serial line of a running board; its memory is dram.bin, what the simulator says
    console.txt, both in `folder`. RunError when the simulation fails.
    """
    program = simulator(hw, build)
    for contents in (build / "gateware").glob("*.init"):
        shutil.copy(contents, folder)
    (folder / "dram.bin").write_bytes(bytes(MEMORY_BYTES))
    results: list[object] = []

    def simulate() -> None:
        try:
            results.append(_run(program, folder))
        except RuntimeError as error:
            results.append(error)

    thread = threading.Thread(target=simulate, daemon=True)
    thread.start()
    port = folder / "port"
    while thread.is_alive() and not port.exists():
        time.sleep(0.1)
    with contextlib.suppress(RunError) if results else contextlib.nullcontext():
        with opened(str(port), BAUD) as line:
            yield line
        thread.join()
    if results != [(1, 0)]:
        text = (folder / "console.txt").read_text(encoding="utf-8", errors="replace")
        raise RunError(
            "simulated board", f"it failed: {results}\n{text[-3000:]}", "see console.txt"
        )


def _run(program: Path, folder: Path) -> tuple[int, int]:
    path = os.pathsep.join([str(rtl_dir().parent), os.environ.get("PYTHONPATH", "")])
    return run_tests(
        program,
        "rtl_sim.litex.ulx3s.board_bench",
        folder,
        seed=1,
        log_file=folder / "console.txt",
        extra_env={"PYTHONPATH": path},
        plusargs=[f"+image={folder / 'dram.bin'}", f"+link={folder / 'port'}"],
    )
