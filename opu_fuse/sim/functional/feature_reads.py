"""The array's reads of the feature buffer: padding, slots and the pre chain.

All reads of a sweep are one gather. Positions outside the tile read a word that holds the padding
value: the last one of the feature buffer (`Memories` has one more than the machine), or of the
result of the pre chain.
"""

from functools import lru_cache

import numpy as np

from opu_fuse import fixedpoint
from opu_fuse.hw.compute_channels import Sweep
from opu_fuse.hw.isa.table import unit_params
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.units.affine import AFFINES
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Space
from opu_fuse.units.params import ComputeParams

_PADDING = -1
"""Index of the padding word."""


def gather(mem: Memories, p: ComputeParams, s: Sweep) -> np.ndarray:
    """int8 (out_rows, out_cols, blocks, kernel_rows, kernel_cols, lanes), the features of a sweep.

    p: registers of the instruction.
    """
    y = _positions(p["origin_y"], p["out_rows"], p["stride_y"], s.kernel[0], p["dilation_y"])
    x = _positions(p["origin_x"], p["out_cols"], p["stride_x"], s.kernel[1], p["dilation_x"])
    words, row_pitch, block_pitch = mem.feature, p["row_pitch"], p["block_pitch"]
    first = p["feature"] + s.blocks.start * block_pitch
    if p["pre"]:  # then `words` are the rows and columns that are read, and no others
        rows, cols = _span(y, p["in_rows"]), _span(x, p["in_cols"])
        words = _pre_chain(mem, p, s.blocks, rows, cols)
        first, row_pitch = -(rows.start * len(cols) + cols.start), len(cols)
        block_pitch = len(rows) * row_pitch
    words[_PADDING] = p["pad_value"]

    y = y[:, None, None, :, None]
    x = x[None, :, None, None, :]
    inside_y = (y >= 0) & (y < p["in_rows"])
    block = np.arange(len(s.blocks))[None, None, :, None, None] * block_pitch
    slot = 1 << p["slot_log2"]  # bytes of a pixel
    per_word = mem.spec.word_bytes // slot
    if per_word == 1:
        inside = inside_y & (x >= 0) & (x < p["in_cols"])
        index = np.where(inside, first + block + y * row_pitch + x, _PADDING)
        return words.take(index, axis=0)[..., s.used.start : s.used.stop]

    # The lanes of a pixel are those of its slot, then of the slots to the right.
    across = x[..., None] + np.arange(-(-s.used.stop // slot))
    inside = inside_y[..., None] & (across >= 0) & (across < p["in_cols"])
    index = (first + block + y * row_pitch)[..., None] * per_word + across
    result = words.reshape(-1, slot).take(np.where(inside, index, _PADDING), axis=0)
    return result.reshape(*index.shape[:-1], -1)[..., s.used.start : s.used.stop]


def _pre_chain(
    mem: Memories, p: ComputeParams, blocks: range, rows: range, cols: range
) -> np.ndarray:
    """A part of the tile after the pre chain: int8 (blocks * rows * cols + 1, lanes).

    The last word is for the padding.
    """
    lanes = mem.spec.word_channels
    mem.require_room("pre chain", len(blocks) * len(rows) * len(cols))
    c, y, x = (np.arange(r.start, r.stop) for r in (blocks, rows, cols))
    word = p["feature"] + c[:, None, None] * p["block_pitch"] + y[:, None] * p["row_pitch"] + x
    words = mem.feature.take(word, axis=0)[..., :lanes]
    scaled = _gated(mem, p, words, blocks) if p["gate"] else _scaled(mem, p, words, blocks)
    return np.append(scaled.reshape(-1, lanes), np.zeros((1, lanes), np.int8), axis=0)


def _gated(mem: Memories, p: ComputeParams, features: np.ndarray, blocks: range) -> np.ndarray:
    """Features (blocks, rows, cols, lanes) after the unit that multiplies by a gate."""
    first = p["pre_param"]
    gate = mem.pre[first + blocks.start : first + blocks.stop, : features.shape[-1]]
    product = fixedpoint.multiply_residual(
        features,
        gate.view(np.int8)[:, None, None],
        mult=p["gate_mult"],
        shift=p["gate_shift"],
        a_zero=p["gate_x_zero"],
        b_zero=p["gate_zero"],
        y_zero=p["pre_zero"],
    )
    return product.clip(p["pre_lo"], p["pre_hi"])


def _scaled(mem: Memories, p: ComputeParams, features: np.ndarray, blocks: range) -> np.ndarray:
    """Features (blocks, rows, cols, lanes) after the units that apply channel constants."""
    units = p["pre"]
    first = p["pre_param"] + PARAM_WORDS * units * blocks.start
    records = mem.records(Space.PRE, AFFINES, first, len(blocks) * units, PARAM_WORDS)
    for unit in range(units):
        own, constants = unit_params(p, unit), records[unit::units, None, None]
        features = fixedpoint.channel_affine(
            features,
            mult=constants["mult"],
            bias=constants["bias"],
            shift=constants["shift"],
            y_zero=own["pre_zero"],
            lo=own["pre_lo"],
            hi=own["pre_hi"],
        )
    return features


def _span(positions: np.ndarray, limit: int) -> range:
    """From the first to the last position inside the tile."""
    inside = positions[(positions >= 0) & (positions < limit)]
    return range(inside.min(), inside.max() + 1) if inside.size else range(0)


@lru_cache(maxsize=1024)
def _positions(origin: int, outputs: int, stride: int, kernel: int, dilation: int) -> np.ndarray:
    """(outputs, kernel) tile coordinates (shared: not to be changed)."""
    return origin + np.arange(outputs)[:, None] * stride + np.arange(kernel)[None, :] * dilation
