"""A board with an emulated processor (`processors.py`): its firmware is libopu, its machine is the
one behind the socket of `opu-fuse hw sim`. Memory map and registers: board.h.
"""

import time

import numpy as np
from msgspec import Struct
from msgspec.structs import fields
from unicorn import unicorn_const as const

from opu_fuse.devices.linux import REGISTER_BYTES
from opu_fuse.devices.sim_client import SimConnection
from tests.runtime.emulated.processors import Processor

RAM_BYTES, MAILBOX, REGISTERS, BOARD, DRAM = 1 << 26, 0x0200_0000, 0x4000_0000, 0x5000_0000, 1 << 31
FILE, INPUT, OUTPUT = 0x0210_0000, 0x0300_0000, 0x0380_0000
DONE, CLOCK, BROKEN, CONSOLE = 0, 4, 8, 12
FOREVER = 0xFFFF_FFFF


class Results(Struct, frozen=True):
    """The second half of the mailbox."""

    status: int
    fault_code: int
    fault_engine: int
    fault_instruction: int
    fault_word: int
    interrupts: int
    waits: int
    reads: int


class Board:
    """The processor after its reset, in front of a machine. accesses: number of reads and writes of
    the machine's registers.
    """

    def __init__(self, processor: Processor, image: bytes, machine: SimConnection) -> None:
        self._processor = processor
        self._machine = machine
        self._done, self._broken = False, 0
        self.accesses, self._console = 0, ""
        self._memory = machine.bytes
        uc = self._uc = processor.reset()
        uc.mem_map(0, RAM_BYTES)
        uc.mem_map_ptr(DRAM, self._memory.size, const.UC_PROT_ALL, self._memory.ctypes.data)
        uc.mmio_map(REGISTERS, REGISTER_BYTES, self._read, None, self._write, None)
        uc.mmio_map(BOARD, REGISTER_BYTES, self._read_board, None, self._write_board, None)
        uc.mem_write(0, image)
        self._pc = 0

    def run(
        self,
        file: bytes,
        inputs: np.ndarray,
        output: np.ndarray,
        *,
        overlap: bool = False,
        timeout_ms: int = 100_000,
        damage: tuple[int, int] = (0, 0),
    ) -> Results:
        """Run one network. inputs: of one port, images first; output: filled. damage: word of the
        program and bits of it that are changed after it was loaded.
        """
        self._uc.mem_write(FILE, file)
        self._uc.mem_write(INPUT, inputs.tobytes())
        self._uc.mem_write(OUTPUT, bytes(output.nbytes))
        wide = (FILE, len(file), INPUT, OUTPUT, self._memory.size)
        narrow = (len(inputs), int(overlap), timeout_ms, *damage)
        request = np.array(wide, "<u8").tobytes() + np.array(narrow, "<u4").tobytes()
        self._uc.mem_write(MAILBOX, request)
        self._execute()
        output[...] = np.frombuffer(self._uc.mem_read(OUTPUT, output.nbytes), output.dtype).reshape(
            output.shape
        )
        results = self._uc.mem_read(MAILBOX + len(request), 4 * len(fields(Results)))
        return Results(*map(int, np.frombuffer(results, "<u4")))

    def run_payload(self, payload: bytes) -> str:
        """What the firmware prints of a payload at the beginning of the machine's memory."""
        self._memory[: len(payload)] = np.frombuffer(payload, np.uint8)
        request = np.array((0, 0, 0, 0, self._memory.size), "<u8")
        self._uc.mem_write(MAILBOX, request.tobytes())
        self._console = ""
        self._execute()
        return self._console

    def _execute(self) -> None:
        """Until the firmware is done. The emulator returns at each `wfi`."""
        self._done = False
        while not self._done:
            self._uc.emu_start(self._pc, FOREVER)
            assert not self._broken, f"exception {self._broken:#x}"
            self._pc = self._uc.reg_read(self._processor.pc)
            if not self._done and self._machine.wait(1.0):
                self._pc = self._processor.interrupt(self._uc, self._pc)

    def _read(self, _uc, offset, size, _) -> int:
        assert size == 4
        self.accesses += 1
        return self._machine.read(offset)

    def _write(self, _uc, offset, size, value, _) -> None:
        assert size == 4
        self.accesses += 1
        self._machine.write(offset, value)

    def _read_board(self, _uc, offset, _size, _) -> int:
        assert offset == CLOCK
        return int(time.monotonic() * 1000) & 0xFFFF_FFFF

    def _write_board(self, _uc, offset, _size, value, _) -> None:
        if offset == CONSOLE:
            self._console += chr(value)
            return
        self._done = offset == DONE
        self._broken = value if offset == BROKEN else 0
