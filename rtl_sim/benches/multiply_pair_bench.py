"""opu_multiply_pair against numpy: every pair of corner weights with every corner operand, then
random ones.
"""

from itertools import product

import cocotb
import numpy as np
from cocotb.triggers import Timer

from rtl_sim.benches.cycles import ROUNDS, generator

CORNERS = np.array([-128, -127, -1, 0, 1, 127], np.int8)


async def sums_match(dut, shared, low, high):
    """Arrays int8[TERMS]."""
    for port, values in ((dut.shared_i, shared), (dut.low_i, low), (dut.high_i, high)):
        port.value = int.from_bytes(values.astype(np.int8).tobytes(), "little")
    await Timer(1, "ns")
    wide = shared.astype(np.int64)
    assert dut.low_sum_o.value.to_signed() == wide @ low, f"{shared} * low {low}"
    assert dut.high_sum_o.value.to_signed() == wide @ high, f"{shared} * high {high}"


@cocotb.test()
async def corners_in_all_terms_and_in_one(dut):
    terms = len(dut.shared_i) // 8
    for shared, low, high in product(CORNERS, repeat=3):
        for shape in (np.ones(terms, np.int8), np.eye(terms, dtype=np.int8)[terms - 1]):
            await sums_match(dut, shared * shape, low * shape, high * shape)


@cocotb.test()
async def random_operands(dut):
    rng = generator()
    terms = len(dut.shared_i) // 8
    for _ in range(ROUNDS):
        await sums_match(dut, *rng.integers(-128, 128, (3, terms), np.int8))
