"""`run` of the post engine on numpy memories (docs/machine.md, post).

Stages before POOL depend only on the tile position, so they are computed once per position and then
gathered into windows; the machine computes them on every visit, with the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from opu_fuse import fixedpoint
from opu_fuse.hw.chain import chain_of
from opu_fuse.hw.isa import PoolKind, ResidualKind, Space, Stage, order_of, unit_params
from opu_fuse.sim.memories import Memories

Params = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageValues:
    """int8 result of one stage of one instruction.

    stage: number in the chain; pooled: it stands at or after POOL; ys, xs: output coordinates when
    pooled, else tile coordinates (those that some window visits); values: (blocks, ys, xs, lanes).
    """

    stage: int
    pooled: bool
    ys: np.ndarray
    xs: np.ndarray
    values: np.ndarray


def run(mem: Memories, p: Params) -> tuple[StageValues, ...]:
    """Partial sums through the chain to the output buffer, and where `keep` says so to the feature
    buffer; returns what every stage made.
    """
    chain = chain_of(mem.spec).unpack(order_of(p))
    stages = [module.stage for module in chain]
    lanes, blocks = mem.spec.word_channels, p["blocks"]
    mem.require_room("post", blocks * prod(_framed(p)))
    ys = _visited(p["origin_y"], p["out_rows"], p["stride_y"], p["win_rows"], p["in_rows"])
    xs = _visited(p["origin_x"], p["out_cols"], p["stride_x"], p["win_cols"], p["in_cols"])
    words = _words(p["psum"], blocks, p["psum_block_pitch"], ys, p["psum_row_pitch"], xs)
    value = mem.psum.take(words, axis=0)
    if Stage.REQUANT not in stages:
        value = value.astype(np.int8)

    found: list[StageValues] = []
    pooled = False
    for number, module in enumerate(chain):
        own = unit_params(p, module.bank)
        match module.stage:
            case Stage.REQUANT:
                value = _requantize(mem, p, value)
            case Stage.ACT:
                value = _activate(own, value)
            case Stage.POOL:
                value = _pool(own, value, ys, xs)
                ys, xs, pooled = np.arange(p["out_rows"]), np.arange(p["out_cols"]), True
            case Stage.RESIDUAL:
                rows, cols = (ys, xs) if Stage.POOL in stages[number:] else _outputs(p)
                value = _residual(mem, own, value, rows, cols)
            case Stage.TABLE:
                value = mem.table[p["table"] + 128 + value.astype(np.int64), np.arange(lanes)]
        found.append(StageValues(stage=number, pooled=pooled, ys=ys, xs=xs, values=value))

    mem.output[_target(p, p["out"], "out"), :lanes] = value
    if p["keep"]:
        mem.feature[_target(p, p["keep_at"], "keep"), :lanes] = value
    return tuple(found)


def _outputs(p: Params) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(p["out_rows"]), np.arange(p["out_cols"])


def _target(p: Params, base: int, name: str) -> np.ndarray:
    """(blocks, out_rows, out_cols) word numbers that outputs are written to."""
    rows, cols = _outputs(p)
    block_pitch, row_pitch = p[f"{name}_block_pitch"], p[f"{name}_row_pitch"]
    return _words(base, p["blocks"], block_pitch, rows, row_pitch, cols)


@lru_cache(maxsize=1024)
def _visited(origin: int, outputs: int, stride: int, window: int, limit: int) -> np.ndarray:
    """Ascending present tile coordinates that some window visits (shared: not to be changed)."""
    grid = origin + np.arange(outputs)[:, None] * stride + np.arange(window)
    found = np.unique(grid)
    return found[(found >= 0) & (found < limit)]


def _words(
    base: int, blocks: int, block_pitch: int, ys: np.ndarray, row_pitch: int, xs: np.ndarray
) -> np.ndarray:
    """(blocks, ys, xs) word numbers."""
    block = np.arange(blocks)[:, None, None] * block_pitch
    return base + block + ys[None, :, None] * row_pitch + xs[None, None, :]


def _requantize(mem: Memories, p: Params, value: np.ndarray) -> np.ndarray:
    found = mem.parameters(Space.PARAM, p["param"], p["blocks"])
    bias, mult, shift = (a[:, None, None, :] for a in (found.bias, found.mult, found.shift))
    return fixedpoint.requantize(value + bias, mult, shift, p["requant_zero"])


def _activate(p: Params, value: np.ndarray) -> np.ndarray:
    return fixedpoint.activate(
        value,
        x_zero=p["act_x_zero"],
        pos=p["act_pos"],
        neg=p["act_neg"],
        shift=p["act_shift"],
        y_zero=p["act_y_zero"],
        lo=p["act_lo"],
        hi=p["act_hi"],
    )


def _residual(
    mem: Memories, p: Params, value: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    if p["res_broadcast"]:
        rows = cols = np.zeros(1, np.int64)
    words = _words(p["res"], p["blocks"], p["res_block_pitch"], rows, p["res_row_pitch"], cols)
    other = mem.residual.take(words, axis=0)[..., : mem.spec.word_channels]
    zeros = {name: p[f"res_{name}"] for name in ("a_zero", "b_zero", "y_zero")}
    if p["res_kind"] == ResidualKind.MULTIPLY:
        return fixedpoint.multiply_residual(
            value, other, mult=p["res_a_mult"], shift=p["res_shift"], **zeros
        )
    return fixedpoint.add_residual(
        value,
        other,
        a_mult=p["res_a_mult"],
        b_mult=p["res_b_mult"],
        shift=p["res_shift"],
        **zeros,
    )


def _pool(p: Params, value: np.ndarray, ys: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """Windows over the present positions; both kinds are separable into rows and columns."""
    average = p["pool_kind"] == PoolKind.AVERAGE
    absent, reduce = (0, np.add) if average else (fixedpoint.INT8_MIN, np.maximum)
    if p["pool_slots"]:
        value = _fold(value, p["pool_slots"])
    rows, cols = _framed(p)
    framed = np.full((value.shape[0], rows, cols, value.shape[3]), absent, np.int32)
    present = value - np.int32(p["pool_x_zero"]) if average else value
    framed[:, (ys - p["origin_y"])[:, None], (xs - p["origin_x"])[None, :]] = present

    last_row = (p["out_rows"] - 1) * p["stride_y"] + 1
    last_col = (p["out_cols"] - 1) * p["stride_x"] + 1
    by_rows = framed[:, 0 : last_row : p["stride_y"]].copy()
    for wy in range(1, p["win_rows"]):
        reduce(by_rows, framed[:, wy : wy + last_row : p["stride_y"]], out=by_rows)
    if p["pool_slots"]:  # the folded words of two columns side by side
        return by_rows.reshape(*by_rows.shape[:2], p["out_cols"], -1).astype(np.int8)
    total = by_rows[:, :, 0 : last_col : p["stride_x"]].copy()
    for wx in range(1, p["win_cols"]):
        reduce(total, by_rows[:, :, wx : wx + last_col : p["stride_x"]], out=total)
    if not average:
        return total.astype(np.int8)
    return fixedpoint.average(
        total, mult=p["pool_mult"], shift=p["pool_shift"], y_zero=p["pool_y_zero"]
    )


def _framed(p: Params) -> tuple[int, int]:
    """Rows and columns from the first window to the last, absent ones included."""
    rows = (p["out_rows"] - 1) * p["stride_y"] + p["win_rows"]
    return rows, (p["out_cols"] - 1) * p["stride_x"] + p["win_cols"]


def _fold(value: np.ndarray, slots: int) -> np.ndarray:
    """(..., lanes) of `slots` pixels -> (..., lanes / 2): the larger of each pair of neighbours."""
    *shape, lanes = value.shape
    pairs = value.reshape(*shape, slots // 2, 2, lanes // slots)
    return pairs.max(axis=-2).reshape(*shape, lanes // 2)
