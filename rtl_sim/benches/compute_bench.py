"""cocotb tests of the compute engine in `opu_compute_bench`.

Environment: OPU_BENCH_SPEC names the machine, OPU_BENCH_ROUNDS sets the amount of work.
"""

import os

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, ReadOnly

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.benches import compute_model
from rtl_sim.benches.compute_model import CONV, COPY, DEPTHWISE
from rtl_sim.benches.engine_driver import (
    EngineDriver,
    Pauses,
    assert_alive,
    bytes_of,
    compare,
)

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
ROUNDS = int(os.environ["OPU_BENCH_ROUNDS"])
PRE_UNITS = chain_of(SPEC).pre_units
SUM_STAGES = {4: 1, 8: 2, 16: 3}[SPEC.array.multipliers]  # a register a level above sums of two
if SPEC.array.table_terms:  # its products come 4 cycles after sums of two; then a register a level
    SUM_STAGES = 4 + {2: 1, 4: 2, 6: 2}[SPEC.array.table_terms]
LEVELS = {1: 1, 2: 1, 4: 2, 8: 3}[SPEC.word_channels // SPEC.array.multipliers]  # of sums of units
DRAIN = 8 + 4 + SUM_STAGES + LEVELS + 10 * PRE_UNITS  # last step to done


class Bench:
    """The engine, its memories and their model side by side."""

    def __init__(self, dut):
        cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.driver = EngineDriver(dut, SPEC, Engine.COMPUTE, self.rng)

    async def begin(self):
        W, buffers, integers = SPEC.word_channels, SPEC.buffers, self.rng.integers
        await self.driver.begin()
        self.mem = compute_model.Memories(
            feature=integers(-128, 128, (buffers.feature.words, W), np.int8),
            weight=integers(-128, 128, (buffers.weight.words, buffers.weight.width), np.int8),
            psum=integers(-(1 << 31), 1 << 31, (buffers.psum.words, W), np.int32),
            pre=self.parameters(),
        )
        for name in ("feature", "weight", "psum", "pre"):
            await self.driver.load(name, getattr(self.mem, name))

    def parameters(self):
        """For the pre chain: results that mostly fit eight bits, and all shifts."""
        shape = (SPEC.buffers.pre.words if SPEC.buffers.pre else 0, SPEC.word_channels // 8)
        result = np.zeros(shape, compute_model.PRE_RECORD)
        anything = self.rng.random(shape) < 0.2
        shift = np.where(
            anything, *self.rng.integers([[[-16]], [[4]]], [[[48]], [[15]]], (2, *shape))
        )
        for name, reach in (("mult", 2), ("bias", 64)):
            limits = np.iinfo(result[name].dtype)
            value = self.rng.uniform(-reach, reach, shape) * 2.0**shift
            result[name] = np.clip(value, limits.min, limits.max)
        result["shift"] = shift
        return result

    async def run(self, instructions, pauses):
        refused = self.driver.illegal
        await self.driver.run(instructions, pauses)
        assert self.driver.illegal == refused, f"refused one of {instructions}"
        for opcode, values in instructions:
            compute_model.RUN[opcode](SPEC, self.mem, values)

    def random(self, count, **limits):
        draw = compute_model.random_instruction
        return [draw(SPEC, self.rng, **limits) for _ in range(count)]

    def of_kind(self, opcode, mode, pre, gate=0):
        while True:
            [(_, values)] = self.random(1, opcodes=(opcode,))
            kind = values["mode"], values["pre"], values["gate"] if pre else gate
            if opcode != CONV or kind == (mode, pre, gate):
                return opcode, values

    async def check(self, history=()):
        got = await self.driver.read(SPEC.buffers.psum.words, np.int32)
        compare("partial sums", self.mem.psum, got, history)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def random_instructions_leave_the_partial_sums_that_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    batches = [bench.random(bench.rng.integers(1, 5)) for _ in range(ROUNDS)]
    batches.append([bench.of_kind(*kind) for kind in kinds()])
    for instructions in batches:
        start, done = bench.rng.choice([0.1, 0.5, 1.0], 2)
        await bench.run(instructions, Pauses(start=start, done=done))
        await bench.check(instructions)
    assert_alive("partial sums", bench.mem.psum, distinct=bench.mem.psum.size // 8)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def windows_of_im2row_images_are_runs_of_bytes(dut):
    bench = Bench(dut)
    await bench.begin()
    for _ in range(ROUNDS):
        drawn = (compute_model.im2row_window(SPEC, bench.rng) for _ in range(3))
        instructions = [*drawn, *bench.random(1)]
        await bench.run(instructions, Pauses(done=bench.rng.choice([0.5, 1.0])))
        await bench.check(instructions)


def kinds():
    """(opcode, mode, pre, gate) of every kind of instruction the machine has."""
    yield COPY, 0, 0
    if SPEC.array.depthwise:
        yield DEPTHWISE, 0, 0
    for number, mode in enumerate(SPEC.array.modes):
        yield CONV, number, 0
        if mode.px == 1:
            yield from ((CONV, number, units) for units in range(1, PRE_UNITS + 1))
            if chain_of(SPEC).gates:
                yield CONV, number, 1, 1


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def an_instruction_that_accumulates_sees_the_sums_of_the_one_before(dut):
    bench = Bench(dut)
    await bench.begin()
    for _ in range(ROUNDS):
        words = int(bench.rng.integers(1, 4))
        instructions = bench.random(6, largest=3)
        for opcode, values in instructions:
            values |= {"ic_steps": 1, "oc_steps": 1, "accumulate": 1, "weight": 0, "oc_first": 0}
            if opcode == DEPTHWISE:
                values["ic_first"] = 0
            # The last pixel of one is often the first of the next.
            values["psum"] = max(0, words - compute_model.steps(SPEC, opcode, values))
        await bench.run(instructions, Pauses())
        await bench.check(instructions)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def convolutions_that_go_on_with_the_same_sums_add_to_all_of_them(dut):
    bench = Bench(dut)
    await bench.begin()
    alike = [kind for kind in kinds() if kind[0] == CONV]
    for kind in (alike[i] for i in bench.rng.integers(0, len(alike), ROUNDS)):
        instructions = [bench.of_kind(*kind) for _ in range(5)]
        if bench.rng.random() < 0.3:  # another one between them, which ends that
            instructions.insert(2, bench.random(1)[0])
        for opcode, values in instructions:
            values |= {"ic_steps": 1, "oc_steps": 1, "weight": 0, "oc_first": 0, "psum": 0}
            values |= {"psum_block_pitch": 64, "accumulate": int(bench.rng.random() < 0.8)}
            if opcode == DEPTHWISE:
                values["ic_first"] = 0
        await bench.run(instructions, Pauses(done=bench.rng.choice([0.5, 1.0])))
        await bench.check(instructions)


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def a_row_takes_as_long_as_its_pixels_or_its_words_or_four_cycles(dut):
    bench = Bench(dut)
    await bench.begin()
    for opcode, values in bench.random(ROUNDS, opcodes=(CONV, CONV, COPY)):
        values["accumulate"] = 0
        await bench.run([(opcode, values)], Pauses())
        took = bench.driver.retired_at[-1] - bench.driver.started_at[-1]
        expected = compute_model.fill(SPEC, opcode, values) + DRAIN
        expected += compute_model.cycles(SPEC, opcode, values)
        assert took == expected, f"{took} cycles, expected {expected}: {opcode} {values}"
    await bench.check()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def instructions_in_a_row_lose_no_cycle_between_their_sweeps(dut):
    bench = Bench(dut)
    await bench.begin()
    fill, pixels, values = 0, 0, {}
    while pixels <= fill + 4:
        [(_, values)] = bench.random(1, opcodes=(CONV,))
        fill = compute_model.fill(SPEC, CONV, values)
        pixels = compute_model.steps(SPEC, CONV, values)
    for accumulate in (0, 1):  # those continue the same sums
        values["accumulate"] = accumulate
        await bench.run([(CONV, values)] * 5, Pauses())
        took = bench.driver.retired_at[-1] - bench.driver.started_at[-5]
        assert took == 5 * compute_model.cycles(SPEC, CONV, values) + fill + DRAIN
        await bench.check()


# Skipped where the array has no windows.
@cocotb.test(timeout_time=50_000_000, timeout_unit="step", skip=not SPEC.array.depthwise)
async def a_window_takes_a_cycle_for_each_part_or_as_long_as_its_reads(dut):
    bench = Bench(dut)
    await bench.begin()
    for opcode, values in bench.random(ROUNDS, opcodes=(DEPTHWISE,), largest=9):
        values["accumulate"] = 0
        await bench.run([(opcode, values)], Pauses())
        took = bench.driver.retired_at[-1] - bench.driver.started_at[-1]
        least, most = compute_model.window_cycles(SPEC, values)
        assert least + DRAIN <= took <= most + DRAIN, f"{least} <= {took} <= {most}: {values}"
        await bench.check([(opcode, values)])


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def illegal_instructions_are_refused_and_change_nothing(dut):
    bench = Bench(dut)
    await bench.begin()
    opcode, values = bench.of_kind(CONV, 0, 0)
    for count, (code, change) in enumerate(wrong_instructions(), 1):
        await bench.driver.run([(code, values | change)], Pauses())
        assert bench.driver.illegal == count, f"accepted: opcode {code} with {change}"
    for _ in range(50):
        await FallingEdge(dut.clk_i)
    assert not bench.driver.retired_at
    await bench.check()
    await bench.run([(opcode, values)], Pauses())
    await bench.check()


def wrong_instructions():
    """(opcode, changed values), to be laid over a legal conv of mode 0."""
    W, modes, array = SPEC.word_channels, SPEC.array.modes, SPEC.array
    counts = ("out_rows", "out_cols", "stride_y", "stride_x", "ic_steps")
    kernel = ("kernel_rows", "kernel_cols", "dilation_y", "dilation_x")
    overlap = {"ic_steps": 1, "oc_steps": W, "psum_block_pitch": 8, "out_rows": 9}
    yield from ((CONV, {name: 0}) for name in (*counts, *kernel, "oc_steps"))
    yield from ((COPY, {name: 0}) for name in counts)
    yield from ((CONV, {"mode": len(modes)}), (CONV, {"slot_log2": 9}))
    yield from ((COPY, {"slot_log2": 9}), (3, {}), (15, {}))
    yield from ((CONV, overlap), (COPY, overlap | {"ic_steps": 2}), (COPY, {"pre": 1}))
    whole = {"slot_log2": int(np.log2(W)), "pre": 0}
    if SPEC.buffers.pre:
        yield CONV, whole | {"pre": 1, "slot_log2": 0}
        yield CONV, whole | {"pre": PRE_UNITS + 1}
        gate = {"pre": 1, "gate": 1, "gate_shift": 48}
        yield CONV, whole | (gate if chain_of(SPEC).gates else gate | {"gate_shift": 0})
    else:
        yield CONV, whole | {"pre": 1}
    small = whole | {"kernel_rows": 1, "kernel_cols": 1, "ic_first": 0, "ic_steps": 1, "pre": 0}
    small |= {"oc_steps": 1}
    slotted = small | {"slot_log2": 0}
    yield from ((CONV, slotted | wrong) for wrong in ({"ic_first": 1}, {"ic_steps": 2}))
    yield COPY, slotted | {"ic_steps": 2, "psum_block_pitch": 64}
    if not array.depthwise:
        yield DEPTHWISE, small
    else:
        side, (parts, _) = array.window_side, compute_model.parts_per_word(SPEC)
        yield from ((DEPTHWISE, small | {name: 0}) for name in (*counts, *kernel, "oc_steps"))
        yield from ((DEPTHWISE, small | {name: side + 1}) for name in kernel[:2])
        yield from ((DEPTHWISE, small | {"slot_log2": 0}), (DEPTHWISE, small | {"pre": 1}))
        yield from ((DEPTHWISE, small | {"oc_steps": n}) for n in (parts + 1, 1 << 15))
        yield DEPTHWISE, small | {"psum_block_pitch": 9, "ic_steps": 2, "oc_steps": 2}
        overlap |= {"oc_steps": 1}
        yield DEPTHWISE, small | overlap | {"ic_steps": parts + 1}
        yield DEPTHWISE, small | overlap | {"ic_first": parts - 1, "ic_steps": 2}
    for number, mode in enumerate(modes):
        packed = small | {"mode": number, "out_cols": mode.px, "stride_x": 1, "oc_first": 0}
        packed |= {"oc_steps": 1, "slot_log2": 0}
        if mode.px > 1:
            yield from ((CONV, packed | {"out_cols": n}) for n in (1, mode.px + 1))
            yield CONV, packed | {"oc_first": W // mode.px // mode.oc}
            yield CONV, packed | {"oc_steps": W // mode.px // mode.oc + 1}
            yield CONV, packed | whole | {"stride_x": 2}
            # The last pixel's segment ends one byte after the two words.
            yield CONV, packed | {"stride_x": (W + 1 - mode.ic) // (mode.px - 1) + 1}
            if SPEC.buffers.pre:
                yield CONV, packed | whole | {"pre": 1}


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def reads_by_the_other_engine_wait_only_while_compute_reads_the_same_bank(dut):
    bench = Bench(dut)
    await bench.begin()
    half = SPEC.buffers.psum.words // 2
    instructions = bench.random(ROUNDS, opcodes=(CONV, DEPTHWISE), largest=3)
    for bank in (0, 1):
        for _, values in instructions:  # every step reads, all in the first nine words of a bank
            values |= {"accumulate": 1, "psum": bank * half, "oc_first": 0, "ic_first": 0}
            values |= {"oc_steps": 1, "ic_steps": 1}
        words = bench.mem.psum.copy()
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
    dut, asked, granted, expected = bench.dut, 0, 0, []
    dut.read_re_i.value = 1
    while not running.done():
        address = int(bench.rng.choice(addresses))
        dut.read_addr_i.value = address
        await ReadOnly()
        grant = int(dut.read_grant_o.value)
        asked, granted = asked + 1, granted + grant
        await FallingEdge(dut.clk_i)
        expected.append(bytes_of(words[address]) if grant else None)
        if len(expected) > 1 and (word := expected.pop(0)) is not None:
            assert int(dut.read_data_o.value) == word, f"read at {address} or the one before"
    dut.read_re_i.value = 0
    return asked, granted
