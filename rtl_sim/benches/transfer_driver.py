"""What the benches of load and store share: random shapes, their words, starts with pauses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opu_fuse.hw.isa.table import Engine, registers_of
from rtl_sim.benches.cycles import cycle, settled

BASE = 0x12_3456_7000  # bus address of the window
PATIENCE = 50_000  # cycles without a retirement
FAULT_CYCLES = 8  # after a retirement, at most


def random_shape(rng, most_words, window_words):
    """Counts, pitches and first word of a transfer inside the window; many merge or overlap."""
    while True:
        run, rows, blocks = (
            int(rng.integers(1, 12)),
            int(rng.integers(1, 6)),
            int(rng.integers(1, 4)),
        )
        row_pitch = int(rng.choice([run, run, rng.integers(0, 30)]))
        block_pitch = int(rng.choice([rows * row_pitch, rng.integers(0, 90)]))
        first = int(rng.integers(window_words))
        last = first + (blocks - 1) * block_pitch + (rows - 1) * row_pitch + run
        if run * rows * blocks <= most_words and last <= window_words:
            return {
                "run": run,
                "rows": rows,
                "row_pitch": row_pitch,
                "blocks": blocks,
                "block_pitch": block_pitch,
            }, first


def words_of(shape, first):
    """DRAM words in the order of the transfer."""
    b, r, i = np.ogrid[: shape["blocks"], : shape["rows"], : shape["run"]]
    return (first + b * shape["block_pitch"] + r * shape["row_pitch"] + i).ravel()


def pack(engine, values):
    """The parameter struct as an integer: registers in index order, the first highest."""
    word = 0
    for register in registers_of(engine):
        word = word << register.bits | values.get(register.name, 0) & ((1 << register.bits) - 1)
    return word


def parameters(shape, byte_offset, buffer_address):
    """buffer_address: (register, address in the buffer)."""
    name, address = buffer_address
    return shape | {"dram_lo": byte_offset & 0x3FFFFF, "dram_hi": byte_offset >> 22, name: address}


@dataclass(kw_only=True)
class Transfer:
    """An instruction of load or store: opcode, parameters; `check` is called at its retirement."""

    op: int
    values: dict
    check: Callable[..., object] | None = None


@dataclass(kw_only=True)
class TransferBench:
    """Runs transfers on the engine.

    port: Reads or Writes; each_cycle: called with settled outputs.
    """

    dut: Any
    engine: Engine
    port: Any
    rng: np.random.Generator
    each_cycle: Callable[[Any], None]
    pauses: float = 0.3
    open: list = field(default_factory=list)

    async def run(self, transfers, *, until_fault=False):
        """Run all transfers to retirement, or to the first fault (then returned as (code, pc))."""
        dut, rng = self.dut, self.rng
        waiting = list(enumerate(transfers))
        offered = False
        last = 0
        for now in range(1_000_000):
            if waiting and not offered and rng.random() > self.pauses:
                pc, transfer = waiting[0]
                dut.params_i.value = pack(self.engine, transfer.values)
                dut.pc_i.value = pc
                if hasattr(dut, "op_i"):
                    dut.op_i.value = transfer.op
                offered = True
            dut.start_valid_i.value = int(offered)
            ready = rng.random() > self.pauses
            dut.done_ready_i.value = int(ready)
            self.port.drive(dut)
            await settled()
            self.port.observe(dut)
            self.each_cycle(dut)
            if offered and int(dut.start_ready_o.value):
                self.open.append(waiting.pop(0)[1])
                offered, last = False, now
            if ready and int(dut.done_valid_o.value):
                assert self.open, "a retirement too many"
                transfer = self.open.pop(0)
                if transfer.check:
                    transfer.check()
                last = now
            fault = int(dut.fault_o.value)
            assert until_fault or not fault, (
                f"fault {int(dut.fault_code_o.value)} in a legal program"
            )
            result = (int(dut.fault_code_o.value), int(dut.fault_pc_o.value))
            await cycle(dut)
            if fault:
                return result
            if not waiting and not offered and not self.open:
                dut.done_ready_i.value = 0
                if not until_fault or now - last > FAULT_CYCLES:
                    return None
            assert now - last < PATIENCE, f"nothing retires, {len(self.open)} open"
        raise AssertionError("too long")
