"""The compute engine as docs/machine.md tells it, one loop per line of that page; and random legal
instructions.

Memories are numpy arrays: feature [words, W] int8, weight [words, bytes] int8, psum [words, W]
int32.
"""

import math

import numpy as np

from rtl_sim.benches.engine_driver import draw

CONV, COPY = 0, 1


def pixel(spec, feature, p, y, x, block):
    """W lanes from a pixel on, int8; narrow pixels are followed by their right-hand neighbours."""
    W, slot = spec.word_channels, 1 << p["slot_log2"]
    padded = 1 << (W - 1).bit_length()
    row = p["feature"] + block * p["block_pitch"] + y * p["row_pitch"]
    found = np.full(W, p["pad_value"], np.int8)
    for lane in range(W):
        column, byte = x + lane // slot, lane % slot
        if 0 <= y < p["in_rows"] and 0 <= column < p["in_cols"]:
            position = column * slot + byte
            found[lane] = feature[row + position // padded][position % padded]
    return found


def conv(spec, feature, weight, psum, p):
    """Changes psum in place."""
    W, mode = spec.word_channels, spec.array.modes[p["mode"]]
    ic, oc = mode.ic, mode.oc
    S, G = W // ic, W // oc
    row, row_words = p["weight"], ic * oc // weight.shape[1]
    for s, ky, kx, g in np.ndindex(
        p["ic_steps"], p["kernel_rows"], p["kernel_cols"], p["oc_steps"]
    ):
        R = weight[row : row + row_words].reshape(oc, ic).astype(np.int64)
        overwrite = s == ky == kx == 0 and not p["accumulate"]
        for oy, ox in np.ndindex(p["out_rows"], p["out_cols"]):
            y = p["origin_y"] + oy * p["stride_y"] + ky * p["dilation_y"]
            x = p["origin_x"] + ox * p["stride_x"] + kx * p["dilation_x"]
            lanes = pixel(spec, feature, p, y, x, s // S)
            v = lanes[(s % S) * ic : (s % S) * ic + ic].astype(np.int64)
            at = p["psum"] + (g // G) * p["psum_block_pitch"] + oy * p["out_cols"] + ox
            group = slice((g % G) * oc, (g % G) * oc + oc)
            old = 0 if overwrite else psum[at, group].astype(np.int64)
            psum[at, group] = (old + R @ v).astype(np.int32)
        row += row_words


def copy(spec, feature, psum, p):
    """Changes psum in place."""
    for c, oy, ox in np.ndindex(p["ic_steps"], p["out_rows"], p["out_cols"]):
        y, x = p["origin_y"] + oy * p["stride_y"], p["origin_x"] + ox * p["stride_x"]
        at = p["psum"] + c * p["psum_block_pitch"] + oy * p["out_cols"] + ox
        psum[at] = pixel(spec, feature, p, y, x, c)


def cycles(spec, opcode, p):
    """Cycles of the sweeps: the contract of docs/machine.md."""
    pixels = p["out_rows"] * p["out_cols"]
    if opcode == COPY:
        return p["ic_steps"] * pixels
    rows = p["ic_steps"] * p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"]
    return (rows - 1) * max(pixels, spec.row_words, 4) + pixels


def random_instruction(spec, rng, *, copy_chance=0.25, largest=6):
    """(opcode, values) of a legal instruction that fits the memories of a machine."""
    while True:
        opcode = COPY if rng.random() < copy_chance else CONV
        values = _draw(spec, rng, opcode, largest)
        if values is not None:
            return opcode, values


def _draw(spec, rng, opcode, largest):
    """Values, or None when the drawn shape does not fit."""
    p = _tile(spec, rng, largest)
    p |= _steps(spec, rng, opcode, slotted=1 << p["slot_log2"] < spec.word_channels)
    W, mode = spec.word_channels, spec.array.modes[p["mode"]]
    if opcode == CONV:
        in_blocks = math.ceil(p["ic_steps"] * mode.ic / W)
        out_blocks = math.ceil(p["oc_steps"] * mode.oc / W)
        rows = p["ic_steps"] * p["kernel_rows"] * p["kernel_cols"] * p["oc_steps"]
    else:
        in_blocks = out_blocks = p["ic_steps"]
        rows = 0
        if rng.random() < 0.5:  # what copy does not use may hold anything
            p |= dict.fromkeys(("kernel_rows", "kernel_cols", "dilation_y", "dilation_x"), 0)
            p |= {"mode": 15, "oc_steps": 0}
    free = {
        "feature": spec.buffers.feature.words - in_blocks * p["block_pitch"],
        "weight": spec.buffers.weight.words - rows * spec.row_words,
        "psum": spec.buffers.psum.words - out_blocks * p["psum_block_pitch"],
    }
    if min(free.values()) < 0:
        return None
    return p | draw(rng, **{name: (0, room) for name, room in free.items()})


def _tile(spec, rng, largest):
    """Geometry: windows may hang over on all sides, or lie outside altogether."""
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
    if rng.random() < 0.6:
        p["slot_log2"] = full
    if rng.random() < 0.15:
        p |= {"out_rows": 1, "out_cols": 1}
    row_words = math.ceil((p["in_cols"] << p["slot_log2"]) / spec.word_channels)
    gaps = draw(rng, row=(0, 2), block=(0, 3), psum=(0, 3))
    p["row_pitch"] = row_words + gaps["row"]
    p["block_pitch"] = p["in_rows"] * p["row_pitch"] + gaps["block"]
    p["psum_block_pitch"] = p["out_rows"] * p["out_cols"] + gaps["psum"]
    return p


def _steps(spec, rng, opcode, *, slotted):
    """Mode and channel steps; a slotted tile has one block and one input step."""
    p = draw(rng, mode=(0, len(spec.array.modes) - 1))
    mode, W = spec.array.modes[p["mode"]], spec.word_channels
    most = 1 if slotted else 3 * W // mode.ic if opcode == CONV else 3
    return p | draw(rng, ic_steps=(1, most), oc_steps=(1, 2 * W // mode.oc + 1))
