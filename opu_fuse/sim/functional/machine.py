"""The functional machine: executes instructions on numpy memories, as docs/machine.md says."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.faults import Faults
from opu_fuse.hw.isa.footprint import moved_bytes
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.functional import compute, issue_order, post, transfer
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.sim.machine_stop import stop_error


class Executed(Struct, frozen=True, kw_only=True):
    """One executed instruction.

    number: in its program; stages: results of the post chain (post only); dram_read, dram_written:
    bytes transferred, every word as often as it moves.
    """

    number: int
    instruction: Instruction
    stages: tuple[post.StageValues, ...] = ()
    dram_read: int = 0
    dram_written: int = 0


Observer = Callable[[Executed], None]
_COMPUTE = {"conv": compute.conv, "copy": compute.copy, "depthwise": compute.depthwise}


class Machine:
    """A machine's memories and what executes on them; they survive from program to program.

    spec: the machine; dram: the memory window, uint8, written by stores. Methods raise RunError for
    anything at which the machine faults.
    """

    def __init__(self, spec: HwSpec, dram: np.ndarray) -> None:
        self.spec = spec
        self.memories = Memories(spec, dram)
        self._hash = spec.spec_hash
        self._stops = Faults(spec, dram.size)

    def run(
        self,
        program: Sequence[Instruction],
        *,
        shuffle: int | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Execute a program (`check` … `end`) in its order, or in any order the counters allow.

        shuffle: seed of that order; observer: called with every executed instruction.
        """
        ends = [i for i, x in enumerate(program) if (x.engine, x.opcode) == (Engine.FETCH, "end")]
        starts = bool(program) and (program[0].engine, program[0].opcode) == (Engine.FETCH, "check")
        if not ends or not starts:
            raise RunError(
                where="program",
                what="has no `end`" if starts else "does not begin with `check`",
                help="compile the model again: the file holds no complete program",
            )

        def execute(number: int, instruction: Instruction) -> None:
            executed = self.execute(instruction, number)
            if observer is not None:
                observer(executed)

        body = program[: ends[0] + 1]
        if shuffle is None:
            issue_order.in_order(body, execute)
        else:
            limit = (1 << self.spec.counter_bits) - 1
            issue_order.shuffled(body, execute, seed=shuffle, counter_limit=limit)

    def execute(self, instruction: Instruction, number: int = 0) -> Executed:
        """Execute one instruction now; waits and signals are the caller's business."""
        mem = self.memories
        why = self._stops.reason(instruction)
        if why is not None:
            raise stop_error(instruction, number, why)
        stages: tuple[post.StageValues, ...] = ()
        read = written = 0
        match instruction.engine, instruction.opcode:
            case Engine.FETCH, "check":
                self._check_hash(instruction, number)
            case Engine.LOAD, "unfold":
                transfer.im2row(mem, instruction.load)
            case Engine.LOAD, _:
                transfer.load(mem, instruction)
                read = moved_bytes(instruction, self.spec)
            case Engine.COMPUTE, opcode:
                _COMPUTE[opcode](mem, instruction.compute)
            case Engine.POST, _:
                stages = post.run(mem, instruction.post)
            case Engine.STORE, _:
                transfer.store(mem, instruction)
                written = moved_bytes(instruction, self.spec)
            case _:  # `end`
                pass
        return Executed(
            number=number,
            instruction=instruction,
            stages=stages,
            dram_read=read,
            dram_written=written,
        )

    def _check_hash(self, instruction: Instruction, number: int) -> None:
        p = instruction.fetch
        asked = p["hash_lo"] | p["hash_hi"] << 22
        if asked != self._hash:
            what = f"was compiled for spec {asked:011x}, {self.spec.name} is {self._hash:011x}"
            raise stop_error(instruction, number, what)
