"""Which map each layer of a fused stack reads, and which layers write it.

Most stacks are chains. In others several layers read a map (of a Split, or before a residual
branch), or several write it (a Concat). Map 0 is the input of the stack; its layers alone write all
other maps.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from opu_fuse.hw.dram_layout import Layout, lanes_of
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.layout.data_layout import Storage
from opu_fuse.tile_schedule.line_buffers import (
    LineBuffer,
    line_buffer,
    line_buffer_of,
    new_rows,
    reach,
)
from opu_fuse.tile_schedule.residency import first_blocks
from opu_fuse.tile_schedule.tiled_layer import TiledLayer

_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


class Port(NamedTuple):
    """The part of a map that a layer reads or writes: channel blocks of the map."""

    map: int
    first: int
    blocks: int

    def meets(self, other: "Port") -> bool:
        """Whether both have channel blocks in common."""
        disjoint = (
            self.first + self.blocks <= other.first or other.first + other.blocks <= self.first
        )
        return self.map == other.map and not disjoint


class Wiring(Struct, frozen=True, dict=True):
    """The maps of a stack.

    maps: their layouts;
    sources, targets: what each layer reads, and writes, without the output of the last one.
    """

    maps: tuple[Layout, ...] = ()
    sources: tuple[Port, ...] = ()
    targets: tuple[Port, ...] = ()

    def readers(self, port: Port) -> list[int]:
        """Layers that read some of a map's channel blocks, in dataflow order."""
        return [layer for layer, source in enumerate(self.sources) if source.meets(port)]

    def writers(self, port: Port) -> list[int]:
        """Layers that write some of a map's channel blocks, in dataflow order; none: the input."""
        return [layer for layer, target in enumerate(self.targets) if target.meets(port)]

    @cached_property
    def whole_maps(self) -> list[Port]:
        """All channel blocks of each map."""
        return [Port(number, 0, layout.blocks) for number, layout in enumerate(self.maps)]

    @cached_property
    def ends(self) -> list[tuple[list[int], list[int]]]:
        """(writers, readers) of each map."""
        return [(self.writers(port), self.readers(port)) for port in self.whole_maps]


def wiring(layers: Sequence[TiledLayer], *, branches: bool) -> Wiring | None:
    """The wiring of consecutive layers; None if they are no stack.

    They are one if every layer reads the input of the first one, or a map that earlier layers
    compute, and the output of every layer but the last is read. branches: whether they may be more
    than a chain.
    """
    roots: list[int | None] = [None]  # of the maps; the input may be part of a map written here
    sources = [0]
    for number, layer in enumerate(layers[1:], 1):
        root = layer.reads.alias_root
        inside = [each for each in layers[:number] if layer.reads.overlaps(each.writes)]
        if inside and not _computes(inside, layer):
            return None
        chained = inside == [layers[number - 1]]
        if not chained and (not branches or any(map(_reads_otherwise, layers))):
            return None
        if not inside and layer.reads != layers[0].reads:
            return None
        if inside and root not in roots:
            roots.append(root)
        sources.append(roots.index(root) if inside else 0)
    try:
        targets = [roots.index(layer.writes.alias_root) for layer in layers[:-1]]
    except ValueError:
        return None
    parts = [[layers[0].reads], *([] for _ in roots[1:])]
    for layer, number in zip(layers, sources, strict=True):
        parts[number].append(layer.reads)
    for layer, number in zip(layers, targets, strict=False):
        parts[number].append(layer.writes)
    maps = [_widest(each) for each in parts]
    if any(each is None or not _countable(each.layout) for each in maps[1:]):
        return None
    found = [each for each in maps if each is not None]

    def port(number: int, part: Storage) -> Port:
        return Port(number, part.block - found[number].block, part.layout.blocks)

    return Wiring(
        tuple(each.layout for each in found),
        tuple(port(n, layer.reads) for layer, n in zip(layers, sources, strict=True)),
        tuple(port(n, layer.writes) for layer, n in zip(layers, targets, strict=False)),
    )


def may_join(before: Sequence[TiledLayer], layer: TiledLayer) -> bool:
    """Whether a layer reads what one of those before computes, or the same map as one of them."""
    return any(layer.reads.overlaps(each.writes) or each.reads == layer.reads for each in before)


def _reads_otherwise(layer: TiledLayer) -> bool:
    """Whether a layer reads a map other than row by row through windows."""
    return layer.shape.unit or layer.shape.computed or layer.reads_second is not None


def _computes(writers: Sequence[TiledLayer], reader: TiledLayer) -> bool:
    """Whether layers compute all channels of what another one reads, every block by one of them."""
    if first_blocks(writers, reader.reads) == [0]:
        return True
    lanes: list[np.ndarray] = []
    blocks: list[int] = []
    for layer in writers:
        if not first_blocks((layer,), layer.writes):
            return False  # it stores pixels elsewhere than they are computed
        layout, first = layer.writes.layout, layer.writes.block - reader.reads.block
        lanes.append(_lanes(layout) + first * layout.lanes)
        blocks += range(first, first + layout.blocks)
    target = reader.reads.layout
    sizes = {_size(layer.writes.layout) for layer in writers}
    return (
        sizes == {_size(target)}
        and len(blocks) == len(set(blocks))
        and bool(np.isin(_lanes(target), np.concatenate(lanes)).all())
    )


def _size(layout: Layout) -> tuple[int, int, int]:
    return layout.rows, layout.row_words, layout.slot


def _lanes(layout: Layout) -> np.ndarray:
    return lanes_of(layout.pieces or ((0, layout.channels),))


def _widest(parts: Sequence[Storage]) -> Storage | None:
    """The part that contains all others, if one does."""
    first = min(part.block for part in parts)
    end = max(part.block + part.layout.blocks for part in parts)
    whole = (p for p in parts if (p.block, p.layout.blocks) == (first, end - first))
    return next(whole, None)


def _countable(layout: Layout) -> bool:
    return layout.blocks * layout.row_words <= _ROW_PITCH.highest


def line_buffers_of(
    layers: Sequence[TiledLayer], wires: Wiring, load_rows: int, prefetch: int
) -> list[LineBuffer]:
    """Size the line buffer of every map. prefetch: further tiles whose rows must fit as well."""
    buffers, most = list[LineBuffer](), list[int]()
    for number, layout in enumerate(wires.maps):
        writers, readers = wires.ends[number]
        rows = [layers[n].tile.rows for n in writers] or [load_rows]
        read = tuple([(layers[n].shape, layers[n].tile.rows) for n in readers])
        if len(read) == len(rows) == 1:
            buffers.append(line_buffer(layout, *read[0], *rows, prefetch))
            continue
        most = most or _most_rows(layers, wires, load_rows)
        further = prefetch * max(*rows, *(new_rows(*each) for each in read))
        buffers.append(line_buffer_of(layout, read, most[number] + further, prefetch))
    return buffers


def _most_rows(layers: Sequence[TiledLayer], wires: Wiring, load_rows: int) -> list[int]:
    """Rows of every map that are written and will be read again, at most, if every tile runs as
    late as possible. load_rows: input rows per load.
    """
    reads = [reach(layer.shape, layer.tile.rows) for layer in layers]
    readers = [wires.readers(port) for port in wires.targets]
    writers = [wires.writers(port) for port in wires.sources]
    _, inputs = wires.ends[0]
    done, most = [0] * len(layers), [0] * len(wires.maps)
    loaded = 0

    def note(number: int, reading: Sequence[int], written: int) -> None:
        left = (reads[n][done[n]][0] for n in reading if done[n] < len(reads[n]))
        most[number] = max(most[number], written - min(left, default=written))

    def run(layer: int) -> None:
        nonlocal loaded
        rows = sum(reads[layer][done[layer]])
        for writer in writers[layer]:
            while done[writer] * layers[writer].tile.rows < rows:
                run(writer)
        while not writers[layer] and loaded < rows:
            loaded = min(loaded + load_rows, wires.maps[0].rows)
            note(0, inputs, loaded)
        done[layer] += 1
        if layer < len(wires.targets):
            written = min(done[layer] * layers[layer].tile.rows, layers[layer].shape.out_rows)
            note(wires.targets[layer].map, readers[layer], written)

    while done[-1] < len(reads[-1]):
        run(len(layers) - 1)
    return most


def stored_in_dram(
    layers: Sequence[TiledLayer], storages: Mapping[int, Storage]
) -> tuple[bool, ...]:
    """Per layer, whether its output is also written to DRAM, since others than layers of the stack
    read it there, or it is a second operand of these.
    """
    sides = [
        storages[node]
        for layer in layers
        for node in (*layer.residuals, *([] if layer.gate is None else [layer.gate]))
    ]
    return (*(_read_elsewhere(layer, layers, sides) for layer in layers[:-1]), True)


def _read_elsewhere(
    layer: TiledLayer, layers: Sequence[TiledLayer], sides: Sequence[Storage]
) -> bool:
    """Whether anything reads a layer's output from DRAM. sides: second operands of all layers."""
    root = layer.writes.alias_root
    known = sum(each.reads.alias_root == root for each in layers)
    known += sum(side.alias_root == root for side in sides)
    return known < layer.readers or any(side.overlaps(layer.writes) for side in sides)
