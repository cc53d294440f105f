"""Fused stacks: consecutive layers executed depth-first, one row strip at a time.

The input of the first layer and every map between two layers is a line buffer (a circular row
buffer) in the feature buffer. Weights, parameters and tables of all layers are resident. This
module fixes the execution order once, as a list of time slots; the tile schedule follows it.
Vela calls such stacks cascades.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import accumulate
from math import ceil, inf

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.batch import split_images
from opu_fuse.layout.data_layout import Storage
from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.interleave import HANDOVER, Order
from opu_fuse.tile_schedule.line_buffers import LineBuffer, new_rows
from opu_fuse.tile_schedule.sized_stack import (
    Sized,
    array_cycles,
    constant_bytes,
    constant_words,
    pace_of,
    strip_load,
    tables_overflow,
)
from opu_fuse.tile_schedule.slot_lines import SlotLines, TimeSlot
from opu_fuse.tile_schedule.stack_wiring import (
    Wiring,
    line_buffers_of,
    stored_in_dram,
    wiring,
)
from opu_fuse.tile_schedule.strip_tiles import strip_tile
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.estimate import estimate
from opu_fuse.tiling.tile import Span, ceil_div
from opu_fuse.units.base import Space

RESIDENT_CONSTANTS = (Space.WEIGHT, Space.PARAM, Space.TABLE, Space.NORM)
"""Buffers in which the constants of all layers are resident while a fused stack runs."""


class FusedStack(Struct, frozen=True, kw_only=True):
    """A fused stack with its execution order.

    layers: tiled layers, in dataflow order;
    stored: per layer, whether its output is also written to DRAM;
    wires: which maps the layers read and write;
    line_buffers: of each of these maps;
    load_rows: input rows per load;
    slots: time slots, in execution order;
    cycles: predicted.
    """

    layers: tuple[TiledLayer, ...]
    stored: tuple[bool, ...]
    line_buffers: tuple[LineBuffer, ...]
    load_rows: int
    slots: tuple[TimeSlot, ...]
    wires: Wiring = Wiring()
    cycles: float = 0

    def source(self, number: int) -> LineBuffer:
        """The line buffer that a layer reads, from the first channel block of its input on."""
        port = self.wires.sources[number]
        return self.line_buffers[port.map].from_block(port.first)

    def target(self, number: int) -> LineBuffer | None:
        """The line buffer that a layer writes, from the first channel block of its output on."""
        if number == len(self.wires.targets):
            return None
        port = self.wires.targets[number]
        return self.line_buffers[port.map].from_block(port.first)

    def strip(self, number: int) -> Span:
        """(first row, rows) of the input row strip that load slot `number` loads."""
        rows = self.line_buffers[0].image_rows
        image, strip_index = divmod(number, ceil_div(rows, self.load_rows))
        first = strip_index * self.load_rows
        return image * rows + first, min(self.load_rows, rows - first)


class RowStrips:
    """Memoised tiles and line buffers of layers in fused stacks, shared between candidates.

    storages: of stored values, for residual operands;
    branches: whether stacks may be more than chains;
    fastest: memo key of a layer sequence -> the fused stack with the best row strips, and their
    (rows, parts); None if none fits.
    """

    def __init__(
        self, hw: HwSpec, images: int, storages: Mapping[int, Storage], *, branches: bool
    ) -> None:
        self.hw, self._storages, self.branches = hw, storages, branches
        self.alias_roots = {node: storage.alias_root for node, storage in storages.items()}
        self._wired: dict[tuple[int, int], Wiring | None] = {}
        self.fastest: dict[Hashable, tuple[FusedStack, tuple[int, int]] | None] = {}
        self._images = images
        self._alone: dict[tuple[int, int], Sized | None] = {}
        self._tails: dict[tuple[int, int, int, int], Sized | None] = {}
        self._sized: dict[tuple[int, int, int, int], Sized | None] = {}

    def ordered(
        self, layers: Sequence[TiledLayer], rows: int, parts: int, limit: float = inf
    ) -> FusedStack | None:
        """`size` with time slots; None if a buffer overflows, a residual operand comes later than
        the rows that it is added to, or the slots take more than `limit` cycles.
        """
        sized = self.size(layers, rows, parts)
        if sized is None:
            return None
        pace, line_buffers = pace_of(sized, self.hw), _allocated(sized)
        read = sized.load_rows, self.alias_roots
        lines = SlotLines(sized.layers, sized.wires, line_buffers, *read, pace).derive()
        scheduled = Order(lines, pace).schedule(limit)
        return scheduled and _stack(sized, *scheduled)

    def like(
        self, known: FusedStack, layers: Sequence[TiledLayer], rows: int, parts: int
    ) -> FusedStack | None:
        """`ordered` with the time slots of a stack of equivalent layers."""
        sized = self.size(layers, rows, parts)
        return sized and _stack(sized, known.slots, known.cycles)

    def size(self, layers: Sequence[TiledLayer], rows: int, parts: int) -> Sized | None:
        """Size a stack with `rows` output rows per row strip, in `parts` tiles; None if a row
        overflows a bank, or constants or line buffers their buffer.
        """
        key = layers[0].output, layers[-1].output, rows, parts
        if key not in self._sized:
            self._sized[key] = self._size(layers, rows, parts)
        return self._sized[key]

    def wiring(self, layers: Sequence[TiledLayer]) -> Wiring | None:
        """How the layers are connected; None if they are no stack."""
        key = layers[0].output, layers[-1].output
        if key not in self._wired:
            self._wired[key] = wiring(layers, branches=self.branches)
        return self._wired[key]

    def stored(self, layers: Sequence[TiledLayer]) -> tuple[bool, ...]:
        """Per layer, whether its output is also written to DRAM."""
        return stored_in_dram(layers, self._storages)

    def _size(self, layers: Sequence[TiledLayer], rows: int, parts: int) -> Sized | None:
        wires, tail = self.wiring(layers), self._tail(layers, rows, parts)
        if wires is None or tail is None or _constants_overflow(tail.words, self.hw):
            return None
        tail = replace(tail, wires=wires, stored=self.stored(layers))
        fitting = self._fit_line_buffers(tail, parts)
        return fitting and self._priced(replace(tail, line_buffers=fitting[0]), fitting[1])

    def _tail(self, layers: Sequence[TiledLayer], rows: int, parts: int) -> Sized | None:
        """Size the layers up to the last one, without line buffers; None if a row overflows a
        bank.
        """
        if not layers:
            return Sized(load_rows=rows)
        key = layers[0].output, layers[-1].output, rows, parts
        if key not in self._tails:
            successors = self._tail(layers[1:], rows, parts)
            self._tails[key] = successors and self._prepend(layers[0], successors, parts)
        return self._tails[key]

    def _prepend(self, layer: TiledLayer, successors: Sized, parts: int) -> Sized | None:
        """Size the stack of a layer and its successors; None if a row overflows a bank."""
        shape = split_images(layer.shape, self._images)
        wanted = successors.wanted.get(layer.writes.alias_root, successors.load_rows)
        strip = min(wanted, shape.out_rows)
        key = layer.output, ceil_div(strip, parts)
        if key not in self._alone:
            self._alone[key] = _alone(layer, shape, key[1], self.hw)
        alone = self._alone[key]
        if alone is None:
            return None
        words = Counter(alone.words)
        words.update(successors.words)
        if any(layer.functions == other.functions for other in successors.layers):
            words[Space.TABLE] -= alone.words[Space.TABLE]
        load_rows = new_rows(shape, strip) if parts > 1 else alone.load_rows
        root = layer.reads.alias_root
        load_rows = max(load_rows, successors.wanted.get(root, 0))
        return Sized(
            wanted={**successors.wanted, root: load_rows},
            layers=(*alone.layers, *successors.layers),
            costs=(*alone.costs, *successors.costs),
            words=words,
            load_rows=load_rows,
        )

    def _fit_line_buffers(
        self, tail: Sized, parts: int
    ) -> tuple[tuple[LineBuffer, ...], list[int]] | None:
        """Return (line buffers, numbers of those without prefetch space); None if they overflow.

        Prefetch space is dropped where it saves most words, until all line buffers fit.
        """
        maps = tail.layers, tail.wires, tail.load_rows
        buffers, limit = line_buffers_of(*maps, parts), self.hw.buffers.feature.words
        total, narrow = sum(buffer.words for buffer in buffers), []
        if total > limit:
            small = line_buffers_of(*maps, 0)
            saved = [a.words - b.words for a, b in zip(buffers, small, strict=True)]
            for i in sorted(range(len(buffers)), key=lambda i: -saved[i]):
                if total > limit:
                    narrow.append(i)
                    buffers[i] = small[i]
                    total -= saved[i]
        return None if total > limit else (tuple(buffers), narrow)

    def _priced(self, sized: Sized, narrow: Collection[int]) -> Sized:
        """Add the closed-form cycles and DRAM bytes.

        Array, post and memory run concurrently: the slowest counts. Added to it are the fill before
        the first tile, and the stalls of the array at line buffers without prefetch space.
        """
        hw, word, costs = self.hw, self.hw.word_bytes, sized.costs
        moved = constant_bytes(sized.words, hw)
        first, line_buffers = sized.line_buffers[0], sized.line_buffers
        strip, im2row_cycles = strip_load(sized, hw)
        targets = [line_buffers[port.map] for port in sized.wires.targets]
        strips = first.layout.rows / sized.load_rows * (1 + first.again / first.rows)
        # Tables that exceed their buffer are loaded again for every row strip.
        if tables_overflow(sized, hw):
            moved += word * sized.words[Space.TABLE] * ceil(strips)
        fill = moved / 2 + strip
        moved += round(strip * strips)
        for layer, stored in zip(sized.layers, sized.stored, strict=True):
            final = layer.writes.layout.words * word
            moved += final * stored + final * sum(not side.broadcast for side in layer.shape.sides)
        post = sum(
            cost.post_cycles * (1 + (line_buffer.again / line_buffer.rows if line_buffer else 0))
            for cost, line_buffer in zip(costs, (*targets, None), strict=True)
        )
        array = sum(array_cycles(sized))
        rate = hw.dram.rate
        cycles = max(array, post, moved / rate + strips * im2row_cycles)
        cycles += fill / rate + im2row_cycles
        maps = sized.layers, sized.wires, sized.load_rows
        prefetching = line_buffers_of(*maps, 1) if narrow else []
        for number in sorted(narrow):
            if line_buffers[number].rows < prefetching[number].rows:
                writers, readers = sized.wires.ends[number]
                tile_rows = _rows_of_tiles(sized.layers[readers[-1]])
                wait = strips * (strip / rate + im2row_cycles)
                if number:
                    tiles = _rows_of_tiles(sized.layers[writers[-1]])
                    wait = costs[writers[-1]].post_cycles * tile_rows / tiles
                cycles += wait + tile_rows * HANDOVER
        return replace(sized, array=array, cycles=cycles, dram_bytes=moved)


def _allocated(sized: Sized) -> tuple[LineBuffer, ...]:
    """The line buffers, one after the other in the feature buffer."""
    addresses = accumulate((buffer.words for buffer in sized.line_buffers), initial=0)
    pairs = zip(sized.line_buffers, addresses, strict=False)
    return tuple(replace(buffer, at=at) for buffer, at in pairs)


def _stack(sized: Sized, slots: tuple[TimeSlot, ...], cycles: float) -> FusedStack:
    """The sized stack with time slots, which take so many cycles."""
    return FusedStack(
        layers=sized.layers,
        stored=sized.stored,
        wires=sized.wires,
        line_buffers=_allocated(sized),
        load_rows=sized.load_rows,
        slots=slots,
        cycles=cycles,
    )


def _rows_of_tiles(layer: TiledLayer) -> int:
    """Rows of tiles in all images of the batch."""
    return layer.shape.images * ceil_div(layer.shape.out_rows, layer.tile.rows)


def _alone(layer: TiledLayer, shape: Shape, rows: int, hw: HwSpec) -> Sized | None:
    """Size a layer, with a shape and up to `rows` rows per tile; None if a row overflows a bank."""
    tile = strip_tile(shape, rows, hw)
    if tile is None:
        return None
    tiled = replace(layer, shape=shape).with_tile(tile, hw)
    return Sized(
        load_rows=new_rows(shape, tile.rows),
        layers=(tiled,),
        costs=(estimate(shape, hw, tile),),
        words=constant_words(tiled),
    )


def _constants_overflow(words: Mapping[Space, int], hw: HwSpec) -> bool:
    buffers = {space: getattr(hw.buffers, space.value) for space in words}
    return any(
        needed > (buffers[s].words if buffers[s] else 0)
        for s, needed in words.items()
        if s is not Space.TABLE
    )
