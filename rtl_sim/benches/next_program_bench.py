"""opu_top: programs queued after others."""

from collections.abc import Callable

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from opu_fuse.hw.isa.register_map import ErrorCode
from rtl_sim.benches.axi_window import BASE, WINDOW, started
from rtl_sim.benches.small_programs import (
    CONV,
    COPY,
    RESULT,
    W,
    prepare_conv,
    prepare_copy,
    program,
    runs_well,
)


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.4])
async def a_queued_program_runs_when_the_one_before_is_done(dut, stalls):
    machine, rng = await started(dut, stalls)
    size, again = 25 * W, 0xC000
    second = program(CONV.replace(f"dram={RESULT:#x}", f"dram={again:#x}"))
    for count in (2, 4, 6):
        check = prepare_conv(machine, rng)
        machine.put(again, np.zeros(size, np.int8))
        await machine.start(program(CONV))
        machine.put(0x9000, np.asarray(second, "<u4"))
        await machine.opu.queue(0x9000, len(second))
        assert await machine.field("STATUS", "queued")
        await machine.write("PROG_WORDS", 1, expect=AxiResp.SLVERR)
        while await machine.read("PROGRAMS") < count:
            await ClockCycles(dut.clk_i, 20)
        assert await machine.outcome() is None
        assert not await machine.field("STATUS", "queued")
        check()
        assert (machine.get(again, size) == machine.get(RESULT, size)).all()


@cocotb.test()
async def a_program_queued_while_none_runs_starts_at_once(dut):
    machine, rng = await started(dut)
    check = prepare_copy(machine, rng)
    machine.put(0x8000, np.asarray(words := program(COPY), "<u4"))
    await machine.opu.queue(0x8000, len(words))
    await machine.wait()
    assert await machine.outcome() is None
    check()


@cocotb.test()
async def an_error_drops_the_queued_program(dut):
    machine, rng = await started(dut)
    wrong = program(CONV)
    wrong[0] ^= 1
    await machine.start(wrong)
    await machine.opu.queue(0x8000, len(wrong))
    await machine.wait()
    assert await machine.error_code() is ErrorCode.SPEC_MISMATCH
    await machine.assert_quiet()
    assert await machine.read("PROGRAMS") == 1
    await runs_well(machine, rng)


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.4])
async def frames_overlap_in_two_windows(dut, stalls):
    """The processor fills one window while the machine works in the other; both hold the program
    at the same offset.
    """
    machine, rng = await started(dut, stalls)
    machine.window.mem.extend(bytes(WINDOW))
    words = program(CONV)
    frames, overlapped, running = 8, 0, list[tuple[int, Callable[[], None]]]()
    for frame in range(frames):
        machine.at = frame % 2 * WINDOW
        ready = machine.at, prepare_conv(machine, rng)
        machine.put(0x8000, np.asarray(words, "<u4"))
        await machine.opu.window(BASE + machine.at, WINDOW)
        await machine.opu.queue(0x8000, len(words))
        overlapped += await machine.field("STATUS", "queued")
        while await machine.read("PROGRAMS") < frame:
            await ClockCycles(dut.clk_i, 20)
        for machine.at, check in running:
            check()
        running = [ready]
    while await machine.read("PROGRAMS") < frames:
        await ClockCycles(dut.clk_i, 20)
    for machine.at, check in running:
        check()
    assert overlapped >= 6, "no program was queued while another ran"
    assert not machine.window.touched_outside
    assert await machine.outcome() is None


@cocotb.test()
async def a_wrong_window_stops_the_queued_program_only(dut):
    machine, rng = await started(dut)
    check = prepare_conv(machine, rng)
    words = program(CONV)
    await machine.start(words)
    await machine.opu.window(BASE, 0)
    await machine.opu.queue(0x8000, len(words))
    while await machine.read("PROGRAMS") < 2:
        await ClockCycles(dut.clk_i, 20)
    check()
    assert await machine.field("ERROR", "code") == ErrorCode.WINDOW
    await machine.write("IRQ_STATUS", 3)
    await machine.configure()
    await runs_well(machine, rng)
