"""The compute engine as docs/machine.md tells it, one loop per line of that page; and random legal instructions.

Memories are numpy arrays: feature [words, W] int8, weight [words, weight bytes] int8, psum [words, W] int32.
"""

import math

import numpy as np



def pixel(spec, feature, p, y, x, block):
    """The word of a pixel from its first byte on, W int8; bytes past the end of the word are 0."""
    W = spec.word_channels
    if not (0 <= y < p["in_rows"] and 0 <= x < p["in_cols"]):
        return np.full(W, p["pad_value"], np.int8)
    position = x << p["slot_log2"]
    padded = 1 << (W - 1).bit_length()
    word = feature[p["feature"] + block * p["block_pitch"] + y * p["row_pitch"] + position // padded]
    tail = word[position % padded :]
    return np.concatenate([tail, np.zeros(W - tail.size, np.int8)])


def conv(spec, feature, weight, psum, p):
    """Changes psum in place."""
    W, mode = spec.word_channels, spec.array.modes[p["mode"]]
    ic, oc = mode.ic, mode.oc
    S, G = W // ic, W // oc
    row_words = ic * oc // weight.shape[1]
    row = p["weight"]
    for s in range(p["ic_steps"]):
        for ky in range(p["kernel_rows"]):
            for kx in range(p["kernel_cols"]):
                for g in range(p["oc_steps"]):
                    R = weight[row : row + row_words].reshape(oc, ic).astype(np.int64)
                    first = s == ky == kx == 0
                    for oy in range(p["out_rows"]):
                        for ox in range(p["out_cols"]):
                            y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
                            x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
                            lanes = pixel(spec, feature, p, y, x, s // S)
                            v = lanes[(s % S) * ic : (s % S) * ic + ic].astype(np.int64)
                            at = p["psum"] + (g // G) * p["psum_block_pitch"] + oy * p["out_cols"] + ox
                            group = slice((g % G) * oc, (g % G) * oc + oc)
                            old = 0 if first and not p["accumulate"] else psum[at, group].astype(np.int64)
                            psum[at, group] = (old + R @ v).astype(np.int32)
                    row += row_words


def copy(spec, feature, psum, p):
    """Changes psum in place."""
    for c in range(p["ic_steps"]):
        for oy in range(p["out_rows"]):
            for ox in range(p["out_cols"]):
                y, x = p["origin_y"] + oy * p["stride_y"], p["origin_x"] + ox * p["stride_x"]
                at = p["psum"] + c * p["psum_block_pitch"] + oy * p["out_cols"] + ox
                psum[at] = pixel(spec, feature, p, y, x, c)


def cycles(spec, opcode, p):
    """Cycles of the sweeps: the contract of docs/machine.md."""
    pixels = p["out_rows"] * p["out_cols"]
    if opcode == 1:
        return p["ic_steps"] * pixels
    rows = p["ic_steps"] * p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"]
    row_words = spec.array.units * spec.array.multipliers // spec.buffers.weight.width
    return (rows - 1) * max(pixels, row_words, 4) + pixels


def random_instruction(spec, rng, *, copy_chance=0.25, largest=6):
    """(opcode, values) of a legal instruction that fits the memories of a machine."""
    while True:
        opcode = int(rng.random() < copy_chance)
        values = _draw(spec, rng, opcode, largest)
        if values is not None:
            return opcode, values


def _draw(spec, rng, opcode, largest):
    W, mode_index = spec.word_channels, int(rng.integers(len(spec.array.modes)))
    mode = spec.array.modes[mode_index]
    pick = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    full = int(math.log2(W))
    slot = full if rng.random() < 0.6 else pick(0, full - 1)
    p = {"mode": mode_index, "slot_log2": slot, "accumulate": pick(0, 1), "pad_value": pick(-128, 127)}
    p |= {"in_rows": pick(1, 9), "in_cols": pick(1, 9)}
    p |= {"kernel_rows": pick(1, 3), "kernel_cols": pick(1, 3)}
    p |= {"stride_y": pick(1, 3), "stride_x": pick(1, 3), "dilation_y": pick(1, 2), "dilation_x": pick(1, 2)}
    p |= {"origin_y": pick(-3, 3), "origin_x": pick(-3, 3)}
    p |= {"out_rows": pick(1, largest), "out_cols": pick(1, largest)}
    if rng.random() < 0.15:
        p |= {"out_rows": 1, "out_cols": 1}
    p["ic_steps"] = 1 if slot < full and opcode == 0 else pick(1, 3 * W // mode.ic if opcode == 0 else 3)
    p["oc_steps"] = pick(1, 2 * W // mode.oc + 1)
    in_blocks = 1 if slot < full else math.ceil(p["ic_steps"] * mode.ic / W) if opcode == 0 else p["ic_steps"]
    if opcode == 1 and slot < full:
        p["ic_steps"] = 1
    out_blocks = math.ceil(p["oc_steps"] * mode.oc / W) if opcode == 0 else p["ic_steps"]
    row_words = math.ceil((p["in_cols"] << slot) / W)
    p["row_pitch"] = row_words + pick(0, 2)
    p["block_pitch"] = p["in_rows"] * p["row_pitch"] + pick(0, 3)
    p["psum_block_pitch"] = p["out_rows"] * p["out_cols"] + pick(0, 3)
    rows = p["ic_steps"] * p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"] if opcode == 0 else 0
    weight_words = rows * (mode.ic * mode.oc // spec.buffers.weight.width)
    if opcode == 1 and rng.random() < 0.5:  # what copy does not use may hold anything
        p |= {"mode": 15, "kernel_rows": 0, "kernel_cols": 0, "oc_steps": 0, "dilation_y": 0, "dilation_x": 0}
    free = {
        "feature": spec.buffers.feature.words - in_blocks * p["block_pitch"],
        "weight": spec.buffers.weight.words - weight_words,
        "psum": spec.buffers.psum.words - out_blocks * p["psum_block_pitch"],
    }
    if min(free.values()) < 0:
        return None
    return p | {name: pick(0, room) for name, room in free.items()}
