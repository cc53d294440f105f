"""`conv` and `copy` of the compute engine on numpy memories (docs/machine.md, compute).

A whole instruction is one gather and one BLAS matrix product; integer sums stay exact.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from opu_fuse.sim.memories import Memories
from opu_fuse.sim.products import int8_product

Params = Mapping[str, int]


def conv(mem: Memories, p: Params) -> None:
    """Inner products of a feature tile and weight rows into partial sums."""
    mode = mem.spec.array.modes[p["mode"]]
    segments = mem.spec.word_channels // mode.ic
    blocks = -(-p["ic_steps"] // segments)
    lanes = p["ic_steps"] * mode.ic if blocks == 1 else mem.spec.word_channels
    kernel = (p["kernel_rows"], p["kernel_cols"])

    features = _gather(mem, p, blocks, lanes, kernel, (p["dilation_y"], p["dilation_x"]))
    weights = _weights(mem, p, mode.ic, mode.oc, blocks, lanes // mode.ic)
    pixels = p["out_rows"] * p["out_cols"]
    terms = blocks * kernel[0] * kernel[1] * lanes
    sums = int8_product(features.reshape(pixels, terms), weights.reshape(terms, -1))

    for block in range(-(-sums.shape[1] // mem.spec.word_channels)):
        part = sums[:, block * mem.spec.word_channels :][:, : mem.spec.word_channels]
        start = p["psum"] + block * p["psum_block_pitch"]
        target = mem.psum[start : start + pixels, : part.shape[1]]
        if p["accumulate"]:
            target += part
        else:
            target[:] = part


def copy(mem: Memories, p: Params) -> None:
    """Padded, strided features into partial sums, sign extended."""
    lanes = mem.spec.word_channels
    pixels = p["out_rows"] * p["out_cols"]
    features = _gather(mem, p, p["ic_steps"], lanes, (1, 1), (1, 1))
    per_block = features.reshape(pixels, p["ic_steps"], lanes).transpose(1, 0, 2)
    for block, part in enumerate(per_block):
        start = p["psum"] + block * p["psum_block_pitch"]
        mem.psum[start : start + pixels] = part


def _gather(
    mem: Memories,
    p: Params,
    blocks: int,
    lanes: int,
    kernel: tuple[int, int],
    dilation: tuple[int, int],
) -> np.ndarray:
    """int8 (out_rows, out_cols, blocks, kernel_rows, kernel_cols, lanes): what the array sees."""
    y = _positions(p["origin_y"], p["out_rows"], p["stride_y"], kernel[0], dilation[0])
    x = _positions(p["origin_x"], p["out_cols"], p["stride_x"], kernel[1], dilation[1])
    y = y[:, None, None, :, None]
    x = x[None, :, None, None, :]
    inside_y = (y >= 0) & (y < p["in_rows"])
    block = np.arange(blocks)[None, None, :, None, None] * p["block_pitch"]
    mem.feature[mem.pad_word] = p["pad_value"]

    slot = 1 << p["slot_log2"]
    per_word = mem.spec.word_bytes // slot
    if per_word == 1:
        inside = inside_y & (x >= 0) & (x < p["in_cols"])
        word = np.where(inside, p["feature"] + block + y * p["row_pitch"] + x, mem.pad_word)
        return mem.feature.take(word, axis=0)[..., :lanes]

    across = x[..., None] + np.arange(-(-lanes // slot))  # lanes go on into right-hand neighbours
    inside = inside_y[..., None] & (across >= 0) & (across < p["in_cols"])
    index = (p["feature"] + block + y * p["row_pitch"])[..., None] * per_word + across
    index = np.where(inside, index, mem.pad_word * per_word)
    found = mem.feature.reshape(-1, slot).take(index, axis=0)
    return found.reshape(*index.shape[:-1], -1)[..., :lanes]


@lru_cache(maxsize=1024)
def _positions(origin: int, outputs: int, stride: int, kernel: int, dilation: int) -> np.ndarray:
    """(outputs, kernel) tile coordinates (shared: not to be changed)."""
    return origin + np.arange(outputs)[:, None] * stride + np.arange(kernel)[None, :] * dilation


def _weights(mem: Memories, p: Params, ic: int, oc: int, blocks: int, segments: int) -> np.ndarray:
    """int8 (block, ky, kx, segment, ic, group, oc) from the rows; absent segments are 0."""
    steps, groups = p["ic_steps"], p["oc_steps"]
    kernel = (p["kernel_rows"], p["kernel_cols"])
    rows = steps * kernel[0] * kernel[1] * groups
    row_words, row_bytes = mem.spec.row_words, oc * ic
    data = mem.weight[p["weight"] : p["weight"] + rows * row_words]
    data = data.reshape(rows, -1)[:, :row_bytes].reshape(steps, *kernel, groups, oc, ic)
    if steps < blocks * segments:
        padded = np.zeros((blocks * segments, *data.shape[1:]), np.int8)
        padded[:steps] = data
        data = padded
    data = data.reshape(blocks, segments, *kernel, groups, oc, ic)
    return data.transpose(0, 2, 3, 1, 6, 4, 5)
