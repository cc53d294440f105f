"""cocotb tests of the compute engine in `opu_compute_bench`. Machine: OPU_BENCH_SPEC; amount of work: OPU_BENCH_ROUNDS."""

import os

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge

from opu_fuse.hw.isa import Engine, registers_of
from opu_fuse.hw.load import load_hw
from rtl_sim.benches import compute_model
from rtl_sim.benches.engine_driver import EngineDriver, Pauses, assert_alive, compare

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
ROUNDS = int(os.environ["OPU_BENCH_ROUNDS"])
CONV, COPY = 0, 1
OVERHEAD = 6  # cycles from start to done of an instruction alone, besides the first fill and the sweeps


class Bench:
    """The engine, its memories and their model side by side."""

    def __init__(self, dut):
        cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.driver = EngineDriver(dut, Engine.COMPUTE, self.rng)

    async def begin(self):
        W, buffers = SPEC.word_channels, SPEC.buffers
        await self.driver.begin()
        self.feature = self.rng.integers(-128, 128, (buffers.feature.words, W), np.int8)
        self.weight = self.rng.integers(-128, 128, (buffers.weight.words, buffers.weight.width), np.int8)
        self.psum = self.rng.integers(-(1 << 31), 1 << 31, (buffers.psum.words, W), np.int32)
        await self.driver.load("feature", self.feature)
        await self.driver.load("weight", self.weight)
        await self.driver.load("psum", self.psum)

    async def run(self, instructions, pauses):
        await self.driver.run(instructions, pauses)
        for opcode, values in instructions:
            if opcode == CONV:
                compute_model.conv(SPEC, self.feature, self.weight, self.psum, values)
            else:
                compute_model.copy(SPEC, self.feature, self.psum, values)

    async def check(self, history=()):
        got = await self.driver.read(SPEC.buffers.psum.words, np.int32)
        compare("partial sums", self.psum, got, history)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def random_instructions_leave_the_partial_sums_that_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    modes = set()
    for _ in range(ROUNDS):
        instructions = [compute_model.random_instruction(SPEC, bench.rng) for _ in range(bench.rng.integers(1, 5))]
        modes |= {values["mode"] for opcode, values in instructions if opcode == CONV}
        start, done = bench.rng.choice([0.1, 0.5, 1.0], 2)
        await bench.run(instructions, Pauses(start=start, done=done))
        await bench.check(instructions)
    assert modes == set(range(len(SPEC.array.modes))), f"only modes {modes} were drawn"
    assert_alive("partial sums", bench.psum, distinct=bench.psum.size // 8)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def an_instruction_that_accumulates_sees_the_sums_of_the_one_before(dut):
    bench = Bench(dut)
    await bench.begin()
    for _ in range(ROUNDS):
        words = int(bench.rng.integers(1, 4))
        instructions = []
        for _ in range(6):
            opcode, values = compute_model.random_instruction(SPEC, bench.rng, copy_chance=0.3, largest=3)
            pixels = values["out_rows"] * values["out_cols"]
            values |= {"ic_steps": 1, "oc_steps": 1, "accumulate": 1, "weight": 0}
            values["psum"] = max(0, words - pixels)  # the last pixel of one is often the first of the next
            instructions.append((opcode, values))
        await bench.run(instructions, Pauses())
        await bench.check(instructions)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def a_row_takes_as_long_as_its_pixels_or_its_words_or_four_cycles(dut):
    bench = Bench(dut)
    await bench.begin()
    fill = max(SPEC.array.units * SPEC.array.multipliers // SPEC.buffers.weight.width, 4)
    for _ in range(ROUNDS):
        opcode, values = compute_model.random_instruction(SPEC, bench.rng)
        values["accumulate"] = 0
        await bench.run([(opcode, values)], Pauses())
        took = bench.driver.retired_at[-1] - bench.driver.started_at[-1]
        expected = compute_model.cycles(SPEC, opcode, values) + OVERHEAD + (fill if opcode == CONV else 2)
        assert took == expected, f"{took} cycles, expected {expected}: {opcode} {values}"
    await bench.check()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def instructions_in_a_row_lose_no_cycle_between_their_sweeps(dut):
    bench = Bench(dut)
    await bench.begin()
    fill = max(SPEC.array.units * SPEC.array.multipliers // SPEC.buffers.weight.width, 4)
    while True:
        _, values = compute_model.random_instruction(SPEC, bench.rng, copy_chance=0)
        if values["out_rows"] * values["out_cols"] > fill + 4:
            break
    values["accumulate"] = 0
    await bench.run([(CONV, values)] * 5, Pauses())
    took = bench.driver.retired_at[-1] - bench.driver.started_at[0]
    assert took == 5 * compute_model.cycles(SPEC, CONV, values) + OVERHEAD + fill
    await bench.check()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def illegal_instructions_are_refused_and_change_nothing(dut):
    bench = Bench(dut)
    await bench.begin()
    opcode, values = compute_model.random_instruction(SPEC, bench.rng, copy_chance=0)
    known = {r.name for r in registers_of(Engine.COMPUTE)}
    wrong = [
        *((CONV, {name: 0}) for name in known if name.startswith(("in_", "out_", "stride_"))),
        *((CONV, {name: 0}) for name in known if name.startswith(("kernel_", "dilation_"))),
        *((CONV, {"ic_steps": 0}), (CONV, {"oc_steps": 0}), (COPY, {"ic_steps": 0}), (COPY, {"out_rows": 0})),
        *((CONV, {"mode": len(SPEC.array.modes)}), (CONV, {"slot_log2": 9}), (COPY, {"slot_log2": 9})),
        *((2, {}), (15, {})),
    ]
    for count, (code, change) in enumerate(wrong, 1):
        await bench.driver.run([(code, values | change)], Pauses())
        assert bench.driver.illegal == count, f"accepted: opcode {code} with {change}"
    for _ in range(50):
        await FallingEdge(dut.clk_i)
    assert not bench.driver.retired_at
    await bench.check()
    await bench.run([(opcode, values)], Pauses())
    await bench.check()
