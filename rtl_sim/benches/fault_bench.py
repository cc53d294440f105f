"""Faults at random times in opu_top: right code, engine and word, idle engines, a quiet bus, and a
machine that works again after it.

OPU_BENCH_ROUNDS: injections of every kind. Bus stalls are random throughout.
"""

import cocotb
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from opu_fuse.hw.isa import OPCODE, Engine, Stage, pack_order, registers_of
from opu_fuse.hw.regmap import ErrorCode
from opu_fuse.hw.spec import ModuleKind
from rtl_sim.benches.axi_window import FIELD, WINDOW, Machine
from rtl_sim.benches.cycles import ROUNDS, generator, pulse_reset
from rtl_sim.benches.small_programs import (
    CONV,
    COPY,
    RESULT,
    SPEC,
    W,
    check_conv,
    check_copy,
    program,
)

PROGRAM = 0x8000
FIRST = 3  # word behind `check`
ENGINES = (Engine.LOAD, Engine.COMPUTE, Engine.POST, Engine.STORE)
FETCH, LOAD, STORE = Engine.FETCH, Engine.LOAD, Engine.STORE
ILLEGAL = ErrorCode.ILLEGAL_INSTRUCTION
WATCHDOG = 700
PAIRS = ((COPY, check_copy), (CONV, check_conv))


class Bench:
    """The machine, and what every injection has in common."""

    def __init__(self, dut):
        self.dut, self.rng = dut, generator()
        self.machine = Machine(dut, self.rng, 0.3)
        self.injections = 0

    def choose(self, values):
        return values[self.rng.integers(len(values))]

    async def prepare(self):
        """Memory as the programs need it; words of a program of random length."""
        await self.machine.write("WATCHDOG", 100_000)
        for _, fill in PAIRS:
            fill(self.machine, self.rng)
        self.machine.window.count()
        return program("".join(self.choose(PAIRS)[0] for _ in range(self.rng.integers(1, 4))))

    def insert(self, words, added):
        """New words at a random place in front of `end`; the index of the last of them."""
        at = int(self.rng.integers(FIRST, len(words)))
        return [*words[:at], *added, *words[at:]], at + len(added) - 1

    async def expect(self, name, words, expected):
        """Run to the fault; then nothing moves any more, and the machine recovers."""
        await self.machine.start(words)
        await self.machine.wait()
        await self.check(name, expected)

    async def check(self, name, expected):
        machine, rng = self.machine, self.rng
        found = await machine.outcome()
        assert found is not None, f"{name}: the program ended well"
        got = tuple(f if e is not None else None for f, e in zip(found, expected, strict=True))
        assert got == expected, f"{name}: {found}, expected {expected}"
        await machine.assert_quiet(40)
        assert not machine.window.touched_outside, f"{name}: used the bus outside the window"
        machine.window.count()
        if rng.random() < 0.5:  # else the next start must do
            await pulse_reset(self.dut)
            await machine.configure()
        text, fill = self.choose(PAIRS)
        correct = fill(machine, rng)
        assert await machine.run(program(text)) is None, f"{name}: no recovery"
        correct()
        self.injections += 1


async def begun(dut):
    bench = Bench(dut)
    await bench.machine.begin()
    return bench


def explicit(engine, opcode, **values):
    """An instruction that sets every register of its engine."""
    words = [
        engine << 28 | r.index << 22 | values.get(r.name, 0) & 0x3FFFFF
        for r in registers_of(engine)
    ]
    return [*words, 1 << 31 | engine << 28 | OPCODE[engine, opcode].code << 24]


def raw(engine, op=0, low=0):
    return 1 << 31 | engine << 28 | op << 24 | low


def bad_words(rng):
    """(name, engine that meets it, word): words that are no instruction."""
    bit = 1 << int(rng.integers(8))
    yield "reserved bits", (engine := ENGINES[rng.integers(4)]), raw(engine, 0, bit)
    for name, shift in (("wait", 16), ("signal", 8)):
        own = 1 << engine if rng.random() < 0.5 else 1 << int(rng.choice([0, 5, 6, 7]))
        yield f"{name} on nobody", engine, raw(engine, 0, own << shift)
    yield "unknown engine", FETCH, raw(int(rng.integers(5, 8)))
    yield "register of an unknown engine", FETCH, int(rng.integers(5, 8)) << 28
    for any_engine in (*ENGINES, FETCH):
        count = sum(e is any_engine for e, _ in OPCODE)
        yield "unknown opcode", any_engine, raw(any_engine, int(rng.integers(count, 16)))
        free = len(registers_of(any_engine))
        if free < 64:
            word = any_engine << 28 | int(rng.integers(free, 64)) << 22
            yield "unknown register", any_engine, word
    for any_engine in ENGINES:
        narrow = [r for r in registers_of(any_engine) if r.bits < 22]
        register = narrow[rng.integers(len(narrow))]
        value = register.highest + 1
        yield "value too large", any_engine, any_engine << 28 | register.index << 22 | value


SHAPE = {"run": 1, "rows": 1, "blocks": 1}
UNIT = {"stride_y": 1, "stride_x": 1, "out_rows": 1, "out_cols": 1}
POST = UNIT | {"in_rows": 1, "in_cols": 1, "win_rows": 1, "win_cols": 1, "blocks": 1}


def bad_instructions():
    """(name, engine, words): whole instructions that their engine refuses."""
    for name in SHAPE:
        yield f"{name} 0", LOAD, explicit(LOAD, "feature", **SHAPE | {name: 0})
        yield f"{name} 0", STORE, explicit(STORE, "store", **SHAPE | {name: 0})
    yield "misaligned", LOAD, explicit(LOAD, "weight", **SHAPE, dram_lo=1)
    yield "misaligned", STORE, explicit(STORE, "store", **SHAPE, dram_lo=W // 2)
    skipped = {"skip_low": SPEC.word_bytes - 1, "skip_high": 1}
    yield "nothing written", STORE, explicit(STORE, "store", **SHAPE, **skipped)
    for name in ("pre", "table"):
        if getattr(SPEC.buffers, name) is None:
            yield f"no {name} buffer", LOAD, explicit(LOAD, name, **SHAPE)
    if not SPEC.has(ModuleKind.UPSAMPLE):
        yield "no upsampling", STORE, explicit(STORE, "store", **SHAPE, repeat_cols=1)
    for name in UNIT:
        copy = UNIT | {"ic_steps": 1, "in_rows": 1, "in_cols": 1, name: 0}
        yield f"{name} 0", Engine.COMPUTE, explicit(Engine.COMPUTE, "copy", **copy)
        yield f"{name} 0", Engine.POST, explicit(Engine.POST, "run", **POST | {name: 0})
    stages = [(Stage.ACT, Stage.ACT), (Stage.ACT, Stage.REQUANT)]
    if not SPEC.has(ModuleKind.TABLE):
        stages.append((Stage.TABLE,))
    for order in stages:
        post = POST | {"order": pack_order(order)}
        yield f"order {order}", Engine.POST, explicit(Engine.POST, "run", **post)


def outside(rng):
    """(name, code, engine, words): accesses that leave the window or a buffer."""
    far = int(rng.integers(WINDOW // W, (1 << 32) // W)) * W
    cases = {
        "behind the window": {"dram": WINDOW},
        "across its end": {"dram": WINDOW - W, "run": 2},
        "the last run": {"dram": 0, "rows": 2, "row_pitch": WINDOW // W},
        "the last block": {"dram": W, "blocks": 2, "block_pitch": WINDOW // W - 1},
        "across 4 GiB": {"dram": (1 << 32) - W, "run": 2},
        "far away": {"dram": far},
        "the largest pitch": {"dram": 0, "rows": 3, "row_pitch": (1 << 22) - 1},
    }
    for name, values in cases.items():
        dram = {"dram_lo": values["dram"] & 0x3FFFFF, "dram_hi": values["dram"] >> 22}
        shape = SHAPE | {n: v for n, v in values.items() if n != "dram"} | dram
        yield name, ErrorCode.WINDOW, LOAD, explicit(LOAD, "feature", **shape)
        yield name, ErrorCode.WINDOW, STORE, explicit(STORE, "store", **shape)
    buffers = SPEC.buffers
    shape = SHAPE | {"run": 2, "dst": buffers.residual.words - 1}
    yield "residual", ErrorCode.BUFFER, LOAD, explicit(LOAD, "residual", **shape)
    shape = SHAPE | {"run": 2, "src": buffers.output.words - 1}
    yield "output", ErrorCode.BUFFER, STORE, explicit(STORE, "store", **shape, dram_lo=RESULT)


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


async def beats_of(bench, words):
    """Offsets that a program reads and writes when nothing fails."""
    window = bench.machine.window
    window.count()
    assert await bench.machine.run(words) is None
    return list(window.reads), list(window.writes)


def instruction_of(words, engine, beat):
    """Word index of the instruction that moves an engine's beat of this number."""
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
        if offset >= PROGRAM:  # the words before it pass first
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
        if bench.injections % 2:  # a token that nobody gives: engines signal the next one only
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
        machine.stall(side)
        if await machine.field("STATUS", "done"):  # all had been read already
            assert await machine.outcome() is None
            continue
        assert await machine.field("STATUS", "busy"), "ended with an open transaction"
        assert await machine.field("ERROR", "code") == ErrorCode.WATCHDOG
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
