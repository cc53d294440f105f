"""One machine of the native engine: its memory is a numpy array, its work is in C."""

import ctypes

import numpy as np

from opu_fuse.errors import InternalError, RunError
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.faults import Faults
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.rtlgen.c_runtime import machine_words
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.machine_stop import stop_error
from opu_fuse.sim.native.library import Report, Words, library
from opu_fuse.units.base import Space
from opu_fuse.units.memory import MEMORIES, Word

RETIRED = np.dtype([("moved", "<u8"), ("engine", "u1"), ("opcode", "u1")], align=True)
"""`struct opu_retired`: bytes of DRAM that an instruction moved, its engine and opcode."""
_OK, _BAD_PROGRAM, _MACHINE_FAULT = 0, 4, 5
_ALIGNMENT = 64


class NativeMachine:
    """A machine's memories and what executes on them; they survive from program to program.

    spec: the machine; dram: the memory window, uint8, written by stores. Machines of different
    threads run at the same time. Raises RunError where the library cannot be had.
    """

    def __init__(self, spec: HwSpec, dram: np.ndarray) -> None:
        if dram.dtype != np.uint8 or dram.ndim != 1 or not dram.flags.c_contiguous:
            raise InternalError("native engine", "the memory window is no array of bytes")
        self.spec, self.dram = spec, dram
        self._library = library()
        config = np.array(machine_words(spec), np.uint32)
        size = self._library.opu_native_size(config.ctypes.data)
        self._arena = np.zeros(size + _ALIGNMENT, np.uint8)
        offset = -self._arena.ctypes.data % _ALIGNMENT
        self._engine = ctypes.c_void_p()
        status = self._library.opu_native_init(
            ctypes.byref(self._engine), config.ctypes.data, self._arena[offset:].ctypes.data, size
        )
        if status != _OK:
            said = self._library.opu_status_text(status).decode()
            raise InternalError("native engine", f"{spec.name}: {said}")

    def run(self, words: np.ndarray) -> np.ndarray:
        """Execute a program, uint32 words (`check` … `end`), in its order.

        Returns what was executed, an element of `RETIRED` for each instruction. Raises RunError or
        ProgramError with the text of the functional engine where the machine faults.
        """
        words = np.ascontiguousarray(words, np.uint32)
        retired = np.zeros(int(np.count_nonzero(words >> 31)), RETIRED)
        report = Report(retired=retired.ctypes.data, room=len(retired))
        program = Words(data=words.ctypes.data, size=len(words))
        window = Words(data=self.dram.ctypes.data, size=self.dram.size)
        status = self._library.opu_native_run(
            self._engine, ctypes.byref(program), ctypes.byref(window), ctypes.byref(report)
        )
        if status != _OK:
            raise self._stop(words, status, report)
        return retired[: report.instructions]

    def memory(self, space: Space) -> np.ndarray:
        """The words of an on-chip memory, as of `sim.functional.Memories` without its padding word;
        the array is the memory itself.
        """
        memory = next(m for m in MEMORIES if m.space is space)
        size = ctypes.c_size_t()
        number = MEMORIES.index(memory)
        at = self._library.opu_native_memory(self._engine, number, ctypes.byref(size))
        width = self.spec.word_size(memory, self.spec.word_bytes)
        if not at:
            return np.zeros((0, width), np.uint8)
        first = at - self._arena.ctypes.data
        data = self._arena[first : first + size.value].reshape(-1, width)
        kind = np.int32 if memory.word is Word.SUMS else np.int8 if memory.signed else np.uint8
        return data.view(kind)

    def _stop(self, words: np.ndarray, status: int, report: Report) -> RunError:
        """The error of a run that did not come to its end. Raises ProgramError for words that are
        no instructions.
        """
        program = decode(words)
        if status == _BAD_PROGRAM:
            begins = bool(program) and program[0].opcode == "check"
            return RunError(
                where="program",
                what="has no `end`" if begins else "does not begin with `check`",
                help="compile the model again: the file holds no complete program",
            )
        if status != _MACHINE_FAULT:
            said = self._library.opu_status_text(status).decode()
            raise InternalError("native engine", said)
        number, code = report.fault.instruction, report.fault.code
        why = Faults(self.spec, self.dram.size).reason(program[number])
        if why is None or code == ErrorCode.WATCHDOG:
            why = self._text(code)
        return stop_error(program[number], number, why)

    def _text(self, code: int) -> str:
        if code == ErrorCode.WATCHDOG:
            return "waits for an engine that has not signalled before it"
        return f"stops the machine: {self._library.opu_fault_text(code).decode()}"
