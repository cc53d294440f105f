"""Maps that stay on chip: post writes the outputs of layers into a feature bank, where the layer
emitted next reads them.

Such a map lies row by row, every row with all its channel blocks. Where nobody else reads it, it is
not stored.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

import numpy as np
from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import values_read
from opu_fuse.hw.dram_layout import Layout, lanes_of
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout, Place
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.tile_schedule.input_region import count_parts
from opu_fuse.tile_schedule.tiled_layer import TiledLayer

MOST_WRITERS = 8
"""Layers whose outputs are concatenated to one map that is kept."""
MOST_READERS = 8
"""Layers that read a map that is not stored."""
_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


class ResidentMap(Struct, frozen=True, kw_only=True):
    """A layer's output is part of the map `node` (a DFG index), from channel block `block` on.
    stored: it has to be in memory, too.
    """

    node: int
    layout: Layout
    block: int
    stored: bool

    def registers(self, at: int, block: int, row: int, word: int) -> dict[str, int]:
        """Of post, for an output that begins at a channel block, row and word of a row of the
        layer's own. at: first feature buffer word of the map.
        """
        layout = self.layout
        return {
            "keep": 1,
            "keep_at": at + (row * layout.blocks + self.block + block) * layout.row_words + word,
            "keep_row_pitch": layout.blocks * layout.row_words,
            "keep_block_pitch": layout.row_words,
        }


def count_reads(
    dfg: Dfg, layout: DataLayout, passes: Iterable[Geometry], on_host: Iterable[int]
) -> Counter[int]:
    """How often a stored map and what lies in it are read, by its DFG index: by passes, operators
    of the host, and the user.
    """
    read = [i for found in passes for i in found.operands]
    read += [dfg.base(i) for node in on_host for i in values_read(dfg, node)]
    read += [dfg.base(i) for i in dfg.outputs]
    return Counter(layout.join(i).home for i in read)


def find_residents(units: Sequence[Sequence[TiledLayer]], hw: HwSpec) -> list[ResidentMap | None]:
    """What stays on chip of layers emitted one after the other. A unit of several works (phases, a
    companion) may read such a map but not make one; one without (a cascade) empties the banks.
    """
    found: list[ResidentMap | None] = [None] * len(units)
    for first in range(len(units) if hw.post.keep else 0):
        if found[first] is None:
            kept = _kept_from(units[first : first + MOST_WRITERS + MOST_READERS], hw)
            found[first : first + len(kept)] = kept
    return found


def _kept_from(units: Sequence[Sequence[TiledLayer]], hw: HwSpec) -> list[ResidentMap]:
    """Of the first unit, and those behind it with which it makes the map that is read next."""
    writers: list[TiledLayer] = []
    for ours, behind in pairwise(units[: MOST_WRITERS + 1]):
        if len(ours) != 1 or not behind or ours[0].held != units[0][0].held:
            break
        writers.append(ours[0])
        reader = behind[0]
        firsts = first_blocks(writers, reader.reads)
        whole = any(work.tile.undivided for work in (*writers, *behind))  # no bank is left
        if firsts and not whole and reader.images == ours[0].images and _fits(writers, reader, hw):
            node, layout = reader.source, reader.reads.layout
            stored = _readers(units[len(writers) :], reader) < writers[-1].readers
            return [
                ResidentMap(node=node, layout=layout, block=block, stored=stored)
                for block in firsts
            ]
    return []


def _readers(units: Sequence[Sequence[TiledLayer]], reader: TiledLayer) -> int:
    """Works that read the same images of a map one after the other, from the first on. Nothing
    takes its bank from them: what they load and keep goes into others, and no other work comes
    between.
    """
    same = reader.source, reader.images, False

    def reads(unit: Sequence[TiledLayer]) -> bool:
        return len(unit) == 1 and (unit[0].source, unit[0].images, unit[0].tile.undivided) == same

    return sum(1 for _ in takewhile(reads, units))


def first_blocks(writers: Sequence[TiledLayer], target: Place) -> list[int]:
    """The channel block of a map with which the output of each writer begins. None unless they
    make all its lanes, every block by one of them, stored word for word as post makes it.
    """
    layout = target.layout
    firsts: list[int] = []
    blocks: list[int] = []
    lanes: list[np.ndarray] = []
    for work in writers:
        made, spread = work.writes, (work.shape.upsample, work.phase.apart)
        alike = (made.layout.rows, made.layout.row_words) == (layout.rows, layout.row_words)
        if made.home != target.home or not alike or spread != ((1, 1), (1, 1)):
            return []
        firsts.append(made.block - target.block)
        blocks += range(firsts[-1], firsts[-1] + made.layout.blocks)
        lanes.append(_lanes(made.layout) + firsts[-1] * layout.lanes)
    whole = np.array_equal(np.sort(np.concatenate(lanes)), np.sort(_lanes(layout)))
    return firsts if whole and sorted(blocks) == list(range(layout.blocks)) else []


def _lanes(layout: Layout) -> np.ndarray:
    """In which its channels are, from its first block on: other maps may have others of a word."""
    return lanes_of(layout.pieces or ((0, layout.channels),))


def _fits(writers: Sequence[TiledLayer], reader: TiledLayer, hw: HwSpec) -> bool:
    """Whether a feature bank holds the map, while others hold all that its writers read."""
    banks = hw.buffers.feature.banks
    if banks == 1 or not _in_a_bank(reader, hw):
        return False
    parts = len(writers) == 1 and count_parts(writers[0], banks) < banks
    return parts or _in_a_bank(writers[0], hw)


def _in_a_bank(reader: TiledLayer, hw: HwSpec) -> bool:
    """Whether its input fits, and compute and post can go from row to row of it."""
    layout, (_, rows) = reader.reads.layout, reader.rows_in
    row = layout.blocks * layout.row_words
    return rows * row <= hw.buffers.feature.bank_words and row <= _ROW_PITCH.highest
