"""Loop nest of compute.depthwise: reads into a column line buffer, steps that consume it.

The same recurrences as the RTL's `opu_compute_window`, column by column instead of cycle by cycle.
"""

from functools import lru_cache

from msgspec import Struct


class WindowTiming(Struct, frozen=True, kw_only=True):
    """Cycles since the first block was taken.

    begun: the steps of the last block begin
    read: its last column enters the circular column buffer
    stepped: its last step
    """

    begun: int
    read: int
    stepped: int


def ring_columns(window_side: int) -> int:
    """Depth in columns of the line buffer for windows of up to `window_side` columns."""
    return 1 << (window_side + 3).bit_length()


@lru_cache(maxsize=1024)
def window_timing(
    *,
    out_rows: int,
    out_cols: int,
    kernel: tuple[int, int],
    stride_x: int,
    dilation_x: int,
    parts: tuple[int, ...],
    row_words: int,
    columns: int,
    part_cycles: int = 1,
    busy: int = 0,
) -> WindowTiming:
    """Run the loop nest over the blocks of one instruction.

    parts: windows per pixel, for each block; row_words: cycles to fill the weight row of a part;
    columns: depth of the line buffer; part_cycles: `array.window_cycles`; busy: cycle of the
    previous instruction's last step.
    """
    rows, cols = kernel
    paired = dilation_x == 1 and stride_x <= cols
    run = cols + (out_cols - 1) * stride_x if paired else cols
    runs = out_rows if paired else out_rows * out_cols
    room = columns - 2
    pushed = dropped = 0  # columns so far
    drops: list[tuple[int, int]] = []  # (columns dropped by then, cycle), oldest first
    oldest = 0
    take, read, stepped, begun = 0, -1, busy, 0
    for number, block_parts in enumerate(parts):
        if number:
            take = max(read + 1, begun + max(1, block_parts * row_words))
        begun = max(take + 1, stepped)
        read, stepped = max(read, take), max(stepped, begun)
        left, runs_left = run, runs
        for pixel in range(out_rows * out_cols):
            while pushed < dropped + cols:
                fire = read + 1
                while oldest < len(drops) and drops[oldest][0] < pushed - room:
                    oldest += 1
                if pushed > room and oldest < len(drops):
                    fire = max(fire, drops[oldest][1] + 1)
                read = fire + rows - 1
                both = paired and left > 1
                pushed += 1 + both
                left -= 1 + both
                if not left and runs_left > 1:
                    left, runs_left = run, runs_left - 1
            stepped = max(stepped, read) + block_parts * part_cycles
            ends_row = not paired or (pixel + 1) % out_cols == 0
            dropped += cols if ends_row else stride_x
            drops.append((dropped, stepped))
    return WindowTiming(begun=begun, read=read, stepped=stepped)
