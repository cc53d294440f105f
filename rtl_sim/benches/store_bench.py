"""The store engine: random shapes out of the output buffer, then everything that must stop it."""

import os

import cocotb
import numpy as np

from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.units.base import ModuleKind
from rtl_sim.benches.cycles import ROUNDS, begin, cycle, generator, pulse_reset, settled
from rtl_sim.benches.dram_model import Rules, Writes
from rtl_sim.benches.transfer_driver import BASE, Transfer, TransferBench, parameters, random_shape

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
WINDOW = 1 << 16
SIZE = SPEC.word_bytes
DEPTH = SPEC.buffers.output.words
UPSAMPLES = SPEC.has(ModuleKind.UPSAMPLE)
IDLE = {
    "halt_i": 0,
    "window_base_i": BASE,
    "window_size_i": WINDOW,
    "start_valid_i": 0,
    "pc_i": 0,
    "params_i": 0,
    "done_ready_i": 0,
    "out_data_i": 0,
    "aw_ready_i": 0,
    "w_ready_i": 0,
    "b_valid_i": 0,
    "b_error_i": 0,
}
ONE = {"run": 1, "rows": 1, "row_pitch": 0, "blocks": 1, "block_pitch": 0}


class OutputBuffer:
    """The memory that the engine reads: data one cycle after the address, held until the next."""

    def __init__(self, rng):
        self.words = rng.integers(0, 256, (DEPTH, SIZE)).astype(np.uint8)
        self.words[:, SPEC.word_channels :] = 0  # lanes that only DRAM words have
        self.shown = 0

    def observe(self, dut):
        if int(dut.out_re_o.value):
            word = self.words[int(dut.out_addr_o.value)]
            self.shown = int.from_bytes(word.tobytes(), "little")


class StorePort(Writes):
    """Writes, and the read data of the output buffer, which change at the rising edge."""

    buffer: OutputBuffer

    def drive(self, dut):
        super().drive(dut)
        dut.out_data_i.value = self.buffer.shown


def setup(dut, rng, **options):
    dram = SPEC.dram
    rules = Rules(
        bus_bytes=dram.bus_bytes,
        max_burst=dram.max_burst,
        outstanding=dram.outstanding,
        base=BASE,
        limit=WINDOW,
    )
    port = StorePort(rules=rules, data=np.zeros(WINDOW, np.uint8), rng=rng, **options)
    port.buffer = OutputBuffer(rng)
    bench = TransferBench(
        dut=dut, engine=Engine.STORE, port=port, rng=rng, each_cycle=port.buffer.observe
    )
    return bench, port


def random_scatter(rng):
    """Registers other than the shape; most are 0 most of the time."""
    low = int(rng.integers(SIZE)) if rng.random() < 0.4 else 0
    scatter = {
        "word_gap": int(rng.choice([0, 0, 1, 5])),
        "skip_low": low,
        "skip_high": int(rng.integers(SIZE - low)) if rng.random() < 0.4 else 0,
    }
    if UPSAMPLES:
        scatter |= {name: int(rng.choice([0, 0, 1, 2])) for name in ("repeat_rows", "repeat_cols")}
    return scatter


def written_words(p, first):
    """(word of the buffer, DRAM word) in the order of the writes."""
    rows, cols = 1 + p.get("repeat_rows", 0), 1 + p.get("repeat_cols", 0)
    for b, r, ry, i, rx in np.ndindex(p["blocks"], p["rows"], rows, p["run"], cols):
        n = (b * p["rows"] + r) * p["run"] + i
        row = b * p["block_pitch"] + (r * rows + ry) * p["row_pitch"]
        yield n, first + row + i * (cols + p.get("word_gap", 0)) + rx


def random_transfer(rng, port):
    """A store that fits buffer and window, and what it does to DRAM."""
    while True:
        shape, first = random_shape(rng, DEPTH, WINDOW // SIZE)
        shape |= random_scatter(rng)
        writes = list(written_words(shape, first))
        if max(address for _, address in writes) < WINDOW // SIZE:
            break
    src = int(rng.integers(DEPTH - max(n for n, _ in writes)))
    stored_bytes = slice(shape["skip_low"], SIZE - shape["skip_high"])

    def expect(memory):
        memory = memory.reshape(-1, SIZE)
        for n, address in writes:
            memory[address, stored_bytes] = port.buffer.words[src + n, stored_bytes]

    return Transfer(op=0, values=parameters(shape, first * SIZE, ("src", src))), expect


@cocotb.test()
async def random_shapes_arrive_whole_and_nothing_else_changes(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for ready, valid, latency in ((1.0, 1.0, 5), (0.5, 0.9, 40), (0.9, 0.3, 1)):
        bench, port = setup(dut, rng, ready=ready, valid=valid, latency=latency)
        expected = np.zeros_like(port.data)
        transfers = []
        for _ in range(ROUNDS):
            transfer, expect = random_transfer(rng, port)
            expect(expected)
            transfers.append(transfer)
        await bench.run(transfers)
        wrong = np.flatnonzero(port.data != expected)
        assert not wrong.size, f"{wrong.size} bytes differ, first at {wrong[0]:#x}"
        assert int(dut.quiet_o.value), "not quiet at the end"


@cocotb.test()
@cocotb.parametrize(gap=[0, 1], repeats=[0, 1] if UPSAMPLES else [0])
async def a_beat_takes_one_cycle(dut, gap, repeats):
    """Long bursts whatever the scattering; a gap costs its words."""
    rng = generator()
    await begin(dut, **IDLE)
    bench, port = setup(dut, rng, ready=1.0, valid=1.0, latency=2)
    bench.pauses = 0.0
    words = (1 + repeats) * 4 * (24 * (1 + repeats + gap) - gap)
    pitch = 24 * (1 + repeats + gap)
    shape = ONE | {"run": 24, "rows": 4, "row_pitch": pitch, "word_gap": gap}
    shape |= {"repeat_rows": repeats, "repeat_cols": repeats}
    await bench.run([Transfer(op=0, values=parameters(shape, 0, ("src", 0)))])
    beats = words * SIZE // SPEC.dram.bus_bytes
    assert sum(count for _, count in port.bursts) == beats
    assert port.now < beats + 30, f"{port.now} cycles for {beats} beats"


@cocotb.test()
async def a_store_retires_after_its_last_response(dut):
    rng = generator()
    await begin(dut, **IDLE)
    bench, port = setup(dut, rng, ready=1.0, valid=1.0, latency=200)
    bench.pauses = 0.0
    transfers = [
        Transfer(
            op=0,
            values=parameters(ONE, n * SIZE, ("src", n)),
            check=lambda: answered.append(port.now),
        )
        for n in range(3)
    ]
    answered = []
    await bench.run(transfers)
    assert min(answered) > 200, f"retired at {answered}, before the response"
    assert max(answered) < 400, f"retired at {answered}: stores wait for each other's response"


@cocotb.test()
async def what_cannot_be_stored_stops_the_engine(dut):
    rng = generator()
    await begin(dut, **IDLE)
    good = Transfer(op=0, values=parameters(ONE, 0, ("src", 0)))

    def bad(shape, offset, src=0):
        return Transfer(op=0, values=parameters(ONE | shape, offset, ("src", src)))

    window, illegal = ErrorCode.WINDOW, ErrorCode.ILLEGAL_INSTRUCTION
    cases = {
        "run 0": (bad({"run": 0}, 0), illegal),
        "rows 0": (bad({"rows": 0}, 0), illegal),
        "blocks 0": (bad({"blocks": 0}, 0), illegal),
        "misaligned": (bad({}, SIZE // 2), illegal),
        "after the window": (bad({}, WINDOW), window),
        "a later run outside": (bad({"rows": 3, "row_pitch": 1 << 20}, 0), window),
        "after the buffer": (bad({}, 0, DEPTH), ErrorCode.BUFFER),
        "across the end of the buffer": (bad({"run": 3}, 0, DEPTH - 2), ErrorCode.BUFFER),
        "across the end of the window": (bad({"run": 2}, WINDOW - SIZE), window),
        "the last word": (bad({"run": 2, "word_gap": 8}, WINDOW - 9 * SIZE), window),
        "across 4 GiB": (bad({"run": 2}, (1 << 32) - SIZE), window),
        "every byte skipped": (bad({"skip_low": SIZE // 2, "skip_high": SIZE // 2}, 0), illegal),
    }
    for name in ("repeat_rows", "repeat_cols"):
        outside = bad({name: 2, "row_pitch": 1}, WINDOW - 2 * SIZE)
        cases[name] = (outside, window) if UPSAMPLES else (bad({name: 1}, 0), illegal)
    for name, (transfer, code) in cases.items():
        await pulse_reset(dut)
        bench, port = setup(dut, rng)
        fault = await bench.run([good, transfer, good], until_fault=True)
        assert fault == (code, 1), f"{name}: {fault}"
        await drain(dut, port)


@cocotb.test()
async def an_error_response_names_its_instruction(dut):
    rng = generator()
    await begin(dut, **IDLE)
    bench, port = setup(dut, rng, bad=range(5 * 64 * SIZE, 5 * 64 * SIZE + 1))
    transfers = [
        Transfer(op=0, values=parameters(ONE, n * 64 * SIZE, ("src", n))) for n in range(12)
    ]
    fault = await bench.run(transfers, until_fault=True)
    assert fault == (ErrorCode.AXI_WRITE, 5), fault
    await drain(dut, port)


async def drain(dut, port):
    """After an error: no new bursts, the open ones are completed, then the engine is quiet."""
    dut.halt_i.value = 1
    dut.start_valid_i.value = 0
    for _ in range(400):
        port.drive(dut)
        await settled()
        port.observe(dut)
        port.buffer.observe(dut)
        await cycle(dut)
    incomplete = [*port.addressed, *port.beats, *port.answers]
    assert not incomplete, "a burst is incomplete"
    await settled()
    assert int(dut.quiet_o.value), "not quiet after halt"
    await cycle(dut)
    dut.halt_i.value = 0
