"""CTRL.abort in opu_top: the run ends although the memory is silent, the interconnect is reset, the
machine is not, and the next run gives every byte of the window and takes as many cycles as one that
nothing came before.

OPU_BENCH_ROUNDS: aborts of every kind, at random times.
"""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge

from opu_fuse.hw.isa.register_map import FIELD, ErrorCode
from opu_fuse.hw.isa.table import Engine
from rtl_sim.benches.axi_window import CHANNELS, WINDOW, started
from rtl_sim.benches.cycles import ROUNDS
from rtl_sim.benches.small_programs import CONV, COPY, RESULT, prepare_conv, prepare_copy, program

PROGRAM = 0x8000
WATCHDOG = 500
WHOLE = "run=12 rows=3 row_pitch=12 blocks=1"
TWO_LAYERS = (
    COPY.replace(
        f"{WHOLE} wait=post",
        f"run=1 rows=1 blocks=1 wait=post\nstore.store dram={RESULT:#x} {WHOLE}",
    )
    + CONV
)
"""The first burst that is written is the last one of its instruction."""
STUCK = 300
"""Cycles after which a run whose memory is silent has nothing left to do."""
COUNTERS = (
    *("CYCLES_LO", "AXI_READ_BEATS", "AXI_WRITE_BEATS", "MULTIPLYING", "MEMORY_WAIT"),
    *(f"{kind}_{engine.name}" for kind in ("BUSY", "STALL") for engine in Engine),
)


class Bench:
    """The machine, a program, the memory before it and what a run that nobody disturbs makes."""

    def __init__(self, machine, rng):
        self.machine, self.rng = machine, rng

    async def learn(self):
        machine = self.machine
        checks = [fill(machine, self.rng) for fill in (prepare_copy, prepare_conv)]
        self.words = program(TWO_LAYERS)
        machine.put(PROGRAM, np.asarray(self.words, "<u4"))
        self.before = bytes(machine.window.mem[:WINDOW])
        await machine.reset_memory()
        self.expected = await self.run()
        checks[-1]()  # of the program that writes the result last

    async def run(self):
        """The program on the memory as it was: bytes of the window, counters."""
        machine = self.machine
        machine.window.mem[:WINDOW] = self.before
        await machine.write("WATCHDOG", 100_000)
        assert await machine.run(self.words) is None
        return bytes(machine.window.mem[:WINDOW]), await self.counters()

    async def counters(self):
        return {name: await self.machine.read(name) for name in COUNTERS}

    async def abort(self, *expected):
        """The run ends within a few cycles of the write, nothing is offered on the bus after it."""
        machine = self.machine
        await machine.opu.command("abort")
        await machine.wait(cycles=4)
        assert not any(
            int(getattr(machine.dut, f"m_axi_{name}valid").value) for name in ("ar", "aw", "w")
        )
        assert await machine.error_code() in expected

    async def next_run_is_right(self, name):
        machine = self.machine
        assert not machine.window.touched_outside, name
        memory, counters = await self.run()
        assert memory == self.expected[0], f"{name}: the next run leaves other bytes"
        assert counters == self.expected[1], f"{name}: the next run takes another time"
        await machine.assert_quiet(20)


async def begun(dut):
    machine, rng = await started(dut)
    bench = Bench(machine, rng)
    await bench.learn()
    return bench


@cocotb.test()
@cocotb.parametrize(name=CHANNELS)
async def an_abort_recovers_from_a_silent_channel(dut, name):
    """Silent from the start, or from some time on; then stop and abort, abort alone, or both
    after the watchdog; with the answers that the memory still owed, or without.
    """
    bench = await begun(dut)
    machine, rng = bench.machine, bench.rng
    stuck = 0
    while stuck < ROUNDS:
        machine.window.mem[:WINDOW] = bench.before
        await machine.write("WATCHDOG", WATCHDOG if rng.random() < 0.3 else 100_000)
        if early := stuck % 2 == 0:
            machine.stall(machine.channel(name), chance=1)
        await machine.start(bench.words)
        if not early:
            await ClockCycles(dut.clk_i, int(rng.integers(1, 250)))
            machine.stall(machine.channel(name), chance=1)
        await ClockCycles(dut.clk_i, STUCK + 2 * WATCHDOG)
        if not await machine.field("STATUS", "busy"):
            assert not early, "a program ended without its memory"
            assert await machine.outcome() is None  # it needed the channel no more
            await machine.reset_memory()
            continue
        if rng.random() < 0.5:
            await machine.opu.command("stop")
            await ClockCycles(dut.clk_i, 50)
            assert await machine.field("STATUS", "busy"), "ended with an open transaction"
            assert await machine.field("ERROR", "code") != ErrorCode.NONE
        await bench.abort(ErrorCode.STOPPED, ErrorCode.WATCHDOG)
        if rng.random() < 0.5:
            await late_answers(bench, name)
        await machine.reset_memory()
        await bench.next_run_is_right(name)
        stuck += 1


async def late_answers(bench, name):
    """The memory wakes up before it is reset: nobody takes what it says for anything."""
    machine = bench.machine
    registers = [await machine.read(r) for r in ("STATUS", "ERROR", "ERROR_PC", "IRQ_STATUS")]
    counters = await bench.counters()
    machine.stall(machine.channel(name))
    answers = 0
    for _ in range(200):
        await FallingEdge(machine.dut.clk_i)
        answers += int(machine.dut.m_axi_rvalid.value) + int(machine.dut.m_axi_bvalid.value)
    assert answers or name not in ("r", "b"), "the memory owed nothing"
    after = [await machine.read(r) for r in ("STATUS", "ERROR", "ERROR_PC", "IRQ_STATUS")]
    assert after == registers, "a late answer changed the outcome"
    assert await bench.counters() == counters, "a late answer was counted"


@cocotb.test()
async def an_abort_of_a_healthy_run_recovers(dut):
    bench = await begun(dut)
    machine, rng = bench.machine, bench.rng
    ended = 0
    for _ in range(4 * ROUNDS):
        machine.window.mem[:WINDOW] = bench.before
        await machine.start(bench.words)
        await ClockCycles(dut.clk_i, int(rng.integers(1, 250)))
        await machine.opu.command("abort")
        await machine.wait(cycles=4)
        outcome = await machine.outcome()
        assert outcome is None or outcome[0] is ErrorCode.STOPPED
        ended += outcome is not None
        await machine.reset_memory()
        await bench.next_run_is_right("healthy")
    assert ended, "every run had ended before"


@cocotb.test()
async def an_abort_drops_the_queued_program(dut):
    bench = await begun(dut)
    machine = bench.machine
    machine.stall(machine.channel("r"), chance=1)
    await machine.start(bench.words)
    await machine.opu.queue(PROGRAM, len(bench.words))
    before = await machine.read("PROGRAMS")
    await bench.abort(ErrorCode.STOPPED)
    assert not await machine.field("STATUS", "queued")
    await machine.reset_memory()
    await machine.assert_quiet()
    assert await machine.read("PROGRAMS") == before + 1
    await bench.next_run_is_right("queued")


@cocotb.test()
async def an_abort_in_the_first_cycles_of_a_run_recovers(dut):
    """`start` and `abort` of one write: the abort comes before the run and is ignored; those that
    come a few cycles later end it.
    """
    bench = await begun(dut)
    machine = bench.machine
    for delay in range(1, 12):
        machine.window.mem[:WINDOW] = bench.before
        await machine.start(bench.words)
        await ClockCycles(dut.clk_i, delay)
        await bench.abort(ErrorCode.STOPPED)
        await machine.reset_memory()
        await bench.next_run_is_right(f"{delay} cycles")
    machine.window.mem[:WINDOW] = bench.before
    await machine.write("CTRL", FIELD["CTRL", "start"].mask | FIELD["CTRL", "abort"].mask)
    await machine.wait()
    assert await machine.outcome() is None
    assert bytes(machine.window.mem[:WINDOW]) == bench.expected[0]


@cocotb.test()
async def an_abort_while_idle_is_ignored(dut):
    bench = await begun(dut)
    machine = bench.machine
    status = await machine.read("STATUS")
    await machine.opu.command("abort")
    await ClockCycles(dut.clk_i, 20)
    assert await machine.read("STATUS") == status
    assert not await machine.read("IRQ_STATUS")
    await bench.next_run_is_right("idle")
