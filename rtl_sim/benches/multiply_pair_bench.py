"""opu_multiply_pair against numpy: every pair of corner weights with every corner operand, then
random ones, and weights that are held while others pass by.
"""

from itertools import product

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from rtl_sim.benches.cycles import ROUNDS, generator

CORNERS = np.array([-128, -127, -1, 0, 1, 127], np.int8)


def packed(values, bits):
    """Numbers of so many bits, concatenated."""
    return sum((int(value) & (1 << bits) - 1) << bits * i for i, value in enumerate(values))


async def sums_match(dut, operands, loads=None):
    """(shared, low, high), int8[TERMS] each, one after the other, a new one every cycle. Weights
    are loaded where `loads`, bool[len(operands)], is set, and held until the next ones; by default
    all are loaded.
    """
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    latency = 4 + int(dut.SUM_STAGES.value)
    inside = []
    weights = []  # of the last load; the first step loads
    steps = zip(operands, loads if loads is not None else [True] * len(operands), strict=True)
    for step in (*steps, *[None] * latency):
        operands_in = None
        if step is not None:
            (shared, *ports), load = step
            dut.load_i.value = int(load)
            low, high = ports
            dut.shared_i.value = packed(shared, 8)
            dut.low_i.value = packed(low, 8)
            dut.high_i.value = packed(high.astype(int) - (low < 0), 9)
            weights = ports if load else weights
            operands_in = (shared, *weights)
        inside.append(operands_in)
        if len(inside) > latency:
            shared, low, high = (values.astype(np.int64) for values in inside.pop(0))
            assert dut.low_sum_o.value.to_signed() == shared @ low, f"{shared} * low {low}"
            assert dut.high_sum_o.value.to_signed() == shared @ high, f"{shared} * high {high}"
        await FallingEdge(dut.clk_i)
    assert not any(operands_in is not None for operands_in in inside)


@cocotb.test()
async def corners_in_all_terms_and_in_one(dut):
    terms = len(dut.shared_i) // 8
    shapes = (np.ones(terms, np.int8), np.eye(terms, dtype=np.int8)[terms - 1])
    corners = product(CORNERS, CORNERS, CORNERS, shapes)
    await sums_match(dut, [(shared * s, low * s, high * s) for shared, low, high, s in corners])


@cocotb.test()
async def random_operands(dut):
    terms = len(dut.shared_i) // 8
    await sums_match(dut, list(generator().integers(-128, 128, (ROUNDS, 3, terms), np.int8)))


@cocotb.test()
async def weights_stay_until_others_are_loaded(dut):
    terms = len(dut.shared_i) // 8
    random = generator()
    loads = random.integers(0, 3, ROUNDS) == 0
    loads[0] = True
    await sums_match(dut, list(random.integers(-128, 128, (ROUNDS, 3, terms), np.int8)), loads)
