"""A machine behind its control registers: the functional engine on a memory that a test owns."""

import numpy as np

from opu_fuse.bundle.program import Bundle
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ID_VALUE, VERSION_VALUE, ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.functional.machine import Machine

_NAME = {register.offset: register.name for register in CONTROL_REGISTERS}
START, STOP, IRQ_CLEAR, ABORT = 1 << 0, 1 << 1, 1 << 2, 1 << 4
BUSY, DONE, ERROR = 1 << 0, 1 << 1, 1 << 2
CYCLES = 0x1_2345_6789
FAULT = (ErrorCode.BUFFER, Engine.LOAD, 3)


class MachineModel:
    """Registers by docs/registers.md, written down by hand where a test relies on bits.

    hangs: a started program does not end before it is stopped; silent: not even then, only an
    abort ends it; faults: it ends with `FAULT`. log: what was written, in order.
    """

    def __init__(self, spec: HwSpec, *, hangs: bool = False, silent: bool = False) -> None:
        self.spec, self.hangs, self.silent, self.faults = spec, hangs, silent, False
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
        elif value & START:
            self._start()
        elif (value & STOP and not self.silent) or value & ABORT:
            self._end(ErrorCode.STOPPED, Engine.FETCH, 0)

    def _start(self) -> None:
        if self.hangs or self.silent:
            self._values["STATUS"] = BUSY
        elif self.faults:
            self._end(*FAULT)
        else:
            self._run()
            self._values["STATUS"] = DONE

    def _run(self) -> None:
        base = self._values["WINDOW_BASE_LO"] | self._values["WINDOW_BASE_HI"] << 32
        first = base - self.address
        window = self.memory[first : first + self._values["WINDOW_SIZE_LO"]]
        at, words = self._values["PROG_BASE_LO"], self._values["PROG_WORDS"]
        program = window[at : at + 4 * words].view("<u4")
        Machine(self.spec, window).run(decode(program))

    def _end(self, code: ErrorCode, engine: Engine, pc: int) -> None:
        self._values |= {"STATUS": ERROR, "ERROR": code | engine << 8, "ERROR_PC": pc}


def noise(bundle: Bundle, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.normal(size=p.shape).astype(p.dtype) for p in bundle.inputs}
