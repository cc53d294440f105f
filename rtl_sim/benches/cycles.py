"""What the benches of single modules share: clock, reset, and the shape of a cycle.

A cycle of a bench: drive the inputs at the falling edge, `settled` (the outputs now hold at the
rising edge that follows and decide the handshakes), then `cycle` to the next falling edge.
"""

import os

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

ROUNDS = int(os.environ.get("OPU_BENCH_ROUNDS", "2000"))


def generator():
    """The random numbers of a bench, from cocotb's seed (printed at the start of every log)."""
    return np.random.default_rng(cocotb.RANDOM_SEED)


async def begin(dut, **idle):
    """Clock, idle inputs, reset; returns at a falling edge."""
    for name, value in idle.items():
        getattr(dut, name).value = value
    dut.rst_ni.value = 0
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    await pulse_reset(dut)


async def pulse_reset(dut):
    dut.rst_ni.value = 0
    for _ in range(3):
        await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    await FallingEdge(dut.clk_i)


async def settled():
    await ReadOnly()


async def cycle(dut):
    await FallingEdge(dut.clk_i)


def high(signal):
    """A one-bit output as bool; an undefined one fails here."""
    return bool(int(signal.value))
