"""Maps that stay on chip: post writes the outputs of layers into a feature bank, where the layer
emitted next reads them.

Such a map lies row by row, every row with all its channel blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from opu_fuse.cost.reading import count_parts
from opu_fuse.cost.work import Work
from opu_fuse.hw.isa import REGISTER, Engine
from opu_fuse.hw.layout import Layout
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.decided import Place

MOST_WRITERS = 8
"""Layers whose outputs are concatenated to one map that is kept."""
_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """A layer's output is part of the map `node` (a DFG index), from channel block `block` on."""

    node: int
    layout: Layout
    block: int

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


def find_kept(units: Sequence[Sequence[Work]], hw: HwSpec) -> list[Keep | None]:
    """What stays on chip of layers emitted one after the other. A unit of several works (phases, a
    companion) may read such a map but not make one.
    """
    found: list[Keep | None] = [None] * len(units)
    for first in range(len(units) if hw.post.keep else 0):
        if found[first] is None:
            kept = _kept_from(units[first : first + MOST_WRITERS + 1], hw)
            found[first : first + len(kept)] = kept
    return found


def _kept_from(units: Sequence[Sequence[Work]], hw: HwSpec) -> list[Keep]:
    """Of the first unit, and those behind it with which it makes the map that is read next."""
    writers: list[Work] = []
    for (writer, *others), (reader, *_) in pairwise(units):
        writers.append(writer)
        if others or writer.source != writers[0].source:
            break
        firsts = _first_blocks(writers, reader.reads)
        if firsts and _fits(writers, reader.reads.layout, hw):
            node, layout = reader.source, reader.reads.layout
            return [Keep(node=node, layout=layout, block=block) for block in firsts]
    return []


def _first_blocks(writers: Sequence[Work], target: Place) -> list[int]:
    """The channel block of a map with which the output of each writer begins. None unless they
    make all its channels, every block by one of them, stored word for word as post makes it.
    """
    layout = target.layout
    if sum(work.writes.layout.channels for work in writers) != layout.channels:
        return []
    firsts: list[int] = []
    blocks: list[int] = []
    for work in writers:
        made, spread = work.writes, (work.shape.upsample, work.apart)
        alike = (made.layout.rows, made.layout.row_words) == (layout.rows, layout.row_words)
        if made.home != target.home or not alike or spread != ((1, 1), (1, 1)):
            return []
        firsts.append(made.block - target.block)
        blocks += range(firsts[-1], firsts[-1] + made.layout.blocks)
    return firsts if sorted(blocks) == list(range(layout.blocks)) else []


def _fits(writers: Sequence[Work], layout: Layout, hw: HwSpec) -> bool:
    """Whether a feature bank holds the map, while others hold all that its writers read."""
    banks, source = hw.buffers.feature.banks, writers[0].reads.layout
    if banks == 1 or not _in_a_bank(layout, hw):
        return False
    parts = len(writers) == 1 and count_parts(writers[0], banks) < banks
    return parts or _in_a_bank(source, hw)


def _in_a_bank(layout: Layout, hw: HwSpec) -> bool:
    """Whether a map fits, and compute and post can go from row to row of it."""
    row = layout.blocks * layout.row_words
    return layout.words <= hw.buffers.feature.bank_words and row <= _ROW_PITCH.highest
