"""cocotb tests of the compute engine in `opu_compute_bench`.

Environment: OPU_BENCH_SPEC names the machine, OPU_BENCH_ROUNDS sets the amount of work.
"""

import os

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, ReadOnly

from opu_fuse.hw.isa import Engine
from opu_fuse.hw.load import load_hw
from opu_fuse.hw.timing import MIN_ROW_CYCLES
from rtl_sim.benches import compute_model
from rtl_sim.benches.engine_driver import (
    EngineDriver,
    Pauses,
    assert_alive,
    bytes_of,
    compare,
)

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
ROUNDS = int(os.environ["OPU_BENCH_ROUNDS"])
CONV, COPY = compute_model.CONV, compute_model.COPY
FILL = max(SPEC.row_words, MIN_ROW_CYCLES)  # first weight row of an instruction that comes alone
PREPARE = 2  # the same for copy
DRAIN = 6  # last pixel to done


class Bench:
    """The engine, its memories and their model side by side."""

    def __init__(self, dut):
        cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.driver = EngineDriver(dut, Engine.COMPUTE, self.rng)

    async def begin(self):
        W, buffers, integers = SPEC.word_channels, SPEC.buffers, self.rng.integers
        weight_shape = (buffers.weight.words, buffers.weight.width)
        await self.driver.begin()
        self.feature = integers(-128, 128, (buffers.feature.words, W), np.int8)
        self.weight = integers(-128, 128, weight_shape, np.int8)
        self.psum = integers(-(1 << 31), 1 << 31, (buffers.psum.words, W), np.int32)
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

    def random(self, count, **limits):
        draw = compute_model.random_instruction
        return [draw(SPEC, self.rng, **limits) for _ in range(count)]

    async def check(self, history=()):
        got = await self.driver.read(SPEC.buffers.psum.words, np.int32)
        compare("partial sums", self.psum, got, history)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def random_instructions_leave_the_partial_sums_that_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    modes = set()
    for _ in range(ROUNDS):
        instructions = bench.random(bench.rng.integers(1, 5))
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
        instructions = bench.random(6, copy_chance=0.3, largest=3)
        for _, values in instructions:
            pixels = values["out_rows"] * values["out_cols"]
            values |= {"ic_steps": 1, "oc_steps": 1, "accumulate": 1, "weight": 0}
            # The last pixel of one is often the first of the next.
            values["psum"] = max(0, words - pixels)
        await bench.run(instructions, Pauses())
        await bench.check(instructions)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def a_row_takes_as_long_as_its_pixels_or_its_words_or_four_cycles(dut):
    bench = Bench(dut)
    await bench.begin()
    for opcode, values in bench.random(ROUNDS):
        values["accumulate"] = 0
        await bench.run([(opcode, values)], Pauses())
        took = bench.driver.retired_at[-1] - bench.driver.started_at[-1]
        expected = compute_model.cycles(SPEC, opcode, values) + DRAIN
        expected += FILL if opcode == CONV else PREPARE
        assert took == expected, f"{took} cycles, expected {expected}: {opcode} {values}"
    await bench.check()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def instructions_in_a_row_lose_no_cycle_between_their_sweeps(dut):
    bench = Bench(dut)
    await bench.begin()
    values = {"out_rows": 0, "out_cols": 0}
    while values["out_rows"] * values["out_cols"] <= FILL + 4:
        [(_, values)] = bench.random(1, copy_chance=0)
    values["accumulate"] = 0
    await bench.run([(CONV, values)] * 5, Pauses())
    took = bench.driver.retired_at[-1] - bench.driver.started_at[0]
    assert took == 5 * compute_model.cycles(SPEC, CONV, values) + FILL + DRAIN
    await bench.check()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def illegal_instructions_are_refused_and_change_nothing(dut):
    bench = Bench(dut)
    await bench.begin()
    [(opcode, values)] = bench.random(1, copy_chance=0)
    counts = ("out_rows", "out_cols", "stride_y", "stride_x", "ic_steps")
    conv_counts = ("kernel_rows", "kernel_cols", "dilation_y", "dilation_x", "oc_steps")
    overlap = {"ic_steps": 1, "oc_steps": SPEC.word_channels, "psum_block_pitch": 8, "out_rows": 9}
    wrong = [
        *((CONV, {name: 0}) for name in (*counts, *conv_counts)),
        *((COPY, {name: 0}) for name in counts),
        *((CONV, {"mode": len(SPEC.array.modes)}), (CONV, {"slot_log2": 9})),
        *((COPY, {"slot_log2": 9}), (2, {}), (15, {})),
        *((CONV, overlap), (COPY, overlap | {"ic_steps": 2})),
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


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def reads_by_the_other_engine_wait_only_while_compute_reads_the_same_bank(dut):
    bench = Bench(dut)
    await bench.begin()
    half = SPEC.buffers.psum.words // 2
    instructions = bench.random(ROUNDS, copy_chance=0, largest=3)
    for bank in (0, 1):
        for _, values in instructions:  # every step reads, all in the first nine words of a bank
            values |= {"accumulate": 1, "oc_steps": 1, "psum": bank * half}
        words = bench.psum.copy()
        running = cocotb.start_soon(bench.run(instructions, Pauses()))
        asked, granted = await read_while(bench, running, words, range(half + 9, 2 * half))
        assert asked > 100
        if bank == 0:
            assert granted == asked, "a read of the idle bank was refused"
        else:
            assert granted < asked, "compute and the other engine read one bank in one cycle"
        await bench.check(instructions)


async def read_while(bench, running, words, addresses):
    """Reads words that nobody writes until `running` ends: reads asked for, reads granted."""
    dut, asked, granted = bench.dut, 0, 0
    dut.read_re_i.value = 1
    while not running.done():
        address = int(bench.rng.choice(addresses))
        dut.read_addr_i.value = address
        await ReadOnly()
        grant = int(dut.read_grant_o.value)
        asked, granted = asked + 1, granted + grant
        await FallingEdge(dut.clk_i)
        if grant:
            assert int(dut.read_data_o.value) == bytes_of(words[address]), f"word {address}"
    dut.read_re_i.value = 0
    return asked, granted
