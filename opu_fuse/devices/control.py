"""The control registers of a machine, as docs/bring-up.md uses them. The cocotb driver
(`cosim/driver.py`) is the same for simulations, where every access takes simulated time.
"""

import time
from typing import Protocol

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import FIELD, OFFSET, ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.rtl.machine_run import Counters, MachineStop, require_identity

_WORD = 0xFFFF_FFFF
_POLL_SECONDS = 50e-6
_STOP_SECONDS = 0.1
"""For the last bus transactions of a stopped machine; a memory that is silent for longer never
answers.
"""


class Registers(Protocol):
    """Access to 32-bit registers by byte offset, in order and not cached."""

    def read(self, offset: int) -> int: ...

    def write(self, offset: int, value: int) -> None: ...


class Interrupt(Protocol):
    """The interrupt line of a machine."""

    def wait(self, seconds: float) -> bool:
        """Whether it came within that time. It is armed again by the call."""
        ...


class Control:
    """Commands of one machine.

    where: its name in messages; interrupt: None polls STATUS.
    """

    def __init__(
        self, registers: Registers, where: str, interrupt: Interrupt | None = None
    ) -> None:
        self._registers, self._where, self._interrupt = registers, where, interrupt

    def read(self, name: str) -> int:
        """A register, by its name in docs/registers.md."""
        return self._registers.read(OFFSET[name])

    def write(self, name: str, value: int) -> None:
        self._registers.write(OFFSET[name], value)

    def read64(self, name: str) -> int:
        """A pair LO, HI. The low half comes first: it holds the high half of a counter still."""
        low = self.read(f"{name}_LO")
        return low | self.read(f"{name}_HI") << 32

    def write64(self, name: str, value: int) -> None:
        self.write(f"{name}_LO", value & _WORD)
        self.write(f"{name}_HI", value >> 32)

    def field(self, register: str, name: str) -> int:
        field = FIELD[register, name]
        return (self.read(register) & field.mask) >> field.lsb

    def command(self, name: str) -> None:
        """Write one bit of CTRL: start, stop, irq_clear …"""
        self.write("CTRL", FIELD["CTRL", name].mask)

    def probe(self, spec: HwSpec) -> None:
        """Raises RunError where no machine answers, or another one than that of `spec`."""
        identity, version = self.read("ID"), self.read("VERSION")
        require_identity(self._where, identity, version, self.read64("SPEC_HASH"), spec)

    def configure(self, base: int, size: int) -> None:
        """The memory window: bus address (a multiple of 4096) and bytes."""
        self.write64("WINDOW_BASE", base)
        self.write64("WINDOW_SIZE", size)
        bits = FIELD["IRQ_ENABLE", "done"].mask | FIELD["IRQ_ENABLE", "error"].mask
        self.write("IRQ_ENABLE", bits if self._interrupt is not None else 0)

    def run(self, offset: int, words: int, seconds: float) -> MachineStop | None:
        """Run the program of `words` words at a byte offset of the window. None when it reached
        its end, else why it stopped.

        Raises RunError when it still runs after so many seconds; it is stopped then.
        """
        self.write64("PROG_BASE", offset)
        self.write("PROG_WORDS", words)
        self.command("irq_clear")
        self.command("start")
        if not self._ended(seconds):
            self._end(seconds)
        self.command("irq_clear")
        if not self.field("STATUS", "error"):
            return None
        return self._stopped()

    def counters(self) -> Counters:
        """Counters of the last program."""
        return Counters(
            cycles=self.read64("CYCLES"),
            busy={engine: self.read(f"BUSY_{engine.name}") for engine in Engine},
            stall={engine: self.read(f"STALL_{engine.name}") for engine in Engine},
            read_beats=self.read("AXI_READ_BEATS"),
            write_beats=self.read("AXI_WRITE_BEATS"),
        )

    def _ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.field("STATUS", "busy"):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._interrupt is None:
                time.sleep(_POLL_SECONDS)
            else:
                self._interrupt.wait(left)
        return True

    def _stopped(self) -> MachineStop:
        return MachineStop(
            code=ErrorCode(self.field("ERROR", "code")),
            engine=Engine(self.field("ERROR", "engine")),
            pc=self.read("ERROR_PC"),
        )

    def _end(self, seconds: float) -> None:
        """Stop a program that takes too long, and say what the machine does."""
        status = self.read("STATUS")
        self.command("stop")
        answered = self._ended(_STOP_SECONDS)
        if not answered:
            self.command("abort")
        what = f"still runs after {seconds:g} s (STATUS {status:#x})"
        silent = "the memory does not answer: look at the address of the window and its bus"
        help_ = "allow it more time (`timeout`)" if answered else silent
        raise RunError(self._where, what, help_)
