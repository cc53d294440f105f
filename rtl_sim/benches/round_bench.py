"""opu_round against `fixedpoint`: every shift with values at and next to each half and each limit,
then random ones.
"""

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge

from opu_fuse.fixedpoint import clamp8, rne_shift
from rtl_sim.benches.cycles import ROUNDS, generator

LATENCY = 3


def values_near_the_edges(width, shift):
    """Values around multiples of half a unit that round next to 0 and the limits, in range."""
    unit = 1 << shift
    quotients = (0, 1, 2, 127, 128, 255, 256, 257, 384, 511, 512, 1024)
    near = {q * unit + half + d for q in quotients for half in (0, unit // 2) for d in (-1, 0, 1)}
    top = (1 << (width - 1)) - 1
    signed = {0, top, -top - 1, *near, *(-v for v in near)}
    return sorted(v for v in signed if -top - 1 <= v <= top)


def shifts(dut):
    """How many there are, as far as numpy's int64 rounds by them."""
    return min(1 << len(dut.shift_i), 62)


async def result_of(dut, value, shift, zero, lo, hi, *, wraps=0):
    dut.value_i.value = value
    dut.shift_i.value = shift
    dut.zero_i.value, dut.lo_i.value, dut.hi_i.value = zero, lo, hi
    dut.wraps_i.value = wraps
    await ClockCycles(dut.clk_i, LATENCY)
    await FallingEdge(dut.clk_i)
    return dut.result_o.value.to_signed()


async def rounds(dut, value, shift, zero, lo, hi):
    if not int(dut.CLAMPS.value):
        lo, hi = -128, 127
    left = int(dut.LEFT.value)
    scaled = np.array(value << max(left - shift, 0))
    expected = int(clamp8(rne_shift(scaled, max(shift - left, 0)) + zero, lo, hi))
    got = await result_of(dut, value, shift, zero, lo, hi)
    case = f"{value} * 2**{left} / 2**{shift} + {zero} in {lo}..{hi}"
    assert got == expected, f"{case}: {got}, not {expected}"


@cocotb.test()
async def halves_and_limits_of_every_shift(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    rng = generator()
    width = len(dut.value_i)
    left = int(dut.LEFT.value)
    for shift in range(shifts(dut)):
        for value in values_near_the_edges(width, max(shift - left, 0)):
            await rounds(dut, value, shift, int(rng.choice([-128, -1, 0, 127])), -128, 127)


@cocotb.test()
async def random_values_offsets_and_limits(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    rng = generator()
    width = len(dut.value_i)
    left = int(dut.LEFT.value)
    for _ in range(ROUNDS):
        shift = int(rng.integers(0, shifts(dut)))
        least = max(shift - left, 0)
        bits = min(width - 1, int(rng.integers(least, least + 12)))
        value = int(rng.integers(-(1 << bits), 1 << bits))
        lo, hi = sorted(int(v) for v in rng.integers(-128, 128, 2))
        await rounds(dut, value, shift, int(rng.integers(-128, 128)), lo, hi)


@cocotb.test()
async def lowest_bits_of_a_value_that_wraps(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    if int(dut.CLAMPS.value):
        return
    rng = generator()
    top = 1 << (len(dut.value_i) - 1)
    for value in (0, top - 1, -top, *map(int, rng.integers(-top, top, 100))):
        got = await result_of(dut, value, int(dut.LEFT.value), 0, 0, 0, wraps=1)
        assert got & 255 == value & 255, f"{value}: {got}"
