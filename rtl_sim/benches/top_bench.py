"""opu_top on cocotbext-axi with random stalls: results, errors, an idle bus, recovery.

Programs and their results: `small_programs.py`.
"""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge
from cocotbext.axi import AxiResp

from opu_fuse.hw.isa.register_map import (
    CONTROL_REGISTERS,
    FIELD,
    ID_VALUE,
    OFFSET,
    VERSION_VALUE,
    AccessKind,
    ErrorCode,
)
from opu_fuse.hw.isa.table import Engine
from rtl_sim.benches.axi_window import WINDOW, started
from rtl_sim.benches.cycles import pulse_reset
from rtl_sim.benches.small_programs import (
    CONV,
    COPY,
    RESULT,
    SLOT,
    SPEC,
    W,
    prepare_conv,
    prepare_copy,
    program,
    runs_well,
    starts,
)

CAPABILITIES = {
    "CAP_ARRAY": 4 << 16 | 8,
    "CAP_LANES": 8 << 16 | 8,
    "CAP_BUS": 16 << 16 | 8,
    "CAP_FEATURE_WORDS": 256,
    "CAP_WEIGHT_WORDS": 256,
    "CAP_PARAM_WORDS": 64,
    "CAP_RESIDUAL_WORDS": 128,
    "CAP_PSUM_WORDS": 128,
    "CAP_OUTPUT_WORDS": 128,
    "CAP_PRE_WORDS": 0,
    "CAP_TABLE_WORDS": 0,
    "CAP_IMAGE_WORDS": 0,
    "CAP_NORM_WORDS": 0,
    "CAP_MODULES": 0b10_0000_0111,  # act, pool, residual; keep
}
"""Expected capability registers of opu-tiny, copied from its YAML."""
SIGNALS = ("arvalid", "arready", "rvalid", "rready", "rlast", "wvalid", "wready")


@cocotb.test()
async def programs_give_the_right_bytes_without_stalls(dut):
    machine, rng = await started(dut)
    await runs_well(machine, rng)
    beats = await machine.read("AXI_WRITE_BEATS")
    assert beats == 25 * SPEC.word_bytes // SPEC.dram.bus_bytes, beats
    cycles = await machine.read("CYCLES_LO")
    for engine in Engine:
        busy = await machine.read(f"BUSY_{engine.name}")
        assert 0 < busy < cycles, f"{engine.name} busy in {busy} of {cycles} cycles"


@cocotb.test()
@cocotb.parametrize(stalls=[0.3, 0.7])
async def programs_give_the_right_bytes_with_stalls_everywhere(dut, stalls):
    machine, rng = await started(dut, stalls)
    for _ in range(2):
        await runs_well(machine, rng)


@cocotb.test()
async def control_registers_are_as_their_table_says(dut):
    machine, rng = await started(dut, 0.3)
    await pulse_reset(dut)
    constants = {
        "ID": ID_VALUE,
        "VERSION": VERSION_VALUE,
        "SPEC_HASH_LO": SPEC.spec_hash & 0xFFFF_FFFF,
        "SPEC_HASH_HI": SPEC.spec_hash >> 32,
        **CAPABILITIES,
    }
    for register in CONTROL_REGISTERS:
        expected = constants.get(register.name, register.reset)
        assert await machine.read(register.name) == expected, register.name
    for register in CONTROL_REGISTERS:
        if register.access is AccessKind.RO:
            await machine.write(register.name, 1, expect=AxiResp.SLVERR)
        elif register.access is AccessKind.RW:
            mask = sum(f.mask for f in register.fields) or 0xFFFF_FFFF
            value = int(rng.integers(1 << 32))
            await machine.write(register.name, value)
            assert await machine.read(register.name) == value & mask, register.name
    await machine.write("PROG_WORDS", 0x11223344)
    await machine.control.write(OFFSET["PROG_WORDS"] + 1, b"\xaa")
    assert await machine.read("PROG_WORDS") == 0x1122AA44, "a strobe was ignored"
    unmapped = max(OFFSET.values()) + 4
    await machine.write(unmapped, 1, expect=AxiResp.SLVERR)
    await machine.read(unmapped, expect=AxiResp.SLVERR)


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.5])
async def waiting_for_memory_and_multiplying_are_counted(dut, stalls):
    machine, rng = await started(dut, stalls)
    waits = 0

    async def watch():
        nonlocal waits
        reads = 0  # open
        while True:
            await FallingEdge(dut.clk_i)
            bus = {n: bool(int(getattr(dut, f"m_axi_{n}").value)) for n in SIGNALS}
            no_data = (reads or bus["arvalid"]) and not bus["rvalid"]
            waits += no_data or (bus["wvalid"] and not bus["wready"])
            reads += bus["arvalid"] and bus["arready"]
            reads -= bus["rvalid"] and bus["rready"] and bus["rlast"]

    cocotb.start_soon(watch())
    for text, prepare, products in ((CONV, prepare_conv, 25 * 9 * 2), (COPY, prepare_copy, 0)):
        check, waits = prepare(machine, rng), 0
        assert await machine.run(program(text)) is None
        check()
        assert await machine.read("MULTIPLYING") == products
        assert await machine.read("MEMORY_WAIT") == waits > (20 if stalls else 0)


@cocotb.test()
async def data_may_be_taken_before_their_address(dut):
    machine, rng = await started(dut)
    machine.stall(machine.memory.write_if.aw_channel, chance=0.98)
    machine.memory.write_if.w_channel.queue_occupancy_limit = 64  # beats that wait for an address
    bursts = {"aw": 0, "w": 0}  # taken, those of data when they end
    early = 0

    async def watch():
        nonlocal early
        while True:
            await FallingEdge(dut.clk_i)
            for name in bursts:
                ready, valid = (getattr(dut, f"m_axi_{name}{e}").value for e in ("ready", "valid"))
                last = name == "aw" or int(dut.m_axi_wlast.value)
                bursts[name] += bool(int(ready) and int(valid) and last)
            early += bursts["w"] > bursts["aw"]

    cocotb.start_soon(watch())
    await runs_well(machine, rng)
    assert early, "no burst of data came before its address"


@cocotb.test()
async def what_comes_before_the_reset_is_over_waits(dut):
    """A reset in the middle of a program; what it was is over when the registers answer again."""
    machine, rng = await started(dut)
    await machine.start(program(COPY))
    dut.rst_ni.value = 0
    await ClockCycles(dut.clk_i, 2)
    dut.rst_ni.value = 1
    for edge in range(3):
        ready = [dut.s_axil_awready, dut.s_axil_wready, dut.s_axil_arready]
        await ReadOnly()
        assert [int(r.value) for r in ready] == [edge == 2] * 3, f"{edge} edges after the reset"
        assert not int(dut.m_axi_arvalid.value), "the run before continues"
        await RisingEdge(dut.clk_i)
    await machine.configure()
    await runs_well(machine, rng)


@cocotb.test()
async def the_window_cannot_be_moved_under_a_running_program(dut):
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    await machine.start(program(COPY))
    for name in ("WINDOW_BASE_LO", "WINDOW_SIZE_LO", "PROG_BASE_LO"):  # of the next program
        await machine.write(name, 0)
    await machine.wait()
    assert await machine.outcome() is None
    check()
    outcome = await machine.run(program(COPY))
    assert outcome == (ErrorCode.WINDOW, FETCH, 0), outcome


@cocotb.test()
async def a_window_across_the_end_of_the_addresses_is_empty(dut):
    machine, rng = await started(dut)
    for size in (1 << 32, 0x2000):
        await machine.write("WINDOW_BASE_LO", 0xFFFF_F000)
        await machine.write("WINDOW_BASE_HI", 0xFF)
        await machine.write("WINDOW_SIZE_LO", size & 0xFFFF_FFFF)
        await machine.write("WINDOW_SIZE_HI", size >> 32)
        outcome = await machine.run(program(COPY))
        assert outcome == (ErrorCode.WINDOW, FETCH, 0), outcome
        assert not machine.window.touched_outside, "addresses wrapped to 0"
    await machine.write("WINDOW_SIZE_HI", 0)
    await machine.configure()
    await runs_well(machine, rng)


@cocotb.test()
async def a_program_longer_than_any_index_does_not_begin(dut):
    machine, rng = await started(dut)
    words = program(COPY)
    machine.put(0x8000, np.asarray(words, "<u4"))
    await machine.write("PROG_BASE_LO", 0x8000)
    await machine.write("PROG_WORDS", 1 << 24 | len(words))
    await machine.write("CTRL", FIELD["CTRL", "start"].mask)
    await machine.wait()
    assert await machine.outcome() == (ErrorCode.PROGRAM_END, FETCH, 0)
    await runs_well(machine, rng)


@cocotb.test()
async def halves_of_the_cycles_belong_together(dut):
    machine, rng = await started(dut)
    await machine.write("WATCHDOG", 2000)
    await machine.start(program(f"compute.copy {SLOT} in_rows=1 in_cols=1 wait=load"))
    dut.u_control.cycles_low_q.value = (1 << 32) - 40
    halves = [[await machine.read(f"CYCLES_{half}") for half in ("LO", "HI")] for _ in range(20)]
    counts = [high << 32 | low for low, high in halves]
    assert counts == sorted(counts), halves
    assert counts[0] < 1 << 32 < counts[-1], halves
    await machine.wait()
    await machine.outcome()
    await runs_well(machine, rng)


@cocotb.test()
async def writes_are_awaited_before_they_come(dut):
    machine, rng = await started(dut)
    for name in ("aw", "w"):
        valid, ready = (getattr(dut, f"s_axil_{name}{end}") for end in ("valid", "ready"))
        assert not int(valid.value), "nothing is written yet"
        assert int(ready.value), f"{name}ready waits for {name}valid"
    await runs_well(machine, rng)


def raw(engine, op, low=0):
    return 1 << 31 | engine << 28 | op << 24 | low


def spliced(text, position, word):
    """A program with one of its words replaced."""
    words = program(text)
    words[position] = word
    return words


LOAD, COMPUTE, STORE, FETCH = Engine.LOAD, Engine.COMPUTE, Engine.STORE, Engine.FETCH
ILLEGAL = ErrorCode.ILLEGAL_INSTRUCTION
FIRST = 3  # index of the word after `check`
ONE = "run=1 rows=1 blocks=1"


@cocotb.test()
async def every_error_has_its_code_and_leaves_the_bus_idle(dut):
    machine, rng = await started(dut, 0.3)
    cases = {
        "unknown engine": (spliced(COPY, FIRST, raw(6, 0)), (ILLEGAL, FETCH, FIRST)),
        "unknown opcode": (spliced(COPY, FIRST, raw(LOAD, 9)), (ILLEGAL, LOAD, FIRST)),
        "reserved bits": (spliced(COPY, FIRST, raw(STORE, 0, 1)), (ILLEGAL, STORE, FIRST)),
        "own token": (spliced(COPY, FIRST, raw(LOAD, 0, 1 << 17)), (ILLEGAL, LOAD, FIRST)),
        "unknown register": (
            spliced(COPY, FIRST, STORE << 28 | 60 << 22),
            (ILLEGAL, STORE, FIRST),
        ),
        "zero run": (program("load.feature rows=1 blocks=1"), (ILLEGAL, LOAD, None)),
        "zero rows of compute": (
            program(f"compute.copy {SLOT} in_rows=4 in_cols=4 ic_steps=1"),
            (ILLEGAL, COMPUTE, None),
        ),
        "empty post": (program("post.run"), (ILLEGAL, Engine.POST, None)),
        "load outside": (
            program(f"load.feature dram={WINDOW:#x} {ONE}"),
            (ErrorCode.WINDOW, LOAD, None),
        ),
        "store outside": (
            program(f"store.store dram={WINDOW - W:#x} run=2 rows=1 blocks=1"),
            (ErrorCode.WINDOW, STORE, None),
        ),
        "far outside": (
            program(f"load.feature dram=0xffffff00 {ONE}"),
            (ErrorCode.WINDOW, LOAD, None),
        ),
        "feature buffer": (
            program(f"load.feature dst={SPEC.buffers.feature.words} {ONE}"),
            (ErrorCode.BUFFER, LOAD, None),
        ),
        "other machine": (
            [w ^ 1 if n == 0 else w for n, w in enumerate(program(COPY))],
            (ErrorCode.SPEC_MISMATCH, FETCH, 2),
        ),
        "no end": (program(COPY)[:-1], (ErrorCode.PROGRAM_END, FETCH, len(program(COPY)) - 1)),
    }
    for name, (words, (code, engine, pc)) in cases.items():
        prepare_copy(machine, rng)
        before = bytes(machine.window.mem[:0x8000])
        outcome = await machine.run(words)
        expected_pc = starts(words, engine)[-1] if pc is None else pc
        assert outcome == (code, engine, expected_pc), f"{name}: {outcome}"
        await machine.assert_quiet()
        if name != "no end":
            assert bytes(machine.window.mem[:0x8000]) == before, f"{name}: memory was written"
        assert not machine.window.touched_outside, f"{name}: the bus was used outside the window"
    await runs_well(machine, rng)


@cocotb.test()
async def error_responses_stop_the_machine(dut):
    machine, rng = await started(dut, 0.3)
    rest = COPY.split("signal=compute", 1)[1]
    text = f"load.feature dram=0 run=64 rows=1 blocks=1 signal=compute\n{rest}"
    for bad, code, engine in (
        (range(256, 264), ErrorCode.AXI_READ, LOAD),
        (range(RESULT + 128, RESULT + 136), ErrorCode.AXI_WRITE, STORE),
    ):
        prepare_copy(machine, rng)
        machine.window.bad = bad
        words = program(text)
        outcome = await machine.run(words)
        assert outcome is not None, f"{code.name}: the program ended well"
        assert outcome[:2] == (code, engine), outcome
        assert outcome[2] == starts(words, engine)[0], f"{code.name}: word {outcome[2]}"
        await machine.assert_quiet()
    machine.window.bad = range(0x8000, 0x8040)
    outcome = await machine.run(program(text))
    assert outcome == (ErrorCode.AXI_READ, FETCH, 0), outcome
    await machine.assert_quiet()
    machine.window.bad = range(0)
    await runs_well(machine, rng)


@cocotb.test()
async def a_program_that_hangs_is_stopped_by_the_watchdog(dut):
    machine, rng = await started(dut, 0.3)
    await machine.write("WATCHDOG", 500)
    words = program(f"compute.copy {SLOT} in_rows=1 in_cols=1 wait=load")
    outcome = await machine.run(words)
    assert outcome is not None, "a deadlocked program ended well"
    assert outcome[0] == ErrorCode.WATCHDOG, outcome
    cycles = await machine.read("CYCLES_LO")
    assert 500 <= cycles < 700, f"stopped after {cycles} cycles"
    await machine.assert_quiet()
    await runs_well(machine, rng)


@cocotb.test()
async def stop_ends_a_run_and_the_next_one_is_not_disturbed(dut):
    machine, rng = await started(dut, 0.3)
    for delay in (5, 60, 150, 300):
        prepare_conv(machine, rng)
        await machine.start(program(CONV))
        await ClockCycles(dut.clk_i, delay)
        await machine.write("CTRL", FIELD["CTRL", "stop"].mask)
        await machine.wait()
        outcome = await machine.outcome()
        assert outcome is None or outcome[0] == ErrorCode.STOPPED, outcome
        await machine.assert_quiet(60)
        await runs_well(machine, rng)


@cocotb.test()
async def reset_in_the_middle_of_a_run_recovers(dut):
    machine, rng = await started(dut, 0.3)
    for delay in (30, 100, 200, 350):
        prepare_conv(machine, rng)
        await machine.start(program(CONV))
        await ClockCycles(dut.clk_i, delay)
        await pulse_reset(dut)
        assert not int(dut.irq_o.value)
        await machine.assert_quiet(60)
        assert not await machine.field("STATUS", "busy")
        await machine.configure()
        await runs_well(machine, rng)
