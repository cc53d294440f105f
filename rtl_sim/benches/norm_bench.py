"""cocotb tests of passes through a norm in `opu_post_bench`.

Environment: OPU_BENCH_SPEC names the machine, OPU_BENCH_ROUNDS sets the amount of work: values of
every pass, in thousands.
"""

import os
from itertools import pairwise

import cocotb
import numpy as np

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.units.base import Stage
from opu_fuse.units.norm import CHANNELS_MAX, MAP_MAX, exponential_words
from opu_fuse.units.norm_pass import RECORD
from rtl_sim.benches import norm_model, post_model
from rtl_sim.benches.engine_driver import EngineDriver, Pauses, assert_alive, compare, draw
from rtl_sim.benches.graph_orders import REQUANT, orders_of

SPEC = load_hw(os.environ["OPU_BENCH_SPEC"])
VALUES = 1000 * int(os.environ["OPU_BENCH_ROUNDS"])
RUN = 0
W = SPEC.word_channels
ORDERS = orders_of(SPEC)
NORMS = [
    order
    for order in ORDERS.every
    if Stage.NORM in ORDERS.kinds(order) and Stage.POOL not in ORDERS.kinds(order)
]
PASSES = {
    "softmax": (norm_model.MAX, norm_model.EXPSUM, norm_model.SOFTMAX),
    "layer_norm": (norm_model.MOMENTS, norm_model.NORMALISE),
    "rms_norm": (norm_model.SQUARES, norm_model.NORMALISE),
    "group_norm": (norm_model.MAP_MOMENTS, norm_model.MAP_NORMALISE),
}
if 2 * SPEC.post.lanes == W:
    PASSES["grouped_softmax"] = (
        norm_model.QUARTER_MAX,
        norm_model.QUARTER_EXPSUM,
        norm_model.QUARTER_EXPSUM_ODD,
        norm_model.QUARTER_SOFTMAX,
    )
SOFTMAXES = ("softmax", "grouped_softmax")
PIXELS = SPEC.buffers.psum.bank_words


def values(rng, shape):
    """int8 maps: uniform, narrow, with rows of equal values, one large value a row, all -128."""
    kind = rng.choice(["any", "narrow", "equal", "spike", "lowest", "far"])
    if kind == "any":
        return rng.integers(-128, 128, shape)
    if kind == "narrow":
        return (
            rng.normal(rng.integers(-90, 90), rng.uniform(0.3, 20), shape).round().clip(-128, 127)
        )
    if kind == "spike":
        return np.where(rng.random(shape) < 0.02, 127, rng.integers(-128, -100, shape))
    if kind == "far":
        return rng.choice([-128, 127], shape)
    if kind == "equal":
        return np.broadcast_to(rng.integers(-128, 128, (1, shape[1], 1)), shape)
    return np.full(shape, -128)


def records(rng, count):
    """Of channels: results of many values, far shifts, extremes."""
    result = np.zeros(count, RECORD)
    result["gain"] = rng.integers(-(1 << 15), 1 << 15, count)
    result["gain_shift"] = rng.integers(22, 27, count)
    result["offset"] = rng.integers(-(1 << 28), 1 << 28, count)
    result["unused"] = rng.integers(0, 256, count)
    odd = rng.random(count) < 0.05
    result["gain_shift"][odd] = rng.integers(0, 256, count)[odd]
    result["offset"][odd] = rng.choice([-(1 << 31), (1 << 31) - 1, 0], count)[odd]
    return result


class Bench:
    """The engine, its memories and their model side by side."""

    def __init__(self, dut):
        cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.driver = EngineDriver(dut, SPEC, Engine.POST, self.rng)
        self.seen = dict.fromkeys(PASSES, 0)

    async def begin(self):
        rng, buffers = self.rng, SPEC.buffers
        await self.driver.begin()
        assert buffers.norm is not None, "a machine with norms"
        assert buffers.table is not None, "and with tables"
        self.residual = rng.integers(-128, 128, (buffers.residual.words, W), np.int8)
        self.table = rng.integers(-128, 128, (buffers.table.words, W), np.int8)
        self.exponentials = rng.integers(0, 256, (buffers.norm.words, W), np.uint8)
        entries = norm_model.ENTRIES
        scale = float(rng.choice([0.0, 1e-4, 0.02, 0.09, 0.4]))
        self.exponentials[:entries, :3] = exponential_words(scale)
        self.small_table = buffers.norm.words - entries
        assert self.small_table >= entries, "a second table"
        self.exponentials[self.small_table :, :3] = 0
        self.exponentials[self.small_table :, 0] = rng.integers(1, 256, entries)
        await self.driver.load("residual", self.residual)
        await self.driver.load("table", self.table)
        await self.driver.load("norm", self.exponentials)
        low = self.exponentials[:, :3].astype(int) @ (1, 1 << 8, 1 << 16)
        self.norm = norm_model.Norm([int(x) for x in low])
        self.output = await self.driver.read(buffers.output.words, np.int8)

    def shape(self, *, pixels=None, blocks=None):
        """Geometry of a pass, with gaps between rows and blocks."""
        rng, buffers = self.rng, SPEC.buffers
        while True:
            p = draw(rng, blocks=(1, 4), out_rows=(1, 12), out_cols=(1, 12))
            if blocks is not None:
                p["blocks"] = blocks
            if pixels is not None:
                p |= {"out_rows": 1, "out_cols": pixels}
            p |= draw(rng, origin_y=(0, 1), origin_x=(0, 1), stride_y=(1, 2), stride_x=(1, 2))
            if pixels is not None:
                p |= {"origin_y": 0, "stride_x": 1, "origin_x": 0}
            for at, outs, name in (("y", "out_rows", "in_rows"), ("x", "out_cols", "in_cols")):
                p[name] = p[f"origin_{at}"] + (p[outs] - 1) * p[f"stride_{at}"] + 1
            p |= {"psum_row_pitch": p["in_cols"], "out_row_pitch": p["out_cols"]}
            p["psum_block_pitch"] = p["in_rows"] * p["in_cols"]
            p["out_block_pitch"] = p["out_rows"] * p["out_cols"]
            p |= {"res_row_pitch": p["out_cols"], "res_block_pitch": p["out_block_pitch"]}
            room = {
                "psum": buffers.psum.words - p["blocks"] * p["psum_block_pitch"],
                "out": buffers.output.words - p["blocks"] * p["out_block_pitch"],
                "res": buffers.residual.words - p["blocks"] * p["res_block_pitch"],
                "param": buffers.param.words - 16 * p["blocks"],
            }
            if min(room.values()) >= 0 and p["out_block_pitch"] <= PIXELS:
                return p | draw(rng, **{name: (0, most) for name, most in room.items()})

    async def layer(self, name, pauses, *, order=None, halves=False, **shape):
        """All passes of a layer over random partial sums; its result is compared. halves: of an
        RMSNorm every normalised value is 0, or a half before it is rounded to an even integer.
        """
        rng = self.rng
        order = int(rng.choice(NORMS)) if order is None else order
        chain = ORDERS.kinds(order)
        [p] = [post_model.random_instruction(SPEC, rng, order=order)]
        grouped = name == "grouped_softmax"
        shape |= {"blocks": 1} if grouped else {}
        p |= self.shape(**shape) | {"win_rows": 1, "win_cols": 1, "keep": 0, "spread": 0}
        p |= draw(rng, norm_zero=(-128, 126 if halves else 127), norm_idle=(0, W - 1))
        if p["blocks"] == 1 and name not in SOFTMAXES:
            p["norm_idle"] = min(p["norm_idle"], W - 2)
        if rng.random() < 0.4 or grouped:
            p["norm_idle"] = 0
        if halves:
            p["norm_idle"] = W - (1 << (W.bit_length() - 1))
        await self.fill(p, chain, halves=halves)
        words = self.words(p, chain)
        channels = p["blocks"] * W - p["norm_idle"]
        count = channels * (p["out_block_pitch"] if name == "group_norm" else 1)
        *statistics, result = PASSES[name]
        runs, ties = [], name in SOFTMAXES and rng.random() < 0.3
        p["norm_table"] = self.small_table if ties else 0
        for op in statistics:
            own = {"norm_op": op, **(self.ties() if ties else self.scale(name, count))}
            if halves:
                own |= self.half_of_a_step(channels)
            if op in (norm_model.MAX, norm_model.QUARTER_MAX):
                own |= draw(rng, norm_scale=(0, 65535), norm_shift=(-64, 63))
            runs.append(p | own)
            whole = np.concatenate([*words], axis=1)[:, :channels]
            self.norm.statistics(runs[-1], whole.tolist())
        last = p | {"norm_op": result}
        last |= draw(rng, norm_zero=(-128, 127), norm_scale=(0, 65535), norm_shift=(-64, 63))
        if halves:
            last["norm_zero"] = -128
        cuts = sorted({0, p["blocks"], *rng.integers(0, p["blocks"] + 1, 2).tolist()})
        if rng.random() < 0.5:
            cuts = [0, p["blocks"]]
        step = post_model.words_of(chain)
        for first, end in pairwise(cuts):
            cut = last | {"blocks": end - first, "param": p["param"] + step * first}
            for part in ("psum", "out", "res"):
                cut[part] = p[part] + first * p[f"{part}_block_pitch"]
            cut["norm_idle"] = p["norm_idle"] * (end == p["blocks"])
            runs.append(cut)
        await self.driver.run([(RUN, run) for run in runs], pauses)
        self.dut.hold_i.value = 0
        self.expect(last, chain, words)
        at, count = p["out"], p["blocks"] * p["out_block_pitch"]
        got = await self.driver.read(count, np.int8, at)
        compare("output", self.output[at : at + count], got, [(RUN, run) for run in runs])
        self.seen[name] += channels * p["out_block_pitch"]

    def scale(self, name, count):
        """Registers of the pass that scales."""
        if name in SOFTMAXES:
            return draw(self.rng, norm_scale=(0, 65535), norm_shift=(0, 10))
        least = count // 16 + 1
        shift = int(self.rng.integers(0, 42))
        mantissa = int(self.rng.integers(max(1, -(-least >> shift)), 1 << 16))
        if self.rng.random() < 0.3:  # the least epsilon
            shift, mantissa = 0, least
        return {"norm_scale": mantissa, "norm_shift": shift}

    def ties(self):
        """Registers with which many results of small exponentials are halves before they are
        rounded: their factor has few bits, their sum is between 2**7 and 2**15.
        """
        bits = int(self.rng.integers(0, 3))
        return {"norm_scale": (1 << bits) - 1} | draw(self.rng, norm_shift=(20 - bits, 31 - bits))

    def half_of_a_step(self, channels):
        """Registers with which one step, alone in a pixel, becomes an even integer below 255 and a
        half: epsilons are tried. channels: a power of two, so that factors are exact.
        """
        while True:
            epsilon = draw(self.rng, norm_scale=(1 << 15, (1 << 16) - 1), norm_shift=(0, 20))
            variance = (channels << 8) + (epsilon["norm_scale"] << epsilon["norm_shift"])
            factor, _, shift = norm_model.Norm.deviation(channels, 0, variance)
            if shift > 0 and factor % (4 << shift - 1) == 1 << shift - 1 and factor >> shift < 255:
                return epsilon

    async def fill(self, p, chain, *, halves=False):
        """Partial sums and parameters of the pass."""
        rng = self.rng
        shape = (p["blocks"], p["psum_block_pitch"], W)
        x = np.asarray(values(rng, shape)).astype(np.int32)
        if halves:
            x = np.full(shape, p["norm_zero"], np.int32)
            lanes = rng.integers(0, W - p["norm_idle"], shape[:2])
            np.put_along_axis(x, lanes[..., None], p["norm_zero"] + 1, axis=2)
        if Stage.REQUANT in chain:
            x = rng.integers(-(1 << 28), 1 << 28, shape).astype(np.int32)
        await self.load("psum", x.reshape(-1, W), p["psum"])
        self.psum = x
        words = post_model.random_parameters(SPEC, rng).reshape(-1)[: 16 * p["blocks"] * W]
        self.param = words.copy().reshape(-1, W)
        norm_at = 8 * (Stage.REQUANT in chain)
        self.records = records(rng, p["blocks"] * W).reshape(p["blocks"], W)
        if halves:
            self.records = np.array([(1, 0, 0, 0)], RECORD).repeat(W)[None]
        for b, record in enumerate(self.records):
            at = b * post_model.words_of(chain) + norm_at
            self.param[at : at + 8] = record.view(np.uint8).reshape(8, W)
        await self.load("param", self.param, p["param"])

    async def load(self, memory, words, first):
        """`EngineDriver.load` from an address on."""
        before = getattr(self, f"_{memory}", None)
        size = getattr(SPEC.buffers, memory).words
        if before is None:
            before = np.zeros((size, W), words.dtype)
            setattr(self, f"_{memory}", before)
        before[first : first + len(words)] = words
        await self.driver.load(memory, before)

    def pixels(self, p):
        """(number, row, column) of every pixel in the partial sums."""
        for n in range(p["out_rows"] * p["out_cols"]):
            oy, ox = divmod(n, p["out_cols"])
            yield n, oy, ox

    def through(self, p, stages, v, b, oy, ox):
        """int8 (W,) through stages other than the norm."""
        chain = ORDERS.kinds(p["order"])
        lanes = post_model.lane_parameters(SPEC, self.param, p | {"param": 0}, chain, b)
        at = p["res"] + b * p["res_block_pitch"]
        at += 0 if p["res_broadcast"] else oy * p["res_row_pitch"] + ox
        for stage in stages:
            v = post_model.stage_value(stage, p, v, lanes, (self.residual, self.table), at)
        return v

    def words(self, p, chain):
        """Operands of the norm: of each block those of all pixels."""
        before = chain[: chain.index(Stage.NORM)]
        result = np.zeros((p["blocks"], p["out_rows"] * p["out_cols"], W), np.int64)
        for b in range(p["blocks"]):
            for n, oy, ox in self.pixels(p):
                y = p["origin_y"] + oy * p["stride_y"]
                x = p["origin_x"] + ox * p["stride_x"]
                v = self.psum[b, y * p["psum_row_pitch"] + x]
                if Stage.REQUANT not in chain:
                    v = v.astype(np.int8)
                result[b, n] = self.through(p, before, v, b, oy, ox)
        return result

    def expect(self, p, chain, words):
        after = chain[chain.index(Stage.NORM) + 1 :]
        for b in range(p["blocks"]):
            idle = p["norm_idle"] * (b == p["blocks"] - 1)
            own = [
                (int(r["gain"]), int(r["gain_shift"]), int(r["offset"])) for r in self.records[b]
            ]
            for n, oy, ox in self.pixels(p):
                v = self.norm.results(p, n, words[b, n, : W - idle].tolist(), own[: W - idle])
                v = np.array(v + [p["norm_zero"]] * idle, np.int8)
                at = p["out"] + b * p["out_block_pitch"] + oy * p["out_row_pitch"] + ox
                self.output[at] = self.through(p, after, v, b, oy, ox)

    async def check_all(self):
        got = await self.driver.read(SPEC.buffers.output.words, np.int8)
        compare("output", self.output, got, ())


@cocotb.test(timeout_time=500_000_000, timeout_unit="step")
async def layers_with_stalls_write_what_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    while min(bench.seen.values()) < VALUES:
        name = min(bench.seen, key=lambda kind: bench.seen[kind])
        start, done = bench.rng.choice([0.1, 0.5, 1.0], 2)
        hold = bench.rng.choice([0.0, 0.3, 0.8])
        await bench.layer(name, Pauses(start=start, done=done, hold=hold))
    await bench.check_all()
    cocotb.log.warning("values of each kind: %s", bench.seen)
    assert_alive("outputs", bench.output, distinct=100)


@cocotb.test(timeout_time=500_000_000, timeout_unit="step")
async def extreme_shapes_write_what_the_page_says(dut):
    bench = Bench(dut)
    await bench.begin()
    most = SPEC.buffers.param.words // 16
    pure = ORDERS.pack(["norm"])
    for name in PASSES:
        widest = min(PIXELS, SPEC.buffers.output.words)
        for pixels, blocks in ((1, most), (1, 1), (2, most), (widest, 1)):
            await bench.layer(name, Pauses(), order=pure, pixels=pixels, blocks=blocks)
            await bench.layer(name, Pauses(hold=0.3), pixels=pixels, blocks=blocks)
    await bench.check_all()


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def halves_of_normalised_values_are_rounded_to_even(dut):
    bench = Bench(dut)
    await bench.begin()
    for _ in range(4):
        await bench.layer(
            "rms_norm", Pauses(), order=ORDERS.pack(["norm"]), halves=True, pixels=4, blocks=1
        )


@cocotb.test(timeout_time=50_000_000, timeout_unit="step")
async def passes_that_the_unit_cannot_do_are_refused_and_change_nothing(dut):
    bench = Bench(dut)
    await bench.begin()
    [p] = [post_model.random_instruction(SPEC, bench.rng, order=ORDERS.pack(["norm"]))]
    p |= bench.shape(pixels=2, blocks=1) | {"win_rows": 1, "win_cols": 1, "spread": 0, "keep": 0}
    p |= {"norm_op": norm_model.MAX, "norm_idle": 0}
    many = {"out_rows": 2, "in_rows": 2, "out_cols": PIXELS // 2 + 1, "in_cols": PIXELS}
    words = MAP_MAX // W
    of_map = {"norm_op": norm_model.MAP_MOMENTS, "norm_scale": 1, "norm_shift": 0}
    wrong = [
        of_map | {"blocks": 2, "out_cols": words // 2 + 1},
        of_map | {"out_rows": 2, "out_cols": words // 2 + 1},
        of_map | {"out_rows": 3, "blocks": words // 3 + 1},
        of_map | {"norm_shift": 42},
        {"norm_idle": W},
        *({"norm_op": op} for op in (12, 15)),
        {"norm_op": norm_model.QUARTER_MAX, "norm_idle": 1},
        {"norm_op": norm_model.QUARTER_SOFTMAX, "blocks": 2},
        {"norm_op": norm_model.QUARTER_EXPSUM_ODD, "norm_shift": 32},
        many,
        {"blocks": CHANNELS_MAX // W + 1},
        {"spread": 2},
    ]
    for order in ORDERS.every:
        kinds = ORDERS.kinds(order)
        if Stage.NORM in kinds and Stage.POOL in kinds:
            wrong.append({"order": order, "res_kind": 0})
    assert len(wrong) > 6, "no order has a norm and a pool"
    for count, change in enumerate(wrong, 1):
        await bench.driver.run([(RUN, p | change)], Pauses())
        assert bench.driver.illegal == count, f"accepted: {change}"
    await bench.check_all()
    await bench.layer("softmax", Pauses(), order=ORDERS.pack([REQUANT, "norm"]))
