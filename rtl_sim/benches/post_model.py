"""The post engine as docs/machine.md tells it, and random legal instructions.

Memories are numpy arrays: psum [words, W] int32; param [words, W] uint8; residual, output [words, W] int8.
"""

import numpy as np

from opu_fuse.fixedpoint import activate, add_residual, average, requantize
from opu_fuse.hw.isa import PARAM_WORDS, PoolKind, Stage, pack_order, unpack_order

LANE = np.dtype([("bias", "<i4"), ("mult", "<u2"), ("shift", "i1"), ("zero", "u1")])


def lane_parameters(spec, param, p, block):
    """The W parameter records of a block."""
    first = p["param"] + PARAM_WORDS * block
    records = param[first : first + PARAM_WORDS].tobytes()
    return np.frombuffer(records, LANE)[: spec.word_channels]


def stage_value(stage, p, v, lanes, r):
    """One stage but POOL on W lanes."""
    if stage is Stage.REQUANT:
        return requantize(v.astype(np.int64) + lanes["bias"], lanes["mult"], lanes["shift"], p["requant_zero"])
    if stage is Stage.ACT:
        return activate(
            v,
            x_zero=p["act_x_zero"],
            pos=p["act_pos"],
            neg=p["act_neg"],
            shift=p["act_shift"],
            y_zero=p["act_y_zero"],
            lo=p["act_lo"],
            hi=p["act_hi"],
        )
    assert stage is Stage.RESIDUAL
    return add_residual(
        v,
        r,
        a_mult=p["res_a_mult"],
        b_mult=p["res_b_mult"],
        shift=p["res_shift"],
        a_zero=p["res_a_zero"],
        b_zero=p["res_b_zero"],
        y_zero=p["res_y_zero"],
    )


def run(spec, psum, param, residual, output, p):
    """Changes output in place."""
    chain = unpack_order(p["order"])
    pool = chain.index(Stage.POOL) if Stage.POOL in chain else len(chain)
    lanes = None
    for b in range(p["blocks"]):
        if Stage.REQUANT in chain:
            lanes = lane_parameters(spec, param, p, b)
        res_block = p["res"] + b * p["res_block_pitch"]
        for oy in range(p["out_rows"]):
            for ox in range(p["out_cols"]):
                visits = []
                for wy in range(p["win_rows"]):
                    for wx in range(p["win_cols"]):
                        y = p["origin_y"] + oy * p["stride_y"] + wy
                        x = p["origin_x"] + ox * p["stride_x"] + wx
                        if not (0 <= y < p["in_rows"] and 0 <= x < p["in_cols"]):
                            continue
                        v = psum[p["psum"] + b * p["psum_block_pitch"] + y * p["psum_row_pitch"] + x]
                        if Stage.REQUANT not in chain:
                            v = v.astype(np.int8)
                        r = residual[res_block + y * p["res_row_pitch"] + x] if before_pool(chain) else None
                        if Stage.POOL not in chain and Stage.RESIDUAL in chain:
                            r = residual[res_block + oy * p["res_row_pitch"] + ox]
                        for stage in chain[:pool]:
                            v = stage_value(stage, p, v, lanes, r)
                        visits.append(v)
                v = pooled(spec, p, visits) if pool < len(chain) else visits[0]
                r = residual[res_block + oy * p["res_row_pitch"] + ox] if follows_pool(chain) else None
                for stage in chain[pool + 1 :]:
                    v = stage_value(stage, p, v, lanes, r)
                output[p["out"] + b * p["out_block_pitch"] + oy * p["out_row_pitch"] + ox] = v


def before_pool(chain):
    return Stage.RESIDUAL in chain and Stage.POOL in chain[chain.index(Stage.RESIDUAL) :]


def follows_pool(chain):
    return Stage.POOL in chain and Stage.RESIDUAL in chain[chain.index(Stage.POOL) :]


def pooled(spec, p, visits):
    values = np.array(visits, np.int64).reshape(-1, spec.word_channels)
    if p["pool_kind"] == PoolKind.MAX:
        return values.max(axis=0, initial=-128).astype(np.int8)
    total = (values - p["pool_x_zero"]).sum(axis=0)
    return average(total, mult=p["pool_mult"], shift=p["pool_shift"], y_zero=p["pool_y_zero"])


def random_parameters(spec, rng):
    """Lane parameters for the whole parameter buffer: int32 sums of any size land inside int8, some rounds are ties."""
    words = spec.buffers.param.words
    lanes = np.zeros(words * spec.word_channels // LANE.itemsize, LANE)
    lanes["bias"] = rng.integers(-(1 << 20), 1 << 20, lanes.size)
    lanes["mult"] = np.where(rng.random(lanes.size) < 0.3, 1 << rng.integers(0, 16, lanes.size), 0)
    lanes["mult"] = np.where(lanes["mult"] == 0, rng.integers(1, 1 << 16, lanes.size), lanes["mult"])
    # sums are about 2**28: mult * 2**28 / 2**shift is about 2**7
    lanes["shift"] = np.clip(np.floor(np.log2(lanes["mult"])) + 22 + rng.integers(-1, 3, lanes.size), 0, 47)
    return np.frombuffer(lanes.tobytes(), np.uint8).reshape(words, spec.word_channels)


def random_psum(spec, rng):
    """Values of int32, many near 2**28, some small, some extreme."""
    shape = (spec.buffers.psum.words, spec.word_channels)
    scale = rng.choice([1 << 7, 1 << 20, 1 << 28, 1 << 28, (1 << 31) - 1], shape)
    return (rng.uniform(-1, 1, shape) * scale).astype(np.int32)


def random_order(rng):
    """Any permutation of any subset; REQUANT only first."""
    rest = [Stage.ACT, Stage.POOL, Stage.RESIDUAL]
    rng.shuffle(rest)
    stages = rest[: rng.integers(0, 4)]
    return ((Stage.REQUANT, *stages) if rng.random() < 0.7 else tuple(stages))


def random_instruction(spec, rng, *, order=None, largest=5):
    """Values of a legal instruction that fits the memories of a machine."""
    while True:
        chain = random_order(rng) if order is None else order
        values = _shape(spec, rng, chain, largest)
        if values is not None:
            return values | _arithmetic(rng)


def _arithmetic(rng):
    pick = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    act_shift, res_shift = pick(0, 15), pick(0, 15)
    slope = lambda shift: min((1 << 16) - 1, max(0, round(rng.uniform(0.1, 1.3) * (1 << shift))))  # noqa: E731
    limits = sorted((pick(-128, 127), pick(-128, 127))) if rng.random() < 0.2 else (-128, 127)
    p = {"requant_zero": pick(-20, 20), "pool_kind": pick(0, 1)}
    p |= {"pool_mult": pick(1, (1 << 16) - 1), "pool_x_zero": pick(-20, 20), "pool_y_zero": pick(-20, 20)}
    p["pool_shift"] = p["pool_mult"].bit_length() + pick(0, 4)
    p |= {"act_pos": slope(act_shift), "act_neg": slope(act_shift), "act_shift": act_shift}
    p |= {"act_x_zero": pick(-20, 20), "act_y_zero": pick(-20, 20), "act_lo": limits[0], "act_hi": limits[1]}
    p |= {"res_a_mult": slope(res_shift), "res_b_mult": slope(res_shift), "res_shift": res_shift}
    p |= {"res_a_zero": pick(-20, 20), "res_b_zero": pick(-20, 20), "res_y_zero": pick(-20, 20)}
    if rng.random() < 0.1:  # far shifts: everything rounds to the zero point
        p |= {"pool_shift": pick(40, 47), "act_shift": pick(20, 47), "res_shift": pick(20, 47)}
    return p


def _shape(spec, rng, chain, largest):
    pick = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    p = {"order": pack_order(chain), "blocks": pick(1, 3)}
    p |= {"out_rows": pick(1, largest), "out_cols": pick(1, largest), "stride_y": pick(1, 3), "stride_x": pick(1, 3)}
    p |= {"win_rows": 1, "win_cols": 1, "origin_y": pick(0, 2), "origin_x": pick(0, 2)}
    p["in_rows"] = p["origin_y"] + (p["out_rows"] - 1) * p["stride_y"] + 1 + pick(0, 1)
    p["in_cols"] = p["origin_x"] + (p["out_cols"] - 1) * p["stride_x"] + 1 + pick(0, 1)
    if Stage.POOL in chain:  # windows may hang over on all sides, or lie outside
        p |= {"win_rows": pick(1, 4), "win_cols": pick(1, 4), "origin_y": pick(-4, 2), "origin_x": pick(-4, 2)}
        p |= {"in_rows": pick(1, 8), "in_cols": pick(1, 8)}
    tile_rows, tile_cols = p["in_rows"], p["in_cols"]
    p["psum_row_pitch"] = tile_cols + pick(0, 2)
    p["psum_block_pitch"] = tile_rows * p["psum_row_pitch"] + pick(0, 2)
    p["out_row_pitch"] = p["out_cols"] + pick(0, 2)
    p["out_block_pitch"] = p["out_rows"] * p["out_row_pitch"] + pick(0, 2)
    res_rows, res_cols = (tile_rows, tile_cols) if before_pool(chain) else (p["out_rows"], p["out_cols"])
    p["res_row_pitch"] = res_cols + pick(0, 2)
    p["res_block_pitch"] = res_rows * p["res_row_pitch"] + pick(0, 2)
    free = {
        "psum": spec.buffers.psum.words - p["blocks"] * p["psum_block_pitch"],
        "out": spec.buffers.output.words - p["blocks"] * p["out_block_pitch"],
        "res": spec.buffers.residual.words - p["blocks"] * p["res_block_pitch"],
        "param": spec.buffers.param.words - p["blocks"] * PARAM_WORDS,
    }
    if min(free.values()) < 0:
        return None
    return p | {name: pick(0, room) for name, room in free.items()}


def visits(p):
    """Cycles of the visits without stalls."""
    return p["blocks"] * p["out_rows"] * p["out_cols"] * p["win_rows"] * p["win_cols"]
