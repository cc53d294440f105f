"""A machine behind its control registers: the functional engine on a memory that a test owns."""

import numpy as np

from opu_fuse.bundle.program import Bundle
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ID_VALUE, VERSION_VALUE, ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.functional.machine import Machine

_NAME = {register.offset: register.name for register in CONTROL_REGISTERS}
START, STOP, IRQ_CLEAR, QUEUE, ABORT = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4
BUSY, DONE, ERROR, QUEUED = 1 << 0, 1 << 1, 1 << 2, 1 << 3
CYCLES = 0x1_2345_6789
FAULT = (ErrorCode.BUFFER, Engine.LOAD, 3)


class MachineModel:
    """Registers by docs/registers.md, written down by hand where a test relies on bits.

    hangs: a started program does not end before it is stopped; silent: not even then, only an
    abort ends it; faults: it ends with `FAULT`; later: it ends in `advance`, and one may be queued
    behind it. log: what was written, in order.
    """

    def __init__(self, spec: HwSpec, *, hangs: bool = False, silent: bool = False) -> None:
        self.spec, self.hangs, self.silent, self.faults = spec, hangs, silent, False
        self.later = False
        self._running: dict[str, int] = {}  # registers of the program, and of the queued one
        self._queued: dict[str, int] = {}
        self.memory = np.zeros(1 << 22, np.uint8)
        self.address = 0x7000_0000
        self.log: list[tuple[str, int]] = []
        self._values = {
            "ID": ID_VALUE,
            "VERSION": VERSION_VALUE,
            "SPEC_HASH_LO": spec.spec_hash & 0xFFFF_FFFF,
            "SPEC_HASH_HI": spec.spec_hash >> 32,
            "CYCLES_LO": CYCLES & 0xFFFF_FFFF,
            "CYCLES_HI": CYCLES >> 32,
        }
        self.synced: list[str] = []

    @property
    def bytes(self) -> np.ndarray:
        return self.memory

    def to_device(self) -> None:
        self.synced.append("device")

    def to_processor(self) -> None:
        self.synced.append("processor")

    def set(self, name: str, value: int) -> None:
        self._values[name] = value

    def read(self, offset: int) -> int:
        return self._values.get(_NAME[offset], 0)

    def write(self, offset: int, value: int) -> None:
        name = _NAME[offset]
        self.log.append((name, value))
        if name != "CTRL":
            self._values[name] = value
        elif value & (START | QUEUE):
            self._start(dict(self._values))
        elif (value & STOP and not self.silent) or value & ABORT:
            self._end(ErrorCode.STOPPED, Engine.FETCH, 0)

    def _start(self, named: dict[str, int]) -> None:
        if self._running:
            assert self.later, "a start while busy"
            assert not self._queued, "one program may wait"
            self._queued = named
            self._values["STATUS"] |= QUEUED
        elif self.hangs or self.silent or self.later:
            self._running = named
            self._values["STATUS"] = BUSY
        else:
            self._running = named
            self.advance()

    def advance(self) -> None:
        """The program that runs ends, and the queued one starts."""
        if self.faults:
            self._end(*FAULT)
            return
        self._run(self._running)
        self._ended(DONE)
        if self._queued:
            self._running, self._queued = self._queued, {}
            self._values["STATUS"] = BUSY

    def _run(self, named: dict[str, int]) -> None:
        base = named["WINDOW_BASE_LO"] | named["WINDOW_BASE_HI"] << 32
        first = base - self.address
        window = self.memory[first : first + named["WINDOW_SIZE_LO"]]
        at, words = named["PROG_BASE_LO"], named["PROG_WORDS"]
        program = window[at : at + 4 * words].view("<u4")
        Machine(self.spec, window).run(decode(program))

    def _ended(self, status: int) -> None:
        self._running = {}
        self._values["STATUS"] = status
        self._values["PROGRAMS"] = self._values.get("PROGRAMS", 0) + 1

    def _end(self, code: ErrorCode, engine: Engine, pc: int) -> None:
        self._ended(ERROR)
        self._queued = {}
        self._values |= {"ERROR": code | engine << 8, "ERROR_PC": pc}


def noise(bundle: Bundle, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.normal(size=p.shape).astype(p.dtype) for p in bundle.inputs}
