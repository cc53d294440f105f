"""What the benches of the compute and the post engine share: starts, retirements, memories.

The bench acts at falling clock edges. What the engine shows then (ready, valid) depends on its
registers alone, so it still holds at the rising edge that follows and decides the handshake.
"""

from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge

from opu_fuse.hw.isa.table import registers_of, unit_register
from opu_fuse.hw.rtlgen.sv_chain import units_of
from opu_fuse.hw.spec.hw_spec import HwSpec

PATIENCE = 100_000  # cycles without a retirement
INPUTS = (
    *("start_valid_i", "op_i", "params_i", "done_ready_i", "hold_i"),
    *("read_re_i", "read_addr_i", "load_addr_i", "load_data_i"),
    *("load_feature_i", "load_weight_i", "load_psum_i", "load_param_i", "load_residual_i"),
    *("load_table_i", "load_pre_i", "load_norm_i"),
)
"""Inputs of the benches, of one or the other."""


def draw(rng, **ranges):
    """A value for every name, between its two limits, both included."""
    return {name: int(rng.integers(low, high + 1)) for name, (low, high) in ranges.items()}


def pack(spec, engine, values):
    """The parameter struct of an engine: registers in index order, the first in the top bits; of
    those that every unit has, the last unit's.
    """
    word = 0
    for register in registers_of(engine):
        units = 1 if register.stage is None else units_of(spec, register.stage)
        for unit in reversed(range(units)):
            value = int(values.get(unit_register(register.name, unit), 0))
            assert register.lowest <= value <= register.highest, f"{register.name} = {value}"
            word = word << register.bits | value & ((1 << register.bits) - 1)
    return word


def bytes_of(word):
    """A memory word of lanes (any integer dtype) as an integer, lane 0 in the lowest bits."""
    return int.from_bytes(np.ascontiguousarray(word).tobytes(), "little")


@dataclass(kw_only=True)
class Pauses:
    """Chances per cycle: offer a waiting start, be ready for a retirement, refuse partial sums."""

    start: float = 1.0
    done: float = 1.0
    hold: float = 0.0


@dataclass
class EngineDriver:
    """One engine in its bench. `illegal` counts refused starts; cycle 0 is the end of reset."""

    dut: Any
    spec: HwSpec
    engine: Any
    rng: np.random.Generator
    cycle: int = 0
    illegal: int = 0
    started_at: list = field(default_factory=list)
    retired_at: list = field(default_factory=list)

    async def begin(self):
        """Idle inputs, clock, reset."""
        dut = self.dut
        for name in INPUTS:
            if hasattr(dut, name):
                getattr(dut, name).value = 0
        dut.rst_ni.value = 0
        cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await FallingEdge(dut.clk_i)

    async def load(self, memory, words):
        """Write words [n, lanes] to addresses 0 … n-1 of a memory."""
        enable = getattr(self.dut, f"load_{memory}_i")
        enable.value = 1
        for address, word in enumerate(words):
            self.dut.load_addr_i.value = address
            self.dut.load_data_i.value = bytes_of(word)
            await FallingEdge(self.dut.clk_i)
        enable.value = 0

    async def read(self, count, dtype, first=0):
        """Words first … first+count-1 of the memory that the engine writes: [count, lanes]."""
        words = []
        self.dut.read_re_i.value = 1
        for address in range(first, first + count):
            self.dut.read_addr_i.value = address
            await ClockCycles(self.dut.clk_i, 2, FallingEdge)  # psum has a register
            signal = self.dut.read_data_o
            raw = int(signal.value).to_bytes(len(signal) // 8, "little")
            words.append(np.frombuffer(raw, dtype))
        self.dut.read_re_i.value = 0
        return np.stack(words)

    async def run(self, instructions, pauses):
        """Run instructions, (opcode, values) each, to the last retirement (or refusal)."""
        dut = self.dut
        waiting = list(instructions)
        open_count, last_event = 0, self.cycle
        offered = False
        while waiting or open_count:
            if int(dut.illegal_o.value):
                self.illegal += 1
                open_count -= 1
                last_event = self.cycle
            if waiting and not offered and self.rng.random() < pauses.start:
                opcode, values = waiting[0]
                dut.op_i.value = opcode
                dut.params_i.value = pack(self.spec, self.engine, values)
                offered = True
            dut.start_valid_i.value = int(offered)
            if offered and int(dut.start_ready_o.value):
                waiting.pop(0)
                offered = False
                open_count += 1
                self.started_at.append(self.cycle)
            ready = self.rng.random() < pauses.done
            dut.done_ready_i.value = int(ready)
            if ready and int(dut.done_valid_o.value):
                open_count -= 1
                self.retired_at.append(self.cycle)
                last_event = self.cycle
            if pauses.hold:
                dut.hold_i.value = int(self.rng.random() < pauses.hold)
            assert self.cycle - last_event < PATIENCE, f"no retirement for {PATIENCE} cycles"
            await FallingEdge(dut.clk_i)
            self.cycle += 1
        dut.start_valid_i.value = 0
        dut.done_ready_i.value = 0
        assert not int(dut.done_valid_o.value), "a retirement too many"


def compare(kind, expected, got, history):
    """Equal words, or a table of the first differences and the instructions that led to them."""
    if np.array_equal(expected, got):
        return
    wrong = np.argwhere(expected != got)
    rows = [f"{kind}: {len(wrong)} of {got.size} differ", " word  lane   expected        got"]
    for word, lane in wrong[:12]:
        rows.append(f"{word:5d} {lane:5d} {expected[word, lane]:10d} {got[word, lane]:10d}")
    rows += [f"instruction {opcode}: {values}" for opcode, values in history]
    raise AssertionError("\n".join(rows))


def assert_alive(kind, values, *, distinct, lowest=None, highest=None, saturated=0.2):
    """The data says something: many distinct values, few at the limits."""
    seen = np.unique(values).size
    assert seen >= distinct, f"{kind}: only {seen} distinct values, wanted {distinct}"
    if lowest is not None:
        share = np.mean((values == lowest) | (values == highest))
        assert share <= saturated, f"{kind}: {share:.0%} at the limits"
