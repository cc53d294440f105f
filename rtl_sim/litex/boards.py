"""SoCs of boards in litex-boards with VexRiscv and the machine."""

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from litex.build.io import SDRTristate
from litex.gen import LiteXModule
from migen import Instance, Signal

from opu_fuse.errors import UserError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.litex.core import OPU
from rtl_sim import pnr

ROM_BYTES = 1 << 17
"""For the BIOS; LiteX shortens it."""
SRAM_BYTES = 1 << 14
"""Data and stack of the firmware: host segments need nearly 8 KiB."""
BAUD = 3_000_000
"""The fastest that the serial adapters of most boards have."""
MEMORY_TEST_BYTES = 1 << 16
"""Of main memory, tested by the BIOS: only of the firmware's, so that a reset leaves a program."""


FIXED: dict[str, Any] = {
    "cpu_type": "vexriscv",
    "timer_uptime": True,
    "integrated_rom_size": ROM_BYTES,
    "integrated_sram_size": SRAM_BYTES,
    "uart_baudrate": BAUD,
    "uart_fifo_depth": 256,
}
"""Of every board's SoC; a run of the firmware between two frames fits the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """How the target of a board is called.

    settings: arguments of its BaseSoC; defines: of the machine's SystemVerilog; adjust: changes the
    platform; nextpnr: device of `rtl_sim.pnr`, for which `bitstream.py` makes the bitstream;
    synthesis: commands of Yosys before it synthesises.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    adjust: Callable[[Any], None] = lambda _: None
    nextpnr: str = ""
    synthesis: tuple[str, ...] = ()


def board_soc(name: str, spec: HwSpec, folder: Path, *, toolchain: str = "") -> Any:
    """The SoC of a board, with VexRiscv and the machine; `folder` gets the machine's Verilog.

    toolchain: as LiteX names them; else the board's usual one. UserError for a board that
    litex-boards does not know, and for a toolchain that it does not have.
    """
    try:
        target = importlib.import_module(f"litex_boards.targets.{name}")
        platforms = importlib.import_module(f"litex_boards.platforms.{name}")
    except ImportError as error:
        raise UserError(
            f"--board {name}", f"cannot be loaded: {error}", "pip install litex-boards liteeth"
        ) from error
    board = BOARDS.get(name, Board())
    settings = {**FIXED, **board.settings}
    with contextlib.ExitStack() as stack:
        if toolchain:  # not every target of litex-boards passes it on
            patched = functools.partial(platforms.Platform, toolchain=toolchain)
            stack.enter_context(mock.patch.object(platforms, "Platform", patched))
            if "toolchain" in inspect.signature(target.BaseSoC).parameters:
                settings["toolchain"] = toolchain
        try:
            soc = target.BaseSoC(**settings)
        except ValueError as error:
            known = f"--toolchain {toolchain}"
            raise UserError(known, f"{name} does not have it: {error}", "leave it out") from error
    board.adjust(soc.platform)
    soc.add_constant("MEMTEST_DATA_SIZE", MEMORY_TEST_BYTES)
    soc.opu = OPU(soc.platform, spec, folder=folder, defines=board.defines)
    soc.opu.connect(soc)
    return soc


class _Ecp5Pad(LiteXModule):
    """A pin of memory with registers at the pad for data and for its enable. LiteX's own has the
    enable in a register of the logic and an inverter: it arrives some nanoseconds after the data.
    """

    def __init__(self, dr: Any) -> None:
        written, silent, read = Signal(), Signal(), Signal()
        always = {"i_SCLK": dr.clk, "i_PD": 0, "i_SP": 1}
        module: Any = self  # Migen's += on an attribute that it makes
        module.specials += [
            Instance("OFS1P3BX", **always, i_D=dr.o, o_Q=written),
            Instance("OFS1P3BX", **always, i_D=~dr.oe, o_Q=silent),
            Instance("TRELLIS_IO", p_DIR="BIDIR", io_B=dr.io, i_I=written, i_T=silent, o_O=read),
            Instance("IFS1P3BX", **always, i_D=read, o_Q=dr.i),
        ]

    @staticmethod
    def lower(dr: Any) -> "_Ecp5Pad":
        return _Ecp5Pad(dr)


def _registers_at_pads(platform: Any) -> None:
    toolchain = platform.toolchain
    toolchain.special_overrides = {**toolchain.special_overrides, SDRTristate: _Ecp5Pad}


def _name_of_part(platform: Any) -> None:
    """As databases of devices have it: xc7z020clg400-1, not xc7z020-clg400-1."""
    family, package, speed = platform.device.split("-")
    platform.device = f"{family}{package}-{speed}"


BOARDS = {
    "radiona_ulx3s": Board(
        # The longest path is from tags of the L2 cache to the writes of a hit: few tags, in LUTs.
        settings={"device": "LFE5U-85F", "sys_clk_freq": 60e6, "l2_size": 1 << 11},
        defines=pnr.DEFINES,
        adjust=_registers_at_pads,
        nextpnr="ulx3s-85",
        synthesis=('setattr -set ram_style "distributed" radiona_ulx3s/m:tag_mem',),
    ),
    # Zynq-7000: the processor is in the logic, and so is main memory; its console is at Pmod A.
    "digilent_pynq_z1": Board(
        settings={"integrated_main_ram_size": 0x6_0000}, adjust=_name_of_part
    ),
    # Kintex-7
    "qmtech_xc7k325t": Board(settings={"uart_name": "serial"}),
}
"""Boards with settings of their own; every other target of litex-boards is called without."""
