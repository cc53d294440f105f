"""Cutting a tiled layer into loads and compute steps: the one enumeration that schedule and
weight packing share.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.wide_weight_rows import boxes_in, every_part, needed_rows
from opu_fuse.tiling.depthwise import depthwise_parts, every_window
from opu_fuse.tiling.tile import (
    Span,
    Tile,
    ceil_div,
    col_iterations,
    cols_per_iteration,
    first_group,
    group_pieces,
    input_blocks,
    input_segments,
    kernel_iterations,
    output_blocks,
    output_groups,
    own_rows,
    pre_pool_size,
    segment_runs,
    segments_per_block,
    spans,
    sweep_cycles,
    weight_chunks,
)


class WeightChunk(Struct, frozen=True, kw_only=True):
    """Weight rows of one `compute.conv`, in the order [segment][kernel row][kernel col][output
    group]. Where not all groups fit, those of a few follow each other.

    segment, segments: input channel segments of the mode, absolute;
    ky, kx: (first, count) of the kernel rows and column iterations, absolute;
    group, groups: output channel groups, absolute;
    offset: bytes from the start of the layer's weights;
    rows, words: weight rows, and weight buffer words;
    accumulate: its sums are added to those of chunks before it;
    part: index of the int8 term whose weights it holds (`quant.weight_parts`).

    Depthwise: one `compute.depthwise`, segments are parts, in the order [part], or [output row] of
    a single one (`tiling/depthwise.py`); groups are unused. Equal windows of a sum share their
    rows.
    """

    segment: int
    segments: int
    ky: tuple[int, int]
    kx: tuple[int, int]
    group: int
    groups: int
    offset: int
    rows: int
    words: int
    accumulate: bool
    part: int = 0

    @property
    def at_once(self) -> int:
        """Output rows that depthwise computes at a time."""
        return self.rows // self.segments


class FeatureChunk(Struct, frozen=True, kw_only=True):
    """Input channel blocks and the part of the kernel that are loaded together, with the compute
    steps that use them.
    """

    block: int
    blocks: int
    ky: tuple[int, int]
    kx: tuple[int, int]
    weights: tuple[WeightChunk, ...]


class OutputRange(Struct, frozen=True, kw_only=True):
    """Output channel blocks computed together in one array mode, and what has to be accumulated
    for them.

    parts: of the blocks before a norm, which reads all together, those with a mode of their own;
    features are those of all parts.
    """

    block: int
    blocks: int
    mode: int
    features: tuple[FeatureChunk, ...]
    parts: tuple["OutputRange", ...] = ()

    @property
    def of_one_mode(self) -> tuple["OutputRange", ...]:
        """The range itself, or its parts."""
        return self.parts or (self,)


def output_ranges(shape: Shape, tile: Tile, hw: HwSpec) -> tuple[OutputRange, ...]:
    """All output ranges of a layer; weight offsets count up in this order."""
    hw, offset = tile.sees(hw), 0
    ranges = []
    for block, blocks, mode in _cut(shape, tile, hw):
        features, offset = _features(shape, tile, hw, (block, blocks, mode), offset)
        ranges.append(OutputRange(block=block, blocks=blocks, mode=mode, features=features))
    return (_joined(ranges),) if shape.passes and len(ranges) > 1 else tuple(ranges)


def _joined(ranges: Sequence[OutputRange]) -> OutputRange:
    """The range of a norm."""
    features = tuple([chunk for each in ranges for chunk in each.features])
    blocks = sum(each.blocks for each in ranges)
    return replace(ranges[0], blocks=blocks, features=features, parts=tuple(ranges))


def _cut(shape: Shape, tile: Tile, hw: HwSpec) -> Iterator[tuple[int, int, int]]:
    """(first block, blocks, mode): the tile's ranges, a first or last block that is partly empty in
    a mode of its own when that takes fewer weight rows and loads nothing twice.
    """
    total = output_blocks(shape, hw)
    inputs = input_blocks(shape, hw.word_channels, 0, tile.blocks)
    whole = tile.kernel == shape.window.kernel and inputs[1] <= tile.in_blocks
    modes: dict[int, int] = {}
    for block, rows in (own_rows(shape, hw, inputs) if whole else {}).items():
        modes[block] = min(rows, key=lambda index: (rows[index], index != tile.mode))
    for start, count in spans(total, tile.blocks):
        blocks = range(start, start + count)
        for mode, found in groupby(blocks, lambda block: modes.get(block, tile.mode)):
            own = [*found]
            yield own[0], len(own), mode


def weight_bytes(ranges: tuple[OutputRange, ...], hw: HwSpec) -> int:
    """Bytes of all weight rows of a layer."""
    width = hw.buffers.weight.width
    chunks = (w for r in ranges for f in r.features for w in f.weights)
    return max((w.offset + w.words * width for w in chunks), default=0)


def count_loads(shape: Shape, tile: Tile, hw: HwSpec) -> int:
    """Loads of features and weights of a layer on the array, all ranges and chunks of input
    channels counted as the first.
    """
    hw, lanes = tile.sees(hw), hw.word_channels
    tiles = tile.pieces(shape, hw)
    (rows, cols), kernel = tile.kernel, shape.window.kernel
    parts = [(y, x) for _, y in spans(kernel[0], rows) for _, x in spans(kernel[1], cols)]
    if shape.depthwise:
        side = hw.array.window_side
        return tiles * sum(ceil_div(y, side) * ceil_div(x, side) + 1 for y, x in parts)
    mode, (first, inputs) = hw.array.modes[tile.mode], input_blocks(shape, lanes, 0, tile.blocks)
    segments = input_segments(shape, mode, hw, first, min(inputs, tile.in_blocks))
    unit, groups = segments_per_block(mode, hw), output_groups(shape, mode, hw, 0, tile.blocks)
    capacity = hw.buffers.weight.bank_words // hw.mode_row_words(mode)
    kernels = [(y, col_iterations(shape, mode, hw, x)) for y, x in parts]
    pieces = (
        weight_chunks(segments, unit, part, count, capacity, None)
        for part in kernels
        for _, count in group_pieces(groups, segments, unit, capacity)
    )
    loads = len(parts) + sum(len(list(p)) for p in pieces)
    return tiles * ceil_div(inputs, tile.in_blocks) * loads


def _features(
    shape: Shape, tile: Tile, hw: HwSpec, cut: tuple[int, int, int], offset: int
) -> tuple[tuple[FeatureChunk, ...], int]:
    block, blocks, index = cut
    first, inputs = input_blocks(shape, hw.word_channels, block, blocks)
    if not shape.array:
        whole = FeatureChunk(block=first, blocks=inputs, ky=(0, 1), kx=(0, 1), weights=())
        return (whole,), offset
    if shape.depthwise:
        return _windows(shape, tile, hw, block, blocks, offset)
    mode = hw.array.modes[index]
    row_words = hw.mode_row_words(mode)
    kernel_rows, kernel_cols = kernel_iterations(shape, mode, hw)
    unit = segments_per_block(mode, hw)
    group = first_group(shape, mode, hw, block)
    groups = output_groups(shape, mode, hw, block, blocks)
    needed = needed_rows(shape, mode, hw, kernel_cols, cols_per_iteration(shape, mode, hw))
    capacity = hw.buffers.weight.bank_words // row_words
    capacity = min(tile.weight_rows or capacity, capacity)
    rows, cols = pre_pool_size(shape, tile.rows, tile.cols, tile.images)
    swept = tile.images * sweep_cycles(shape, mode, hw, shape.words(rows, cols))
    rate = hw.dram.rate
    # Each part of a kernel is loaded for itself: as few, large pieces as a bank holds.
    few = tile.undivided or tile.kernel != shape.window.kernel
    load = None if few else row_words * hw.buffers.weight.width / rate / swept
    begun: set[int] = set()
    results = []
    for (at, count), ky, kx in product(
        spans(inputs, tile.in_blocks),
        spans(kernel_rows, tile.kernel[0]),
        spans(kernel_cols, col_iterations(shape, mode, hw, tile.kernel[1])),
    ):
        weights = []
        runs = segment_runs(shape, mode, hw, first + at, count)
        wholes = [(run, ky, kx, (group, groups)) for run in runs]
        if not wholes:
            continue  # no lane of these blocks holds a channel
        if needed.first is None:
            boxes = _every_box(wholes, unit, capacity, load, needed.further)
        else:
            boxes = _needed_boxes(wholes, needed.first, capacity, begun)
        for accumulate, part, box in boxes:
            (start, several), rows, cols, (begin, outputs) = box
            count_rows = several * rows[1] * cols[1] * outputs
            weights.append(
                WeightChunk(
                    segment=start,
                    segments=several,
                    ky=rows,
                    kx=cols,
                    group=begin,
                    groups=outputs,
                    offset=offset,
                    rows=count_rows,
                    words=count_rows * row_words,
                    accumulate=accumulate or bool(needed.first is None and results),
                    part=part,
                )
            )
            offset += weights[-1].words * hw.buffers.weight.width
        results.append(
            FeatureChunk(block=first + at, blocks=count, ky=ky, kx=kx, weights=tuple(weights))
        )
    return tuple(results), offset


def _every_box(
    wholes: Sequence[tuple[Span, ...]],
    unit: int,
    capacity: int,
    load: float | None,
    further: Sequence[np.ndarray],
) -> Iterator[tuple[bool, int, tuple[Span, ...]]]:
    """Yield (whether it accumulates, int8 term, box) of the instructions for all rows of boxes.

    A box is (first, count) of segments, kernel rows, column iterations and output groups. They
    differ in segments. unit, capacity, load: as in `weight_chunks`.
    """
    for before, whole in enumerate(wholes):
        segments, *kernel, groups = (count for _, count in whole)
        for group in group_pieces(groups, segments, unit, capacity):
            chunks = weight_chunks(segments, unit, (kernel[0], kernel[1]), group[1], capacity, load)
            for number, (s, n, y, yn, x, xn) in enumerate(chunks):
                piece = (s, n), (y, yn), (x, xn), group
                inside = tuple([(a + b, c) for (a, _), (b, c) in zip(whole, piece, strict=True)])
                for part, box in every_part(inside, further):
                    yield bool(before or part or number), part, box


def _needed_boxes(
    wholes: Sequence[tuple[Span, ...]], rows: np.ndarray, capacity: int, begun: set[int]
) -> Iterator[tuple[bool, int, tuple[Span, ...]]]:
    """Yield what `_every_box` does, for the weight rows of boxes that are not zero.

    rows: which are not; begun: output groups that have sums already, extended here.
    """
    needed = chain.from_iterable(boxes_in(whole, rows) for whole in wholes)
    for box in chain.from_iterable(_fitting(box, capacity) for box in needed):
        *inputs, (first, count) = box
        most = max(1, capacity // math.prod(n for _, n in inputs))
        group, end = first, first + count
        while group < end:
            accumulate, start = group in begun, group
            while group < min(start + most, end) and (group in begun) is accumulate:
                group += 1
            begun.update(range(start, group))
            yield accumulate, 0, (*inputs, (start, group - start))


def _fitting(box: tuple[Span, ...], capacity: int) -> Iterator[tuple[Span, ...]]:
    """Cut a box along its inputs until a weight bank holds these rows for one output group."""
    counts = [count for _, count in box[:-1]]
    rows = math.prod(counts)
    if rows <= capacity:
        yield box
        return
    axis = counts.index(max(counts))
    first, count = box[axis]
    for at, several in spans(count, max(1, capacity * count // rows)):
        yield from _fitting((*box[:axis], (first + at, several), *box[axis + 1 :]), capacity)


def _windows(
    shape: Shape, tile: Tile, hw: HwSpec, block: int, blocks: int, offset: int
) -> tuple[tuple[FeatureChunk, ...], int]:
    """Depthwise: the blocks' own channels, the kernel in windows that the array holds."""
    parts = block * hw.word_parts, depthwise_parts(shape, hw, block, blocks)
    known: dict[tuple[int, int, int], int] = {}  # windows of ones: part and size -> offset
    results = []
    kernel = (spans(*sizes) for sizes in zip(shape.window.kernel, tile.kernel, strict=True))
    for ky, kx in product(*kernel):
        weights = []
        windows = (spans(count, hw.array.window_side) for _, count in (ky, kx))
        for (y, yn), (x, xn) in product(*windows):
            rows, cols = (ky[0] + y, yn), (kx[0] + x, xn)
            for part, first, count, at_once in every_window(shape, hw, parts, rows, cols):
                alike = known.setdefault((first, yn, xn), offset)
                weights.append(
                    WeightChunk(
                        segment=first,
                        segments=count,
                        ky=rows,
                        kx=cols,
                        group=0,
                        groups=1,
                        offset=alike if shape.sums else offset,
                        rows=count * at_once,
                        words=count * at_once * hw.row_words,
                        accumulate=part > 0 or rows[0] > 0 or cols[0] > 0,
                        part=part,
                    )
                )
                if weights[-1].offset == offset:
                    offset += weights[-1].words * hw.buffers.weight.width
        results.append(
            FeatureChunk(block=block, blocks=blocks, ky=ky, kx=kx, weights=tuple(weights))
        )
    return tuple(results), offset
