"""Unit rates of the engines, in cycles, as `docs/machine.md` promises them.

Cost model, cycle engine and RTL benches share these numbers; none of them contains waiting for
other engines or for memory.
"""

from opu_fuse.hw.spec import HwSpec

MIN_ROW_CYCLES = 4
"""Sweeps of neighbouring weight rows start at least this far apart: a partial sum is written before
it is read again.
"""

INSTRUCTION_WORD_BYTES = 4


def row_cycles(hw: HwSpec, pixels: int, px: int = 1) -> int:
    """Cycles one weight row occupies the array: it sweeps the tile's output pixels, `px` at a time
    (the mode's), while the next row comes in.
    """
    row_bytes = hw.array.row_bytes // px
    return max(-(-pixels // px), -(-row_bytes // hw.buffers.weight.width), MIN_ROW_CYCLES)


def conv_cycles(hw: HwSpec, *, pixels: int, rows: int, px: int = 1) -> int:
    """A compute.conv over `pixels` output pixels and `rows` weight rows, pipeline full."""
    return rows * row_cycles(hw, pixels, px)


def depthwise_cycles(
    hw: HwSpec, *, pixels: int, parts: int, kernel: tuple[int, int], stride_x: int, dilation_x: int
) -> int:
    """A compute.depthwise over `pixels` output pixels and `parts` parts.

    One cycle per part and pixel; data fetch reads two words a cycle, of every pixel and block only
    the columns that the window before did not hold (dilated windows: one word a cycle, all).
    """
    rows, cols = kernel
    fresh = -(-rows * min(stride_x, cols) // 2) if dilation_x == 1 else rows * cols
    blocks = -(-parts * min(hw.array.units, hw.word_channels) // hw.word_channels)
    return max(pixels * max(parts, blocks * fresh), parts * hw.row_words)


def copy_cycles(*, pixels: int, blocks: int) -> int:
    """A compute.copy: one output pixel of one channel block per cycle."""
    return pixels * blocks


def post_cycles(*, pixels: int, blocks: int, window: int = 1) -> int:
    """A post.run: one visited window position of one channel block per cycle. window: positions of
    the pooling window.
    """
    return pixels * blocks * window


def transfer_cycles(hw: HwSpec, size_bytes: int) -> int:
    """Load or store of `size_bytes`, the whole budget of the memory port to itself, latency not
    counted.
    """
    bytes_per_cycle = min(hw.dram.bytes_per_cycle, hw.dram.bus_bytes)
    return int(-(-size_bytes // bytes_per_cycle))


def fetch_cycles(hw: HwSpec, words: int) -> int:
    """Fetch of `words` instruction words: one word a cycle is passed on, never faster than the
    memory port.
    """
    return max(words, transfer_cycles(hw, words * INSTRUCTION_WORD_BYTES))
