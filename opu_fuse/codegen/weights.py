"""Weights and parameters -> bytes, in the order in which the machine consumes them."""

import numpy as np

from opu_fuse.hw.dram_layout import Pieces, extent, is_plain, lanes_of
from opu_fuse.hw.im2row_window import IMAGE_CHANNELS
from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.quant import weight_parts
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tiling.chunks import weight_bytes
from opu_fuse.units.array import SCALES


def pack_weights(
    planned: PlannedLayer, weight: np.ndarray, hw: HwSpec, image: np.ndarray, *, groups: int
) -> None:
    """(oc, ic / groups, kh, kw), the sum of several int8 where it is int16 -> weight rows of all
    chunks, in an image of uint8 that is zero before.

    A row holds [output channel of the mode][input channel of the mode]; rows of a chunk follow
    [segment][kernel row][kernel col][output group]. Lanes without a channel are zero.
    """
    for number, part in enumerate(weight_parts(weight)):
        _pack_part(planned, number, part, hw, image.view(np.int8), groups)


def _pack_part(
    planned: PlannedLayer, number: int, weight: np.ndarray, hw: HwSpec, out: np.ndarray, groups: int
) -> None:
    """Pack the rows of one int8 term of the weights."""
    layer = planned.layer
    pieces = layer.sum_pieces(hw)
    if not is_plain(pieces):
        whole = spread_groups(weight, groups, 0, len(weight))
        weight, groups = to_lanes(whole, pieces, 0), 1
    # One after the other: spread out, many groups would fill the memory.
    for r in (part for out in planned.ranges for part in out.of_one_mode):
        chunks = [w for f in r.features for w in f.weights if w.part == number]
        if not chunks:
            continue
        first, mode = r.block * hw.word_channels, hw.array.modes[r.mode]
        dense = spread_groups(weight, groups, first, first + r.blocks * hw.word_channels)
        dense = to_lanes(dense, layer.in_pieces, 1)
        if layer.shape.im2row is not None:
            spread = pack_im2row_windows(dense, layer.shape.slot, mode.ic)
        else:
            spread = pack_kernel_cols(dense, planned.cols_per_iteration, layer.shape.slot)
        rows = _weight_rows(spread, mode)
        for chunk in chunks:
            (y, yn), (x, xn) = chunk.ky, chunk.kx
            group = chunk.group - first // mode.oc
            part = rows[
                chunk.segment : chunk.segment + chunk.segments,
                y : y + yn,
                x : x + xn,
                group : group + chunk.groups,
            ]
            out[chunk.offset : chunk.offset + part.size].reshape(part.shape)[...] = part


def _weight_rows(dense: np.ndarray, mode: Mode) -> np.ndarray:
    """int8 (oc, ic, kh, kw) -> a view (segment, kernel row, kernel col, group, oc, ic) of a mode,
    zeros after the last channels.
    """
    oc, ic, kh, kw = dense.shape
    groups, segments = -(-oc // mode.oc), -(-ic // mode.ic)
    padded = dense
    if (oc, ic) != (groups * mode.oc, segments * mode.ic):
        padded = np.zeros((groups * mode.oc, segments * mode.ic, kh, kw), np.int8)
        padded[:oc, :ic] = dense
    return padded.reshape(groups, mode.oc, segments, mode.ic, kh, kw).transpose(2, 4, 5, 0, 1, 3)


def pack_windows(planned: PlannedLayer, filters: np.ndarray, hw: HwSpec) -> np.ndarray:
    """(channels, 1, kh, kw), the sum of several int8 where it is int16 -> uint8 weight rows of all
    depthwise windows.

    A row holds [lane of the part][tap], tap = window row * window_side + window column; rows of a
    chunk follow [part], or [output row]: each further one has its filter a stride lower.
    """
    side, array = hw.array.window_side, hw.array
    filters = to_lanes(filters[:, 0], planned.layer.out_pieces, 0)
    lanes, kh, kw = filters.shape
    width = min(array.units, hw.word_channels)
    parts = -(-lanes // width)
    padded = np.zeros((parts * width, kh, kw), filters.dtype)
    padded[:lanes] = filters
    numbers = list(weight_parts(padded))
    out = np.zeros(weight_bytes(planned.ranges, hw), np.int8)
    for chunk in (w for r in planned.ranges for f in r.features for w in f.weights):
        (y, yn), (x, xn) = chunk.ky, chunk.kx
        taps = np.zeros((chunk.at_once, chunk.segments * width, side, side), np.int8)
        channels = slice(chunk.segment * width, (chunk.segment + chunk.segments) * width)
        filters = numbers[chunk.part][:, y : y + yn, x : x + xn]
        for number in range(chunk.at_once):
            top = number * planned.layer.shape.window.strides[0]
            taps[number, :, top : top + yn, :xn] = filters[channels]
        rows = np.zeros((chunk.rows, array.units, array.multipliers), np.int8)
        rows[:, :width, : side * side] = taps.reshape(chunk.rows, width, -1)
        out[chunk.offset : chunk.offset + rows.size] = rows.reshape(-1)
    return out.view(np.uint8)


def to_lanes(data: np.ndarray, pieces: Pieces, axis: int) -> np.ndarray:
    """Channels along an axis to their lanes, zero in the holes."""
    if is_plain(pieces):
        return data
    shape = list(data.shape)
    shape[axis] = extent(pieces)
    out = np.zeros(shape, data.dtype)
    np.moveaxis(out, axis, 0)[lanes_of(pieces)] = np.moveaxis(data, axis, 0)
    return out


def pack_kernel_cols(dense: np.ndarray, columns: int, slot: int) -> np.ndarray:
    """Pack neighbouring kernel columns into the lanes.

    (oc, ic, kh, kw) -> (oc, columns * slot, kh, ceil(kw / columns)); lane j * slot + c of iteration
    v is channel c of column v * columns + j.
    """
    if columns == 1:
        return dense
    oc, ic, kh, kw = dense.shape
    out = np.zeros((oc, columns * slot, kh, -(-kw // columns)), dense.dtype)
    for x in range(kw):
        iteration, j = divmod(x, columns)
        out[:, j * slot : j * slot + ic, :, iteration] = dense[:, :, :, x]
    return out


def pack_im2row_windows(dense: np.ndarray, column: int, ic: int) -> np.ndarray:
    """Pack whole im2row windows as runs of bytes, `ic` of them per iteration.

    (oc, channels, kh, kw) -> (oc, ic, 1, iterations); byte x * column + y * IMAGE_CHANNELS + c is
    channel c of kernel row y, column x.
    """
    oc, channels, kh, kw = dense.shape
    runs = np.zeros((oc, kw, column), dense.dtype)
    bytes_of = runs[..., : kh * IMAGE_CHANNELS].reshape(oc, kw, kh, IMAGE_CHANNELS)
    bytes_of[..., :channels] = dense.transpose(0, 3, 2, 1)
    runs[..., : kh * IMAGE_CHANNELS] = bytes_of.reshape(oc, kw, -1)
    iterations = -(-kw * column // ic)
    out = np.zeros((oc, iterations * ic), dense.dtype)
    out[:, : kw * column] = runs.reshape(oc, -1)
    return out.reshape(oc, iterations, ic).transpose(0, 2, 1)[:, :, None]


def spread_groups(weight: np.ndarray, groups: int, first: int, end: int) -> np.ndarray:
    """Weights of a grouped convolution (oc, ic / groups, kh, kw) as a dense tensor (oc, ic, kh, kw)
    with zeros between: its output channels from `first` on, before `end`.
    """
    part = weight[first:end]
    if groups == 1:
        return part
    oc, per_group, kh, kw = weight.shape
    group = np.arange(oc)[first:end, None] // (oc // groups)
    out = np.zeros((len(part), per_group * groups, kh, kw), weight.dtype)
    out[np.arange(len(part))[:, None], group * per_group + np.arange(per_group)] = part
    return out


def pack_params(
    bias: np.ndarray,
    mult: np.ndarray,
    shift: np.ndarray,
    pieces: Pieces,
    hw: HwSpec,
    px: int = 1,
) -> np.ndarray:
    """Per channel bias (int32), multiplier (16 bits) and shift -> uint8 words (blocks, 8,
    word_bytes). px: pixels of a word.
    """
    scales = np.zeros(len(bias), SCALES)
    scales["bias"], scales["shift"] = bias, shift
    scales["mult"] = np.asarray(mult).astype(np.uint16)
    return pack_channels(scales, pieces, hw, px)


def pack_channels(values: np.ndarray, pieces: Pieces, hw: HwSpec, px: int) -> np.ndarray:
    """A record per channel -> uint8 parameter words (blocks, bytes of a record, word_bytes): lane l
    of a block at byte `itemsize * l`.

    A DRAM word is padded to `word_bytes` where `word_channels` is no power of two. With px pixels
    in a word, the channels are repeated in the lanes of each.
    """
    lanes = hw.word_channels
    in_lanes = to_lanes(values, pieces, 0)
    table = np.zeros(-(-len(in_lanes) // lanes) * lanes, values.dtype)
    table[: len(in_lanes)] = in_lanes
    if px > 1:
        table = np.tile(table[: lanes // px], px)
    words = table.view(np.uint8).reshape(-1, values.itemsize, lanes)
    out = np.zeros((*words.shape[:2], hw.word_bytes), np.uint8)
    out[..., :lanes] = words
    return out


def pack_table(entries: np.ndarray, hw: HwSpec) -> np.ndarray:
    """int8 (256,), entry i for value i - 128 -> uint8 table words, every lane the same."""
    out = np.zeros((len(entries), hw.word_bytes), np.int8)
    out[:, : hw.word_channels] = entries[:, None]
    return out.reshape(-1).view(np.uint8)


def pack_exponentials(entries: np.ndarray, hw: HwSpec) -> np.ndarray:
    """uint8 norm words with these entries."""
    out = np.zeros((len(entries), hw.word_bytes), np.uint8)
    out[:, : entries.shape[1]] = entries
    return out.reshape(-1)
