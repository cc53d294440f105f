"""Which instruction wrote an element of a tensor."""

import numpy as np

from opu_fuse.bundle.derived_facts import machine_of
from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.hw.dram_layout import lanes_of
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.table import Engine, order_of
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.sim.compare.tensor_sources import TensorSource
from opu_fuse.units.base import Stage


def writer(
    bundle: Bundle, source: TensorSource, shape: tuple[int, ...], index: tuple[int, ...]
) -> int:
    """C-type number of the last post.run that writes an element of a tensor, images along the first
    axis; -1 if none does.
    """
    if source.group < 0 or source.group >= len(bundle.groups):
        return -1
    channels, rows, cols = _sizes(bundle, source, shape)
    flat = int(np.ravel_multi_index((0, *index[1:]), (1, *shape[1:])))
    channel, rest = divmod(flat, rows * cols)
    row, col = divmod(rest, cols)
    assert channel < channels
    row += rows * (index[0] % bundle.batch)
    for segment in bundle.segments:
        if isinstance(segment, MachineSegment) and source.group in segment.groups:
            return _writer(bundle, segment, source, (channel, row, col))
    return -1


def _sizes(bundle: Bundle, source: TensorSource, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, rows and columns of one image."""
    if source.stage is not None:
        return source.stage.channels, source.stage.rows, source.stage.cols
    for t in bundle.tensors:
        if t.name == source.name:
            return t.layout.channels, t.layout.rows // bundle.batch, t.layout.cols
    return int(np.prod(shape[1:])), 1, 1


def _writer(
    bundle: Bundle, segment: MachineSegment, source: TensorSource, at: tuple[int, int, int]
) -> int:
    program = decode(segment_words(bundle, segment))
    chain = chain_of(machine_of(bundle))
    lanes = next(t.layout.lanes for t in bundle.tensors)
    lane, px = _lane(bundle, source, at[0])
    in_tile = source.stage is not None and not source.stage.pooled and not source.stage.stored
    tiles = iter(segment.tiles)
    result = -1
    for number, instruction in enumerate(program):
        if instruction.engine is not Engine.POST:
            continue
        tile_row, tile_col, out_row, out_col, block = next(tiles)
        p = instruction.post
        if segment.groups[number] != source.group or not (0 <= lane // lanes - block < p["blocks"]):
            continue
        windowed = Stage.POOL in chain.stages(order_of(p))
        if in_tile and windowed:
            rows, cols, row, col = p["in_rows"], p["in_cols"], tile_row, tile_col
        else:
            rows, cols, row, col = p["out_rows"], p["out_cols"], out_row, out_col
        across, between = divmod(at[2] - col, 1 if windowed else p["stride_x"])
        if 0 <= at[1] - row < rows and 0 <= across < cols * px and not between:
            result = number
    return result


def _lane(bundle: Bundle, source: TensorSource, channel: int) -> tuple[int, int]:
    """Lane of a channel, and the neighbouring pixels that a word of its post chain holds."""
    if source.stage is not None:
        return int(lanes_of(source.stage.pieces)[channel]), source.stage.px
    layout = next((t.layout for t in bundle.tensors if t.name == source.name), None)
    if layout is None:
        return channel, 1
    lane = int(lanes_of(layout.pieces)[channel]) if layout.pieces else channel
    return lane, layout.word // layout.slot
