"""Depthwise passes: how many output rows share the same reads.

Data fetch reads two columns of a kernel row a cycle, so that a pixel of a 3x3 window takes a cycle
and a half where its channels take one. Two output rows read four rows, not six, and each takes a
weight row of its own: for these there is room where the channels are a word's only part.
"""

from collections.abc import Iterator

import numpy as np

from opu_fuse.hw import unit_rates
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.wide_weight_rows import Span, boxes, needed_parts


def depthwise_parts(shape: Shape, hw: HwSpec, first: int, count: int) -> int:
    """Parts of blocks first .. first + count - 1 that hold real channels."""
    lanes = hw.word_channels
    channels = min((first + count) * lanes, shape.pre_pool_channels) - first * lanes
    return -(-channels // min(hw.array.units, lanes))


def cut(shape: Shape, hw: HwSpec, parts: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first part, parts, output rows at once) of the instructions for `parts` parts."""
    at_once = _rows_at_once(shape, hw)
    alone = int(at_once > 1 and parts % hw.word_parts == 1)
    if parts > alone:
        yield 0, parts - alone, 1
    if alone:
        yield parts - alone, alone, at_once


def every_window(
    shape: Shape, hw: HwSpec, parts: Span, rows: Span, cols: Span
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (int8 term of the weights, first part, parts, output rows at once) per instruction.

    parts, rows, cols: (first, count) of the parts and of the kernel window.
    """
    width = min(hw.array.units, hw.word_channels)
    window = slice(rows[0], sum(rows)), slice(cols[0], sum(cols))
    needed = [needed_parts(c, width)[:, *window].any(axis=(1, 2)) for c in shape.further]
    for first, count, at_once in cut(shape, hw, parts[1]):
        begin = parts[0] + first
        yield 0, begin, count, at_once
        for number, parts_needed in enumerate(needed, 1):
            for ((at, several),) in boxes(np.asarray(parts_needed)[begin : begin + count]):
                yield number, begin + at, several, at_once


def passes(rows: int, at_once: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first output row, window positions, output rows of each) per instruction."""
    done = rows - rows % at_once
    if done:
        yield 0, done // at_once, at_once
    if done < rows:
        yield done, rows - done, 1


def tall(kernel_rows: int, stride: int, at_once: int) -> int:
    """Input rows that one window position reads."""
    return kernel_rows + (at_once - 1) * stride


def depthwise_cycles(
    shape: Shape,
    hw: HwSpec,
    size: tuple[int, int],
    parts: int,
    kernel: tuple[int, int],
    at_once: int,
) -> int:
    """Array cycles for rows and columns of output pixels, parts, and a part of the kernel."""
    down, across = shape.window.strides
    return sum(
        unit_rates.depthwise_cycles(
            hw,
            size=(count, size[1]),
            parts=parts * rows,
            kernel=(tall(kernel[0], down, rows), kernel[1]),
            stride_x=across,
            dilation_x=shape.window.dilations[1],
        )
        for _, count, rows in passes(size[0], at_once)
    )


def layer_windows(
    shape: Shape, hw: HwSpec, size: tuple[int, int], parts: int
) -> tuple[int, int, int]:
    """Return (windows, cycles of one, weight rows of one) for `parts` parts of a layer.

    The array holds one window at a time. size: rows and columns of output pixels.
    """
    side, (rows, cols) = hw.array.window_side, shape.window.kernel
    window = min(rows, side), min(cols, side)
    steps = list(every_window(shape, hw, (0, parts), (0, rows), (0, cols)))
    cycles = (depthwise_cycles(shape, hw, size, count, window, n) for *_, count, n in steps)
    weight_rows = sum(count * n for *_, count, n in steps)
    return -(-rows // side) * -(-cols // side), sum(cycles), weight_rows


def _rows_at_once(shape: Shape, hw: HwSpec) -> int:
    """Fewest output rows at once that are fastest, for a part alone in its word."""
    window, side = shape.window, hw.array.window_side
    (rows, cols), (down, across) = window.kernel, window.strides
    paired = window.dilations == (1, 1) and across <= cols
    if shape.sums or not paired or max(rows, cols) > side:
        return 1
    most = min(hw.word_parts, 1 + (side - rows) // down)

    def cycles_of_a_pixel(count: int) -> float:
        return max(1.0, tall(rows, down, count) * across / 2 / count)

    return min(range(1, most + 1), key=cycles_of_a_pixel)
