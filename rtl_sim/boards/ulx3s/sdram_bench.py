"""An AXI master with random bursts, gaps and pauses driving `sdram_controller`, and a memory of
Python that says what it must read. Its model checks the rules of the SDRAM (sdram_model.sv).
"""

import logging
import os
import random
from collections import deque
from dataclasses import dataclass, field

import cocotb
from cocotb.triggers import FallingEdge, Timer

log = logging.getLogger("sdram_bench")
MIXED = 0.9
"""Share of the bandwidth if every burst misses the open row and reverses the data bus."""
ROW_BYTES, PAGE, SIZE = 1024, 4096, 1 << 25


@dataclass
class Burst:
    write: bool
    id: int
    address: int
    beats: list = field(default_factory=list)  # of a write: (data, strobes)
    length: int = 1
    whole: bool = False  # all of its data are taken


class Master:
    """One cycle is `cycle()`; a valid request is held until it is accepted."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.bus = dut, rng, len(dut.wstrb)
        self.reads, self.writes, self.data = deque(), deque(), deque()
        self.accepted = deque()  # of both kinds, in the order of addresses
        self.answers, self.wanted = deque(), deque()
        self.memory, self.beat, self.now = {}, 0, 0
        self.eager = self.taking = 1.0  # how likely something is offered, and an answer taken
        self.words_moved, self.first_read, self.taken_at = 0, None, {}

    def push(self, burst):
        (self.writes if burst.write else self.reads).append(burst)
        if burst.write:
            last = len(burst.beats) - 1
            self.data.extend((burst, n, n == last) for n in range(last + 1))

    async def cycle(self):
        dut, lucky = self.dut, lambda: self.rng.random() < self.eager
        await FallingEdge(dut.clk)
        if not self.offered["ar"] and self.reads and lucky():
            self.offered["ar"] = True
            burst = self.reads[0]
            dut.arid.value, dut.araddr.value = burst.id, burst.address
            dut.arlen.value = burst.length - 1
        if not self.offered["aw"] and self.writes and lucky():
            self.offered["aw"] = True
            burst = self.writes[0]
            dut.awid.value, dut.awaddr.value = burst.id, burst.address
            dut.awlen.value = len(burst.beats) - 1
        if not self.offered["w"] and self.data and lucky():
            self.offered["w"] = True
            burst, n, last = self.data[0]
            dut.wdata.value, dut.wstrb.value = burst.beats[n]
            dut.wlast.value = last
        for name, offered in self.offered.items():
            getattr(dut, f"{name}valid").value = offered
        dut.rready.value = self.rng.random() < self.taking
        dut.bready.value = self.rng.random() < self.taking
        await Timer(2, "ns")
        self.now += 1
        self._handshakes()

    offered: dict

    def _handshakes(self):
        dut = self.dut
        if self.offered["ar"] and dut.arready.value:
            self._accept(self.reads.popleft(), "ar")
        if self.offered["aw"] and dut.awready.value:
            self._accept(self.writes.popleft(), "aw")
        if self.offered["w"] and dut.wready.value:
            burst, _, last = self.data.popleft()
            burst.whole = last
            self.offered["w"] = False
        if dut.bvalid.value and dut.bready.value:
            while not self.answers:
                self._next()
            burst = self.answers.popleft()
            assert int(dut.bid.value) == burst.id
        if dut.rvalid.value and dut.rready.value:
            self._read_beat()

    def _accept(self, burst, name):
        self.accepted.append(burst)
        self.offered[name] = False
        self.taken_at[id(burst)] = self.now

    def _store(self, burst):
        for n, (data, strobes) in enumerate(burst.beats):
            for lane in range(self.bus):
                if strobes >> lane & 1:
                    self.memory[burst.address + n * self.bus + lane] = data >> 8 * lane & 255
        self.words_moved += len(burst.beats) * self.bus // 2

    def _next(self):
        """The oldest burst: of a write, memory holds its data now; what a read must find is what it
        holds now.
        """
        burst = self.accepted.popleft()
        if burst.write:
            assert burst.whole, "a write, or a read after it, is answered before its data came"
            self._store(burst)
            self.answers.append(burst)
            return
        self.wanted.extend(
            (burst, n, [self.memory.get(burst.address + n * self.bus + i) for i in range(self.bus)])
            for n in range(burst.length)
        )

    def _read_beat(self):
        while not self.wanted:
            self._next()
        burst, n, wanted = self.wanted.popleft()
        value = int(self.dut.rdata.value)
        for lane, byte in enumerate(wanted):
            if byte is not None:
                at = burst.address + n * self.bus + lane
                assert value >> 8 * lane & 255 == byte, f"byte {at:#x}: {value:#x}, not {byte:#x}"
        assert int(self.dut.rid.value) == burst.id
        assert int(self.dut.rlast.value) == (n == burst.length - 1)
        if n == 0:
            self.first_read = self.now - self.taken_at[id(burst)]
        self.words_moved += self.bus // 2

    @property
    def busy(self):
        return bool(
            self.reads or self.writes or self.data or self.accepted or self.wanted or self.answers
        )

    async def drain(self, cycles):
        for _ in range(cycles):
            await self.cycle()
            if not self.busy:
                return
        raise AssertionError("bursts are left over")


async def started(dut):
    rng = random.Random(int(os.environ.get("BENCH_SEED", "1")))
    master = Master(dut, rng)
    master.offered = {"ar": False, "aw": False, "w": False}
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst_n.value = 1
    return master


def random_burst(master, bases):
    rng, bus = master.rng, master.bus
    length = rng.choice((1, 1, 2, 3, 8, 16, 32, rng.randint(1, 256)))
    base = rng.choice(bases)
    at = base + bus * rng.randrange(4 * ROW_BYTES // bus)
    length = min(length, (PAGE - at % PAGE) // bus)
    if rng.random() < 0.5:
        return Burst(False, rng.randrange(4), at, length=length)
    every = (1 << bus) - 1
    beats = [
        (rng.getrandbits(8 * bus), every if rng.random() < 0.7 else rng.getrandbits(bus))
        for _ in range(length)
    ]
    return Burst(True, rng.randrange(4), at, beats)


@cocotb.test()
async def random_bursts_read_what_was_written(dut):
    master = await started(dut)
    # Few pages, so that bursts meet: rows whose numbers differ in one bit, the first and the last.
    bases = [0, SIZE // 2, 0, SIZE // 2, PAGE, SIZE - PAGE]
    pairs = (1.0, 1.0), (0.8, 0.8), (1.0, 0.1), (0.1, 1.0), (0.1, 0.1)
    for master.eager, master.taking in pairs:
        for _ in range(int(120 * min(master.eager, master.taking))):
            master.push(random_burst(master, bases))
        await master.drain(100_000)
    for _ in range(1500):  # three refreshes with nothing to do
        await master.cycle()
    counts = [int(dut.u_memory.counted[n].value) for n in range(8)]
    log.info("commands: %s", counts)
    assert counts[0] == 1, "the mode is set once"
    assert counts[1] > 8 + master.now // 700, "refreshes"
    assert min(counts[2], counts[3], counts[4], counts[5]) > 50, "every command was used"


@cocotb.test()
async def long_bursts_move_nearly_a_word_a_cycle(dut):
    """Bytes in a cycle and cycles to the first beat, as the spec of the machine has them."""
    master = await started(dut)
    beats = 32
    every = (1 << master.bus) - 1
    for n in range(3):  # first address: the start of the memory ends
        master.push(Burst(False, 0, n * PAGE, length=1))
    await master.drain(100_000)
    for kinds in ((True,), (False,), (True, False)):
        begun, moved = master.now, master.words_moved
        for n in range(96):
            write = kinds[n % len(kinds)]
            at = n * beats * master.bus + (SIZE // 2 if write else 0)
            data = [(n * 1000 + i, every) for i in range(beats)] if write else []
            master.push(Burst(write, 0, at, data, length=beats))
        await master.drain(100_000)
        rate = 2 * (master.words_moved - moved) / (master.now - begun)
        log.warning("%s: %.3f bytes in a cycle", kinds, rate)
        wanted = float(os.environ["BENCH_RATE"])
        assert rate >= (wanted if len(kinds) == 1 else MIXED * wanted)
    for _ in range(20):
        await master.cycle()
    master.push(Burst(False, 0, 64, length=1))
    await master.drain(1000)
    log.warning("%d cycles to the first beat", master.first_read)
    assert master.first_read is not None
    assert master.first_read <= int(os.environ["BENCH_LATENCY"])
