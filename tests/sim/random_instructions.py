"""Random legal instructions for a small machine: many shapes, always inside the memories."""

import numpy as np

from opu_fuse.hw.footprint import footprint, space_limit
from opu_fuse.hw.instruction import Instruction, split_address
from opu_fuse.hw.isa import Engine, PoolKind, Space, Stage, pack_order, registers_of

WINDOW_BYTES = 4096
CHAINS = (
    (),
    (Stage.REQUANT,),
    (Stage.REQUANT, Stage.ACT),
    (Stage.REQUANT, Stage.ACT, Stage.POOL),
    (Stage.REQUANT, Stage.POOL, Stage.ACT),
    (Stage.REQUANT, Stage.RESIDUAL, Stage.ACT),
    (Stage.REQUANT, Stage.RESIDUAL, Stage.ACT, Stage.POOL),
    (Stage.REQUANT, Stage.POOL, Stage.RESIDUAL, Stage.ACT),
    (Stage.POOL,),
    (Stage.ACT, Stage.POOL, Stage.RESIDUAL),
    (Stage.RESIDUAL, Stage.POOL),
    (Stage.ACT,),
)


def instruction(engine, opcode, params, **tokens):
    """An instruction whose missing registers are 0."""
    full = {r.name: 0 for r in registers_of(engine)} | params
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
    opcode = str(rng.choice(["feature", "weight", "param", "residual", "store"]))
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
    if opcode == "store":
        return instruction(Engine.STORE, opcode, params | {"src": address})
    return instruction(Engine.LOAD, opcode, params | {"dst": address})


def tile(rng, spec, rows, cols, blocks):
    """Feature registers of a tile of some size, slotted or not."""
    slot_log2 = pick(rng, 2, spec.word_bytes.bit_length() - 1)
    if blocks > 1:
        slot_log2 = spec.word_bytes.bit_length() - 1
    row_words = -(-cols * (1 << slot_log2) // spec.word_bytes)
    row_pitch = row_words + pick(rng, 0, 2)
    return {
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
        "out_rows": pick(rng, 1, 4),
        "out_cols": pick(rng, 1, 4),
        "psum": pick(rng, 0, 60),
    }


def conv(rng, spec):
    mode = pick(rng, 0, len(spec.array.modes) - 1)
    ic_steps = pick(rng, 1, 4)
    blocks = -(-ic_steps * spec.array.modes[mode].ic // spec.word_channels)
    params = tile(rng, spec, pick(rng, 1, 6), pick(rng, 1, 7), blocks)
    pixels = params["out_rows"] * params["out_cols"]
    return instruction(
        Engine.COMPUTE,
        "conv",
        params
        | {
            "mode": mode,
            "ic_steps": ic_steps,
            "oc_steps": pick(rng, 1, 4),
            "kernel_rows": pick(rng, 1, 3),
            "kernel_cols": pick(rng, 1, 3),
            "dilation_y": pick(rng, 1, 2),
            "dilation_x": pick(rng, 1, 2),
            "weight": pick(rng, 0, 50),
            "psum_block_pitch": pixels + pick(rng, 0, 3),
            "accumulate": pick(rng, 0, 1),
        },
    )


def copy(rng, spec):
    blocks = pick(rng, 1, 3)
    params = tile(rng, spec, pick(rng, 1, 6), pick(rng, 1, 7), blocks)
    pixels = params["out_rows"] * params["out_cols"]
    extra = {"ic_steps": blocks, "psum_block_pitch": pixels + pick(rng, 0, 3)}
    return instruction(Engine.COMPUTE, "copy", params | extra)


def int8(rng):
    return pick(rng, -128, 127)


def post(rng, spec, chain=None):
    chain = CHAINS[pick(rng, 0, len(CHAINS) - 1)] if chain is None else chain
    pool = Stage.POOL in chain
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
        "res": pick(rng, 0, 20),
        "res_row_pitch": pick(rng, 1, 6),
        "res_block_pitch": pick(rng, 1, 20),
        "order": pack_order(chain),
        **stage_params(rng),
    }
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
    }


def random_words(rng, memories):
    """Fill every memory with noise; requantisation parameters sensible enough that results vary."""
    for space in Space:
        array = memories.dram if space is Space.DRAM else memories.buffer(space)
        if space is Space.PSUM:
            array[:] = rng.integers(-(1 << 20), 1 << 20, array.shape)
        else:
            array.view(np.uint8)[:] = rng.integers(0, 256, array.view(np.uint8).shape)
    records = memories.param.reshape(-1, 8)
    records[:, 2:4] = np.where(records[:, 1:2] >= 128, 255, 0)
    records[:, 6] = rng.integers(24, 40, len(records))
    records[:, 7] = 0
