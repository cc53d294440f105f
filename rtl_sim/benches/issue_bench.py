"""Queues, front ends, dependency counters: random programs with tokens, engines of random speed.

The program is made by executing it in order, so it cannot deadlock. The model watches every
handshake: words arrive in program order, starts find their tokens, retirements find room in their
counters, and everything drains.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

import cocotb

from opu_fuse.hw.isa.table import OPCODE, SYNC_ENGINES, Engine
from rtl_sim.benches.cycles import ROUNDS, begin, cycle, generator, pulse_reset, settled

LIMIT = 3  # TOKEN_BITS = 2
IN_FLIGHT = 3
IDLE = {
    "halt_i": 0,
    "push_valid_i": 0,
    "push_word_i": 0,
    "push_pc_i": 0,
    "start_ready_i": 0,
    "done_valid_i": 0,
}


def set_word(engine, index, value):
    return engine << 28 | index << 22 | value


def start_word(engine, op, waits=(), signals=()):
    masks = sum(1 << e for e in waits) << 16 | sum(1 << e for e in signals) << 8
    return 1 << 31 | engine << 28 | op << 24 | masks


@dataclass
class Start:
    """One instruction of the model: parameter writes before it, tokens."""

    pc: int
    op: int
    sets: list
    waits: tuple
    signals: tuple


def random_program(rng, length):
    """(words, starts per engine); in program order every wait and every signal finds its counter
    ready."""
    tokens = Counter()
    words, starts = [], {e: deque() for e in SYNC_ENGINES}
    for _ in range(length):
        me = SYNC_ENGINES[rng.integers(4)]
        others = [e for e in SYNC_ENGINES if e is not me]
        sets = [(int(rng.integers(8)), int(rng.integers(1 << 22))) for _ in range(rng.integers(4))]
        waits = tuple(e for e in others if tokens[e, me] and rng.random() < 0.7)
        signals = tuple(e for e in others if tokens[me, e] < LIMIT and rng.random() < 0.5)
        tokens.subtract((e, me) for e in waits)
        tokens.update((me, e) for e in signals)
        codes = sum(engine is me for engine, _ in OPCODE)
        op = int(rng.integers(codes))
        words += [set_word(me, *s) for s in sets]
        starts[me].append(Start(pc=len(words), op=op, sets=sets, waits=waits, signals=signals))
        words.append(start_word(me, op, waits, signals))
    return words, starts


@dataclass
class Model:
    """What has happened, and what must come next on every engine."""

    starts: dict
    tokens: Counter = field(default_factory=Counter)
    sets: dict = field(default_factory=lambda: {e: [] for e in SYNC_ENGINES})
    open: dict = field(default_factory=lambda: {e: deque() for e in SYNC_ENGINES})
    held: int = 0
    waited: int = 0

    def observe(self, dut, starting, finishing):
        """Check the outputs of one cycle and take over its handshakes."""
        taken, given = [], []
        for e in SYNC_ENGINES:
            if dut.set_valid_o.value[e] == 1:
                self.sets[e].append((int(dut.set_index_o[e].value), int(dut.set_value_o[e].value)))
            if dut.start_valid_o.value[e] == 1:
                due = self.starts[e][0]
                assert int(dut.start_pc_o[e].value) == due.pc, f"{e.name}: start out of order"
                assert int(dut.start_op_o[e].value) == due.op, f"{e.name}: wrong opcode"
                assert self.sets[e] == due.sets, f"{e.name}: parameters before word {due.pc} differ"
                short = [s.name for s in due.waits if not self.tokens[s, e]]
                assert not short, f"{e.name}: starts at word {due.pc} without a token of {short}"
                if e in starting:
                    taken += [(s, e) for s in due.waits]
                    self.open[e].append(self.starts[e].popleft())
                    self.sets[e] = []
            self.waited += dut.stall_o.value[e] == 1
            if e not in finishing:
                continue
            retiring = self.open[e][0]
            room = all(self.tokens[e, d] < LIMIT for d in retiring.signals)
            assert (dut.done_ready_o.value[e] == 1) == room, (
                f"{e.name}: retires without room or waits with it"
            )
            self.held += not room
            if room:
                given += [(e, d) for d in retiring.signals]
                self.open[e].popleft()
        self.tokens.subtract(taken)
        self.tokens.update(given)


@cocotb.test()
async def programs_run_in_order_with_their_tokens(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for _ in range(max(1, ROUNDS // 500)):
        words, starts = random_program(rng, 250)
        model = Model(starts=starts)
        await run(dut, rng, words, model)
        assert model.held, "the bench never held a retirement"
        assert model.waited, "the bench never waited for a token"
        await pulse_reset(dut)


async def run(dut, rng, words, model):
    at, last = 0, 0
    finishing = set()
    chance = {e: rng.choice([0.1, 0.5, 1.0]) for e in SYNC_ENGINES}
    for now in range(100_000):
        engine = Engine(words[at] >> 28 & 7) if at < len(words) and rng.random() < 0.9 else None
        dut.push_valid_i.value = 0 if engine is None else 1 << engine
        dut.push_word_i.value = words[at] if engine else 0
        dut.push_pc_i.value = at
        starting = {e for e in SYNC_ENGINES if rng.random() < chance[e]}
        # An engine holds its retirement request until it is accepted.
        finishing |= {e for e in SYNC_ENGINES if model.open[e] and rng.random() < chance[e]}
        finishing = {e for e in finishing if model.open[e]}
        dut.start_ready_i.value = sum(1 << e for e in starting)
        dut.done_valid_i.value = sum(1 << e for e in finishing)
        await settled()
        assert int(dut.fault_o.value) == 0, "a legal word was refused"
        before = sum(len(q) for q in model.open.values()) + sum(map(len, model.starts.values()))
        offered = set(finishing)
        model.observe(dut, starting, offered)
        finishing = {e for e in offered if dut.done_ready_o.value[e] == 0}
        for e in SYNC_ENGINES:
            assert len(model.open[e]) <= IN_FLIGHT, f"{e.name}: too many open instructions"
        if engine is not None and dut.push_ready_o.value[engine] == 1:
            at, last = at + 1, now
        left = sum(len(q) for q in model.open.values()) + sum(map(len, model.starts.values()))
        last = now if left != before else last
        assert now - last < 2000, f"nothing happens any more, {left} instructions left"
        await cycle(dut)
        if not left and at == len(words):
            break
    dut.done_valid_i.value = 0
    await settled()
    assert int(dut.idle_o.value) == 31, "not idle at the end"
    await cycle(dut)


ILLEGAL = {
    "unknown register": set_word(Engine.LOAD, 8, 0),
    "unknown opcode": start_word(Engine.LOAD, 15),
    "reserved bits": start_word(Engine.LOAD, 0) | 1,
    "wait on itself": start_word(Engine.LOAD, 0, waits=(Engine.LOAD,)),
    "signal to itself": start_word(Engine.LOAD, 0, signals=(Engine.LOAD,)),
    "wait on fetch": start_word(Engine.LOAD, 0, waits=(Engine.FETCH,)),
    "signal to an absent engine": start_word(Engine.LOAD, 0) | 1 << 13,
    "word of another engine": start_word(Engine.STORE, 0),
}


@cocotb.test()
async def illegal_words_are_refused_where_they_stand(dut):
    await begin(dut, **IDLE)
    for name, word in ILLEGAL.items():
        await pulse_reset(dut)
        dut.start_ready_i.value = 30
        for pc, pushed in enumerate(
            (set_word(Engine.LOAD, 1, 5), word, start_word(Engine.LOAD, 0))
        ):
            dut.push_valid_i.value = 1 << Engine.LOAD
            dut.push_word_i.value = pushed
            dut.push_pc_i.value = pc
            await cycle(dut)
        dut.push_valid_i.value = 0
        for _ in range(6):
            await settled()
            assert dut.fault_o.value[Engine.LOAD] == 1, f"{name}: not refused"
            assert int(dut.fault_pc_o[Engine.LOAD].value) == 1, f"{name}: wrong word"
            assert dut.busy_o.value[Engine.LOAD] == 0, f"{name}: something started"
            await cycle(dut)


@cocotb.test()
async def halt_starts_nothing_more(dut):
    await begin(dut, **IDLE)
    dut.halt_i.value = 1
    dut.start_ready_i.value = 30
    dut.push_valid_i.value = 1 << Engine.LOAD
    dut.push_word_i.value = start_word(Engine.LOAD, 0)
    await cycle(dut)
    dut.push_valid_i.value = 0
    for _ in range(5):
        await settled()
        assert int(dut.start_valid_o.value) == 0
        await cycle(dut)
    dut.halt_i.value = 0
    await settled()
    assert dut.start_valid_o.value[Engine.LOAD] == 1
    await cycle(dut)
