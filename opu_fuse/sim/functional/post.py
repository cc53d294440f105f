"""`run` of the post engine on numpy memories (docs/machine.md, post).

Stages before POOL depend only on the tile position, so they are computed once per position and then
gathered into windows; the machine computes them in every iteration, with the same result.
"""

from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from opu_fuse.hw.isa.table import order_of, unit_params
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.units import BY_STAGE
from opu_fuse.units.base import Space, Stage, Statistics
from opu_fuse.units.params import PostParams
from opu_fuse.units.pool import framed
from opu_fuse.units.spread import spread_pixels


class StageValues(Struct, frozen=True, kw_only=True):
    """int8 result of one stage of one instruction.

    stage: number in the chain; pooled: it is at or after POOL; ys, xs: output coordinates when
    pooled, else tile coordinates (those that some window covers); values: (blocks, ys, xs, lanes).
    """

    stage: int
    pooled: bool
    ys: np.ndarray
    xs: np.ndarray
    values: np.ndarray


def run(mem: Memories, p: PostParams) -> tuple[StageValues, ...]:
    """Partial sums through the chain to the output buffer, and where `keep` says so to the feature
    buffer; returns the result of every stage.
    """
    chain = chain_of(mem.spec).unpack(order_of(p))
    units = [BY_STAGE[module.stage] for module in chain]
    lanes, blocks = mem.spec.word_channels, p["blocks"]
    mem.require_room("post", blocks * prod(framed(p)))
    ys = _visited(p["origin_y"], p["out_rows"], p["stride_y"], p["win_rows"], p["in_rows"])
    xs = _visited(p["origin_x"], p["out_cols"], p["stride_x"], p["win_cols"], p["in_cols"])
    spread, _ = spread_pixels(p["spread"])
    words = _words(p["psum"], blocks, p["psum_block_pitch"], ys, p["psum_row_pitch"], xs // spread)
    value = mem.psum.take(words, axis=0)
    if not any(module.stage is Stage.REQUANT for module in chain):
        value = value.astype(np.int8)

    results: list[StageValues] = []
    seen = _spread(value, xs, spread)
    pooled, pitch = False, sum(unit.words for unit in units)
    for number, (module, unit) in enumerate(zip(chain, units, strict=True)):
        before_pool = any(later.windows for later in units[number:])
        first = sum(earlier.words for earlier in units[:number])
        here = _Site(mem, p, *((ys, xs) if before_pool else _outputs(p)), first, pitch, module.bank)
        assert unit.run is not None, "a stage of the post chain does something"
        value = unit.run(value, unit_params(p, module.bank), here)
        if unit.windows:
            ys, xs, pooled = *_outputs(p), True
        seen = _spread(value, xs, spread)
        results.append(StageValues(stage=number, pooled=pooled, ys=ys, xs=xs, values=seen))

    if not all(u.writes(unit_params(p, m.bank)) for m, u in zip(chain, units, strict=True)):
        return ()
    target = _target(p, p["out"], p["out_row_pitch"], p["out_block_pitch"])
    mem.output[target, :lanes] = seen
    if p["keep"]:
        target = _target(p, p["keep_at"], p["keep_row_pitch"], p["keep_block_pitch"])
        mem.feature[target, :lanes] = seen
    return tuple(results)


class _Site(Struct, frozen=True):
    """View of a stage on the engine (`units.base.Site`). first: number of its first parameter word
    of a block; pitch: words from block to block; bank: of its unit.
    """

    mem: Memories
    p: PostParams
    ys: np.ndarray
    xs: np.ndarray
    first: int
    pitch: int
    bank: int

    @property
    def lanes(self) -> int:
        return self.mem.spec.word_channels

    def pixels(self, base: int, row_pitch: int, block_pitch: int) -> np.ndarray:
        return _words(base, self.p["blocks"], block_pitch, self.ys, row_pitch, self.xs)

    def blocks(self, base: int, block_pitch: int) -> np.ndarray:
        return base + np.arange(self.p["blocks"])[:, None, None] * block_pitch

    def words(self, space: Space) -> np.ndarray:
        return self.mem.buffer(space)[..., : self.lanes]

    def statistics(self) -> Statistics:
        return self.mem.statistics[self.bank]

    def parameters(self, record: np.dtype) -> np.ndarray:
        first, blocks = self.p["param"] + self.first, self.p["blocks"]
        result = self.mem.records(Space.PARAM, record, first, blocks, self.pitch)
        return result[:, None, None, :]


def _spread(value: np.ndarray, xs: np.ndarray, spread: int) -> np.ndarray:
    """(blocks, ys, xs, lanes) words of `spread` pixels -> those with the pixel of their column in
    each slot.
    """
    if spread == 1:
        return value
    parts = value.reshape(*value.shape[:3], spread, -1)
    return np.tile(parts[:, :, np.arange(len(xs)), xs % spread], spread)


def _outputs(p: PostParams) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(p["out_rows"]), np.arange(p["out_cols"])


def _target(p: PostParams, base: int, row_pitch: int, block_pitch: int) -> np.ndarray:
    """(blocks, out_rows, out_cols) word numbers that outputs are written to."""
    rows, cols = _outputs(p)
    return _words(base, p["blocks"], block_pitch, rows, row_pitch, cols)


@lru_cache(maxsize=1024)
def _visited(origin: int, outputs: int, stride: int, window: int, limit: int) -> np.ndarray:
    """Ascending present tile coordinates that some window visits (shared: not to be changed)."""
    grid = origin + np.arange(outputs)[:, None] * stride + np.arange(window)
    result = np.unique(grid)
    return result[(result >= 0) & (result < limit)]


def _words(
    base: int, blocks: int, block_pitch: int, ys: np.ndarray, row_pitch: int, xs: np.ndarray
) -> np.ndarray:
    """(blocks, ys, xs) word numbers."""
    block = np.arange(blocks)[:, None, None] * block_pitch
    return base + block + ys[None, :, None] * row_pitch + xs[None, None, :]
