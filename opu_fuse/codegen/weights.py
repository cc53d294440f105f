"""Weights and parameters -> bytes, in the order in which the machine consumes them."""

import numpy as np

from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.chunks import weight_bytes
from opu_fuse.schedule.plan import PlannedLayer


def pack_weights(planned: PlannedLayer, dense: np.ndarray, hw: HwSpec) -> np.ndarray:
    """int8 (oc, ic, kh, kw), groups already spread out -> uint8 weight rows of all chunks.

    A row holds [output channel of the mode][input channel of the mode]; rows of a chunk follow
    [segment][kernel row][kernel col][output group]. Channels that do not exist are zero.
    """
    mode = hw.array.modes[planned.tile.mode]
    dense = unfold_columns(dense, planned.unfold, planned.layer.shape.slot)
    oc, ic, kh, kw = dense.shape
    groups, segments = -(-oc // mode.oc), -(-ic // mode.ic)
    padded = np.zeros((groups * mode.oc, segments * mode.ic, kh, kw), np.int8)
    padded[:oc, :ic] = dense
    rows = padded.reshape(groups, mode.oc, segments, mode.ic, kh, kw).transpose(2, 4, 5, 0, 1, 3)
    out = np.zeros(weight_bytes(planned.ranges, hw), np.int8)
    for chunk in (w for r in planned.ranges for f in r.features for w in f.weights):
        y, x = chunk.ky, chunk.kx
        part = rows[
            chunk.segment : chunk.segment + chunk.segments,
            y[0] : y[0] + y[1],
            x[0] : x[0] + x[1],
            chunk.group : chunk.group + chunk.groups,
        ]
        out[chunk.offset : chunk.offset + part.size] = part.reshape(-1)
    return out.view(np.uint8)


def unfold_columns(dense: np.ndarray, columns: int, slot: int) -> np.ndarray:
    """Kernel columns side by side in the lanes: (oc, ic, kh, kw) -> (oc, columns * slot, kh,
    ceil(kw / columns)); lane j * slot + c of visit v is channel c of column v * columns + j.
    """
    if columns == 1:
        return dense
    oc, ic, kh, kw = dense.shape
    out = np.zeros((oc, columns * slot, kh, -(-kw // columns)), dense.dtype)
    for x in range(kw):
        visit, j = divmod(x, columns)
        out[:, j * slot : j * slot + ic, :, visit] = dense[:, :, :, x]
    return out


def spread_groups(weight: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution (oc, ic / groups, kh, kw) as one dense tensor (oc, ic,
    kh, kw) with zeros between.
    """
    if groups == 1:
        return weight
    oc, per_group, kh, kw = weight.shape
    out = np.zeros((oc, per_group * groups, kh, kw), weight.dtype)
    step = oc // groups
    for g in range(groups):
        out[g * step : (g + 1) * step, g * per_group : (g + 1) * per_group] = weight[
            g * step : (g + 1) * step
        ]
    return out


def pack_params(bias: np.ndarray, mult: np.ndarray, shift: np.ndarray, hw: HwSpec) -> np.ndarray:
    """Per output channel bias (int32), multiplier (< 2**16) and shift -> uint8 parameter words.

    Eight words a block; lane l at byte 8*l: int32 bias, uint16 multiplier, int8 shift, zero. A
    word of DRAM is padded to `word_bytes` where `word_channels` is no power of two.
    """
    lanes = hw.word_channels
    blocks = -(-len(bias) // lanes)
    table = np.zeros(
        blocks * lanes,
        np.dtype([("bias", "<i4"), ("mult", "<u2"), ("shift", "i1"), ("zero", "u1")]),
    )
    table["bias"][: len(bias)] = bias
    table["mult"][: len(bias)] = mult
    table["shift"][: len(bias)] = shift
    words = table.view(np.uint8).reshape(-1, lanes)
    out = np.zeros((len(words), hw.word_bytes), np.uint8)
    out[:, :lanes] = words
    return out.reshape(-1)
