"""A driver for PYNQ (https://pynq.readthedocs.io). Once it is imported, an `Overlay` has an
`OpuDriver` for every machine of `opu-fuse hw rtl` in its bitstream.

    from pynq import Overlay
    import opu_fuse.devices.pynq_driver
    overlay = Overlay("design.bit")
    result = overlay.opu_0.run(opu_fuse.Program.load("network.opu"), inputs)
"""

from typing import Any

import numpy as np
from pynq import DefaultIP, allocate  # pyright: ignore[reportMissingImports]  # of the board's image

from opu_fuse.devices.control import Control
from opu_fuse.devices.mapped import MappedDevice
from opu_fuse.hw.rtlgen.ip_xact import VLNV
from opu_fuse.input_arrays import Arrays
from opu_fuse.program import Program
from opu_fuse.program_run import ProgramRun


class _Buffer:
    """Memory of `pynq.allocate`."""

    def __init__(self, size: int) -> None:
        self._buffer: Any = allocate(shape=(size,), dtype=np.uint8)
        self.bytes = np.asarray(self._buffer)
        self.address = int(self._buffer.physical_address)

    def to_device(self) -> None:
        self._buffer.flush()

    def to_processor(self) -> None:
        self._buffer.invalidate()

    def free(self) -> None:
        self._buffer.freebuffer()


class OpuDriver(DefaultIP):  # pyright: ignore[reportUntypedBaseClass]  of the board's image
    """One machine of an overlay."""

    bindto = [VLNV]  # noqa: RUF012  PYNQ reads a list of the class

    def __init__(self, description: Any) -> None:
        super().__init__(description=description)
        self._buffer: _Buffer | None = None
        self._device: MappedDevice | None = None

    def run(self, program: Program, inputs: Arrays | None = None) -> ProgramRun:
        """Run a program. inputs: as of `Program.run`. Memory is reserved for the largest program
        so far.
        """
        size = program.bundle.window_bytes
        if self._device is None or self._buffer is None or self._buffer.bytes.size < size:
            if self._buffer is not None:
                self._buffer.free()
            self._buffer = _Buffer(size)
            name = str(getattr(self, "_fullpath", "opu"))
            self._device = MappedDevice(Control(self, name), self._buffer, name)
        return self._device.run(program, inputs)
