"""cocotb tests of the post engine in `opu_post_bench`.

Environment: OPU_BENCH_SPEC names the machine, OPU_BENCH_ROUNDS sets the amount of work.
"""

import itertools
import os

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.units import POST
from opu_fuse.units.base import ModuleKind, Stage
from opu_fuse.units.pool import PoolKind
from rtl_sim.benches import post_model
from rtl_sim.benches.engine_driver import EngineDriver, Pauses, assert_alive, compare
from rtl_sim.benches.graph_orders import KINDS, REQUANT, orders_of

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
ROUNDS = int(os.environ["OPU_BENCH_ROUNDS"])
RUN = 0
ORDERS = orders_of(SPEC)
POOLING = [order for order in ORDERS.every if Stage.POOL in ORDERS.kinds(order)]
RESIDUAL = [order for order in ORDERS.every if ORDERS.kinds(order) == (Stage.RESIDUAL,)]
LATENCY = {unit.stage: unit.cycles for unit in POST}
BEATS = SPEC.word_channels // SPEC.post.lanes  # cycles per iteration
SIDE_BEATS = SPEC.word_channels // SPEC.residual_lanes  # cycles per iteration with a second operand
LATENCY[Stage.RESIDUAL] += SIDE_BEATS > BEATS  # they are gathered
LATENCY[Stage.RESIDUAL] += 3 * (SPEC.has(ModuleKind.SE) or SPEC.post.residual_tables)
if BEATS > 1 and any(mode.px > 1 for mode in SPEC.array.modes):
    LATENCY[Stage.POOL] += BEATS  # a word is gathered
PREPARE = 3  # cycles from start to the one before the first iteration, at least
LOAD = 2  # likewise with parameters to load, plus a cycle per parameter word
DRAIN = 13  # cycles from the last iteration to done, without the stages of LATENCY
UNITS = {n: SPEC.dataflow.modules[n] for n in ORDERS.codes if n != REQUANT}
HOLD = 11 + sum(
    LATENCY[KINDS[kind]] for kind in {m.unit or n: m.kind for n, m in UNITS.items()}.values()
)
"""Cycles that parameters of units after the requantiser wait for the block before."""
OVERLAPS = ((3, 3, 1), (3, 3, 2), (2, 2, 1), (3, 2, 1), (1, 4, 2), (2, 4, 1), (5, 5, 1))
ONE = ("in_rows", "out_rows", "win_rows", "win_cols", "stride_y", "stride_x", "blocks")


class Bench:
    """The engine, its memories and their model side by side."""

    def __init__(self, dut):
        cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.driver = EngineDriver(dut, SPEC, Engine.POST, self.rng)

    async def begin(self):
        W, buffers = SPEC.word_channels, SPEC.buffers
        await self.driver.begin()
        self.psum = post_model.random_psum(SPEC, self.rng)
        self.param = post_model.random_parameters(SPEC, self.rng)
        self.residual = self.rng.integers(-128, 128, (buffers.residual.words, W), np.int8)
        await self.driver.load("psum", self.psum)
        await self.driver.load("param", self.param)
        await self.driver.load("residual", self.residual)
        tables = buffers.table.words if buffers.table else 0
        self.table = self.rng.integers(-128, 128, (tables, W), np.int8)
        await self.driver.load("table", self.table)
        # What the buffers hold is known once every word is written.
        self.output = np.zeros((buffers.output.words, W), np.int8)
        self.feature = np.zeros((buffers.feature.words, W), np.int8)
        step = min(buffers.psum.words, buffers.output.words)
        for out in range(0, buffers.output.words, step):
            count = min(step, buffers.output.words - out)
            await self.run([self.line(0, psum=0, out=out, count=count, keep=0)], Pauses())
        for at in range(0, buffers.feature.words if SPEC.post.keep else 0, step):
            count = min(step, buffers.feature.words - at)
            p = self.line(0, psum=0, out=0, count=count, keep=1, keep_at=at)
            await self.run([p], Pauses())

    def random(self, count, **limits):
        draw = post_model.random_instruction
        return [draw(SPEC, self.rng, **limits) for _ in range(count)]

    def line(self, order, *, psum, out, count, **more):
        """Neighbouring partial sum words to neighbouring output words."""
        [p] = self.random(1, order=order)
        p |= dict.fromkeys(ONE, 1) | dict.fromkeys(("origin_y", "origin_x", "keep", "spread"), 0)
        p |= {"psum": psum, "out": out}
        return p | {"in_cols": count, "out_cols": count} | more

    async def run(self, instructions, pauses):
        await self.driver.run([(RUN, p) for p in instructions], pauses)
        for p in instructions:
            memories = (self.residual, self.table)
            results = (self.output, self.feature)
            post_model.run(SPEC, self.psum, self.param, memories, results, p)

    async def run_counted(self, p):
        """An instruction alone takes its beats and the latency of its chain."""
        for _ in range(HOLD):
            await FallingEdge(self.dut.clk_i)
        await self.run([p], Pauses())
        took = self.driver.retired_at[-1] - self.driver.started_at[-1]
        chain = ORDERS.kinds(p["order"])
        words = post_model.words_of(chain)
        each = SIDE_BEATS if Stage.RESIDUAL in chain else BEATS
        beats = each * post_model.iterations(p) // p["blocks"]
        block = max(beats, HOLD * post_model.holds(chain) + words + 1) if words else beats
        before = max(PREPARE, LOAD + words if words else 0) + (p["blocks"] - 1) * block
        expected = before + beats + DRAIN + sum(LATENCY[s] for s in chain)
        assert took == expected, f"{took} cycles, expected {expected}: {chain} {p}"

    async def check(self, history):
        """Where instructions write; strays are what `check_all` finds, which takes longer."""
        for p in history:
            await self._compare("output", p["out"], p["blocks"] * p["out_block_pitch"], history)
            if p["keep"]:
                count = p["blocks"] * p["keep_block_pitch"]
                await self._compare("feature", p["keep_at"], count, history)

    async def check_all(self):
        """Both buffers whole."""
        await self._compare("output", 0, SPEC.buffers.output.words, ())
        if SPEC.post.keep:
            await self._compare("feature", 0, SPEC.buffers.feature.words, ())

    async def _compare(self, kind, first, count, history):
        expected = {"output": self.output, "feature": self.feature}[kind][first : first + count]
        self.dut.read_kept_i.value = int(kind == "feature")
        got = await self.driver.read(len(expected), np.int8, first)
        compare(kind, expected, got, [(RUN, p) for p in history])


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def every_chain_writes_what_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    for order in ORDERS.every:
        plain = [{"pool_slots": 0, "pool_kind": kind} for kind in PoolKind]
        pools = [*plain, *(post_model.packed(slots) for slots in post_model.slots_of(SPEC))]
        spreads = [{"spread": 0}]
        if post_model.spreads(ORDERS.kinds(order)):
            spreads += [post_model.spread(value) for value in post_model.spreads_of(SPEC)]
        changes = [pool | {"spread": 0} for pool in pools] if order in POOLING else spreads
        cases = [*itertools.product(changes, post_model.residual_kinds(SPEC, order))]
        for at in bench.rng.permutation(len(cases))[:3]:  # others on other machines
            change, kind = cases[at]
            [p] = bench.random(1, order=order, kind=kind, largest=3)
            p |= change
            await bench.run([p], Pauses())
            await bench.check([p])
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def random_instructions_with_stalls_write_what_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    for _ in range(ROUNDS):
        instructions = bench.random(bench.rng.integers(1, 5))
        start, done = bench.rng.choice([0.1, 0.5, 1.0], 2)
        hold = bench.rng.choice([0.0, 0.3, 0.8])
        await bench.run(instructions, Pauses(start=start, done=done, hold=hold))
        dut.hold_i.value = 0
        await bench.check(instructions)
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def requantised_outputs_have_many_values_and_few_at_the_limits(dut):
    bench = Bench(dut)
    await bench.begin()
    size = SPEC.buffers.output.words
    for first in range(0, SPEC.buffers.psum.words - 32, 32):
        p = bench.line(ORDERS.pack([REQUANT]), psum=first, out=first % size, count=32)
        await bench.run([p], Pauses())
    assert_alive("outputs", bench.output, distinct=200, lowest=-128, highest=127, saturated=0.5)
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def a_window_position_takes_one_cycle(dut):
    bench = Bench(dut)
    await bench.begin()
    for order in ORDERS.every:
        [p] = bench.random(1, order=order)
        await bench.run_counted(p)
    await bench.check_all()


# Skipped where the machine has no pool.
@cocotb.test(timeout_time=50_000_000, timeout_unit="step", skip=not POOLING)
async def windows_of_a_row_share_columns_of_a_maximum_pool(dut):
    bench = Bench(dut)
    await bench.begin()
    for rows, cols, stride in OVERLAPS:
        pool = {"pool_kind": PoolKind.MAX, "pool_slots": 0, "stride_x": stride}
        pool |= {"win_rows": rows, "win_cols": cols}
        for order in bench.rng.choice(POOLING, size=ROUNDS // 4 + 1):
            first, second = (p | pool for p in bench.random(2, order=int(order)))
            await bench.run_counted(first | {"blocks": 1})
            await bench.run([first, second], Pauses(hold=0.3))
            dut.hold_i.value = 0
            await bench.check([first, second])
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def illegal_instructions_are_refused_and_change_nothing(dut):
    bench = Bench(dut)
    await bench.begin()
    [values] = bench.random(1, order=ORDERS.pack_kinds((Stage.REQUANT, Stage.ACT)))
    values |= {"spread": 0}
    zero = ("out_rows", "out_cols", "win_rows", "win_cols", "stride_y", "stride_x", "blocks")
    wrong = [
        *((RUN, {name: 0}) for name in zero),
        *((RUN, {"win_rows": 2}), (RUN, {"win_cols": 2}), (1, {}), (15, {})),
    ]
    legal = max(post_model.slots_of(SPEC), default=0)
    slots = {"order": next(iter(POOLING), 0)} | post_model.packed(legal or 2)
    wrong += [(RUN, slots | {"pool_slots": n}) for n in range(1, 8) if n % 2 or n > legal]
    wrong += [(RUN, slots | change) for change in ({"pool_kind": 1}, {"win_cols": 1})]
    wrong += [(RUN, slots | change) for change in ({"stride_x": 1}, {"stride_x": 3})]
    wrong.append((RUN, {"pool_slots": legal or 2}))
    pieces = post_model.spread(legal or 2)
    wrong += [(RUN, pieces | {"spread": n}) for n in range(1, 8) if n < 2 or n >= 2 * legal]
    wrong += [(RUN, pieces | change) for change in ({"origin_x": 1}, {"stride_x": 2})]
    wrong += [(RUN, pieces | {"order": order, "pool_slots": 0}) for order in POOLING[:1]]
    if not SPEC.post.keep:
        wrong.append((RUN, {"keep": 1}))
    for order in RESIDUAL:
        product = ORDERS.is_product(order)
        others = sorted({*range(4)} - {*post_model.residual_kinds(SPEC, order)})
        wrong += [(RUN, {"order": order, "res_kind": kind}) for kind in others]
        if SPEC.numeric.multiplier_bits == 0:
            odd = [{f"res_{n}_mult": 3} for n in ("a" if product else "ab")]
            wrong += [(RUN, {"order": order, "res_kind": product} | factor) for factor in odd]
    before = len(bench.driver.retired_at)
    for count, (code, change) in enumerate(wrong, 1):
        await bench.driver.run([(code, values | change)], Pauses())
        assert bench.driver.illegal == count, f"accepted: opcode {code} with {change}"
    for _ in range(50):
        await FallingEdge(dut.clk_i)
    assert len(bench.driver.retired_at) == before
    await bench.check_all()
    await bench.run([values], Pauses())
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def orders_run_exactly_where_the_graph_has_them(dut):
    bench = Bench(dut)
    await bench.begin()
    pixel = bench.line(0, psum=0, out=0, count=1, keep=0)
    runs = []
    # All of them against the compiler's view of the graph: tests/sim/test_graph_orders.py.
    some = bench.rng.choice(ORDERS.candidates(), 3000)
    for order in sorted({*ORDERS.every, *map(int, some)}):
        change = {"order": order, "res_kind": ORDERS.is_product(order)}
        before = bench.driver.illegal
        await bench.driver.run([(RUN, pixel | change)], Pauses())
        if bench.driver.illegal == before:
            runs.append(order)
    assert runs == [*ORDERS.every]


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def a_position_outside_the_tile_without_a_pool_is_refused(dut):
    bench = Bench(dut)
    await bench.begin()
    [values] = bench.random(1, order=ORDERS.pack_kinds([Stage.ACT]))
    values |= {"origin_x": 0, "in_cols": 1, "out_cols": 2, "stride_x": 1}
    await bench.driver.run([(RUN, values)], Pauses())
    assert bench.driver.illegal == 1
