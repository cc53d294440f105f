"""The fetch engine: every word at the right queue, in order; and everything that must stop it."""

import os

import cocotb
import numpy as np

from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import OPCODE, REGISTER, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.benches.cycles import ROUNDS, begin, cycle, generator, pulse_reset, settled
from rtl_sim.benches.dram_model import Reads, Rules

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
BASE = 0x12_3456_7000
WINDOW = 1 << 16
IDLE = {
    "halt_i": 0,
    "run_i": 0,
    "window_base_i": BASE,
    "window_size_i": WINDOW,
    "prog_base_i": 0,
    "prog_words_i": 0,
    "others_idle_i": 0,
    "push_ready_i": 0,
    "ar_ready_i": 0,
    "r_valid_i": 0,
    "r_data_i": 0,
    "r_error_i": 0,
}
ENGINES = tuple(Engine)[1:]


def own(name):
    return 1 << 31 | Engine.FETCH << 28 | OPCODE[Engine.FETCH, name].code << 24


def own_set(name, value):
    return Engine.FETCH << 28 | REGISTER[Engine.FETCH, name].index << 22 | value


END = own("end")
CHECK = [
    own_set("hash_lo", SPEC.spec_hash & 0x3FFFFF),
    own_set("hash_hi", SPEC.spec_hash >> 22),
    own("check"),
]


def random_words(rng, count):
    """Words for the four engines; fetch does not look into them."""
    body = rng.integers(0, 1 << 28, count) | rng.integers(0, 2, count) << 31
    return [int(b | e << 28) for b, e in zip(body, rng.integers(1, 5, count), strict=True)]


class Program:
    """A program in DRAM and what has been passed on of it."""

    def __init__(
        self, dut, rng, words, base, *, limit=None, declared=None, bad=range(0), **options
    ):
        dram = SPEC.dram
        if limit is None:
            limit = base + -(-4 * len(words) // dram.bus_bytes) * dram.bus_bytes
        rules = Rules(
            bus_bytes=dram.bus_bytes,
            max_burst=dram.max_burst,
            outstanding=1
            << 20,  # limited by the arbiter; fetch by itself by the room for its beats
            base=BASE,
            limit=limit,
        )
        data = np.zeros(WINDOW, np.uint8)
        raw = np.asarray(words, "<u4").view(np.uint8)
        data[base : base + raw.size] = raw[: WINDOW - base]
        self.dut, self.rng, self.words = dut, rng, words
        self.port = Reads(rules=rules, data=data, rng=rng, bad=bad, **options)
        self.pushed = []
        self.ready = 0.8
        dut.prog_base_i.value = base
        dut.prog_words_i.value = len(words) if declared is None else declared

    async def run(self, *, patience=4000):
        """To `done` or the first fault; (fault code, pc) or None."""
        dut = self.dut
        await cycle(dut)  # the program is named a cycle before
        dut.run_i.value = 1
        last = 0
        for now in range(1_000_000):
            ready = {e for e in ENGINES if self.rng.random() < self.ready}
            dut.push_ready_i.value = sum(1 << (e - 1) for e in ready)
            self.port.drive(dut)
            await settled()
            self.port.observe(dut)
            valid = int(dut.push_valid_o.value) << 1
            assert valid & (valid - 1) == 0, "two queues at once"
            for e in ready:
                if valid >> e & 1:
                    word, pc = int(dut.push_word_o.value), int(dut.push_pc_o.value)
                    self.pushed.append((e, pc, word))
                    last = now
            done, fault = int(dut.done_o.value), int(dut.fault_o.value)
            result = (int(dut.fault_code_o.value), int(dut.pc_o.value))
            await cycle(dut)
            if fault:
                return result
            if done:
                return None
            assert now - last < patience, f"stuck after word {len(self.pushed)}"
        raise AssertionError("too long")

    async def drain(self):
        """After a fault: nothing more is read or passed on, and what was asked for comes in."""
        dut, known, passed = self.dut, len(self.port.bursts), len(self.pushed)
        dut.halt_i.value = 1
        for _ in range(200):
            self.port.drive(dut)
            await settled()
            self.port.observe(dut)
            assert not int(dut.push_valid_o.value), "a word was offered after halt"
            await cycle(dut)
        assert (len(self.port.bursts), len(self.pushed)) == (known, passed), "activity after halt"
        assert not self.port.open, "reads are left open"
        dut.halt_i.value = 0
        dut.run_i.value = 0

    def check(self, words):
        """Exactly these words were passed on."""
        expected = [(Engine(w >> 28 & 7), n, w) for n, w in enumerate(words) if w >> 28 & 7]
        assert self.pushed == expected, "words were lost, reordered or sent elsewhere"


@cocotb.test()
async def every_word_reaches_its_queue_in_order(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for n in range(8):
        await pulse_reset(dut)
        dut.others_idle_i.value = 1
        words = [*CHECK, *random_words(rng, int(rng.integers(1, 5 * ROUNDS))), END]
        # Some words after the end: they may be prefetched but are never issued.
        after_end = random_words(rng, int(rng.integers(0, 50)))
        base = int(rng.integers(0, 100)) * 64
        latency = int(rng.choice([1, 20, 100]))
        program = Program(dut, rng, [*words, *after_end], base, latency=latency)
        program.ready = float(rng.choice([0.3, 1.0]))
        assert await program.run() is None, f"round {n} ended with a fault"
        program.check(words)
        assert not program.port.open, "done, but reads are open"
        dut.run_i.value = 0


async def set_later(dut, cycles):
    for _ in range(cycles):
        await cycle(dut)
    dut.others_idle_i.value = 1


@cocotb.test()
async def end_waits_until_the_engines_are_idle(dut):
    rng = generator()
    await begin(dut, **IDLE)
    dut.others_idle_i.value = 0
    program = Program(dut, rng, [*CHECK, END], 0)
    others_idle_at = 300
    cocotb.start_soon(set_later(dut, others_idle_at))
    assert await program.run() is None
    assert program.port.now >= others_idle_at, "done although the engines work"


@cocotb.test()
async def prefetching_hides_the_latency(dut):
    rng = generator()
    await begin(dut, **IDLE)
    dut.others_idle_i.value = 1
    words = [*CHECK, *random_words(rng, 600), END]
    program = Program(dut, rng, words, 0, ready=1.0, valid=1.0, latency=40)
    program.ready = 1.0
    assert await program.run() is None
    assert program.port.now < 900, f"{program.port.now} cycles for {len(words)} words"


@cocotb.test()
async def bad_programs_stop_at_their_word(dut):
    rng = generator()
    await begin(dut, **IDLE)
    some = random_words(rng, 9)
    wrong = [CHECK[0] ^ 1, *CHECK[1:]]
    illegal = ErrorCode.ILLEGAL_INSTRUCTION
    bus = SPEC.dram.bus_bytes
    cases = {
        "hash": ([*wrong, *some, END], {}, (ErrorCode.SPEC_MISMATCH, 2)),
        "engine 5": ([*some, 5 << 28, END], {}, (illegal, 9)),
        "fetch register": ([*some, 2 << 22, END], {}, (illegal, 9)),
        "fetch opcode": ([*some, own("end") | 2 << 24, END], {}, (illegal, 9)),
        "fetch waits": ([*some, own("check") | 1 << 17, END], {}, (illegal, 9)),
        "reserved bits": ([*some, END | 1], {}, (illegal, 9)),
        "no end": ([*CHECK, *some], {}, (ErrorCode.PROGRAM_END, 12)),
        "no words": ([END], {"declared": 0}, (ErrorCode.PROGRAM_END, 0)),
        "read error": ([*some, *some, END], {"bad": range(8 * bus, 9 * bus)}, None),
    }
    for name, (words, options, expected) in cases.items():
        await pulse_reset(dut)
        program = Program(dut, rng, words, 0, **options)
        fault = await program.run()
        if expected is None:
            expected = (ErrorCode.AXI_READ, 8 * bus // 4)
        assert fault == expected, f"{name}: {fault}"
        program.check(words[: expected[1]])
        await program.drain()


@cocotb.test()
async def a_program_across_the_end_of_the_window_reads_nothing_outside(dut):
    rng = generator()
    await begin(dut, **IDLE)
    program = Program(dut, rng, [*CHECK, *random_words(rng, 61), END], WINDOW - 128, limit=WINDOW)
    fault = await program.run()
    assert fault is not None, "a program outside of the window ran"
    assert fault[0] == ErrorCode.WINDOW, fault
    await program.drain()


@cocotb.test()
async def a_misaligned_program_is_refused(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for base in (4, 60, 64 + 32):
        await pulse_reset(dut)
        program = Program(dut, rng, [*CHECK, *random_words(rng, 61), END], base, limit=WINDOW)
        fault = await program.run()
        assert fault == (ErrorCode.WINDOW, 0), f"{base}: {fault}"
        program.check([])
        await program.drain()
