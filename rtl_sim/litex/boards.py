"""SoCs of boards in litex-boards with VexRiscv and the machine."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litex.build.io import SDRTristate
from migen import Instance, Module, Signal

from opu_fuse.errors import UserError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.litex.core import OPU

ROM_BYTES = 1 << 17
"""For the BIOS; LiteX shortens it."""
SRAM_BYTES = 1 << 14
"""Data and stack of the firmware: host segments need nearly 8 KiB."""
BAUD = 3_000_000
"""The fastest that the serial adapters of most boards have."""
MEMORY_TEST_BYTES = 1 << 16
"""Of main memory, tested by the BIOS: only of the firmware's, so that a reset leaves a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """How the target of a board is called.

    settings: arguments of its BaseSoC; defines: of the machine's SystemVerilog; adjust: changes the
    platform.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    adjust: Callable[[Any], None] = lambda _: None


def board_soc(name: str, spec: HwSpec, folder: Path, **settings: Any) -> Any:
    """The SoC of a board, with VexRiscv and the machine; `folder` gets the machine's Verilog.

    settings: more arguments of BaseSoC. UserError for a board that litex-boards does not know.
    """
    try:
        target = importlib.import_module(f"litex_boards.targets.{name}")
    except ImportError as error:
        raise UserError(
            f"--board {name}", f"cannot be loaded: {error}", "pip install litex-boards"
        ) from error
    board = BOARDS.get(name, Board())
    fixed = {
        "cpu_type": "vexriscv",
        "timer_uptime": True,
        "integrated_rom_size": ROM_BYTES,
        "integrated_sram_size": SRAM_BYTES,
        "uart_baudrate": BAUD,
        "uart_fifo_depth": 256,
    }
    soc = target.BaseSoC(**{**fixed, **board.settings, **settings})
    board.adjust(soc.platform)
    soc.add_constant("MEMTEST_DATA_SIZE", MEMORY_TEST_BYTES)
    soc.opu = OPU(soc.platform, spec, folder=folder, defines=board.defines)
    soc.opu.connect(soc)
    return soc


class _Ecp5Pad(Module):
    """A pin of memory with registers at the pad for data and for its enable. LiteX's own has the
    enable in a register of the logic and an inverter: it arrives some nanoseconds after the data.
    """

    def __init__(self, dr: Any) -> None:
        written, silent, read = Signal(), Signal(), Signal()
        always = {"i_SCLK": dr.clk, "i_PD": 0, "i_SP": 1}
        self.specials += [
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


BOARDS = {
    "radiona_ulx3s": Board(
        settings={"device": "LFE5U-85F", "sys_clk_freq": 60e6},
        defines=("OPU_SHORT_SLICES",),
        adjust=_registers_at_pads,
    ),
}
"""Boards with settings of their own; every other target of litex-boards is called without."""
