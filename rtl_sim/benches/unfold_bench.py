"""im2row (load.unfold) in the load engine, between other loads: bytes, cycles and faults.

Every cycle is checked against docs/machine.md: the word written, who may start, what is done.
"""

import os
from collections import deque
from dataclasses import dataclass, field

import cocotb
import numpy as np

from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import OPCODE, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.benches.cycles import ROUNDS, begin, generator, pulse_reset
from rtl_sim.benches.dram_model import Reads, Rules
from rtl_sim.benches.load_bench import IDLE, WINDOW, drain, word_bytes
from rtl_sim.benches.transfer_driver import (
    BASE,
    Transfer,
    TransferBench,
    parameters,
    random_shape,
    words_of,
)

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
W = SPEC.word_bytes
assert SPEC.buffers.image is not None, "only machines with an image buffer have im2row"
IMAGE, FEATURE = SPEC.buffers.image.words, SPEC.buffers.feature.words
OP = {name: OPCODE[Engine.LOAD, name].code for name in ("feature", "weight", "image", "unfold")}
COLUMN = {3: 9, 5: 16, 7: 22}  # kernel rows -> bytes
CYCLES = 8  # overhead of an im2row, in addition to one cycle per word
NEVER = 1 << 60


def pick(rng, lo, hi):
    return int(rng.integers(lo, hi + 1))


@dataclass(kw_only=True)
class Port(Reads):
    """Read side of the bus and read port of the image buffer, whose read latency is 2 cycles."""

    image: np.ndarray
    coming: deque = field(default_factory=lambda: deque([0, 0]))

    def drive(self, dut):
        super().drive(dut)
        dut.image_rdata_i.value = self.coming.popleft()

    def observe(self, dut):
        super().observe(dut)
        if int(dut.image_re_o.value):
            word = self.image[int(dut.image_addr_o.value)]
            self.coming.append(int.from_bytes(word.tobytes(), "little"))
        else:
            self.coming.append(self.coming[-1])


@dataclass(kw_only=True)
class EngineModel:
    """Reference model of the engine: expected outputs of every cycle, and the memories it writes.

    expectations: one entry per instruction, in order: the word count of a transfer, or the list of
    writes of an im2row as docs/machine.md specifies them. done: cycle in which each one completes.
    """

    port: Port
    feature: np.ndarray
    expectations: list
    now: int = 0
    starts: list = field(default_factory=list)
    done: list = field(default_factory=list)
    retired: int = 0
    words: int = 0  # written so far by the transfer in progress

    def observe(self, dut):
        self.now += 1
        im2row_runs = self._check_im2row(dut)
        self._transfer(dut)
        finished = sum(at <= self.now for at in self.done)
        assert int(dut.done_valid_o.value) == int(finished > self.retired), self.now
        open_ = len(self.starts) - finished
        if int(dut.start_valid_i.value):
            op, ready = int(dut.op_i.value), int(dut.start_ready_o.value)
            if op == OP["unfold"]:
                assert ready == int(open_ == 0), f"{self.now}: an im2row, {open_} loads are open"
            elif im2row_runs or not open_:
                assert ready == int(not im2row_runs), f"{self.now}: a load during an im2row"
            if ready:
                self.starts.append(self.now)
        self.retired += int(dut.done_valid_o.value) and int(dut.done_ready_i.value)

    def _check_im2row(self, dut):
        """Check this cycle of an im2row. Returns whether one is in progress."""
        number = len(self.done)
        writes = None
        if number < len(self.starts) and isinstance(self.expectations[number], list):
            expected_writes = self.expectations[number]
            end = self.starts[number] + len(expected_writes) + CYCLES
            assert not int(dut.ar_valid_o.value), "an im2row reads no DRAM"
            step = self.now - (end - len(expected_writes) + 1)
            if step >= 0:
                writes = expected_writes[step]
            if self.now == end:
                self.done.append(end)
        assert int(dut.unfold_we_o.value) == int(writes is not None), self.now
        if writes is not None:
            address, new = writes
            assert int(dut.unfold_addr_o.value) == address, self.now
            strobe, data = int(dut.unfold_strobe_o.value), int(dut.unfold_data_o.value)
            for byte in range(W):
                if strobe >> byte & 1:
                    self.feature[address, byte] = data >> 8 * byte & 255
            expected = {b: v for b, v in new.items() if self.feature[address, b] != v}
            assert not expected, f"{self.now}: word {address} misses {expected}"
            enabled = {b for b in range(W) if strobe >> b & 1}
            assert enabled == set(new), f"{self.now}: bytes {enabled ^ set(new)} of {address}"
        return (
            number < len(self.starts)
            and len(self.done) == number
            and isinstance(self.expectations[number], list)
        )

    def _transfer(self, dut):
        for name, memory in (("feature", self.feature), ("image", self.port.image)):
            if int(getattr(dut, f"{name}_we_o").value):
                data = int(dut.wdata_o.value) & (1 << 8 * W) - 1
                at = int(dut.waddr_o.value)
                memory[at] = np.frombuffer(data.to_bytes(W, "little"), np.uint8)
                self.words += 1
        self.words += int(dut.weight_we_o.value)
        number = len(self.done)
        if self.words and self.words == self.expectations[number]:
            self.done.append(self.now)
            self.words = 0


def setup(dut, rng, expectations, **options):
    rules = Rules(
        bus_bytes=SPEC.dram.bus_bytes,
        max_burst=SPEC.dram.max_burst,
        outstanding=SPEC.dram.outstanding,
        base=BASE,
        limit=WINDOW,
    )
    window = rng.integers(0, 256, WINDOW).astype(np.uint8)
    image = rng.integers(0, 256, (IMAGE, W)).astype(np.uint8)
    port = Port(rules=rules, data=window, rng=rng, image=image, **options)
    feature = rng.integers(0, 256, (FEATURE, W)).astype(np.uint8)
    model = EngineModel(port=port, feature=feature, expectations=expectations)
    bench = TransferBench(dut=dut, engine=Engine.LOAD, port=port, rng=rng, each_cycle=model.observe)
    return bench, port, model


def random_im2row(rng):
    """Registers of a legal one that fits both buffers."""
    while True:
        kernel, run, rows = int(rng.choice([3, 5, 7])), pick(rng, 1, 13), pick(rng, 1, 4)
        words = -(-run * COLUMN[kernel] // 4)
        p = {
            "run": run,
            "rows": rows,
            "row_pitch": pick(rng, 0, 2) * run + pick(rng, 0, 1),
            "image": pick(rng, -60, IMAGE),
            "in_rows": pick(rng, 0, 12),
            "origin_y": pick(rng, -7, 6),
            "stride_y": pick(rng, 1, 4),
            "kernel_rows": kernel,
            "pad_value": pick(rng, -128, 127),
        }
        if rng.random() < 0.5:  # what is not used may hold anything
            p |= {"blocks": 0, "block_pitch": 5, "dram_lo": 3, "dram_hi": 1023}
        fits = all(0 <= at <= IMAGE - run for _, _, at in passes(p) if at is not None)
        if fits and rows * words <= FEATURE:
            return p | {"dst": pick(rng, 0, FEATURE - rows * words)}


def passes(p):
    """(row, kernel row, first image word or None in the padding)."""
    for r in range(p["rows"]):
        for ky in range(p["kernel_rows"]):
            y = p["origin_y"] + r * p["stride_y"] + ky
            in_image = 0 <= y < p["in_rows"]
            yield r, ky, p["image"] + r * p["row_pitch"] + ky * p["run"] if in_image else None


def writes_of(p, image):
    """Every word that an im2row writes, in order: (address, byte -> value)."""
    column = COLUMN[p["kernel_rows"]]
    words, columns = -(-p["run"] * column // 4), p["run"] * W // 4
    results = []
    for r, ky, at in passes(p):
        new = [(p["dst"] + r * words + n, {}) for n in range(words)]
        for x in range(columns):
            for c in range(3):
                byte = x * column + 3 * ky + c
                value = p["pad_value"] & 255
                if at is not None:
                    value = int(image[at + 4 * x // W, (4 * x + c) % W])
                new[byte // W][1][byte % W] = value
        results += new
    return results


def random_transfers(rng, count, window, feature, image):
    """Loads and im2rows, and what is expected of each, which updates `feature` and `image`."""
    transfers, expectations = [], []
    for _ in range(count):
        name = str(
            rng.choice(["feature", "weight", "image", "image", "unfold", "unfold", "unfold"])
        )
        if name == "unfold":
            values = random_im2row(rng)
            expectations.append(writes_of(values, image))
            for address, new in expectations[-1]:
                for byte, value in new.items():
                    feature[address, byte] = value
        else:
            size = word_bytes(name)
            most = getattr(SPEC.buffers, name).words
            shape, first = random_shape(rng, most, WINDOW // size)
            total = shape["run"] * shape["rows"] * shape["blocks"]
            dst = pick(rng, 0, most - total)
            values = parameters(shape, first * size, ("dst", dst))
            words = window.reshape(-1, size)[words_of(shape, first)]
            if name in ("feature", "image"):
                {"feature": feature, "image": image}[name][dst : dst + total] = words
            expectations.append(total)
        transfers.append(Transfer(op=OP[name], values=values))
    return transfers, expectations


@cocotb.test()
async def loads_and_im2rows_write_the_specified_bytes_in_the_specified_cycles(dut):
    rng = generator()
    await begin(dut, **IDLE)
    for pauses in (0.0, 0.4, 0.9):
        expectations: list = []
        bench, port, model = setup(dut, rng, expectations, latency=pick(rng, 1, 40))
        bench.pauses = pauses
        feature, image = model.feature.copy(), port.image.copy()
        transfers, new = random_transfers(rng, ROUNDS, port.data, feature, image)
        expectations += new
        await bench.run(transfers)
        assert len(model.done) == ROUNDS
        assert (model.feature == feature).all()
        assert (port.image == image).all()
        assert not port.open, "reads are left open"


@cocotb.test()
async def every_run_in_every_row_of_every_kernel(dut):
    """Rests of rows, the end of the image buffer: all lengths of runs up to twice the period."""
    rng = generator()
    await begin(dut, **IDLE)
    bench, port, model = setup(dut, rng, [])
    bench.pauses = 0.0
    transfers = []
    for kernel, column in COLUMN.items():
        for run in range(1, 11):
            rows = min(3, FEATURE // -(-run * column // 4))
            last = min(2, rows + kernel - 4)  # row of the image, the last of the buffer
            p = {"run": run, "rows": rows, "row_pitch": run, "image": IMAGE - (last + 3) * run}
            p |= {"in_rows": 3, "origin_y": -2, "stride_y": 1, "kernel_rows": kernel}
            p |= {"pad_value": -3, "dst": 0}
            transfers.append(Transfer(op=OP["unfold"], values=p))
            model.expectations.append(writes_of(p, port.image))
    await bench.run(transfers)


GOOD = {
    "run": 2,
    "rows": 2,
    "row_pitch": 2,
    "image": 0,
    "in_rows": 4,
    "origin_y": 0,
    "stride_y": 1,
    "kernel_rows": 3,
    "pad_value": 0,
    "dst": 0,
}


@cocotb.test()
async def an_illegal_im2row_stops_the_engine(dut):
    rng = generator()
    await begin(dut, **IDLE)
    words = 5  # of a row
    illegal, beyond = ErrorCode.ILLEGAL_INSTRUCTION, ErrorCode.BUFFER
    cases = {f"{name} 0": ({name: 0}, illegal) for name in ("run", "rows", "stride_y")}
    cases |= {f"kernel {k}": ({"kernel_rows": k}, illegal) for k in (0, 1, 2, 4, 6, 8, 9, 11, 135)}
    cases |= {
        "image after the buffer": ({"image": IMAGE}, beyond),
        "image across the end": ({"image": IMAGE - 7}, beyond),
        "image before the buffer": ({"image": -1}, beyond),
        "a later row far outside": ({"row_pitch": (1 << 22) - 1, "rows": 2}, beyond),
        "feature after the buffer": ({"dst": FEATURE}, beyond),
        "feature across the end": ({"dst": FEATURE - 2 * words + 1}, beyond),
        "the largest feature address": ({"dst": (1 << 22) - 1}, beyond),
    }
    # The first valid row is 2^24, 2^25, 2^26 words further on: too narrow addresses wrap around.
    for last in (4, 8, 16):
        far = {"row_pitch": (1 << 22) - 1, "rows": last + 1, "image": last}
        cases[f"row {last} far outside"] = (far | {"stride_y": 3, "origin_y": -3 * last}, beyond)
    one = {"run": 1, "rows": 1, "row_pitch": 0, "blocks": 1, "block_pitch": 0}
    load = Transfer(op=OP["feature"], values=parameters(one, 0, ("dst", 0)))
    good = Transfer(op=OP["unfold"], values=GOOD)
    for name, (change, code) in cases.items():
        for successor in (good, load):
            await pulse_reset(dut)
            bench, port, _ = setup(dut, rng, [])
            bench.each_cycle = only_in_the_buffer
            bad = Transfer(op=OP["unfold"], values=GOOD | change)
            fault = await bench.run([load, good, bad, successor], until_fault=True)
            assert fault == (code, 2), f"{name}: {fault}"
            assert len(port.bursts) == 1, f"{name}: a later instruction started"
            await drain(dut, port)


def only_in_the_buffer(dut):
    if int(dut.unfold_we_o.value):
        assert int(dut.unfold_addr_o.value) < FEATURE
    if int(dut.image_re_o.value):
        assert int(dut.image_addr_o.value) < IMAGE


@cocotb.test()
async def rows_in_the_padding_may_have_any_address(dut):
    rng = generator()
    await begin(dut, **IDLE)
    bench, port, model = setup(dut, rng, [])
    cases = (
        {"in_rows": 0, "image": -(1 << 21), "row_pitch": (1 << 22) - 1, "rows": 6},
        {"origin_y": 60, "row_pitch": (1 << 22) - 1, "rows": 7},
        {"origin_y": -65536, "stride_y": 255},
        {"origin_y": -(5 * 255), "stride_y": 255, "rows": 7, "row_pitch": 3, "image": -15},
    )
    transfers = [Transfer(op=OP["unfold"], values=GOOD | case) for case in cases]
    model.expectations += [writes_of(GOOD | case, port.image) for case in cases]
    await bench.run(transfers)
