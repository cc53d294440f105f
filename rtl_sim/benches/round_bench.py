"""opu_round against `fixedpoint`: every shift with values at and beside each half and each limit,
then random ones.
"""

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from opu_fuse.fixedpoint import clamp8, rne_shift
from rtl_sim.benches.cycles import ROUNDS, generator


def values_near_the_edges(width, shift):
    """Around multiples of half a unit that land beside 0 and the limits, inside the width."""
    unit = 1 << shift
    quotients = (0, 1, 2, 127, 128, 255, 256, 257, 384, 511, 512, 1024)
    near = {q * unit + half + d for q in quotients for half in (0, unit // 2) for d in (-1, 0, 1)}
    top = (1 << (width - 1)) - 1
    signed = {0, top, -top - 1, *near, *(-v for v in near)}
    return sorted(v for v in signed if -top - 1 <= v <= top)


async def rounds(dut, value, shift, zero, lo, hi):
    dut.value_i.value = value
    dut.shift_i.value = shift
    dut.zero_i.value, dut.lo_i.value, dut.hi_i.value = zero, lo, hi
    dut.floor_i.value, dut.ceiling_i.value = zero - lo, hi - zero
    await FallingEdge(dut.clk_i)
    expected = int(clamp8(rne_shift(np.array(value), shift) + zero, lo, hi))
    got = dut.result_o.value.to_signed()
    assert got == expected, f"{value} / 2**{shift} + {zero} in {lo}..{hi}: {got}, not {expected}"


@cocotb.test()
async def halves_and_limits_of_every_shift(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    rng = generator()
    width = len(dut.value_i)
    for shift in range(48):
        for value in values_near_the_edges(width, shift):
            await rounds(dut, value, shift, int(rng.choice([-128, -1, 0, 127])), -128, 127)


@cocotb.test()
async def random_values_offsets_and_limits(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    rng = generator()
    width = len(dut.value_i)
    for _ in range(ROUNDS):
        shift = int(rng.integers(0, 62))
        bits = min(width - 1, int(rng.integers(shift, shift + 12)))
        value = int(rng.integers(-(1 << bits), 1 << bits))
        lo, hi = sorted(int(v) for v in rng.integers(-128, 128, 2))
        await rounds(dut, value, shift, int(rng.integers(-128, 128)), lo, hi)
