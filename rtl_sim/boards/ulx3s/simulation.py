"""A board in simulation: the design of the FPGA, firmware included, with a serial line that ends in
a socket here.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.resources import rtl_dir
from rtl_sim.boards.ulx3s.firmware import firmware
from rtl_sim.boards.ulx3s.link import Descriptor, listening
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests
from rtl_sim.soc.firmware import processor

HERE = Path(__file__).parent
DESIGN = ("sdram_controller", "ulx3s_clocks", "ulx3s_pads", "ulx3s_uart", "ulx3s_cpu", "ulx3s")
MEMORY_BYTES = 32 << 20
SECONDS = 120.0
"""An answer of a simulated board may take that long."""


def design_files() -> tuple[Path, ...]:
    """Everything on the FPGA but the machine."""
    share = rtl_dir() / "project" / "soc_share.sv"
    return (processor(), share, *(HERE / f"{name}.sv" for name in DESIGN))


@contextlib.contextmanager
def simulated(hw: HwSpec, folder: Path) -> Iterator[Descriptor]:
    """The serial line of a board with this machine; its memory is dram.bin, what the simulator says
    console.txt, both in `folder`. RunError when the simulation fails.
    """
    firmware(folder)
    (folder / "dram.bin").write_bytes(bytes(MEMORY_BYTES))
    tb = (rtl_dir() / "tb" / "opu_image.cpp", HERE / "ulx3s_link.cpp")
    bench = (HERE / "sdram_model.sv", HERE / "ulx3s_board.sv")
    sources = (*tb, *design_files(), *bench)
    simulator = executable(Design(top="ulx3s_board", spec=hw, sources=sources))
    path = os.pathsep.join([str(rtl_dir().parent), os.environ.get("PYTHONPATH", "")])
    results: list[object] = []

    def simulate() -> None:
        try:
            results.append(
                run_tests(
                    simulator,
                    "rtl_sim.boards.ulx3s.board_bench",
                    folder,
                    seed=1,
                    log_file=folder / "console.txt",
                    extra_env={"PYTHONPATH": path},
                    plusargs=[f"+image={folder / 'dram.bin'}", f"+link={folder / 'link'}"],
                )
            )
        except RuntimeError as error:
            results.append(error)

    with listening(folder / "link") as waiting:
        thread = threading.Thread(target=simulate, daemon=True)
        thread.start()
        waiting.settimeout(SECONDS)
        accepted, _ = waiting.accept()
        line = Descriptor(accepted.detach())
    try:
        yield line
    finally:
        line.close()
        thread.join()
    if results != [(1, 0)]:
        text = (folder / "console.txt").read_text(encoding="utf-8", errors="replace")
        raise RunError(
            "simulated board", f"it failed: {results}\n{text[-3000:]}", "see console.txt"
        )
