"""A board with an emulated Cortex-A72 (Unicorn): its firmware is libopu, its machine is the one
behind the socket of `opu-fuse hw sim`. Memory map and registers: board.h.
"""

import subprocess
import time
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import fields
from unicorn import arm64_const as arm
from unicorn import unicorn_const as const
from unicorn.unicorn import Uc

from opu_fuse.devices.linux import REGISTER_BYTES
from opu_fuse.devices.sim_client import SimConnection
from tests.runtime.built import build

HERE = Path(__file__).parent
RAM_BYTES, MAILBOX, REGISTERS, BOARD, DRAM = 1 << 26, 0x0200_0000, 0x4000_0000, 0x5000_0000, 1 << 31
FILE, INPUT, OUTPUT = 0x0210_0000, 0x0300_0000, 0x0380_0000
DONE, CLOCK, BROKEN = 0, 4, 8
EL1H_MASKED = 0x3C5
"""PSTATE: EL1 with its own stack pointer, all interrupts masked."""
IRQ_MASK, IRQ_VECTOR = 1 << 7, 0x280
SPSR_EL1 = (4, 0, 3, 0, 0)
"""CRn, CRm, op0, op1, op2."""
OPTIONS = (
    *("-O1", "-ffreestanding", "-nostdlib", "-static", "-no-pie", "-fno-pic"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-mno-outline-atomics"),
    "-fno-tree-loop-distribute-patterns",  # memcpy is not to become a call of itself
    "-mstrict-align",  # memory is of device type while the MMU is off
    f"-I{HERE}",
    f"-Wl,-T,{HERE / 'link.ld'},--build-id=none,--no-warn-rwx-segments",
)
SOURCES = ("src/*.c", "hardware/opu_registers.c", HERE / "firmware.c", HERE / "start.S")


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


def firmware(folder: Path, compiler: str) -> bytes:
    elf = build(folder / "firmware.elf", *SOURCES, compiler=compiler, options=OPTIONS)
    copy = compiler.replace("gcc", "objcopy")
    subprocess.run([copy, "-O", "binary", elf, folder / "firmware.bin"], check=True)
    return (folder / "firmware.bin").read_bytes()


class Board:
    """The processor after its reset, in front of a machine. accesses: number of reads and writes of
    the machine's registers.
    """

    def __init__(self, image: bytes, machine: SimConnection) -> None:
        self._machine = machine
        self._done, self._broken = False, 0
        self.accesses = 0
        self._memory = machine.bytes
        uc = self._uc = Uc(const.UC_ARCH_ARM64, const.UC_MODE_ARM)
        uc.ctl_set_cpu_model(arm.UC_CPU_ARM64_A72)
        uc.mem_map(0, RAM_BYTES)
        uc.mem_map_ptr(DRAM, self._memory.size, const.UC_PROT_ALL, self._memory.ctypes.data)
        uc.mmio_map(REGISTERS, REGISTER_BYTES, self._read, None, self._write, None)
        uc.mmio_map(BOARD, REGISTER_BYTES, self._read_board, None, self._write_board, None)
        uc.mem_write(0, image)
        uc.reg_write(arm.UC_ARM64_REG_PSTATE, EL1H_MASKED)
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

    def _execute(self) -> None:
        """Until the firmware is done. The emulator returns at each `wfi`."""
        self._done = False
        while not self._done:
            self._uc.emu_start(self._pc, (1 << 64) - 1)
            assert not self._broken, f"exception, ESR_EL1 {self._broken:#x}"
            self._pc = self._uc.reg_read(arm.UC_ARM64_REG_PC)
            if not self._done and self._machine.wait(1.0):
                self._interrupt()

    def _interrupt(self) -> None:
        """What the processor does at an IRQ that is not masked: `AArch64.TakeException`."""
        state = self._uc.reg_read(arm.UC_ARM64_REG_PSTATE)
        if state & IRQ_MASK:
            return
        self._uc.reg_write(arm.UC_ARM64_REG_CP_REG, (*SPSR_EL1, state))
        self._uc.reg_write(arm.UC_ARM64_REG_ELR_EL1, self._pc)
        self._uc.reg_write(arm.UC_ARM64_REG_PSTATE, EL1H_MASKED)
        self._pc = self._uc.reg_read(arm.UC_ARM64_REG_VBAR_EL1) + IRQ_VECTOR

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
        self._done = offset == DONE
        self._broken = value if offset == BROKEN else 0
