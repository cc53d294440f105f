"""The memories of a machine, and what one takes of an FPGA: as Yosys maps them, tables where a
memory is small and blocks where it is large.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from opu_fuse.hw.im2row_window import supports_im2row
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.unit_rates import prefetch_beats
from opu_fuse.units.base import Stage


class Family(StrEnum):
    """Devices that share their cells. xc7: tables of 6 inputs, DSP slices of 25 x 18 bits, block
    RAM of 36 Kb (halves are possible). ecp5: tables of 4 inputs, multipliers of 18 x 18 bits, block
    RAM of 18 Kb.
    """

    XC7 = "xc7"
    ECP5 = "ecp5"


class Memory(Struct, frozen=True, kw_only=True):
    """Equal memories of one part of a machine.

    part: of the machine
    width: bits of a word
    depth: words
    count: number of memories
    tables: the RTL asks for look-up tables instead of block RAM
    bytes: bytes of a word are written one by one
    """

    part: str
    width: int
    depth: int
    count: int = 1
    tables: bool = False
    bytes: bool = False


_QUEUE_TABLES = 64
"""Entries of a queue that are stored in LUT RAM: `LUT_RAM_DEPTH` of `opu_queue`."""
PC_BITS = 24
"""Bits of the program counter, stored with an instruction word in its queue."""

# Shapes of a block: words -> bits of each; blocks of 36 Kb are counted in halves.
_RAMB18 = {512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1}
_RAMB36 = {512: 72, 1024: 36, 2048: 18, 4096: 9, 8192: 4, 16384: 2, 32768: 1}
_DP16KD = {512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1}

_XC7_CELLS_A_HALF = 15
_ECP5_CELLS_A_BLOCK = 25
"""Cells of LUT RAM that Yosys takes for cheaper than half a block, than a block."""


STATISTICS_BITS = 80
"""Of a pixel, in a norm unit: 8 of the maximum, and 41 of a sum, or two sums, or a scaling."""


def memories(spec: HwSpec) -> Iterator[Memory]:
    """All that are larger than a few words."""
    buffers, chain = spec.buffers, chain_of(spec)
    word = 8 * spec.word_channels
    lanes = min(mode.oc for mode in spec.array.modes)
    lanes = min(lanes, spec.array.units) if spec.array.depthwise else lanes
    groups = spec.word_channels // lanes
    residuals = max(1, chain.banks(Stage.RESIDUAL))

    def buffer(width: int, depth: int, count: int = 1, *, bytes_: bool = False) -> Memory:
        return Memory(part="buffers", width=width, depth=depth, count=count, bytes=bytes_)

    # Even and odd words.
    yield buffer(word, (buffers.feature.words + 1) // 2, 2, bytes_=supports_im2row(spec))
    yield buffer(8 * buffers.weight.width, buffers.weight.words)
    yield buffer(word, buffers.param.words)
    yield buffer(word, buffers.residual.words, residuals)
    yield buffer(32 * lanes, buffers.psum.words // 2, 2 * groups)
    yield buffer(word, buffers.output.words)
    if buffers.pre is not None:
        yield buffer(word, buffers.pre.words)
    if buffers.image is not None:
        yield buffer(word, buffers.image.words)
    if buffers.table is not None:
        yield buffer(8, buffers.table.words, spec.word_channels * chain.banks(Stage.TABLE))
    if buffers.norm is not None:
        yield buffer(24, buffers.norm.words, spec.post.lanes * chain.banks(Stage.NORM))
        yield buffer(STATISTICS_BITS, buffers.psum.bank_words, chain.banks(Stage.NORM))
    queues = spec.queues
    for depth in (queues.load, queues.compute, queues.post, queues.store):
        yield _queue("issue", 32 + PC_BITS, depth)
    yield _queue("fetch", 8 * spec.dram.bus_bytes + 1, prefetch_beats(spec))


def _queue(part: str, width: int, depth: int) -> Memory:
    """Shallow memories are LUT RAM, because block RAM has a long clock-to-output delay."""
    return Memory(part=part, width=width, depth=depth, tables=depth <= _QUEUE_TABLES)


def blocks(memory: Memory, family: Family) -> tuple[int, float]:
    """Tables and blocks that one memory takes."""
    width, depth = memory.width, memory.depth
    if memory.bytes:  # a block has an enable for each of its bytes, and no use for their ninth bits
        width = width // 8 * 9
    if family is Family.XC7:
        halves = min(_least(_RAMB18, width, depth), 2 * _least(_RAMB36, width, depth))
        cells = min(-(-width // 3) * -(-depth // 64), -(-width // 6) * -(-depth // 32))
        small = memory.tables or cells <= _XC7_CELLS_A_HALF * halves
        return (4 * cells, 0) if small else (0, halves / 2)
    least = _least(_DP16KD, width, depth)
    cells = -(-width // 4) * -(-depth // 16)
    small = memory.tables or cells <= _ECP5_CELLS_A_BLOCK * least
    return (6 * cells, 0) if small else (0, least)


def _least(shapes: dict[int, int], width: int, depth: int) -> int:
    return min(-(-width // bits) * -(-depth // words) for words, bits in shapes.items())
