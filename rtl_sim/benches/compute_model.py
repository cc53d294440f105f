"""Model of the compute engine, one loop per line of docs/machine.md; random legal instructions."""

import math
from dataclasses import dataclass

import numpy as np

from opu_fuse.fixedpoint import channel_affine, multiply_residual
from opu_fuse.hw.spec.chain import chain_of
from rtl_sim.benches.engine_driver import draw

CONV, COPY, DEPTHWISE = 0, 1, 2
PRE_WORDS = 8
"""Words of the pre chain's parameters of a block; also the cycles that loading them takes."""
GATE_CYCLES = 6
"""Additional cycles of a gate."""

PRE_RECORD = np.dtype([("bias", "<i4"), ("mult", "<i2"), ("shift", "i1"), ("zero", "i1")])


@dataclass(kw_only=True)
class Memories:
    """feature: int8 [words, W]; weight: int8 [words, bytes]; psum: int32 [words, W], which the
    instructions modify; pre: PRE_RECORD [words, W / 8], one entry without such a buffer.
    """

    feature: np.ndarray
    weight: np.ndarray
    psum: np.ndarray
    pre: np.ndarray


def parts_per_word(spec):
    """Parts of `depthwise` in a word, and lanes of a part."""
    lanes = min(spec.array.units, spec.word_channels)
    return spec.word_channels // lanes, lanes


def pixel(spec, mem, p, y, x, block):
    """W lanes from a pixel on, int8; narrow pixels are followed by their right-hand neighbours."""
    W, slot = spec.word_channels, 1 << p["slot_log2"]
    padded = 1 << (W - 1).bit_length()
    row = p["feature"] + block * p["block_pitch"] + y * p["row_pitch"]
    result = np.full(W, p["pad_value"], np.int8)
    for lane in range(W):
        column, byte = x + lane // slot, lane % slot
        if 0 <= y < p["in_rows"] and 0 <= column < p["in_cols"]:
            position = column * slot + byte
            result[lane] = mem.feature[row + position // padded][position % padded]
            for unit in range(p["pre"]):
                result[lane] = _pre(mem, p, result[lane], block, lane, unit)
    return result


def _pre(mem, p, value, block, lane, unit):
    if p["gate"]:
        word = mem.pre[p["pre_param"] + block].view(np.int8)
        zeros = {"a_zero": p["gate_x_zero"], "b_zero": p["gate_zero"], "y_zero": p["pre_zero"]}
        product = multiply_residual(
            value, word[lane], mult=p["gate_mult"], shift=p["gate_shift"], **zeros
        )
        return np.clip(product, p["pre_lo"], p["pre_hi"])
    per_word = mem.pre.shape[1]
    first = p["pre_param"] + PRE_WORDS * (block * p["pre"] + unit)
    record = mem.pre[first + lane // per_word, lane % per_word]
    own = f"@{unit}" if unit else ""
    return channel_affine(
        value,
        mult=int(record["mult"]),
        bias=int(record["bias"]),
        shift=int(record["shift"]),
        y_zero=p[f"pre_zero{own}"],
        lo=p[f"pre_lo{own}"],
        hi=p[f"pre_hi{own}"],
    )


def conv(spec, mem, p):
    """Modifies psum."""
    W, mode = spec.word_channels, spec.array.modes[p["mode"]]
    ic, oc, px = mode.ic, mode.oc, mode.px
    S, G = W // ic, W // oc
    row, row_words = p["weight"], spec.mode_row_words(mode)
    steps, groups = p["ic_first"] + p["ic_steps"], p["oc_first"] + p["oc_steps"]
    for s, ky, kx, g in (
        (s, ky, kx, g)
        for s in range(p["ic_first"], steps)
        for ky in range(p["kernel_rows"])
        for kx in range(p["kernel_cols"])
        for g in range(p["oc_first"], groups)
    ):
        R = mem.weight[row : row + row_words].reshape(oc, ic).astype(np.int64)
        first = s == p["ic_first"] and ky == kx == 0
        for oy, ox in np.ndindex(p["out_rows"], p["out_cols"]):
            y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
            x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
            lanes = pixel(spec, mem, p, y, x, s // S)
            v = lanes[(s % S) * ic : (s % S) * ic + ic].astype(np.int64)
            at = p["psum"] + (g // G) * p["psum_block_pitch"]
            at += oy * (p["out_cols"] // px) + ox // px
            lane = (ox % px) * (W // px) + (g % G) * oc
            old = 0 if first and not p["accumulate"] else mem.psum[at, lane : lane + oc]
            mem.psum[at, lane : lane + oc] = (old + R @ v).astype(np.int32)
        row += row_words


def depthwise(spec, mem, p):
    """Modifies psum."""
    units, V, D = spec.array.units, spec.array.multipliers, spec.array.window_side
    parts, H = parts_per_word(spec)
    row = p["weight"]
    sweeps = range(p["ic_first"], p["ic_first"] + p["ic_steps"])
    for q, n in ((q, n) for q in sweeps for n in range(p["oc_steps"])):
        R = mem.weight[row : row + spec.row_words].reshape(units, V)[:H].astype(np.int64)
        lanes = slice((q % parts) * H, (q % parts) * H + H)
        for oy, ox in np.ndindex(p["out_rows"], p["out_cols"]):
            at = p["psum"] + (q // parts) * p["psum_block_pitch"]
            at += (oy * p["oc_steps"] + n) * p["out_cols"] + ox
            total = mem.psum[at, lanes].astype(np.int64) if p["accumulate"] else np.int64(0)
            for ky, kx in np.ndindex(p["kernel_rows"], p["kernel_cols"]):
                y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
                x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
                v = pixel(spec, mem, p, y, x, q // parts)[lanes].astype(np.int64)
                total = total + v * R[:, ky * D + kx]
            mem.psum[at, lanes] = total.astype(np.int32)
        row += spec.row_words


def copy(spec, mem, p):
    """Modifies psum."""
    for c, oy, ox in np.ndindex(p["ic_steps"], p["out_rows"], p["out_cols"]):
        y, x = p["origin_y"] + oy * p["stride_y"], p["origin_x"] + ox * p["stride_x"]
        at = p["psum"] + c * p["psum_block_pitch"] + oy * p["out_cols"] + ox
        mem.psum[at] = pixel(spec, mem, p, y, x, c)


RUN = {CONV: conv, COPY: copy, DEPTHWISE: depthwise}


def steps(spec, opcode, p):
    """Cycles of one sweep over the tile of conv or copy."""
    px = spec.array.modes[p["mode"]].px if opcode == CONV else 1
    return p["out_rows"] * p["out_cols"] // px


def fill(spec, opcode, p):
    """Cycles from start to the first step of an instruction that comes alone, without the pipeline:
    its first weight row and pre parameters.
    """
    if opcode == COPY:
        return 4
    words = spec.mode_row_words(spec.array.modes[p["mode"]])
    return max(words, 4, pre_cycles(p))


def pre_cycles(p):
    """In which the pre chain's parameters of a block come."""
    return PRE_WORDS * p["pre"] + GATE_CYCLES * (p["pre"] > 0 and p["gate"])


def cycles(spec, opcode, p):
    """Cycles of the sweeps of conv or copy: the contract of docs/machine.md."""
    pixels = steps(spec, opcode, p)
    if opcode == COPY:
        return p["ic_steps"] * pixels
    mode = spec.array.modes[p["mode"]]
    row = max(pixels, spec.mode_row_words(mode), 4)
    rows = p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"]
    begin, entered = 0, 0  # first cycle of a segment; of the block's first segment
    for s in range(p["ic_first"], p["ic_first"] + p["ic_steps"]):
        if s % (spec.word_channels // mode.ic) == 0 and s > p["ic_first"]:
            if p["pre"]:  # its parameters follow those of the block before
                begin = max(begin, entered + pre_cycles(p))
            entered = begin
        begin += rows * row
    return begin - row + pixels


def window_cycles(spec, p):
    """(least, most) cycles of depthwise, without the pipeline's. least: the first weight rows and
    all steps; most: those rows, the reads of the first window, and block by block the steps, the
    reads or the next weight rows.
    """
    per_word, _ = parts_per_word(spec)
    pixels, columns = p["out_rows"] * p["out_cols"], p["kernel_cols"]
    runs = [columns, p["out_cols"] * columns]  # of columns, of a pixel and of an output row
    if p["dilation_x"] == 1 and p["stride_x"] <= columns:
        runs = [-(-columns // 2), -(-((p["out_cols"] - 1) * p["stride_x"] + columns) // 2)]
    parts = np.bincount(np.arange(p["ic_first"], p["ic_first"] + p["ic_steps"]) // per_word)
    parts = [int(n) * p["oc_steps"] for n in parts if n]
    rows = [n * spec.row_words for n in parts]  # words of each block's weight rows
    most = max(3, rows[0]) + p["kernel_rows"] * runs[0]
    pixels *= spec.array.window_cycles
    for n, next_rows in zip(parts, [*rows[1:], 0], strict=True):
        most += max(pixels * n, p["kernel_rows"] * p["out_rows"] * runs[1], next_rows) + 1
    return max(3, rows[0]) + pixels * sum(parts), most


def random_instruction(spec, rng, *, opcodes=(CONV, CONV, CONV, COPY, DEPTHWISE), largest=6):
    """(opcode, values) of a legal instruction that fits the memories of a machine. opcodes: to draw
    from, where the machine has them.
    """
    known = [o for o in opcodes if o != DEPTHWISE or spec.array.depthwise]
    opcode = int(rng.choice(known))
    while True:
        values = _draw(spec, rng, opcode, largest)
        if values is not None:
            return opcode, values


def _draw(spec, rng, opcode, largest):
    """Values, or None when the drawn shape does not fit."""
    W = spec.word_channels
    p = _tile(spec, rng, largest) | draw(rng, mode=(0, len(spec.array.modes) - 1))
    p |= _gate(rng) if opcode == CONV else NO_GATE
    single = opcode == CONV and spec.array.modes[p["mode"]].px == 1
    if single and spec.buffers.pre and rng.random() < 0.4:
        p |= {"slot_log2": int(math.log2(W))} | draw(rng, pre=(1, chain_of(spec).pre_units))
        p["gate"] = int(chain_of(spec).gates and rng.random() < 0.6)
    if opcode == DEPTHWISE:
        side = (1, spec.array.window_side)
        p |= {"slot_log2": int(math.log2(W))} | draw(rng, kernel_rows=side, kernel_cols=side)
    result = _conv_steps(spec, rng, p) if opcode == CONV else _block_steps(spec, rng, opcode, p)
    if result is not None and rng.random() < 0.5:  # unused registers may hold any value
        p |= _unused(opcode)
    return _placed(spec, rng, opcode, p, result)


def _placed(spec, rng, opcode, p, sizes):
    """Values with addresses and pitches. sizes: blocks read and written, weight words, or None."""
    if sizes is None:
        return None
    in_blocks, out_blocks, rows = sizes
    W = spec.word_channels
    row_words = math.ceil((p["in_cols"] << p["slot_log2"]) / W)
    gaps = draw(rng, row=(0, 2), block=(0, 3), psum=(0, 3))
    p["row_pitch"] = row_words + gaps["row"]
    p["block_pitch"] = p["in_rows"] * p["row_pitch"] + gaps["block"]
    tile_rows = p["out_rows"] * (p["oc_steps"] if opcode == DEPTHWISE else 1)
    p["psum_block_pitch"] = tile_rows * p["out_cols"] + gaps["psum"]
    free = {
        "feature": spec.buffers.feature.words - in_blocks * p["block_pitch"],
        "weight": spec.buffers.weight.words - rows,
        "psum": spec.buffers.psum.words - out_blocks * p["psum_block_pitch"],
        "pre_param": spec.buffers.pre.words - in_blocks * _pre_words(p) if p["pre"] else 0,
    }
    if min(free.values()) < 0:
        return None
    return p | draw(rng, **{name: (0, room) for name, room in free.items()})


def _pre_words(p):
    return 1 if p["gate"] else PRE_WORDS * p["pre"]


COLUMN_BYTES = {3: 9, 5: 16, 7: 22}
"""Kernel rows of an im2row load -> bytes from column to column."""


def im2row_window(spec, rng):
    """(CONV, values) of windows of an im2row image: slots of a byte, one kernel row, adjacent
    iterations, columns of 9 to 22 bytes with strides of one to four. Windows hang over on
    both sides.
    """
    while True:
        kernel = int(rng.choice(list(COLUMN_BYTES)))
        column, number = COLUMN_BYTES[kernel], int(rng.integers(len(spec.array.modes)))
        mode = spec.array.modes[number]
        p = _tile(spec, rng, 5) | {"mode": number, "slot_log2": 0} | NO_GATE
        p |= {"in_cols": column * int(rng.integers(1, 12)), "stride_x": column}
        p["stride_x"] *= int(rng.integers(1, 5))
        p["origin_x"] = -column * int(rng.integers(0, kernel))
        p |= {"kernel_rows": 1, "kernel_cols": -(-kernel * column // mode.ic)}
        p["dilation_x"] = mode.ic
        result = _placed(spec, rng, CONV, p, _conv_steps(spec, rng, p))
        if result is not None:
            return CONV, result


def _tile(spec, rng, largest):
    """Geometry: windows may hang over on all sides, or be outside altogether."""
    full = int(math.log2(spec.word_channels))
    p = draw(
        rng,
        slot_log2=(0, full - 1),
        in_rows=(1, 9),
        in_cols=(1, 9),
        kernel_rows=(1, 3),
        kernel_cols=(1, 3),
        stride_y=(1, 3),
        stride_x=(1, 3),
        dilation_y=(1, 2),
        dilation_x=(1, 2),
        origin_y=(-3, 3),
        origin_x=(-3, 3),
        out_rows=(1, largest),
        out_cols=(1, largest),
        pad_value=(-128, 127),
        accumulate=(0, 1),
    )
    for unit in range(max(1, chain_of(spec).pre_units)):
        of = f"@{unit}" if unit else ""
        limits = {"zero": (-128, 127), "lo": (-128, 0), "hi": (0, 127)}
        p |= draw(rng, **{f"pre_{name}{of}": between for name, between in limits.items()})
    if rng.random() < 0.6:
        p["slot_log2"] = full
    if rng.random() < 0.15:
        p |= {"out_rows": 1, "out_cols": 1}
    return p | {"pre": 0, "ic_first": 0, "oc_first": 0, "oc_steps": 1}


NO_GATE = {"gate": 1, "gate_x_zero": 5, "gate_zero": -3, "gate_mult": 65535, "gate_shift": 63}
"""What the registers of a gate may hold where no feature passes the pre chain."""


def _gate(rng):
    """Registers of a product with a gate: any, or such that results mostly fit eight bits."""
    p = draw(rng, gate=(0, 1), gate_x_zero=(-128, 127), gate_zero=(-128, 127))
    if rng.random() < 0.2:
        return p | draw(rng, gate_mult=(0, 65535), gate_shift=(0, 47))
    p |= draw(rng, gate_mult=(1, 65535))
    return p | {"gate_shift": p["gate_mult"].bit_length() + int(rng.integers(4, 9))}


def _conv_steps(spec, rng, p):
    """Adds the steps of conv; blocks read and written, weight words; None where it is illegal."""
    W, mode = spec.word_channels, spec.array.modes[p["mode"]]
    slot = 1 << p["slot_log2"]
    p["out_cols"] *= mode.px
    if mode.px > 1 and (mode.px - 1) * p["stride_x"] * slot + mode.ic > W + slot:
        return None
    if slot < W:  # a slotted tile has one block and one input step
        p["ic_steps"] = 1
    else:
        p |= draw(rng, ic_first=(0, W // mode.ic), ic_steps=(1, 3 * W // mode.ic))
    groups = int(
        rng.integers(1, W // mode.oc // mode.px + 1 if mode.px > 1 else 2 * W // mode.oc + 2)
    )
    p["oc_first"] = int(rng.integers(0, groups))
    p["oc_steps"] = groups - p["oc_first"]
    rows = p["ic_steps"] * p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"]
    in_blocks = math.ceil((p["ic_first"] + p["ic_steps"]) * mode.ic / W)
    return in_blocks, math.ceil(groups * mode.oc / W), rows * spec.mode_row_words(mode)


def _block_steps(spec, rng, opcode, p):
    """Draw the step registers of copy and depthwise: blocks read, blocks written, weight words."""
    if opcode == COPY:
        whole = 1 << p["slot_log2"] == spec.word_channels
        p |= draw(rng, ic_steps=(1, 3 if whole else 1))
        return p["ic_steps"], p["ic_steps"], 0
    parts, _ = parts_per_word(spec)
    p |= draw(rng, ic_first=(0, parts), ic_steps=(1, 2 * parts + 1))
    if rng.random() < 0.4:
        p |= {"ic_steps": 1} | draw(rng, oc_steps=(1, parts))
    blocks = math.ceil((p["ic_first"] + p["ic_steps"]) / parts)
    return blocks, blocks, p["ic_steps"] * p["oc_steps"] * spec.row_words


def _unused(opcode):
    if opcode == CONV:
        return {}
    registers = {"mode": 15, "oc_first": 9}
    if opcode == COPY:
        registers |= {"ic_first": 7, "oc_steps": 0}
        registers |= dict.fromkeys(("kernel_rows", "kernel_cols", "dilation_y", "dilation_x"), 0)
    return registers
