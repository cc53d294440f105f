"""Unit rates of the engines, in cycles, as `docs/machine.md` promises them.

Cost model, cycle engine and RTL benches share these numbers; none of them contains waiting for
other engines or for memory. First the steady rates, then one instruction to the cycle.
"""

from collections.abc import Iterable
from math import ceil

from opu_fuse.hw.im2row_window import row_words
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units import BY_STAGE
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import PoolKind

MIN_ROW_CYCLES = 4
"""Least cycles between the starts of sweeps of adjacent weight rows: a partial sum is written
before it is read again.
"""

WRITE_DATA_CYCLES = 3
"""Cycles from a burst of store to its first beat."""
STORE_WORDS = 5
"""Words of a store that follows another one, about."""
INSTRUCTION_WORD_BYTES = 4
_AHEAD_BYTES = 1024
"""Bytes of the program that fetch prefetches, at least."""


def prefetch_beats(hw: HwSpec) -> int:
    """Bus beats that fetch prefetches and buffers."""
    return max(_AHEAD_BYTES // hw.dram.bus_bytes, 4)


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
    hw: HwSpec,
    *,
    size: tuple[int, int],
    parts: int,
    kernel: tuple[int, int],
    stride_x: int,
    dilation_x: int,
) -> int:
    """A compute.depthwise over rows and columns of output pixels and so many parts.

    `array.window_cycles` per part and pixel, of each block at least those in which its data comes:
    two columns of a kernel row a cycle, each once for an output row (dilated windows, and those
    with gaps between them: one column a cycle, again for every pixel; `hw/depthwise_window.py`).
    """
    (rows, cols), pixels = kernel, size[0] * size[1]
    read, steps = pixels * rows * cols, pixels * hw.array.window_cycles
    if dilation_x == 1 and stride_x <= cols:
        read = size[0] * rows * ceil((cols + (size[1] - 1) * stride_x) / 2)
    blocks, rest = divmod(parts, hw.word_parts)
    result = blocks * max(steps * hw.word_parts, read) + (max(steps * rest, read) if rest else 0)
    return max(result, parts * hw.row_words)


def copy_cycles(*, pixels: int, blocks: int) -> int:
    """A compute.copy: one output pixel of one channel block per cycle."""
    return pixels * blocks


RETAINED_COLUMNS = 2
"""Columns of a window that a maximum pool retains for the next windows of the row, at most."""


def post_iterations(
    *,
    out_rows: int,
    out_cols: int,
    window: tuple[int, int] = (1, 1),
    stride_x: int = 1,
    kind: PoolKind = PoolKind.MAX,
) -> int:
    """Window positions that a post.run iterates over in a block, `iteration_cycles` each.

    Neighbouring windows of a maximum pool share columns, up to `RETAINED_COLUMNS`.
    """
    win_rows, win_cols = window
    keeps = kind is PoolKind.MAX and 1 <= win_cols - stride_x <= RETAINED_COLUMNS
    return out_rows * win_rows * (win_cols + (out_cols - 1) * (stride_x if keeps else win_cols))


def transfer_cycles(hw: HwSpec, size_bytes: int) -> int:
    """Load or store of `size_bytes`, the whole budget of the memory port to itself, latency not
    counted.
    """
    return int(-(-size_bytes // hw.dram.rate))


def fetch_cycles(hw: HwSpec, words: int) -> int:
    """Fetch of `words` instruction words: one word a cycle is passed on, never faster than the
    memory port.
    """
    return max(words, transfer_cycles(hw, words * INSTRUCTION_WORD_BYTES))


def im2row_cycles(run: int, rows: int, kernel_rows: int) -> int:
    """load.unfold of `rows` output rows, `run` image words each: every kernel row of a row writes
    all its words.
    """
    return rows * kernel_rows * row_words(run, kernel_rows)


# One instruction to the cycle: what compute and post take beyond the steady rates above.

OPEN_INSTRUCTIONS = 4
"""Instructions an engine may have open, from start to retirement."""

OPEN_UNITS = 3
"""Instructions that compute and post each may have open."""

SWEEP_SETUP_CYCLES = 4
"""From the start of a compute instruction to its first sweep, at least."""

POST_SETUP_CYCLES = 4
"""From the start of a post instruction to its first iteration, at least."""

POST_LOAD_CYCLES = 3
"""From the start of a post instruction to its first iteration, plus a cycle per parameter word."""

READ_REGISTER_CYCLES = 1
"""Cycles from a beat at the port to fetch or load."""
LOAD_SETUP_CYCLES = 1
"""From the start of a load instruction to that of its addresses."""

UNFOLD_CYCLES = 8
"""From the start of a load.unfold to its end, plus a cycle per word (`im2row_cycles`)."""

STORE_SETUP_CYCLES = 2
"""From the start of a store instruction to that of its addresses."""

ALIGN_STAGES = 3
"""Cycles in which data fetch moves the bytes of a step to the lanes of its units."""

PRE_CYCLES = 10
"""That a step takes through a unit before the array."""

GATE_CYCLES = 6
"""From a word of a gate until it is parameters of a unit before the array."""

POST_HEAD_CYCLES = 11
"""From an iteration until its value is in the first stage after the requantiser."""


def post_hold_cycles(hw: HwSpec, stages: Iterable[Stage]) -> int:
    """From the first iteration of a block to the loading of the next block's parameters. Stages
    after the requantiser use theirs until the previous block has passed. All units count, so that
    the machine needs no sum for each pass.
    """
    if not any(BY_STAGE[stage].words for stage in stages if stage is not Stage.REQUANT):
        return 0
    return hold_cycles(hw)


def hold_cycles(hw: HwSpec) -> int:
    """`post_hold_cycles` of every such pass: the latency through all units of the machine."""
    return POST_HEAD_CYCLES + _pipeline_cycles(hw, (m.stage for m in chain_of(hw).units))


def iteration_cycles(hw: HwSpec, *, second_operand: bool) -> int:
    """Cycles of every iteration of a pass."""
    return hw.word_channels // (hw.residual_lanes if second_operand else hw.post.lanes)


def _pipeline_cycles(hw: HwSpec, stages: Iterable[Stage]) -> int:
    """Latency of the units after the requantiser, from the last cycle of an iteration. A pool
    gathers words of several pixels before it folds them, a narrow residual unit its results; where
    there are products of maps or in tables, those take longer.
    """
    gathers = hw.cycles_per_word > 1 and max(mode.px for mode in hw.array.modes) > 1
    more = {
        Stage.POOL: hw.cycles_per_word if gathers else 0,
        Stage.RESIDUAL: int(hw.residual_lanes < hw.post.lanes)
        + 3 * (chain_of(hw).products or hw.post.residual_tables),
    }
    return sum(BY_STAGE[stage].cycles + more.get(stage, 0) for stage in stages)


def post_words(stages: Iterable[Stage]) -> int:
    """Parameter words of a block."""
    return sum(BY_STAGE[stage].words for stage in stages)


TABLE_CYCLES = 8
"""Latency of two products in LUTs: their operands' sums, then a bit of the weights in each."""

_SLICE_CYCLES = 4
"""Latency of two products in DSP slices: factors, products and the two steps of their sum."""


def sum_stages(hw: HwSpec) -> int:
    """Registers in the adder tree of a unit's slices, one after every level; its terms are sums of
    two. The sum waits for products in tables.
    """
    levels = (-(-hw.array.slice_terms // 2) - 1).bit_length()
    return max(levels, TABLE_CYCLES - _SLICE_CYCLES) if hw.array.table_terms else levels


def table_stages(hw: HwSpec) -> int:
    """Registers in the tree that adds a unit's products in tables, two each, to that sum."""
    return (hw.array.table_terms // 2).bit_length()


def multiply_stages(hw: HwSpec) -> int:
    """Cycles from a unit's operands until its sum is one with those of its neighbours: factors,
    products and the two steps of a sum of two products are registered, then all that `sum_stages`
    and `table_stages` count, then every level of the sums of units.
    """
    levels = (hw.word_channels // hw.array.multipliers - 1).bit_length()
    return _SLICE_CYCLES + sum_stages(hw) + table_stages(hw) + max(levels, 1)


def drain_cycles(hw: HwSpec) -> int:
    """From the last step of a compute instruction to its retirement."""
    return 5 + ALIGN_STAGES + multiply_stages(hw) + PRE_CYCLES * chain_of(hw).pre_units


def pre_block_cycles(*, pre: int, gate: bool = False) -> int:
    """In which the parameters of a channel block come to `pre` units before the array; gate: they
    are computed from a gate's word.
    """
    return PARAM_WORDS * pre + GATE_CYCLES * gate


def conv_setup_cycles(hw: HwSpec, *, px: int = 1, pre: int = 0, gate: bool = False) -> int:
    """From the start of a compute.conv to its first sweep: its first weight row, and the first
    parameters of units before the array (`pre_block_cycles`), come in.
    """
    fill = -(-hw.array.row_bytes // px // hw.buffers.weight.width)
    return max(fill, SWEEP_SETUP_CYCLES, pre_block_cycles(pre=pre, gate=gate))


def conv_alone_cycles(
    hw: HwSpec, *, pixels: int, rows: int, px: int = 1, pre: int = 0, gate: bool = False
) -> int:
    """A compute.conv from start to retirement when nothing runs before it."""
    before = conv_setup_cycles(hw, px=px, pre=pre, gate=gate)
    return before + (rows - 1) * row_cycles(hw, pixels, px) + pixels // px + drain_cycles(hw)


def copy_alone_cycles(hw: HwSpec, *, pixels: int, blocks: int) -> int:
    """A compute.copy from start to retirement when nothing runs before it."""
    return SWEEP_SETUP_CYCLES + copy_cycles(pixels=pixels, blocks=blocks) + drain_cycles(hw)


def post_drain_cycles(hw: HwSpec, stages: Iterable[Stage]) -> int:
    """From the last iteration of a post instruction to its retirement."""
    return POST_HEAD_CYCLES + 2 + _pipeline_cycles(hw, stages)


def post_block_cycles(*, iterations: int, words: int, hold: int = 0) -> int:
    """From block to block of a post instruction: the cycles of its iterations, but not before the
    parameters of the next block are loaded (`post_words`, `post_hold_cycles`).
    """
    return max(iterations, hold + words + 1) if words else iterations


def post_alone_cycles(
    hw: HwSpec, *, iterations: int, blocks: int, stages: tuple[Stage, ...] = (Stage.REQUANT,)
) -> int:
    """A post.run from start to retirement when nothing runs before it. iterations: of a block."""
    words, hold = post_words(stages), post_hold_cycles(hw, stages)
    cycles = iterations * iteration_cycles(hw, second_operand=Stage.RESIDUAL in stages)
    first = max(POST_SETUP_CYCLES, (words + POST_LOAD_CYCLES) if words else 0)
    blocks_before = (blocks - 1) * post_block_cycles(iterations=cycles, words=words, hold=hold)
    return first + blocks_before + cycles - 1 + post_drain_cycles(hw, stages)


def short_write_cycles(hw: HwSpec, instructions: int, runs: int, words: int) -> float:
    """Least cycles of stores of so many runs, a burst each, of so many words in all: a burst waits
    until `outstanding` earlier ones are answered, an instruction until the last but one is.
    """
    beats = words * (hw.word_bytes // hw.dram.bus_bytes)
    wait = hw.dram.latency + WRITE_DATA_CYCLES
    bursts = (runs * wait + beats) / hw.dram.outstanding
    return max(bursts, (instructions * (wait + STORE_SETUP_CYCLES) + beats) / OPEN_INSTRUCTIONS)


def queued_share(hw: HwSpec, instructions: int) -> float:
    """Share of stores that the queue holds: fetch, and so all engines, waits for the others."""
    return min(1.0, hw.queues.store / 2 / (STORE_WORDS * max(instructions, 1)))
