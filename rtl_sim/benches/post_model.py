"""Model of the post engine as specified in docs/machine.md, and random legal instructions.

Memories are numpy arrays: psum [words, W] int32; param [words, W] uint8; residual, table, output,
feature [words, W] int8.
"""

import numpy as np

from opu_fuse.fixedpoint import activate, add_residual, average, multiply_residual, requantize
from opu_fuse.hw.unit_rates import post_iterations
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import PoolKind
from opu_fuse.units.residual import ResidualKind
from opu_fuse.units.table import TABLE_WORDS
from rtl_sim.benches.engine_driver import draw
from rtl_sim.benches.graph_orders import orders_of

POWERS = tuple(1 << n for n in range(16))
LANE = np.dtype([("bias", "<i4"), ("mult", "<u2"), ("shift", "i1"), ("zero", "u1")])


SLOPE_WORDS = 2


def words_of(chain):
    """Parameter words of a block."""
    records = (Stage.REQUANT in chain) + (Stage.NORM in chain)
    return PARAM_WORDS * records + SLOPE_WORDS * (Stage.PRELU in chain)


def holds(chain):
    """Whether a stage after the requantiser uses parameters of the block."""
    return Stage.PRELU in chain or Stage.NORM in chain


def lane_parameters(spec, param, p, chain, block):
    """The W records of the requantiser and the W slopes of a block; those that the chain has not
    are others' bytes.
    """
    first = p["param"] + words_of(chain) * block
    scales = param[first : first + PARAM_WORDS].tobytes()
    first += PARAM_WORDS * (Stage.REQUANT in chain)
    slopes = param[first : first + SLOPE_WORDS].tobytes()
    lanes = spec.word_channels
    return np.frombuffer(scales, LANE)[:lanes], np.frombuffer(slopes, "<i2")[:lanes]


def slots_of(spec):
    """Pixels that modes of this machine pack into a word: values of `pool_slots`."""
    return [n for n in (2, 4) if n <= max(mode.px for mode in spec.array.modes)]


def spreads_of(spec):
    """Values of `spread`: pixels of a word, and above each the slots of second operands."""
    return [n + slot for n in slots_of(spec) for slot in range(n)]


def pixels_of(p):
    """Pixels of a word that is spread."""
    return 4 if p["spread"] > 3 else 2


def stage_value(stage, p, v, lanes, memories, residual_at):
    """One stage but POOL on W lanes."""
    if stage is Stage.REQUANT:
        scales, _ = lanes
        total = v.astype(np.int64) + scales["bias"]
        return requantize(total, scales["mult"], scales["shift"], p["requant_zero"])
    if stage is Stage.PRELU:
        return prelu(p, v, lanes[1])
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
    residual, table = memories
    if stage is Stage.TABLE:
        return table[p["table"] + v.astype(int) + 128, np.arange(len(v))]
    assert stage is Stage.RESIDUAL
    other = residual[residual_at]
    if p["spread"]:  # each pixel of the word gets what one slot of the operand holds
        pixels = pixels_of(p)
        other = np.concatenate([np.split(other, pixels)[p["spread"] - pixels]] * pixels)
    if p["res_kind"] == ResidualKind.MAXIMUM:
        return np.maximum(v, other)
    zeros = {name: p[f"res_{name}"] for name in ("a_zero", "b_zero", "y_zero")}
    if p["res_kind"] == ResidualKind.MULTIPLY:
        return multiply_residual(v, other, mult=p["res_a_mult"], shift=p["res_shift"], **zeros)
    signs = {"a": -1 if p["res_negative"] & 1 else 1, "b": -1 if p["res_negative"] & 2 else 1}
    mults = {f"{side}_mult": sign * p[f"res_{side}_mult"] for side, sign in signs.items()}
    return add_residual(v, other, shift=p["res_shift"], **mults, **zeros)


def prelu(p, v, slopes):
    """Doubles hold the products and their halves exactly, and `rint` takes a half to the even."""
    centred = v.astype(np.int64) - p["prelu_x_zero"]
    product = centred * np.where(centred < 0, slopes.astype(np.int64), p["prelu_pos"])
    rounded = np.rint(product / 2.0 ** p["prelu_shift"]) + p["prelu_y_zero"]
    return rounded.clip(-128, 127).astype(np.int8)


def run(spec, psum, param, memories, results, p):
    """Modifies results. memories: residual, table; results: output, feature."""
    output, feature = results
    chain = orders_of(spec).kinds(p["order"])
    pool = chain.index(Stage.POOL) if Stage.POOL in chain else len(chain)
    per_iteration = Stage.RESIDUAL in chain and before_pool(chain)
    for b, oy, ox in np.ndindex(p["blocks"], p["out_rows"], p["out_cols"]):
        lanes = lane_parameters(spec, param, p, chain, b)
        res = p["res"] + b * p["res_block_pitch"]
        at_output = res + oy * p["res_row_pitch"] + ox
        residual_at = res if p["res_broadcast"] else at_output
        iterations = []
        for wy, wx in np.ndindex(p["win_rows"], p["win_cols"]):
            y = p["origin_y"] + oy * p["stride_y"] + wy
            x = p["origin_x"] + ox * p["stride_x"] + wx
            if not (0 <= y < p["in_rows"] and 0 <= x < p["in_cols"]):
                continue
            row = p["psum"] + b * p["psum_block_pitch"] + y * p["psum_row_pitch"]
            v = psum[row + (x // pixels_of(p) if p["spread"] else x)]
            if Stage.REQUANT not in chain:
                v = v.astype(np.int8)
            if per_iteration and not p["res_broadcast"]:
                residual_at = res + y * p["res_row_pitch"] + x
            for stage in chain[:pool]:
                v = stage_value(stage, p, v, lanes, memories, residual_at)
            iterations.append(folded(v, p["pool_slots"], wx) if p["pool_slots"] else v)
        v = pooled(spec, p, iterations) if pool < len(chain) else iterations[0]
        for stage in chain[pool + 1 :]:
            v = stage_value(stage, p, v, lanes, memories, residual_at)
        if p["spread"]:  # only without a pool: the window is one pixel
            x = p["origin_x"] + ox * p["stride_x"]
            v = np.concatenate([np.split(v, pixels_of(p))[x % pixels_of(p)]] * pixels_of(p))
        output[p["out"] + b * p["out_block_pitch"] + oy * p["out_row_pitch"] + ox] = v
        if p["keep"]:
            word = b * p["keep_block_pitch"] + oy * p["keep_row_pitch"] + ox
            feature[p["keep_at"] + word] = v


def before_pool(chain):
    """Whether the residual adder is before the pool."""
    return Stage.POOL in chain[chain.index(Stage.RESIDUAL) :]


def folded(v, slots, wx):
    """The larger of each pair of neighbouring pixels, in the half of the lanes of column wx."""
    pixels = v.reshape(slots, -1)
    half = np.maximum(pixels[::2], pixels[1::2]).ravel()
    nothing = np.full_like(half, -128)
    return np.concatenate((nothing, half) if wx else (half, nothing))


def pooled(spec, p, iterations):
    values = np.array(iterations, np.int64).reshape(-1, spec.word_channels)
    if p["pool_kind"] == PoolKind.MAX:
        return values.max(axis=0, initial=-128).astype(np.int8)
    total = (values - p["pool_x_zero"]).sum(axis=0)
    return average(total, mult=p["pool_mult"], shift=p["pool_shift"], y_zero=p["pool_y_zero"])


def random_parameters(spec, rng):
    """Lane parameters for the whole buffer. Sums of about 2**28 land inside int8; powers of two
    among the multipliers make ties.
    """
    words = spec.buffers.param.words
    count = words * spec.word_channels // LANE.itemsize
    powers, any_mult = 1 << rng.integers(0, 16, count), rng.integers(1, 1 << 16, count)
    lanes = np.zeros(count, LANE)
    lanes["bias"] = rng.integers(-(1 << 20), 1 << 20, count)
    lanes["mult"] = np.where(rng.random(count) < 0.3, powers, any_mult)
    shift = np.floor(np.log2(lanes["mult"])) + 22 + rng.integers(-1, 3, count)
    lanes["shift"] = np.where(rng.random(count) < 0.1, rng.integers(0, 48, count), shift)
    extreme = rng.random(count) < 0.1  # sums beyond int32, the largest products and shifts
    lanes["bias"][extreme] = rng.choice([-(1 << 31), (1 << 31) - 1], count)[extreme]
    lanes["mult"][extreme] = 65535
    lanes["shift"][extreme] = rng.integers(41, 48, count)[extreme]
    if spec.numeric.multiplier_bits == 0:
        lanes["mult"] = rng.random(count) < 0.95
        lanes["shift"] = rng.choice([-16, -3, -1, 0, 1, 19, 20, 21, 22, 23, 22, 21, 47], count)
    return np.frombuffer(lanes.tobytes(), np.uint8).reshape(words, spec.word_channels)


def random_psum(spec, rng):
    """Values of int32, many near 2**28, some small, some extreme."""
    shape = (spec.buffers.psum.words, spec.word_channels)
    scale = rng.choice([1 << 7, 1 << 20, 1 << 28, 1 << 28, (1 << 31) - 1], shape)
    return (rng.uniform(-1, 1, shape) * scale).astype(np.int32)


def residual_kinds(spec, order):
    """Values of `res_kind` that are legal with an order, of those that it knows."""
    result = orders_of(spec)
    if result.is_product(order):
        return (ResidualKind.MULTIPLY,)
    sums = (ResidualKind.ADD, ResidualKind.MAXIMUM)
    return sums if Stage.RESIDUAL in result.kinds(order) else sums[:1]


def random_instruction(spec, rng, *, order=None, kind=None, largest=5):
    """Values of a legal instruction that fits the memories of a machine, by default of any order
    that it has, and of any kind of residual.
    """
    orders = orders_of(spec)
    while True:
        chosen = orders.draw(rng) if order is None else order
        chain = orders.kinds(chosen)
        if (values := _shape(spec, rng, chain, largest)) is not None:
            break
    values |= {"order": chosen, "pool_slots": 0, "spread": 0}
    if kind is None:
        kind = rng.choice(residual_kinds(spec, chosen))
    values |= _arithmetic(spec, rng, int(kind))
    if Stage.POOL in chain and slots_of(spec) and rng.random() < 0.5:
        values |= packed(int(rng.choice(slots_of(spec))))
    if spreads(chain) and slots_of(spec) and rng.random() < 0.5:
        values |= spread(int(rng.choice(spreads_of(spec))))
    return values


def spreads(chain):
    """Whether pixels of a word may go to words of their own after a chain."""
    return not {Stage.POOL, Stage.NORM} & set(chain)


def spread(value):
    """Registers that split words of several pixels."""
    return {"spread": value, "origin_x": 0, "stride_x": 1}


def packed(slots):
    """Registers of a pool of packed pixels."""
    return {"pool_slots": slots, "pool_kind": PoolKind.MAX, "win_cols": 2, "stride_x": 2}


def iterations(p):
    """Cycles of the iterations without stalls."""
    return p["blocks"] * post_iterations(
        out_rows=p["out_rows"],
        out_cols=p["out_cols"],
        window=(p["win_rows"], p["win_cols"]),
        stride_x=p["stride_x"],
        kind=PoolKind(p["pool_kind"]),
    )


def _slope(rng, shift):
    return min((1 << 16) - 1, round(rng.uniform(0.1, 1.3) * (1 << shift)))


def _arithmetic(spec, rng, kind):
    zeros = ("requant_zero", "pool_x_zero", "pool_y_zero", "act_x_zero", "act_y_zero")
    sides = ("res_a_zero", "res_b_zero", "res_y_zero")
    zeros += (*sides, "prelu_x_zero", "prelu_y_zero")
    p = draw(rng, **dict.fromkeys(zeros, (-20, 20)), pool_kind=(0, 1), pool_mult=(1, 65535))
    p |= draw(rng, act_shift=(0, 15), res_shift=(0, 15), pool_shift=(0, 4))
    p |= {name: _slope(rng, p["act_shift"]) for name in ("act_pos", "act_neg")}
    p |= {name: _slope(rng, p["res_shift"]) for name in ("res_a_mult", "res_b_mult")}
    p["pool_shift"] += p["pool_mult"].bit_length()
    p |= draw(rng, prelu_shift=(0, 18), prelu_pos=(1, 65535))
    p |= {"act_lo": -128, "act_hi": 127}
    if rng.random() < 0.3:
        p["act_lo"], p["act_hi"] = sorted(int(v) for v in rng.integers(-128, 128, 2))
    if rng.random() < 0.1:  # far shifts: everything rounds to the zero point
        p |= draw(rng, pool_shift=(38, 47), act_shift=(20, 47), res_shift=(20, 47))
    if rng.random() < 0.1:  # the largest products
        p |= dict.fromkeys(("act_pos", "act_neg", "res_a_mult", "res_b_mult"), 65535)
    if spec.numeric.multiplier_bits == 0:
        p |= {name: int(rng.choice([0, *POWERS])) for name in ("res_a_mult", "res_b_mult")}
    p |= {"res_kind": kind} | draw(rng, res_broadcast=(0, 1), res_negative=(0, 3))
    if kind == ResidualKind.MAXIMUM:  # whatever the other registers hold
        p |= draw(rng, res_shift=(0, 63), **dict.fromkeys(sides, (-128, 127)))
        p |= draw(rng, res_a_mult=(0, 65535), res_b_mult=(0, 65535))
    if kind == ResidualKind.MULTIPLY and p["res_shift"] < 16:
        p["res_shift"] += 7  # a product is that much larger
    tables = spec.buffers.table.words - TABLE_WORDS if spec.buffers.table else 0
    return p | draw(rng, table=(0, tables))


def _shape(spec, rng, chain, largest):
    """Geometry and addresses, or None when they do not fit."""
    p = draw(rng, blocks=(1, 3), out_rows=(1, largest), out_cols=(1, largest))
    p |= draw(rng, stride_y=(1, 3), stride_x=(1, 3))
    if Stage.POOL in chain:  # windows may hang over on all sides, or be outside altogether
        p |= draw(rng, win_rows=(1, 4), win_cols=(1, 4), origin_y=(-4, 2), origin_x=(-4, 2))
        p |= draw(rng, in_rows=(1, 8), in_cols=(1, 8))
    else:
        p |= {"win_rows": 1, "win_cols": 1} | draw(rng, origin_y=(0, 2), origin_x=(0, 2))
        more = draw(rng, rows=(1, 2), cols=(1, 2))
        p["in_rows"] = p["origin_y"] + (p["out_rows"] - 1) * p["stride_y"] + more["rows"]
        p["in_cols"] = p["origin_x"] + (p["out_cols"] - 1) * p["stride_x"] + more["cols"]
    tile, out = (p["in_rows"], p["in_cols"]), (p["out_rows"], p["out_cols"])
    per_iteration = Stage.RESIDUAL in chain and before_pool(chain)
    p |= _pitches(rng, "psum", *tile) | _pitches(rng, "out", *out) | _pitches(rng, "keep", *out)
    p |= _pitches(rng, "res", *(tile if per_iteration else out))
    free = {
        "psum": spec.buffers.psum.words - p["blocks"] * p["psum_block_pitch"],
        "out": spec.buffers.output.words - p["blocks"] * p["out_block_pitch"],
        "res": spec.buffers.residual.words - p["blocks"] * p["res_block_pitch"],
        "param": spec.buffers.param.words - p["blocks"] * words_of(chain),
        "keep_at": spec.buffers.feature.words - p["blocks"] * p["keep_block_pitch"],
    }
    if min(free.values()) < 0:
        return None
    addresses = draw(rng, **{name: (0, room) for name, room in free.items()})
    return p | addresses | draw(rng, keep=(0, int(spec.post.keep)))


def _pitches(rng, name, rows, cols):
    gaps = draw(rng, row=(0, 2), block=(0, 2))
    row_pitch = cols + gaps["row"]
    block_pitch = rows * row_pitch + gaps["block"]
    return {f"{name}_row_pitch": row_pitch, f"{name}_block_pitch": block_pitch}
