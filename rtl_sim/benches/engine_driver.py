"""What the benches of the compute and the post engine share: driving starts and retirements, loading and reading memories.

Instructions are plain dicts {register name: value} plus an opcode. All timing is at the falling edge: inputs change there, so
that handshakes are seen in the middle of the cycle they belong to.
"""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from opu_fuse.hw.isa import registers_of


def pack(engine, values):
    """The parameter struct of an engine as an integer: registers in index order, the first in the highest bits."""
    word = 0
    for register in registers_of(engine):
        value = int(values[register.name])
        assert register.lowest <= value <= register.highest, f"{register.name} = {value}"
        word = word << register.bits | value & (1 << register.bits) - 1
    return word


class EngineDriver:
    """Start and done side of one engine, and the load port of its bench."""

    def __init__(self, dut, engine, *, seed):
        self.dut, self.engine = dut, engine
        self.random = random.Random(seed)
        self.done_chance = 1.0
        self.starts = self.retired = self.illegal = self.cycle = 0
        self.start_cycles, self.done_cycles = [], []

    async def begin(self):
        """Clock, reset, idle inputs, the monitor of every cycle."""
        dut = self.dut
        for name in ("start_valid", "op", "params", "done_ready", "read_re", "read_addr", "load_addr", "load_data"):
            getattr(dut, f"{name}_i").value = 0
        for name in ("load_feature_i", "load_weight_i", "load_psum_i", "load_param_i", "load_residual_i", "hold_i"):
            if hasattr(dut, name):
                getattr(dut, name).value = 0
        dut.rst_ni.value = 0
        cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await FallingEdge(dut.clk_i)
        cocotb.start_soon(self._monitor())

    async def _monitor(self):
        """Counts cycles, retirements and refusals; pauses the done side at random."""
        dut = self.dut
        ready = 0
        while True:
            dut.done_ready_i.value = ready = int(self.random.random() < self.done_chance)
            await FallingEdge(dut.clk_i)
            self.cycle += 1

    async def tick(self):
        await FallingEdge(self.dut.clk_i)
