"""The load engine: random shapes into all buffers, then everything that must stop it."""

import os

import cocotb
import numpy as np

from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import OPCODE, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.hw.weight_maps import sets_zeros
from rtl_sim.benches.cycles import ROUNDS, begin, cycle, generator, pulse_reset, settled
from rtl_sim.benches.dram_model import Reads, Rules
from rtl_sim.benches.transfer_driver import (
    BASE,
    Transfer,
    TransferBench,
    parameters,
    random_shape,
    words_of,
)

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
WINDOW = 1 << 16
EVERY = ("feature", "weight", "param", "residual", "pre", "table", "image", "norm")
BUFFERS = tuple(name for name in EVERY if getattr(SPEC.buffers, name) is not None)
ONE = {"run": 1, "rows": 1, "row_pitch": 0, "blocks": 1, "block_pitch": 0}
OP = {name: OPCODE[Engine.LOAD, name].code for name in (*EVERY, "unfold")}
IDLE = {
    "halt_i": 0,
    "window_base_i": BASE,
    "window_size_i": WINDOW,
    "start_valid_i": 0,
    "op_i": 0,
    "pc_i": 0,
    "params_i": 0,
    "done_ready_i": 0,
    "ar_ready_i": 0,
    "r_valid_i": 0,
    "r_data_i": 0,
    "r_error_i": 0,
    "r_end_i": 0,
    "image_rdata_i": 0,
}


def word_bytes(name):
    return SPEC.buffers.weight.width if name == "weight" else SPEC.word_bytes


class Buffers:
    """What the engine has written."""

    def __init__(self):
        self.words = {
            name: np.zeros((getattr(SPEC.buffers, name).words, word_bytes(name)), np.uint8)
            for name in BUFFERS
        }
        self.writes = 0

    def observe(self, dut):
        written = [n for n in EVERY if int(getattr(dut, f"{n}_we_o").value)]
        assert len(written) <= 1, f"{written} written at once"
        for name in written:
            size = word_bytes(name)
            data = int(dut.wdata_o.value) & ((1 << 8 * size) - 1)
            address = int(dut.waddr_o.value)
            self.words[name][address] = np.frombuffer(data.to_bytes(size, "little"), np.uint8)
            self.writes += 1


def setup(dut, rng, **options):
    dram = SPEC.dram
    rules = Rules(
        bus_bytes=dram.bus_bytes,
        max_burst=dram.max_burst,
        outstanding=dram.outstanding,
        base=BASE,
        limit=WINDOW,
    )
    data = rng.integers(0, 256, WINDOW).astype(np.uint8)
    port = Reads(rules=rules, data=data, rng=rng, **options)
    buffers = Buffers()
    bench = TransferBench(
        dut=dut, engine=Engine.LOAD, port=port, rng=rng, each_cycle=buffers.observe
    )
    return bench, port, buffers


def random_transfer(rng, port, buffers):
    """A load whose destination is compared with DRAM at its retirement. Registers of zero lanes are
    set in other loads than those of weights, too, where they mean nothing.
    """
    name = BUFFERS[rng.integers(len(BUFFERS))]
    size = word_bytes(name)
    target = buffers.words[name]
    shape, first = random_shape(rng, len(target), WINDOW // size)
    count = shape["run"] * shape["rows"] * shape["blocks"]
    dst = int(rng.integers(len(target) - count + 1))
    zeros = {"zero_low": int(rng.integers(size)), "zero_high": 0}
    zeros["zero_high"] = int(rng.integers(size - zeros["zero_low"]))
    if name == "weight" and (not sets_zeros(SPEC) or rng.random() < 0.3):
        zeros = {}
    is_zero = np.zeros(size, bool)
    if name == "weight" and zeros:
        is_zero[: zeros["zero_low"]] = True
        is_zero[size - zeros["zero_high"] :] = True

    def check():
        expected = np.where(is_zero, 0, port.data.reshape(-1, size)[words_of(shape, first)])
        got = target[dst : dst + count]
        wrong = np.flatnonzero((expected != got).any(axis=1))
        assert not wrong.size, f"{name} words {dst + wrong[:5]} differ after {shape}, {zeros}"

    values = parameters(shape, first * size, ("dst", dst)) | zeros
    return Transfer(op=OP[name], values=values, check=check), count


@cocotb.test()
async def random_shapes_arrive_whole_and_in_order(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for ready, valid, latency in ((1.0, 1.0, 5), (0.5, 0.9, 40), (0.9, 0.3, 1)):
        bench, port, buffers = setup(dut, rng, ready=ready, valid=valid, latency=latency)
        transfers, counts = zip(
            *(random_transfer(rng, port, buffers) for _ in range(ROUNDS)), strict=True
        )
        # One after the other: a later load may overwrite what an earlier one is checked by.
        for transfer in transfers:
            await bench.run([transfer])
        assert buffers.writes == sum(counts), "a word was written twice or not at all"
        assert not port.open, "reads are left open"


def row_of_loads(port, buffers, count, spacing):
    """Loads of 4 words, one every `spacing` words of DRAM, each checked at its retirement."""
    size = word_bytes("feature")
    words = port.data.reshape(-1, size)
    shape = ONE | {"run": 4}

    def transfer(n):
        def check():
            got = buffers.words["feature"][4 * n : 4 * n + 4]
            assert (got == words[n * spacing : n * spacing + 4]).all(), f"load {n} differs"

        values = parameters(shape, n * spacing * size, ("dst", 4 * n))
        return Transfer(op=OP["feature"], values=values, check=check)

    return [transfer(n) for n in range(count)]


@cocotb.test()
async def loads_overlap_and_retire_in_order(dut):
    rng = generator()
    await begin(dut, **IDLE)
    bench, port, buffers = setup(dut, rng, latency=60)
    bench.pauses = 0.0
    await bench.run(row_of_loads(port, buffers, 8, spacing=64))
    assert port.now < 8 * 60, f"{port.now} cycles: the latencies of 8 loads do not overlap"


@cocotb.test()
async def loads_that_continue_each_other_are_not_merged(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for ready in (1.0, 0.2):
        bench, port, buffers = setup(dut, rng, ready=ready)
        bench.pauses = 0.0
        await bench.run(row_of_loads(port, buffers, 32, spacing=4))
        assert len(port.bursts) >= 32, "bursts of two instructions were merged"


@cocotb.test()
async def contiguous_runs_become_long_bursts(dut):
    rng = generator()
    await begin(dut, **IDLE)
    bench, port, _ = setup(dut, rng)
    size = word_bytes("feature")
    shape = {"run": 2, "rows": 8, "row_pitch": 2, "blocks": 2, "block_pitch": 16}
    await bench.run([Transfer(op=OP["feature"], values=parameters(shape, 0, ("dst", 0)))])
    beats = 32 * size // SPEC.dram.bus_bytes
    longest = min(SPEC.dram.max_burst, 4096 // SPEC.dram.bus_bytes)
    assert [b for _, b in port.bursts] == [longest] * (beats // longest) + [beats % longest] * (
        beats % longest > 0
    )


@cocotb.test()
async def what_cannot_be_loaded_stops_the_engine(dut):
    rng = generator()
    await begin(dut, **IDLE)
    size = word_bytes("feature")
    words = SPEC.buffers.feature.words
    good = Transfer(op=OP["feature"], values=parameters(ONE, 0, ("dst", 0)))

    def bad(shape, offset, dst=0):
        return Transfer(op=OP["feature"], values=parameters(ONE | shape, offset, ("dst", dst)))

    window, illegal = ErrorCode.WINDOW, ErrorCode.ILLEGAL_INSTRUCTION
    cases = {
        "run 0": (bad({"run": 0}, 0), illegal),
        "rows 0": (bad({"rows": 0}, 0), illegal),
        "blocks 0": (bad({"blocks": 0}, 0), illegal),
        "misaligned": (bad({}, size // 2), illegal),
        "after the window": (bad({}, WINDOW), window),
        "across the end of the window": (bad({"run": 3}, WINDOW - 2 * size), window),
        "across 4 GiB": (bad({"run": 2}, (1 << 32) - size), window),
        "a later run outside": (bad({"rows": 3, "row_pitch": 1 << 20}, 0), window),
        "a later block outside": (bad({"blocks": 2, "block_pitch": WINDOW // size}, 0), window),
        "after the buffer": (bad({}, 0, words), ErrorCode.BUFFER),
        "across the end of the buffer": (bad({"run": 3}, 0, words - 2), ErrorCode.BUFFER),
    }
    half = SPEC.word_bytes // 2
    zeros = {"every lane zero": (half, half)}
    if not sets_zeros(SPEC):
        zeros |= {"a zero lane": (1, 0), "a zero lane at the end": (0, 1)}
    for name, (low, high) in zeros.items():
        values = good.values | {"zero_low": low, "zero_high": high}
        cases[name] = (Transfer(op=OP["weight"], values=values), illegal)
    for name in (*EVERY, "unfold"):
        if name not in BUFFERS and not (name == "unfold" and SPEC.buffers.image):
            cases[f"no {name} buffer"] = (Transfer(op=OP[name], values=good.values), illegal)
    for name, (transfer, code) in cases.items():
        await pulse_reset(dut)
        bench, port, _ = setup(dut, rng)
        fault = await bench.run([good, transfer, good], until_fault=True)
        assert fault == (code, 1), f"{name}: {fault}"
        await drain(dut, port)


@cocotb.test()
async def an_error_response_names_its_instruction(dut):
    rng = generator()
    await begin(dut, **IDLE)
    size = word_bytes("feature")
    bench, port, _ = setup(dut, rng, bad=range(5 * size, 6 * size))
    transfers = [
        Transfer(op=OP["feature"], values=parameters(ONE, n * size, ("dst", n))) for n in range(12)
    ]
    fault = await bench.run(transfers, until_fault=True)
    assert fault == (ErrorCode.AXI_READ, 5), fault
    await drain(dut, port)


async def drain(dut, port):
    """After an error: no new bursts, the open ones come in."""
    dut.halt_i.value = 1
    dut.start_valid_i.value = 0
    known = len(port.bursts)
    for _ in range(400):
        port.drive(dut)
        await settled()
        port.observe(dut)
        await cycle(dut)
    assert len(port.bursts) == known, "a burst was issued after halt"
    assert not port.open, "reads are left open"
    dut.halt_i.value = 0
