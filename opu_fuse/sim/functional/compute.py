"""`conv`, `copy` and `depthwise` on numpy memories (docs/machine.md, compute).

A whole instruction is one gather and one product; integer sums are exact.
"""

import numpy as np

from opu_fuse.hw.compute_channels import Sweep, sweep
from opu_fuse.sim.functional.feature_reads import gather
from opu_fuse.sim.functional.matmul import int8_product
from opu_fuse.sim.functional.memories import Memories
from opu_fuse.units.params import ComputeParams


def conv(mem: Memories, p: ComputeParams) -> None:
    """Inner products of a feature tile and weight rows into partial sums."""
    s = sweep("conv", p, mem.spec)
    pixels = p["out_rows"] * p["out_cols"]
    features = gather(mem, p, s).reshape(pixels, -1)
    sums = int8_product(features, _weights(mem, p, s).reshape(features.shape[1], -1))
    _put(mem, p, s, sums, accumulate=bool(p["accumulate"]))


def depthwise(mem: Memories, p: ComputeParams) -> None:
    """Windows of a feature tile and weight rows into partial sums, lane by lane."""
    s = sweep("depthwise", p, mem.spec)
    side, (rows, cols) = mem.spec.array.window_side, s.kernel
    filters = _rows(mem, p, s).reshape(s.at_once, len(s.steps), mem.spec.array.units, -1)
    filters = filters[..., : s.ic, : side * side].reshape(s.at_once, -1, s.ic, side, side)
    weights = np.stack([_in_blocks(s, one) for one in filters[..., :rows, :cols]])
    weights = weights.reshape(s.at_once, len(s.blocks), -1, rows, cols)
    weights = np.ascontiguousarray(weights.transpose(0, 1, 3, 4, 2))
    sums = np.einsum("yxbijl,nbijl->ynxbl", gather(mem, p, s), weights, dtype=np.int32)
    sums = sums.reshape(s.psum_words(p), -1)
    lead = _lead(s) * s.ic
    _put(mem, p, s, sums[:, lead : lead + len(s.steps) * s.ic], accumulate=bool(p["accumulate"]))


def copy(mem: Memories, p: ComputeParams) -> None:
    """Padded, strided features into partial sums, sign extended."""
    s = sweep("copy", p, mem.spec)
    features = gather(mem, p, s)
    _put(mem, p, s, features.reshape(p["out_rows"] * p["out_cols"], -1), accumulate=False)


def _rows(mem: Memories, p: ComputeParams, s: Sweep) -> np.ndarray:
    """int8 (rows, bytes): the sweep's weight rows."""
    data = mem.weight[p["weight"] : p["weight"] + s.weight_rows * s.row_words]
    return data.reshape(s.weight_rows, -1)


def _weights(mem: Memories, p: ComputeParams, s: Sweep) -> np.ndarray:
    """int8 (block, ky, kx, segment, ic, group, oc) of the segments used; absent ones are 0."""
    shape = (*s.kernel, len(s.groups), s.oc, s.ic)
    data = _in_blocks(s, _rows(mem, p, s)[:, : s.oc * s.ic].reshape(-1, *shape))
    return data.reshape(len(s.blocks), -1, *shape).transpose(0, 2, 3, 1, 6, 4, 5)


def _lead(s: Sweep) -> int:
    """Steps used of the first block that are not visited."""
    return s.steps.start % (s.lanes // s.ic) - s.used.start // s.ic


def _in_blocks(s: Sweep, data: np.ndarray) -> np.ndarray:
    """(steps, …) -> (all steps used of all blocks, …): 0 for those not visited."""
    whole = len(s.blocks) * (len(s.used) // s.ic)
    if len(data) == whole:
        return data
    padded = np.zeros((whole, *data.shape[1:]), np.int8)
    padded[_lead(s) : _lead(s) + len(data)] = data
    return padded


def _put(mem: Memories, p: ComputeParams, s: Sweep, sums: np.ndarray, *, accumulate: bool) -> None:
    """Sums (pixels, groups * oc) to their lanes of the partial sums, px pixels a word."""
    words, width = len(sums) // s.px, s.lanes // s.px
    done = 0
    while done < sums.shape[1]:
        block, lane = divmod(s.groups.start * s.oc + done, width)
        part = sums[:, done : done + width - lane].reshape(words, s.px, -1)
        start = p["psum"] + block * p["psum_block_pitch"]
        target = mem.psum[start : start + words].reshape(words, s.px, width)
        target = target[..., lane : lane + part.shape[2]]
        if accumulate:
            target += part
        else:
            target[:] = part
        done += part.shape[2]
