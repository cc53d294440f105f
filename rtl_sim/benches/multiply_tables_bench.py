"""opu_multiply_tables against numpy: corner weights with corner operands, random ones, and weights
that are held while others pass by.
"""

from itertools import product

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from rtl_sim.benches.cycles import ROUNDS, generator
from rtl_sim.benches.multiply_pair_bench import CORNERS, packed

STEPS = 7


async def sums_match(dut, operands, loads=None):
    """Drive one (operands, weights) pair, int8[2] each, per cycle and check every sum.

    None is an idle cycle. Weights are loaded where `loads`, bool[len(operands)], is set, and are
    held until the next load.
    """
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    inside: list[tuple | None] = [None] * (STEPS + 1)  # now, a cycle ago and so on
    weights, checked = None, 0
    loads = loads if loads is not None else [True] * len(operands)
    for step, load in (*zip(operands, loads, strict=True), *[(None, False)] * (STEPS + 1)):
        if step is not None:
            values, new = (v.astype(int) for v in step)
            weights = new if load else weights
            dut.weights_i.value = packed(new, 8)
            inside.insert(0, (values, weights, bool(load)))
        else:
            inside.insert(0, None)
        # Weights come with their operands, which are registered first and in step 0 a cycle later.
        dut.load_i.value = packed([step is not None and step[2] for step in inside[:STEPS]], 1)
        steps = inside[1 : STEPS + 1]
        dut.moves_i.value = packed([step is not None for step in steps], 1)
        pairs = [np.zeros(2, int) if step is None else step[0] for step in steps]
        sums = packed([x0 + x1 for x0, x1 in pairs], 9)
        differences = packed([x0 - x1 for x0, x1 in pairs], 9)
        dut.operands_i.value = (
            (packed(pairs[0], 8) << 18 * STEPS) | (sums << 9 * STEPS) | differences
        )
        await FallingEdge(dut.clk_i)
        if (done := inside[STEPS]) is not None:
            values, held, _ = done
            result = dut.sum_o.value.to_signed()
            assert result == values @ held - 1, f"{values} * {held}: {result} + 1"
            checked += 1
    assert checked == sum(step is not None for step in operands)


@cocotb.test()
async def corners(dut):
    every = [np.array(c, np.int8) for c in product(CORNERS, repeat=4)]
    await sums_match(dut, [(c[:2], c[2:]) for c in every])


@cocotb.test()
async def every_weight_with_extreme_operands(dut):
    weights = np.array([*product(range(-128, 128, 5), repeat=2)], np.int8)
    for operands in ((-128, -128), (-128, 127), (127, -128), (127, 127)):
        await sums_match(dut, [(np.array(operands, np.int8), w) for w in weights])


@cocotb.test()
async def random_operands(dut):
    await sums_match(dut, list(generator().integers(-128, 128, (ROUNDS, 2, 2), np.int8)))


@cocotb.test()
async def weights_stay_until_others_are_loaded(dut):
    random = generator()
    loads = random.integers(0, 3, ROUNDS) == 0
    loads[0] = True
    operands = list(random.integers(-128, 128, (ROUNDS, 2, 2), np.int8))
    pauses = ~loads & (random.integers(0, 4, ROUNDS) == 0)
    operands = [None if pause else step for step, pause in zip(operands, pauses, strict=True)]
    await sums_match(dut, operands, loads)
