"""docs/machine.md transcribed loop by loop, on Python integers; slow, as close to it as can be.

Every access is recorded, so that footprints can be held against what really happens.
"""

from collections import defaultdict

import numpy as np

from opu_fuse.hw.isa.footprint import dram_word_bytes, space_limit
from opu_fuse.hw.isa.table import Engine
from opu_fuse.units.base import Space, Stage
from opu_fuse.units.pool import PoolKind
from opu_fuse.units.residual import ResidualKind
from opu_fuse.units.spread import spread_pixels
from rtl_sim.benches.graph_orders import orders_of

LANE_BYTES = 8


def rne(x, shift):
    """x / 2**shift, halves to even, on Python integers."""
    if shift <= 0:
        return x << -shift
    floor, rest = x >> shift, x & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return floor + (rest > half or (rest == half and floor & 1))


def clamp(x, lo=-128, hi=127):
    return max(lo, min(hi, x))


def wrap(x, bits):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


class NaiveMachine:
    def __init__(self, spec, memories):
        """memories: sim.Memories whose arrays are copied (so that two machines start alike)."""
        self.spec = spec
        self.W = spec.word_channels
        self.dram = memories.dram.copy()
        self.words = {
            space: memories.buffer(space).copy()[: space_limit(space, spec)]
            for space in Space
            if space is not Space.DRAM
        }
        self.touched = defaultdict(set)  # (space, write) -> words or bytes

    def read(self, space, word):
        self.touched[space, False].add(int(word))
        return self.words[space][word]

    def write(self, space, word, lane, value):
        self.touched[space, True].add(int(word))
        self.words[space][word][lane] = value

    def execute(self, instruction):
        p = instruction.params
        if instruction.opcode == "unfold":
            self.unfold(p)
        elif instruction.engine is Engine.LOAD:
            self.load(instruction)
        elif instruction.engine is Engine.STORE:
            self.store(instruction)
        elif instruction.engine is Engine.POST:
            self.post(p)
        else:
            getattr(self, instruction.opcode)(p)

    def load(self, instruction):
        p, space = instruction.params, Space(instruction.opcode)
        size = dram_word_bytes(space, self.spec)
        n = 0
        for b in range(p["blocks"]):
            for r in range(p["rows"]):
                for i in range(p["run"]):
                    word = b * p["block_pitch"] + r * p["row_pitch"] + i
                    for byte in range(size):
                        address = instruction.dram + word * size + byte
                        self.touched[Space.DRAM, False].add(address)
                        value = int(self.dram[address])
                        inside = p["zero_low"] <= byte < size - p["zero_high"]
                        if space is Space.WEIGHT and not inside:
                            value = 0
                        signed = self.words[space].dtype == np.int8
                        self.write(space, p["dst"] + n, byte, wrap(value, 8) if signed else value)
                    n += 1

    def unfold(self, p):
        """All words of an unfolded row count as touched."""
        k, W = p["kernel_rows"], self.W
        S = {3: 9, 5: 16, 7: 22}[k]
        n = -(-p["run"] * S // 4)
        for r in range(p["rows"]):
            first = p["dst"] + r * n
            self.touched[Space.FEATURE, True].update(range(first, first + n))
            for ky in range(k):
                y = p["origin_y"] + r * p["stride_y"] + ky
                for x in range(p["run"] * W // 4):
                    for c in range(3):
                        value = p["pad_value"]
                        if 0 <= y < p["in_rows"]:
                            word = p["image"] + r * p["row_pitch"] + ky * p["run"] + 4 * x // W
                            value = int(self.read(Space.IMAGE, word)[(4 * x + c) % W])
                        at = x * S + 3 * ky + c
                        self.words[Space.FEATURE][first + at // W][at % W] = value

    def store(self, instruction):
        """A word counts as touched although some of its bytes are skipped."""
        p, size = instruction.params, self.spec.word_bytes
        n = 0
        for b in range(p["blocks"]):
            for r in range(p["rows"]):
                for i in range(p["run"]):
                    w = self.read(Space.OUTPUT, p["src"] + n)
                    for ry in range(p["repeat_rows"] + 1):
                        for rx in range(p["repeat_cols"] + 1):
                            word = (
                                b * p["block_pitch"]
                                + (r * (p["repeat_rows"] + 1) + ry) * p["row_pitch"]
                                + i * (1 + p["repeat_cols"] + p["word_gap"])
                                + rx
                            )
                            address = instruction.dram + word * size
                            self.touched[Space.DRAM, True].update(range(address, address + size))
                            for byte in range(p["skip_low"], size - p["skip_high"]):
                                self.dram[address + byte] = int(w[byte]) & 255
                    n += 1

    def lane(self, p, c, y, x, i):
        """Lane i of pixel (y, x) of channel block c: lanes go on into right-hand neighbours."""
        slot = 1 << p["slot_log2"]
        column, byte = x + i // slot, i % slot
        if not (0 <= y < p["in_rows"] and 0 <= column < p["in_cols"]):
            return p["pad_value"]
        at, size = column * slot + byte, self.spec.word_bytes
        word = p["feature"] + c * p["block_pitch"] + y * p["row_pitch"] + at // size
        value = int(self.read(Space.FEATURE, word)[at % size])
        for unit in range(p["pre"]):
            value = self.pre_unit(p, unit, c, i, value)
        return value

    def pre_unit(self, p, unit, c, lane, v):
        if p["gate"]:
            r = wrap(int(self.read(Space.PRE, p["pre_param"] + c)[lane]), 8)
            product = (v - p["gate_x_zero"]) * (r - p["gate_zero"]) * p["gate_mult"]
            made = clamp(rne(product, p["gate_shift"]) + p["pre_zero"])
            return clamp(made, p["pre_lo"], p["pre_hi"])
        record = self.record(Space.PRE, p["pre_param"] + 8 * (c * p["pre"] + unit), lane)
        B, A, s = wrap(record & 0xFFFFFFFF, 32), wrap(record >> 32 & 0xFFFF, 16), record >> 48 & 255
        own = f"@{unit}" if unit else ""
        zero, lo, hi = (p.get(f"pre_{name}{own}", 0) for name in ("zero", "lo", "hi"))
        return clamp(rne(v * A + B, wrap(s, 8)) + zero, lo, hi)

    def record(self, space, first, lane):
        """Eight little-endian bytes of a lane."""
        found = 0
        for byte in range(LANE_BYTES):
            at = LANE_BYTES * lane + byte
            found |= int(self.read(space, first + at // self.W)[at % self.W]) << 8 * byte
        return found

    def conv(self, p):
        mode = self.spec.array.modes[p["mode"]]
        ic, oc, px = mode.ic, mode.oc, mode.px
        S, G = self.W // ic, self.W // oc
        row_words = ic * oc // self.spec.buffers.weight.width
        row = p["weight"]
        for s in range(p["ic_first"], p["ic_first"] + p["ic_steps"]):
            if p["pre"] and p["gate"]:
                self.read(Space.PRE, p["pre_param"] + s // S)
            elif p["pre"]:
                for word in range(8 * p["pre"]):
                    self.read(Space.PRE, p["pre_param"] + 8 * p["pre"] * (s // S) + word)
            for ky in range(p["kernel_rows"]):
                for kx in range(p["kernel_cols"]):
                    for g in range(p["oc_first"], p["oc_first"] + p["oc_steps"]):
                        R = self.row(row, row_words)
                        first = not p["accumulate"] and s == p["ic_first"] and ky == kx == 0
                        for oy in range(p["out_rows"]):
                            for ox in range(p["out_cols"]):
                                y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
                                x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
                                v = [self.lane(p, s // S, y, x, s % S * ic + i) for i in range(ic)]
                                word = (
                                    p["psum"]
                                    + g // G * p["psum_block_pitch"]
                                    + oy * (p["out_cols"] // px)
                                    + ox // px
                                )
                                for o in range(oc):
                                    lane = ox % px * (self.W // px) + g % G * oc + o
                                    old = 0 if first else int(self.words[Space.PSUM][word][lane])
                                    new = old + sum(v[i] * R[o * ic + i] for i in range(ic))
                                    self.write(Space.PSUM, word, lane, wrap(new, 32))
                        row += row_words

    def row(self, first, words):
        """The int8 bytes of a weight row."""
        return [int(v) for w in range(words) for v in self.read(Space.WEIGHT, first + w)]

    def depthwise(self, p):
        U, V = self.spec.array.units, self.spec.array.multipliers
        H, D = min(U, self.W), max(d for d in range(1, V + 1) if d * d <= V)
        row_words = U * V // self.spec.buffers.weight.width
        row = p["weight"]
        for q in range(p["ic_first"], p["ic_first"] + p["ic_steps"]):
            block, part = divmod(q, self.W // H)
            for n in range(p["oc_steps"]):
                R = self.row(row, row_words)
                for oy in range(p["out_rows"]):
                    for ox in range(p["out_cols"]):
                        down = (oy * p["oc_steps"] + n) * p["out_cols"]
                        word = p["psum"] + block * p["psum_block_pitch"] + down + ox
                        for u in range(H):
                            lane = part * H + u
                            new = int(self.words[Space.PSUM][word][lane]) if p["accumulate"] else 0
                            for ky in range(p["kernel_rows"]):
                                for kx in range(p["kernel_cols"]):
                                    y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
                                    x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
                                    v = self.lane(p, block, y, x, lane)
                                    new += v * R[u * V + ky * D + kx]
                            self.write(Space.PSUM, word, lane, wrap(new, 32))
                row += row_words

    def copy(self, p):
        for c in range(p["ic_steps"]):
            for oy in range(p["out_rows"]):
                for ox in range(p["out_cols"]):
                    y = p["origin_y"] + oy * p["stride_y"]
                    x = p["origin_x"] + ox * p["stride_x"]
                    word = p["psum"] + c * p["psum_block_pitch"] + oy * p["out_cols"] + ox
                    for lane in range(self.W):
                        self.write(Space.PSUM, word, lane, self.lane(p, c, y, x, lane))

    def post(self, p):
        for b in range(p["blocks"]):
            if Stage.REQUANT in orders_of(self.spec).kinds(p["order"]):
                for word in range(p["param"] + 8 * b, p["param"] + 8 * b + 8):
                    self.read(Space.PARAM, word)
            for oy in range(p["out_rows"]):
                for ox in range(p["out_cols"]):
                    word = p["out"] + b * p["out_block_pitch"] + oy * p["out_row_pitch"] + ox
                    kept = p["keep_at"] + b * p["keep_block_pitch"] + oy * p["keep_row_pitch"] + ox
                    for lane, value in enumerate(self.pixel(p, b, oy, ox)):
                        self.write(Space.OUTPUT, word, lane, value)
                        if p["keep"]:
                            self.write(Space.FEATURE, kept, lane, value)

    def pixel(self, p, b, oy, ox):
        chain = orders_of(self.spec).kinds(p["order"])
        at = chain.index(Stage.POOL) if Stage.POOL in chain else len(chain)
        visits = []
        for wy in range(p["win_rows"]):
            for wx in range(p["win_cols"]):
                y = p["origin_y"] + oy * p["stride_y"] + wy
                x = p["origin_x"] + ox * p["stride_x"] + wx
                if 0 <= y < p["in_rows"] and 0 <= x < p["in_cols"]:
                    v = self.before_pool(p, b, y, x, chain[:at], at == len(chain), (oy, ox))
                    visits.append(self.fold(v, p["pool_slots"], wx) if p["pool_slots"] else v)
        if at == len(chain):
            (only,) = visits
            part = self.W // spread_pixels(p["spread"])[0]
            first = ox * part % self.W
            return only[first : first + part] * (self.W // part)
        pooled = [self.pool(p, [v[lane] for v in visits]) for lane in range(self.W)]
        for stage in chain[at + 1 :]:
            pooled = self.stage(p, stage, b, pooled, (oy, ox))
        return pooled

    def before_pool(self, p, b, y, x, stages, no_pool, out):
        word = p["psum"] + b * p["psum_block_pitch"] + y * p["psum_row_pitch"]
        word += x // spread_pixels(p["spread"])[0]
        v = [int(a) for a in self.read(Space.PSUM, word)]
        if not stages or stages[0] is not Stage.REQUANT:
            v = [wrap(a, 8) for a in v]
        for stage in stages:
            v = self.stage(p, stage, b, v, out if no_pool else (y, x))
        return v

    def stage(self, p, stage, b, v, at):
        if stage is Stage.REQUANT:
            return [self.requantize(p, b, lane, a) for lane, a in enumerate(v)]
        if stage is Stage.ACT:
            return [self.activate(p, a) for a in v]
        if stage is Stage.TABLE:
            return [int(self.read(Space.TABLE, p["table"] + a + 128)[n]) for n, a in enumerate(v)]
        y, x = (0, 0) if p["res_broadcast"] else at
        word = p["res"] + b * p["res_block_pitch"] + y * p["res_row_pitch"] + x
        r = self.read(Space.RESIDUAL, word)
        pixels, slot = spread_pixels(p["spread"])
        part = self.W // pixels
        lanes = [slot * part + n % part if pixels > 1 else n for n in range(self.W)]
        return [self.residual(p, a, int(r[n])) for n, a in zip(lanes, v, strict=True)]

    def requantize(self, p, b, lane, acc):
        record = self.record(Space.PARAM, p["param"] + 8 * b, lane)
        bias, mult, shift = wrap(record & 0xFFFFFFFF, 32), record >> 32 & 0xFFFF, record >> 48 & 255
        return clamp(rne((acc + bias) * mult, wrap(shift, 8)) + p["requant_zero"])

    def activate(self, p, x):
        centred = x - p["act_x_zero"]
        slope = p["act_neg"] if centred < 0 else p["act_pos"]
        return clamp(
            rne(centred * slope, p["act_shift"]) + p["act_y_zero"], p["act_lo"], p["act_hi"]
        )

    def residual(self, p, a, b):
        if p["res_kind"] == ResidualKind.MAXIMUM:
            return a if a > b else b
        a, b = a - p["res_a_zero"], b - p["res_b_zero"]
        if p["res_kind"] == ResidualKind.MULTIPLY:
            total = a * b * p["res_a_mult"]
        else:
            a_sign, b_sign = (-1 if p["res_negative"] & bit else 1 for bit in (1, 2))
            total = a_sign * a * p["res_a_mult"] + b_sign * b * p["res_b_mult"]
        return clamp(rne(total, p["res_shift"]) + p["res_y_zero"])

    def fold(self, v, px, wx):
        """What a visit of packed pixels gives to every lane of the pooled word; None is nothing."""
        width = self.W // px
        found = [None] * self.W
        for h in range(px // 2):
            for lane in range(width):
                left, right = v[2 * h * width + lane], v[(2 * h + 1) * width + lane]
                found[(wx * px // 2 + h) * width + lane] = max(left, right)
        return found

    def pool(self, p, values):
        values = [v for v in values if v is not None]
        if p["pool_kind"] == PoolKind.MAX:
            return max(values, default=-128)
        total = sum(v - p["pool_x_zero"] for v in values)
        return clamp(rne(total * p["pool_mult"], p["pool_shift"]) + p["pool_y_zero"])
