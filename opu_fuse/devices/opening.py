"""`open_device`: a machine by its name."""

import re
from contextlib import ExitStack
from pathlib import Path

from opu_fuse.devices.control import Control
from opu_fuse.devices.device import Device
from opu_fuse.devices.linux import DmaBuffer, PhysicalMemory, UioPage
from opu_fuse.devices.litex_board import LitexBoard
from opu_fuse.devices.mapped import MappedDevice
from opu_fuse.devices.sim_client import SimConnection
from opu_fuse.errors import RunError
from opu_fuse.input_arrays import Arrays
from opu_fuse.program import Program
from opu_fuse.program_run import ProgramRun
from opu_fuse.sim.engine_names import EngineName

KINDS = {
    "sim:functional": "the functional engine",
    "sim:native": "the functional engine in C",
    "sim:rtl": "the SystemVerilog under Verilator",
    "sim:PATH": "the machine of `opu-fuse hw sim`; PATH has a slash in it",
    "uio:N": "/dev/uioN with its interrupt, memory of u-dma-buf /dev/udmabufN",
    "uio:N,NAME": "the same with another buffer of u-dma-buf",
    "litex:PORT,BUILD": "a board with a SoC of LiteX at a serial port, and the folder of its build",
    "mem:REGISTERS,BASE,SIZE": "three numbers: everything through /dev/mem, as root",
}
"""What `open_device` takes -> what that is."""

_ENGINES = (EngineName.FUNCTIONAL, EngineName.NATIVE, EngineName.RTL)


def open_device(where: str, *, timeout: float = 10.0) -> Device:
    """Open a machine.

    where: one of `KINDS`, as "uio:0". timeout: seconds that a machine segment may take on a board
    or behind a socket, and an image on a board with LiteX.

    Raises RunError for a name that is none of them, and where the device cannot be opened.
    """
    kind, _, rest = where.partition(":")
    if kind == "sim" and "/" in rest:
        connection = SimConnection(rest, where, timeout)
        control, opened = Control(connection, where, connection), ExitStack()
        opened.callback(connection.close)
        return MappedDevice(control, connection, where, timeout=timeout, opened=opened)
    if kind == "sim" and rest in _ENGINES:
        return SimulatedDevice(EngineName(rest))
    if kind == "uio" and (match := re.fullmatch(r"(\d+)(?:,([\w-]+))?", rest)):
        with ExitStack() as opened:
            page = UioPage(int(match[1]))
            opened.callback(page.close)
            control = Control(page.registers, where, page.interrupt)
            memory = DmaBuffer(match[2] or f"udmabuf{match[1]}")
            return MappedDevice(control, memory, where, timeout=timeout, opened=opened.pop_all())
    if kind == "litex" and all(parts := rest.rpartition(",")):
        return LitexBoard(where, parts[0], Path(parts[2]), timeout=timeout)
    number = r"(0x[0-9a-fA-F]+|\d+)"
    if kind == "mem" and (match := re.fullmatch(f"{number},{number},{number}", rest)):
        page, base, size = (int(text, 0) for text in match.groups())
        control = Control(PhysicalMemory.registers(page), where)
        return MappedDevice(control, PhysicalMemory(base, size), where, timeout=timeout)
    raise RunError(where, "names no device", f"use {', '.join(KINDS)}")


class SimulatedDevice(Device):
    """An engine of this package as a device."""

    def __init__(self, engine: EngineName) -> None:
        self._engine = engine

    def run(self, program: Program, inputs: Arrays | None = None) -> ProgramRun:
        return program.run(inputs, engine=self._engine)
