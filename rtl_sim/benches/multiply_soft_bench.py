"""opu_multiply_soft against Python: every x with corner and random factors."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge

from rtl_sim.benches.cycles import ROUNDS, generator


async def multiplies(dut, x, factor):
    dut.x_i.value, dut.factor_i.value = x, factor
    await ClockCycles(dut.clk_i, len(dut.x_i) // 2 - 1)
    await FallingEdge(dut.clk_i)
    assert dut.product_o.value.to_signed() == x * factor, f"{x} * {factor}"


@cocotb.test()
async def every_x_with_corner_and_random_factors(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    rng = generator()
    x_top, factor_top = 1 << (len(dut.x_i) - 1), 1 << (len(dut.factor_i) - 1)
    corners = (-factor_top, 1 - factor_top, -1, 0, 1, factor_top - 1)
    for x in range(-x_top, x_top):
        count = -(-ROUNDS // (2 * x_top))
        for factor in (*corners, *rng.integers(-factor_top, factor_top, count)):
            await multiplies(dut, x, int(factor))
