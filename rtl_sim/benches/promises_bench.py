"""What docs/registers.md and docs/bring-up.md promise of opu_top and no other bench checks. Each
promise, with the test that holds it, is listed in tests/rtl/test_promises.py.
"""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge
from cocotbext.axi import AxiResp

from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, FIELD, AccessKind, ErrorCode
from opu_fuse.hw.isa.table import Engine
from rtl_sim.benches.axi_window import BASE, WINDOW, started
from rtl_sim.benches.cycles import pulse_reset
from rtl_sim.benches.small_programs import (
    CONV,
    COPY,
    prepare_conv,
    prepare_copy,
    program,
    runs_well,
)

PROGRAM = 0x8000
FETCH = Engine.FETCH
STARTED, STOPPED, QUEUED = (FIELD["CTRL", name].mask for name in ("start", "stop", "queue"))
MISPLACED = {
    "program between words": {"PROG_BASE_LO": PROGRAM + 1},
    "program between beats": {"PROG_BASE_LO": PROGRAM + 4},
    "program between multiples of 64": {"PROG_BASE_LO": PROGRAM + 32},
    "program at the end of the window": {"PROG_BASE_LO": WINDOW},
    "program across the end of the window": {"PROG_BASE_LO": WINDOW - 64},
    "program above 4 GiB": {"PROG_BASE_HI": 1},
    "program far above": {"PROG_BASE_HI": 1 << 31},
    "window between pages, lowest bit": {"WINDOW_BASE_LO": (BASE & 0xFFFF_FFFF) + 1},
    "window between pages, highest bit": {"WINDOW_BASE_LO": (BASE & 0xFFFF_FFFF) + 2048},
    "window above the addresses": {"WINDOW_BASE_HI": 0x100 | BASE >> 32},
    "window across the end": {"WINDOW_BASE_HI": 0xFF, "WINDOW_BASE_LO": 0xFFFF_F000},
    "window larger than 4 GiB by a byte": {"WINDOW_SIZE_HI": 1, "WINDOW_SIZE_LO": 1},
    "window of 8 GiB": {"WINDOW_SIZE_HI": 2, "WINDOW_SIZE_LO": 0},
    "window of more than can be said": {"WINDOW_SIZE_HI": 1 << 31, "WINDOW_SIZE_LO": WINDOW},
    "empty window": {"WINDOW_SIZE_LO": 0},
    "window that ends in the program": {"WINDOW_SIZE_LO": PROGRAM + 8},
}
"""Registers that hold no address of a program or a window."""
ADDRESSES = {
    "PROG_BASE_LO": PROGRAM,
    "PROG_BASE_HI": 0,
    "WINDOW_BASE_LO": BASE & 0xFFFF_FFFF,
    "WINDOW_BASE_HI": BASE >> 32,
    "WINDOW_SIZE_LO": WINDOW,
    "WINDOW_SIZE_HI": 0,
}


async def write_all(machine, values):
    for name, value in values.items():
        await machine.write(name, value)


async def stuck(machine, name="r"):
    """A run that waits for its memory; `wake` it to end it."""
    machine.stall(machine.channel(name), chance=1)
    await machine.start(program(COPY))
    await ClockCycles(machine.dut.clk_i, 300)


@cocotb.test()
@cocotb.parametrize(command=[STARTED, QUEUED])
async def places_that_are_none_are_a_window_fault(dut, command):
    """Nothing is read, not even from the rounded address; the next program runs."""
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    words = program(COPY)
    machine.put(PROGRAM, np.asarray(words, "<u4"))
    machine.put(PROGRAM + 32, np.asarray(words, "<u4"))
    for name, values in MISPLACED.items():
        await write_all(machine, ADDRESSES | {"PROG_WORDS": len(words)} | values)
        machine.window.count()
        await machine.write("CTRL", command)
        await machine.wait()
        assert await machine.outcome() == (ErrorCode.WINDOW, FETCH, 0), name
        read = machine.window.reads
        assert not machine.window.touched_outside, name
        # A program that begins well is read up to the end of the window.
        assert not read or "end" in name, f"{name}: read {read[:3]}"
    await write_all(machine, ADDRESSES)
    assert await machine.run(words) is None
    check()


@cocotb.test()
async def a_program_may_begin_at_any_multiple_of_64(dut):
    machine, rng = await started(dut, 0.2)
    words = program(COPY)
    size = -(-4 * len(words) // 64) * 64
    for at in (0x2000, 0x2040, 0x2FC0, 0x3FC0, WINDOW - size):
        check = prepare_copy(machine, rng)
        await machine.start(words, at)
        await machine.wait()
        assert await machine.outcome() is None, hex(at)
        check()
    # The window may end after any beat: the last word of the program is in the last one.
    await machine.write("WINDOW_SIZE_LO", 0x2000 + -(-4 * len(words) // 8) * 8)
    check = prepare_copy(machine, rng)
    await machine.start(words, 0x2000)
    await machine.wait()
    assert await machine.outcome() is None
    check()
    assert not machine.window.touched_outside


@cocotb.test()
async def a_window_of_4_gib_is_one(dut):
    machine, rng = await started(dut)
    await machine.write("WINDOW_SIZE_LO", 0)
    await machine.write("WINDOW_SIZE_HI", 1)
    await runs_well(machine, rng)


@cocotb.test()
async def registers_of_window_and_program_are_locked_and_nothing_else(dut):
    """While a program runs and another one is queued, for each register and each value."""
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    await stuck(machine)
    locked = *ADDRESSES, "PROG_WORDS"
    for name in locked:
        await machine.write(name, 0x40)
        assert await machine.read(name) == 0x40
    named = {name: ADDRESSES.get(name, len(program(COPY))) for name in locked}
    await write_all(machine, named)
    await machine.opu.command("queue")
    for name in locked:
        await machine.write(name, 0x80, expect=AxiResp.SLVERR)
    await machine.write("WATCHDOG", 90_000)
    assert await machine.read("WATCHDOG") == 90_000
    machine.stall(machine.channel("r"))
    while await machine.read("PROGRAMS") < 2:
        await ClockCycles(dut.clk_i, 20)
    assert await machine.outcome() is None
    assert {name: await machine.read(name) for name in named} == named
    check()


@cocotb.test()
async def commands_that_do_not_fit_are_ignored(dut):
    """`start` while busy, `stop` while idle; CTRL reads 0."""
    machine, rng = await started(dut)
    status = await machine.read("STATUS")
    await machine.opu.command("stop")
    await ClockCycles(dut.clk_i, 10)
    assert await machine.read("STATUS") == status
    check = prepare_copy(machine, rng)
    await stuck(machine)
    cycles = await machine.read("CYCLES_LO")
    await machine.opu.command("start")
    assert await machine.read("CYCLES_LO") > cycles, "began again"
    assert await machine.read("CTRL") == 0
    machine.stall(machine.channel("r"))
    await machine.wait()
    assert await machine.outcome() is None
    check()
    await machine.assert_quiet()
    assert await machine.read("PROGRAMS") == 1
    await machine.opu.command("stop")
    await ClockCycles(dut.clk_i, 10)
    assert await machine.field("STATUS", "done"), "a stop while idle changed the outcome"


@cocotb.test()
async def a_stop_drops_the_queued_program(dut):
    machine, rng = await started(dut)
    await stuck(machine)
    await machine.opu.queue(PROGRAM, len(program(COPY)))
    await machine.opu.command("stop")
    machine.stall(machine.channel("r"))
    await machine.wait()
    assert await machine.error_code() is ErrorCode.STOPPED
    await machine.assert_quiet()
    assert await machine.read("PROGRAMS") == 1
    assert not await machine.field("STATUS", "queued")
    await runs_well(machine, rng)


@cocotb.test()
async def a_queued_program_starts_two_cycles_after_its_predecessor(dut):
    """Two ends that nobody looked at are one interrupt; counters are those of the last program."""
    machine, rng = await started(dut)
    words = program(COPY)
    check = prepare_copy(machine, rng)
    assert await machine.run(words) is None
    alone = await machine.read("CYCLES_LO")
    check()
    await machine.start(words)
    await machine.opu.queue(PROGRAM, len(words))
    busy = []
    while busy[-2:] != [False, False]:  # the end of the second one
        await FallingEdge(dut.clk_i)
        busy.append(bool(int(dut.busy.value)))
    assert busy[:-2].count(False) == 1, "a cycle in which nothing runs; then one of reset"
    await ClockCycles(dut.clk_i, 5)
    assert await machine.read("PROGRAMS") == 3
    assert await machine.read("CYCLES_LO") == alone
    assert await machine.outcome() is None  # one interrupt, cleared once
    await machine.assert_quiet()
    check()


@cocotb.test()
async def interrupts_are_those_that_are_enabled(dut):
    """The line is a level; a written one clears its bit only; `irq_clear` clears both."""
    machine, rng = await started(dut)
    outcomes = {"done": program(COPY), "error": program(COPY)[:-1]}
    bit = {name: FIELD["IRQ_STATUS", name].mask for name in outcomes}
    for enabled in ("done", "error"):
        await machine.write("IRQ_ENABLE", bit[enabled])
        for name, words in outcomes.items():
            prepare_copy(machine, rng)
            await machine.start(words)
            while await machine.field("STATUS", "busy"):
                pass
            assert await machine.read("IRQ_STATUS") == bit[name]
            assert int(dut.irq_o.value) == (name == enabled)
            await machine.write("IRQ_STATUS", 3 & ~bit[name])
            assert await machine.read("IRQ_STATUS") == bit[name], "another bit was cleared"
            await machine.write("IRQ_STATUS", bit[name])
            assert not int(dut.irq_o.value)
            assert not await machine.read("IRQ_STATUS")
    for words in outcomes.values():
        await machine.start(words)
        while await machine.field("STATUS", "busy"):
            pass
    assert await machine.read("IRQ_STATUS") == 3
    await machine.opu.command("irq_clear")
    assert await machine.read("IRQ_STATUS") == 0
    # A bit that is set raises the line when it is enabled later.
    await machine.write("IRQ_ENABLE", 0)
    check = prepare_copy(machine, rng)
    await machine.start(program(COPY))
    while await machine.field("STATUS", "busy"):
        pass
    assert not int(dut.irq_o.value)
    await machine.write("IRQ_ENABLE", bit["done"])
    assert int(dut.irq_o.value)
    check()


@cocotb.test()
async def the_end_is_reported_after_the_last_response(dut):
    """STATUS and interrupt wait for the last write response; then memory holds all stored bytes."""
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    await stuck(machine, "b")
    assert await machine.field("STATUS", "busy")
    assert not int(dut.irq_o.value)
    machine.stall(machine.channel("b"))
    await machine.wait()
    assert await machine.outcome() is None
    check()


@cocotb.test()
async def a_watchdog_of_0_waits_for_ever(dut):
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    await machine.write("WATCHDOG", 0)
    await stuck(machine)
    await ClockCycles(dut.clk_i, 5000)
    assert await machine.field("STATUS", "busy")
    assert not await machine.field("ERROR", "code")
    machine.stall(machine.channel("r"))
    await machine.wait()
    assert await machine.outcome() is None
    check()
    await machine.write("WATCHDOG", 400)
    await stuck(machine)
    await ClockCycles(dut.clk_i, 300)
    assert await machine.field("ERROR", "code") == ErrorCode.WATCHDOG
    assert await machine.field("STATUS", "busy"), "an open transaction is awaited"
    await machine.write("CTRL", STOPPED)
    machine.stall(machine.channel("r"))
    await machine.wait()
    assert await machine.error_code() is ErrorCode.WATCHDOG, "the first error counts"


@cocotb.test()
async def what_was_stored_before_a_stop_is_preserved(dut):
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    text = COPY.replace("blocks=1 wait=post", "blocks=1 wait=post signal=load")
    words = program(f"{text}load.feature dram={WINDOW:#x} run=1 rows=1 blocks=1 wait=store")
    outcome = await machine.run(words)
    assert outcome is not None
    assert outcome[:2] == (ErrorCode.WINDOW, Engine.LOAD)
    check()


@cocotb.test()
async def a_reset_of_one_cycle_is_one(dut):
    """In the middle of a run; registers are those of their table; the bus has nothing left."""
    machine, rng = await started(dut)
    for delay in (20, 60, 150):
        prepare_conv(machine, rng)
        await machine.start(program(CONV))
        await ClockCycles(dut.clk_i, delay)
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await machine.reset_memory()
        for register in CONTROL_REGISTERS:
            if register.access is not AccessKind.RO:
                assert await machine.read(register.name) == register.reset, register.name
        assert await machine.read("STATUS") == 0x1F00
        assert await machine.read("PROGRAMS") == 0
        await machine.configure()
        await runs_well(machine, rng)
    await pulse_reset(dut)


@cocotb.test()
async def accesses_do_not_disturb_a_run(dut):
    """Every register read, over and over, while programs run: same bytes, same cycles."""
    machine, rng = await started(dut)
    check = prepare_conv(machine, rng)
    assert await machine.run(program(CONV)) is None
    alone = await machine.read("CYCLES_LO")
    check()
    check = prepare_conv(machine, rng)
    await machine.start(program(CONV))
    reads = 0
    while not int(dut.irq_o.value):
        await machine.read(CONTROL_REGISTERS[reads % len(CONTROL_REGISTERS)].name)
        reads += 1
    assert reads > 20
    assert await machine.read("CYCLES_LO") == alone
    assert await machine.outcome() is None
    check()


@cocotb.test()
async def the_memory_port_is_as_described(dut):
    """Ids, kinds and sizes of bursts, none across 4 KB, of at most CAP_BUS.burst beats."""
    machine, rng = await started(dut, 0.2)
    longest = await machine.field("CAP_BUS", "burst")
    width = await machine.field("CAP_BUS", "bytes")
    seen = {"ar": set(), "aw": set()}

    def value(name):
        return int(getattr(dut, f"m_axi_{name}").value)

    async def watch():
        while True:
            await FallingEdge(dut.clk_i)
            for side, ids in seen.items():
                if not (value(f"{side}valid") and value(f"{side}ready")):
                    continue
                ids.add(value(f"{side}id"))
                fixed = [value(f"{side}{n}") for n in ("burst", "cache", "prot", "lock")]
                assert fixed == [1, 0b0011, 0, 0], (side, fixed)
                assert 1 << value(f"{side}size") == width
                at, beats = value(f"{side}addr"), value(f"{side}len") + 1
                assert beats <= longest
                assert at % 4096 + beats * width <= 4096
                assert at in range(BASE, BASE + WINDOW - beats * width + 1)

    cocotb.start_soon(watch())
    await runs_well(machine, rng)
    assert seen == {"ar": {0, 1}, "aw": {0}}, seen


@cocotb.test()
async def memory_outside_the_window_is_the_processors(dut):
    """While a program runs in one window, the processor fills another one with the next run's
    inputs; the window is moved between the runs. The machine does not touch the other one.
    """
    machine, rng = await started(dut, 0.2)
    memory = machine.window
    memory.mem.extend(bytes(WINDOW))
    words = program(CONV)
    check = prepare_conv(machine, rng)
    for _ in range(4):
        await machine.configure()
        await machine.start(words)
        machine.at, running = WINDOW - machine.at, machine.at
        for at in range(machine.at, machine.at + WINDOW, 64):
            memory.mem[at : at + 64] = rng.bytes(64)
        prepared = prepare_conv(machine, rng)
        others = bytes(memory.mem[machine.at : machine.at + WINDOW])
        assert await machine.field("STATUS", "busy"), "the run was over before"
        await machine.wait()
        assert await machine.outcome() is None
        assert bytes(memory.mem[machine.at : machine.at + WINDOW]) == others
        following, machine.at = machine.at, running
        check()
        check, machine.at = prepared, following
    assert not memory.touched_outside
