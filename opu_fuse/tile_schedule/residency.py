"""Inter-layer residency: post writes a layer's output into a feature bank, where the next layer
reads it without a DRAM round trip.

A resident map is stored row by row, every row with all its channel blocks. It is not stored to DRAM
unless it has other readers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile

import numpy as np
from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import values_read
from opu_fuse.hw.dram_layout import Layout, lanes_of
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout, Storage
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.tile_schedule.input_region import count_parts
from opu_fuse.tile_schedule.line_buffers import kept_at
from opu_fuse.tile_schedule.tiled_layer import TiledLayer

MOST_WRITERS = 8
"""Most layers whose outputs are concatenated to one resident map."""
MOST_READERS = 8
"""Most layers that read a map that is not stored to DRAM."""
_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


class ResidentMap(Struct, frozen=True, kw_only=True):
    """A layer's output as part of the resident map `node` (a DFG index), from `block` on.

    stored: whether it must be written to DRAM as well.
    """

    node: int
    layout: Layout
    block: int
    stored: bool

    def registers(self, at: int, block: int, row: int, word: int) -> dict[str, int]:
        """Registers of `post` that write an output into the resident map.

        at: first feature buffer word of the map;
        block, row, word: start of the output within the layer's own part.
        """
        blocks, words = self.layout.blocks, self.layout.row_words
        at += (row * blocks + self.block + block) * words + word
        return kept_at(at, blocks * words, words)


def count_reads(
    dfg: Dfg, layout: DataLayout, passes: Iterable[Geometry], on_host: Iterable[int]
) -> Counter[int]:
    """DFG index of a base allocation -> reads of it and its aliases, by passes, host and user."""
    read = [i for geometry in passes for i in geometry.operands]
    read += [dfg.base(i) for node in on_host for i in values_read(dfg, node)]
    read += [dfg.base(i) for i in dfg.outputs]
    return Counter(layout.join(i).alias_root for i in read)


def find_residents(units: Sequence[Sequence[TiledLayer]], hw: HwSpec) -> list[ResidentMap | None]:
    """The resident map that each unit's output is part of, or None; units are in emission order.

    A unit of several layers (phases, a co-scheduled group) may read a resident map but not write
    one. An empty unit (a fused stack) evicts all banks.
    """
    residents: list[ResidentMap | None] = [None] * len(units)
    for first in range(len(units) if hw.post.keep else 0):
        if residents[first] is None:
            maps = _resident_maps(units[first : first + MOST_WRITERS + MOST_READERS], hw)
            residents[first : first + len(maps)] = maps
    return residents


def _resident_maps(units: Sequence[Sequence[TiledLayer]], hw: HwSpec) -> list[ResidentMap]:
    """Resident maps of the first unit and the successors that write the same map; empty if none."""
    writers: list[TiledLayer] = []
    for ours, successor in pairwise(units[: MOST_WRITERS + 1]):
        if len(ours) != 1 or not successor or ours[0].held != units[0][0].held:
            break
        if len(successor) > 1 and successor[-1].shape.array:  # its loads would wait for post, with
            break  # which they share a write port
        writers.append(ours[0])
        reader = successor[0]
        firsts = first_blocks(writers, reader.reads)
        whole = any(layer.tile.undivided for layer in (*writers, *successor))  # takes all banks
        if firsts and not whole and reader.images == ours[0].images and _fits(writers, reader, hw):
            node, layout = reader.source, reader.reads.layout
            stored = _readers(units[len(writers) :], reader) < writers[-1].readers
            stored = stored or reader.partial  # its other ranges may load the map again
            return [
                ResidentMap(node=node, layout=layout, block=block, stored=stored)
                for block in firsts
            ]
    return []


def _readers(units: Sequence[Sequence[TiledLayer]], reader: TiledLayer) -> int:
    """Count the leading units that read the same images of a map, in the same rows.

    The map is not evicted between them: loads and resident outputs go to other banks, and no other
    layer is in between.
    """

    def reads(unit: Sequence[TiledLayer]) -> bool:
        return len(unit) == 1 and unit[0].held == reader.held and not unit[0].tile.undivided

    return sum(1 for _ in takewhile(reads, units))


def first_blocks(writers: Sequence[TiledLayer], target: Storage) -> list[int]:
    """First channel block of each writer's output in the map; empty if the map is not resident.

    The writers must produce all its lanes, each block by one writer, in the layout post writes.
    """
    layout = target.layout
    parts: list[tuple[Layout, int]] = []
    for layer in writers:
        output, spread = layer.writes, (layer.shape.upsample, layer.phase.stride)
        alike = (output.layout.rows, output.layout.row_words) == (layout.rows, layout.row_words)
        if output.alias_root != target.alias_root or not alike or spread != ((1, 1), (1, 1)):
            return []
        if layer.shape.permute is not None:
            return []
        parts.append((output.layout, output.block - target.block))
    return [first for _, first in parts] if _are_whole(tuple(parts), layout) else []


@lru_cache
def _are_whole(parts: tuple[tuple[Layout, int], ...], layout: Layout) -> bool:
    """Whether parts of a map, each from its first block on, are all its lanes, each block once."""
    lanes = np.concatenate([_lanes(part) + first * layout.lanes for part, first in parts])
    blocks = [n for part, first in parts for n in range(first, first + part.blocks)]
    whole = np.array_equal(np.sort(lanes), np.sort(_lanes(layout)))
    return whole and sorted(blocks) == list(range(layout.blocks))


def _lanes(layout: Layout) -> np.ndarray:
    """Lanes that hold the channels of a map, from its first block on."""
    return lanes_of(layout.pieces or ((0, layout.channels),))


def _fits(writers: Sequence[TiledLayer], reader: TiledLayer, hw: HwSpec) -> bool:
    """Whether one feature bank fits the map while the others fit the inputs of its writers."""
    banks = hw.buffers.feature.banks
    if banks == 1 or not _in_a_bank(reader, hw):
        return False
    parts = len(writers) == 1 and count_parts(writers[0], banks) < banks
    return parts or _in_a_bank(writers[0], hw)


def _in_a_bank(reader: TiledLayer, hw: HwSpec) -> bool:
    """Whether its input fits one bank and its row pitch fits the registers of compute and post."""
    layout, (_, rows) = reader.reads.layout, reader.rows_in
    row = layout.blocks * layout.row_words
    return rows * row <= hw.buffers.feature.bank_words and row <= _ROW_PITCH.highest
