"""Random legal instructions for a small machine: many shapes, always inside the memories."""

import numpy as np

from opu_fuse.hw.isa.footprint import footprint, space_limit
from opu_fuse.hw.isa.instruction import Instruction, split_address
from opu_fuse.hw.isa.table import Engine, parameters_of
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.weight_maps import sets_zeros
from opu_fuse.units.base import ModuleKind, Space, Stage
from opu_fuse.units.pool import PoolKind
from opu_fuse.units.residual import ResidualKind
from opu_fuse.units.table import TABLE_WORDS
from rtl_sim.benches.graph_orders import orders_of

WINDOW_BYTES = 4096
SUMS = (ResidualKind.ADD, ResidualKind.MAXIMUM)
"""What a residual adder does."""


def instruction(engine, opcode, params, **tokens):
    """An instruction whose missing registers are 0."""
    full = {r.name: 0 for r in parameters_of(engine)} | params
    return Instruction(engine=engine, opcode=opcode, params=full, **tokens)


def fits(x, spec, window_bytes=WINDOW_BYTES):
    return all(
        a.intervals[0][0] >= 0
        and a.intervals[-1][1]
        <= (window_bytes if a.space is Space.DRAM else space_limit(a.space, spec))
        for a in footprint(x, spec)
    )


def until_fits(make, rng, spec):
    for _ in range(2000):
        x = make(rng, spec)
        if x is not None and fits(x, spec):
            return x
    raise AssertionError(f"{make.__name__}: no instruction fits the machine")


def pick(rng, lo, hi):
    return int(rng.integers(lo, hi + 1))


def transfer(rng, spec):
    optional = [s for s in (Space.PRE, Space.TABLE, Space.IMAGE) if space_limit(s, spec)]
    opcode = str(rng.choice(["feature", "weight", "param", "residual", *optional, "store"]))
    size = spec.buffers.weight.width if opcode == "weight" else spec.word_bytes
    run = pick(rng, 1, 6)
    params = {
        "run": run,
        "rows": pick(rng, 1, 4),
        "blocks": pick(rng, 1, 3),
        "row_pitch": run + pick(rng, -run, 5),
        "block_pitch": pick(rng, 0, 40),
        **split_address(pick(rng, 0, WINDOW_BYTES // size - 1) * size),
    }
    address = pick(rng, 0, 100)
    if opcode == "weight" and sets_zeros(spec):
        low = pick(rng, 0, size - 1)
        params |= {"zero_low": low, "zero_high": pick(rng, 0, size - 1 - low)}
    if opcode != "store":
        return instruction(Engine.LOAD, opcode, params | {"dst": address})
    if rng.random() < 0.7:
        params |= scattering(rng, spec, params)
    return instruction(Engine.STORE, opcode, params | {"src": address})


def unfold(rng, spec):
    """Rows in the padding, overlapping and apart, in images that lie anywhere."""
    run, rows = pick(rng, 1, 4), pick(rng, 1, 4)
    return instruction(
        Engine.LOAD,
        "unfold",
        {
            "run": run,
            "rows": rows,
            "dst": pick(rng, 0, 100),
            "image": pick(rng, -20, 90),
            "row_pitch": run * pick(rng, 0, 3) + pick(rng, 0, 2),
            "in_rows": pick(rng, 0, 12),
            "origin_y": pick(rng, -8, 8),
            "stride_y": pick(rng, 1, 3),
            "kernel_rows": int(rng.choice([3, 5, 7])),
            "pad_value": pick(rng, -128, 127),
        },
    )


def scattering(rng, spec, params):
    """Gaps, repeats and skips of a store; words never meet (pitches reach over what is written)."""
    repeats = {"repeat_rows": 0, "repeat_cols": 0}
    if spec.has(ModuleKind.UPSAMPLE):
        repeats = {name: pick(rng, 0, 2) for name in repeats}
    across = 1 + repeats["repeat_cols"]
    gap = pick(rng, 0, 2)
    row_pitch = params["run"] * (across + gap) + pick(rng, 0, 3)
    low = pick(rng, 0, spec.word_bytes - 1)
    return repeats | {
        "word_gap": gap,
        "row_pitch": row_pitch,
        "block_pitch": params["rows"] * (1 + repeats["repeat_rows"]) * row_pitch + pick(rng, 0, 4),
        "skip_low": low,
        "skip_high": pick(rng, 0, spec.word_bytes - 1 - low),
    }


def tile(rng, spec, rows, cols, *, slotted=False):
    """Feature registers of a tile of some size."""
    word_log2 = spec.word_bytes.bit_length() - 1
    slot_log2 = pick(rng, 0, word_log2 - 1) if slotted else word_log2
    row_words = -(-cols * (1 << slot_log2) // spec.word_bytes)
    row_pitch = row_words + pick(rng, 0, 2)
    pixels = {"out_rows": pick(rng, 1, 4), "out_cols": pick(rng, 1, 4)}
    return pixels | {
        "feature": pick(rng, 0, 60),
        "row_pitch": row_pitch,
        "block_pitch": row_pitch * rows + pick(rng, 0, 3),
        "in_rows": rows,
        "in_cols": cols,
        "slot_log2": slot_log2,
        "pad_value": pick(rng, -128, 127),
        "origin_y": pick(rng, -3, 3),
        "origin_x": pick(rng, -3, 3),
        "stride_y": pick(rng, 1, 3),
        "stride_x": pick(rng, 1, 3),
        "psum": pick(rng, 0, 60),
        "psum_block_pitch": pixels["out_rows"] * pixels["out_cols"] + pick(rng, 0, 3),
    }


def window(rng, largest):
    return {
        "kernel_rows": pick(rng, 1, largest),
        "kernel_cols": pick(rng, 1, largest),
        "dilation_y": pick(rng, 1, 2),
        "dilation_x": pick(rng, 1, 2),
        "weight": pick(rng, 0, 50),
        "accumulate": pick(rng, 0, 1),
    }


def conv(rng, spec):
    """Slotted or not, one pixel or several a word, with and without pre chain; None if illegal."""
    number = pick(rng, 0, len(spec.array.modes) - 1)
    mode = spec.array.modes[number]
    slotted = spec.word_bytes == spec.word_channels and rng.random() < 0.4
    params = tile(rng, spec, pick(rng, 0, 6), pick(rng, 0, 7), slotted=slotted) | window(rng, 3)
    params |= {"mode": number, "oc_first": pick(rng, 0, 3), "oc_steps": pick(rng, 1, 4)}
    if slotted:
        params |= {"ic_first": 0, "ic_steps": 1}
    else:
        params |= {"ic_first": pick(rng, 0, 3), "ic_steps": pick(rng, 1, 4)}
    if mode.px > 1:
        groups = spec.word_channels // mode.px // mode.oc
        first = pick(rng, 0, groups - 1)
        params |= {"oc_first": first, "oc_steps": pick(rng, 1, groups - first)}
        params |= {"stride_x": pick(rng, 1, 2), "out_cols": mode.px * pick(rng, 1, 3)}
        if not near(spec, mode, params):
            return None
    if spec.buffers.pre and mode.px == 1 and not slotted and rng.random() < 0.5:
        lo = int8(rng)
        units = pick(rng, 1, chain_of(spec).pre_units)
        params |= {"pre": units, "pre_param": pick(rng, 0, 40), "pre_zero": int8(rng)}
        params |= {"pre_lo": lo, "pre_hi": pick(rng, lo, 127)}
        if units > 1:
            further = {"pre_zero@1": int8(rng), "pre_lo@1": lo, "pre_hi@1": pick(rng, lo, 127)}
            params |= {name: value for name, value in further.items() if value}
        params |= gate(rng, on=chain_of(spec).gates and rng.random() < 0.6)
    return instruction(Engine.COMPUTE, "conv", params)


def gate(rng, *, on):
    mult = pick(rng, 0, 65535)
    shift = pick(rng, 0, 47) if rng.random() < 0.2 else mult.bit_length() + pick(rng, 4, 8)
    zeros = {"gate_x_zero": int8(rng), "gate_zero": int8(rng)}
    return {"gate": int(on), "gate_mult": mult, "gate_shift": shift, **zeros}


def near(spec, mode, p):
    """Whether the pixels that a mode reads at a time lie in two neighbouring words."""
    slot, word = 1 << p["slot_log2"], spec.word_bytes
    reach = (mode.px - 1) * p["stride_x"]
    return reach <= 1 if slot == word else reach * slot + mode.ic <= word + slot


def depthwise(rng, spec):
    params = tile(rng, spec, pick(rng, 0, 6), pick(rng, 0, 7)) | window(rng, spec.array.window_side)
    parts = {"ic_first": pick(rng, 0, 3), "ic_steps": pick(rng, 1, 4), "oc_steps": 1}
    if rng.random() < 0.4:  # a part makes several output rows where a word has several parts
        parts |= {"ic_steps": 1, "oc_steps": pick(rng, 1, spec.word_parts)}
    return instruction(Engine.COMPUTE, "depthwise", params | parts)


def copy(rng, spec):
    slotted = spec.word_bytes == spec.word_channels and rng.random() < 0.4
    params = tile(rng, spec, pick(rng, 0, 6), pick(rng, 0, 7), slotted=slotted)
    blocks = 1 if slotted else pick(rng, 1, 3)
    return instruction(Engine.COMPUTE, "copy", params | {"ic_steps": blocks})


def int8(rng):
    return pick(rng, -128, 127)


def post(rng, spec, order=None):
    """Any order that the machine has, if none is given."""
    found = orders_of(spec)
    order = found.draw(rng) if order is None else order
    pool = Stage.POOL in found.kinds(order)
    rows, cols = pick(rng, 1, 6), pick(rng, 1, 6)
    out_rows, out_cols = pick(rng, 1, 3), pick(rng, 1, 3)
    shape = {
        "stride_y": pick(rng, 1, 3),
        "stride_x": pick(rng, 1, 3),
        "origin_y": pick(rng, -2, 2) if pool else pick(rng, 0, 1),
        "origin_x": pick(rng, -2, 2) if pool else pick(rng, 0, 1),
        "win_rows": pick(rng, 1, 4) if pool else 1,
        "win_cols": pick(rng, 1, 4) if pool else 1,
    }
    if not pool:
        rows = shape["origin_y"] + (out_rows - 1) * shape["stride_y"] + 1 + pick(rng, 0, 2)
        cols = shape["origin_x"] + (out_cols - 1) * shape["stride_x"] + 1 + pick(rng, 0, 2)
    params = shape | {
        "psum": pick(rng, 0, 40),
        "psum_row_pitch": cols + pick(rng, 0, 2),
        "psum_block_pitch": (cols + 2) * rows,
        "in_rows": rows,
        "in_cols": cols,
        "out_rows": out_rows,
        "out_cols": out_cols,
        "blocks": pick(rng, 1, 3),
        "param": pick(rng, 0, 20),
        "out": pick(rng, 0, 40),
        "out_row_pitch": out_cols + pick(rng, 0, 2),
        "out_block_pitch": (out_cols + 2) * out_rows,
        "keep": pick(rng, 0, int(spec.post.keep)),
        "keep_at": pick(rng, 0, 100),
        "keep_row_pitch": out_cols + pick(rng, 0, 4),
        "keep_block_pitch": (out_cols + 4) * out_rows,
        "res": pick(rng, 0, 20),
        "res_row_pitch": pick(rng, 1, 6),
        "res_block_pitch": pick(rng, 1, 20),
        "order": order,
        "res_kind": ResidualKind.MULTIPLY if found.is_product(order) else int(rng.choice(SUMS)),
        "res_broadcast": pick(rng, 0, 1),
        "table": pick(rng, 0, max(0, space_limit(Space.TABLE, spec) - TABLE_WORDS)),
        **stage_params(rng),
    }
    slots = int(rng.choice([n for n in (0, 0, 2, 4) if n <= max(m.px for m in spec.array.modes)]))
    if slots and pool:
        params |= {"pool_slots": slots, "pool_kind": PoolKind.MAX, "win_cols": 2, "stride_x": 2}
    if slots and not pool:
        params |= {"spread": slots + pick(rng, 0, slots - 1), "origin_x": 0, "stride_x": 1}
    return instruction(Engine.POST, "run", params)


def stage_params(rng):
    zeros = ("requant_zero", "pool_x_zero", "pool_y_zero", "act_x_zero", "act_y_zero")
    more = ("res_a_zero", "res_b_zero", "res_y_zero")
    lo = pick(rng, -128, 100)
    return {name: int8(rng) for name in (*zeros, *more)} | {
        "pool_kind": int(rng.choice([PoolKind.MAX, PoolKind.AVERAGE])),
        "pool_mult": pick(rng, 0, 65535),
        "pool_shift": pick(rng, 10, 24),
        "act_pos": pick(rng, 0, 40),
        "act_neg": pick(rng, 0, 40),
        "act_shift": pick(rng, 0, 6),
        "act_lo": lo,
        "act_hi": pick(rng, lo, 127),
        "res_a_mult": pick(rng, 0, 65535),
        "res_b_mult": pick(rng, 0, 65535),
        "res_shift": pick(rng, 10, 20),
        "res_negative": pick(rng, 0, 3),
    }


def random_words(rng, memories):
    """Fill every memory with noise; requantisation parameters sensible enough that results vary."""
    for space in Space:
        array = memories.dram if space is Space.DRAM else memories.buffer(space)
        if space is Space.PSUM:
            array[:] = rng.integers(-(1 << 20), 1 << 20, array.shape)
        else:
            array.view(np.uint8)[:] = rng.integers(0, 256, array.view(np.uint8).shape)
    for space, shifts in ((Space.PARAM, (24, 40)), (Space.PRE, (-2, 20))):
        records = memories.buffer(space).reshape(-1, 8)
        records[:, 2:4] = np.where(records[:, 1:2] >= 128, 255, 0)
        records[:, 6] = rng.integers(*shifts, len(records)) & 255
        records[:, 7] = 0
