"""Faults at random times in opu_top. After each one

* the registers name the right error code, engine and program word;
* all engines are idle, and nothing moves on the bus;
* the next program gives the right results.

OPU_BENCH_ROUNDS: injections of every kind. Bus stalls are random throughout.
"""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from opu_fuse.hw.isa.register_map import FIELD, ErrorCode
from opu_fuse.hw.isa.table import OPCODE, registers_of
from rtl_sim.benches.axi_window import Machine
from rtl_sim.benches.cycles import ROUNDS, generator, pulse_reset
from rtl_sim.benches.fault_cases import (
    BAD_RECORDS,
    ENGINES,
    FETCH,
    LOAD,
    STORE,
    bad_instructions,
    bad_words,
    outside,
    raw,
    under_way,
)
from rtl_sim.benches.small_programs import COPY, PREPARED, SPEC, program

PROGRAM = 0x8000
"""Byte offset of the program in the memory window."""
FIRST = 3
"""Index of the word after `check`."""
ILLEGAL = ErrorCode.ILLEGAL_INSTRUCTION
WATCHDOG = 700
"""Cycles without a retired instruction after which the watchdog stops the machine."""


class Bench:
    """The machine, and what every injection has in common.

    An expected outcome is (error code, engine, word index in the program); None: any.
    """

    def __init__(self, dut):
        self.dut, self.rng = dut, generator()
        self.machine = Machine(dut, self.rng, 0.3)
        self.injections = 0

    def choose(self, values):
        return values[self.rng.integers(len(values))]

    async def prepare(self):
        """Memory as the programs need it; words of a program of random length."""
        await self.machine.write("WATCHDOG", 100_000)
        for _, prepare in PREPARED:
            prepare(self.machine, self.rng)
        self.machine.window.count()
        return program("".join(self.choose(PREPARED)[0] for _ in range(self.rng.integers(1, 4))))

    def insert(self, words, added):
        """The program with new words at a random position before `end`, and the index of the last
        of these.
        """
        at = int(self.rng.integers(FIRST, len(words)))
        return [*words[:at], *added, *words[at:]], at + len(added) - 1

    async def expect(self, name, words, expected):
        """Run a program to its fault, then `check` the machine."""
        await self.machine.start(words)
        await self.machine.wait()
        await self.check(name, expected)

    async def check(self, name, expected):
        """Compare the outcome of a run that has ended; then the bus is quiet and the machine
        recovers. name: of the fault, for messages.
        """
        machine, rng = self.machine, self.rng
        outcome = await machine.outcome()
        assert outcome is not None, f"{name}: the program ended well"
        got = tuple(f if e is not None else None for f, e in zip(outcome, expected, strict=True))
        assert got == expected, f"{name}: {outcome}, expected {expected}"
        await machine.assert_quiet(40)
        assert not machine.window.touched_outside, f"{name}: used the bus outside the window"
        machine.window.count()
        if rng.random() < 0.5:  # otherwise, the next start alone must restart the machine
            await pulse_reset(self.dut)
            await machine.configure()
        text, prepare = self.choose(PREPARED)
        check_results = prepare(machine, rng)
        assert await machine.run(program(text)) is None, f"{name}: no recovery"
        check_results()
        self.injections += 1


async def begun(dut):
    bench = Bench(dut)
    await bench.machine.begin()
    return bench


@cocotb.test()
async def words_that_are_no_instructions(dut):
    bench = await begun(dut)
    for _ in range(ROUNDS):
        name, engine, word = bench.choose([*bad_words(bench.rng)])
        words, at = bench.insert(await bench.prepare(), [word])
        await bench.expect(name, words, (ILLEGAL, engine, at))
    assert bench.injections == ROUNDS


@cocotb.test()
async def instructions_that_their_engine_refuses(dut):
    bench = await begun(dut)
    for _ in range(ROUNDS):
        name, engine, added = bench.choose([*bad_instructions()])
        words, at = bench.insert(await bench.prepare(), added)
        await bench.expect(name, words, (ILLEGAL, engine, at))
    assert bench.injections == ROUNDS


@cocotb.test()
async def accesses_outside_of_window_and_buffers(dut):
    bench = await begun(dut)
    for _ in range(ROUNDS):
        name, code, engine, added = bench.choose([*outside(bench.rng)])
        words, at = bench.insert(await bench.prepare(), added)
        await bench.expect(name, words, (code, engine, at))
    assert bench.injections == ROUNDS


@cocotb.test()
async def faults_under_way(dut):
    """The instruction is not reported: another one may have begun."""
    bench = await begun(dut)
    cases = [*under_way()]
    bench.machine.put(BAD_RECORDS, np.full(8 * SPEC.word_bytes, 0x70, np.uint8))
    for number in range(max(ROUNDS, len(cases))):
        name, code, engine, added = cases[number % len(cases)]
        program_words = await bench.prepare()
        if code is ErrorCode.PARAMETER:  # later, its post could consume the token of another load
            words = [*program_words[:FIRST], *added, *program_words[FIRST:]]
        else:
            words, _ = bench.insert(program_words, added)
        await bench.expect(name, words, (code, engine, None))


async def beats_of(bench, words):
    """Byte offsets of the beats that a program reads and writes when nothing fails."""
    window = bench.machine.window
    window.count()
    assert await bench.machine.run(words) is None
    return list(window.reads), list(window.writes)


def instruction_of(words, engine, beat):
    """Word index of the instruction of an engine that moves its beat number `beat`.

    It decodes the words by itself: type in bit 31, engine in 30:28; a register's index in 27:22 and
    its value in 21:0; an opcode in 27:24.
    """
    values, moved = {}, 0
    names = {r.index: r.name for r in registers_of(engine)}
    for at, word in enumerate(words):
        if word >> 28 & 7 != engine:
            continue
        if not word >> 31:
            values[names[word >> 22 & 63]] = word & 0x3FFFFF
            continue
        count = values["run"] * values["rows"] * values["blocks"]
        weight = engine is LOAD and word >> 24 & 15 == OPCODE[LOAD, "weight"].code
        size = SPEC.buffers.weight.width if weight else SPEC.word_bytes
        moved += count * size // SPEC.dram.bus_bytes
        if beat < moved:
            return at
    raise AssertionError("no instruction moves this beat")


@cocotb.test()
@cocotb.parametrize(answer=[AxiResp.SLVERR, AxiResp.DECERR])
async def error_responses(dut, answer):
    bench = await begun(dut)
    window = bench.machine.window
    window.answer = answer
    for number in range(ROUNDS):
        words = await bench.prepare()
        read, written = await beats_of(bench, words)
        if number % 2:
            fail = int(bench.rng.integers(len(written)))
            window.count(fail_write=fail)
            expected = (ErrorCode.AXI_WRITE, STORE, instruction_of(words, STORE, fail))
            await bench.expect("write", words, expected)
            continue
        fail = int(bench.rng.integers(len(read)))
        window.count(fail_read=fail)
        await bench.machine.start(words)
        await bench.machine.wait()
        offset = window.reads[fail]
        if offset >= PROGRAM:  # reported when fetch comes to the first word of the beat
            expected = (ErrorCode.AXI_READ, FETCH, (offset - PROGRAM) // 4)
        else:
            beat = sum(o < PROGRAM for o in window.reads[:fail])
            expected = (ErrorCode.AXI_READ, LOAD, instruction_of(words, LOAD, beat))
        await bench.check("read", expected)
    assert bench.injections == ROUNDS


@cocotb.test()
async def the_watchdog_bites_when_nothing_retires(dut):
    bench = await begun(dut)
    machine = bench.machine
    while bench.injections < ROUNDS:
        await bench.prepare()
        await machine.write("WATCHDOG", WATCHDOG)
        words = program(COPY * int(bench.rng.integers(1, 4)))
        if bench.injections % 2:  # its token never comes: COPY signals the next engine only
            engine = bench.choose(ENGINES)
            silent = [e for e in ENGINES if e not in (engine, engine - 1)]
            words, _ = bench.insert(words, [raw(engine, 0, 1 << 16 + bench.choose(silent))])
            await bench.expect("a deadlock", words, (ErrorCode.WATCHDOG, None, None))
            continue
        side = bench.choose([machine.memory.read_if.r_channel, machine.memory.write_if.b_channel])
        await machine.start(words)
        await ClockCycles(dut.clk_i, int(bench.rng.integers(1, 150)))
        machine.stall(side, chance=1)
        await ClockCycles(dut.clk_i, 2 * WATCHDOG)
        busy = await machine.field("STATUS", "busy")
        code = await machine.field("ERROR", "code")
        machine.stall(side)
        if not busy:  # the stalled channel was no longer needed
            assert await machine.outcome() is None, "ended with an open transaction"
            continue
        assert code == ErrorCode.WATCHDOG, "no error is reported while a transaction is open"
        await machine.wait()
        await bench.check("a slow memory", (ErrorCode.WATCHDOG, None, None))


@cocotb.test()
async def programs_for_other_machines_and_without_an_end(dut):
    bench = await begun(dut)
    for number in range(ROUNDS):
        words = await bench.prepare()
        if number % 2:
            words[int(bench.rng.integers(2))] ^= 1 << int(bench.rng.integers(22))
            await bench.expect("hash", words, (ErrorCode.SPEC_MISMATCH, FETCH, 2))
        else:
            words = words[: int(bench.rng.integers(FIRST, len(words)))]
            await bench.expect("no end", words, (ErrorCode.PROGRAM_END, FETCH, len(words)))
    assert bench.injections == ROUNDS


@cocotb.test()
async def stops_at_any_time(dut):
    bench = await begun(dut)
    for _ in range(ROUNDS):
        words = await bench.prepare()
        await bench.machine.start(words)
        await ClockCycles(dut.clk_i, int(bench.rng.integers(1, 100)))
        await bench.machine.write("CTRL", FIELD["CTRL", "stop"].mask)
        await bench.machine.wait()
        await bench.check("stop", (ErrorCode.STOPPED, None, None))
    assert bench.injections == ROUNDS
