"""The tile schedule: what runs in which order, and what the on-chip buffers hold.

One traversal for all: a sink gets the operations one by one, to time them (`timing/time_sink.py`)
or to emit instructions (`schedule/emit_sink.py`). The order is correct when executed one by
one; overlap comes from the engines' queues.
"""

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TypeVar

from opu_fuse.tile_schedule.fused_heads import (
    FusedHeads,
    HeadSlot,
    feature_regions,
    head_slots,
    scores_in,
)
from opu_fuse.tile_schedule.fused_stack import RESIDENT_CONSTANTS, FusedStack
from opu_fuse.tile_schedule.input_region import (
    Part,
    first_part,
    late_blocks,
)
from opu_fuse.tile_schedule.layer_schedule import LayerSchedule
from opu_fuse.tile_schedule.residency import ResidentMap
from opu_fuse.tile_schedule.scratchpad import AnyBanks, map_banks, scratchpads
from opu_fuse.tile_schedule.shared_banks import alternating, shared_slots
from opu_fuse.tile_schedule.sink import (
    Read,
    loads_of_rows,
    loads_of_strip,
)
from opu_fuse.tile_schedule.slot_lines import LOAD
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.unit import Unit
from opu_fuse.units.base import Space

Layer = TypeVar("Layer", bound=TiledLayer)


class TileSchedule(LayerSchedule[Layer, Read]):
    """Schedules the units of machine segments one after the other."""

    def units(self, units: Sequence[Unit[Layer]], part: slice = slice(None)) -> None:
        """Schedule the units of a machine segment. part: these, after those before them."""
        firsts = [None if unit.stack or unit.heads else unit.layers[0] for unit in units]
        residents = [None if unit.interleaved else unit.resident for unit in units]
        pairs = [*zip(units, [*firsts, None][1:], [*residents, None][1:], strict=True)]
        for unit, successor, resident in pairs[part]:
            if unit.stack is not None:
                self.fused_stack(unit.stack, unit.layers)
            elif unit.heads is not None:
                self.fused_heads(unit.heads, unit.layers, successor, resident)
            elif unit.two_results:
                first, norm = unit.layers
                self.layer(first, unit.resident, successor, norm)
            elif unit.interleaved and unit.layers[-1].shape.array:
                self.share_banks(*unit.layers)
            elif unit.interleaved:
                self.interleave(*unit.layers)
            else:
                followers = [*unit.layers[1:], successor]
                for layer, after in zip(unit.layers, followers, strict=True):
                    self.layer(layer, unit.resident, after)

    def interleave(self, layer: Layer, filler: Layer) -> None:
        """Schedule all tiles of two layers, alternating."""
        self._divide_as(layer)
        for each, tile in alternating(layer, filler):
            self._post(each, tile, self._accumulate(each, tile))

    def share_banks(self, *layers: Layer) -> None:
        """Schedule all tiles of a norm, the last layer, and in the same banks of partial sums
        those of the others. Post begins when the array leaves a bank, with the last tile. The first
        one, at the beginning of the bank, marks it as reusable.
        """
        self._divide_as(layers[0])
        banks = self._banks[Space.PSUM]
        for tiles in shared_slots(layers, banks.bank_words):
            bank = banks.take_oldest()
            # Scores wait for the first ranges of a layer, so the others go first.
            for layer, tile, word in sorted(tiles, key=lambda each: not each[0].partial):
                self._accumulate(layer, tile, psum=bank + word)
            for layer, tile, word in reversed(tiles):
                self._post(layer, tile, bank + word)

    def fused_stack(self, stack: FusedStack, layers: Sequence[Layer]) -> None:
        """Schedule all slots of a fused stack.

        Constants and line buffers are resident meanwhile; the feature banks are empty afterwards.
        """
        self._divide_as(layers[0])
        self._constants.scratchpads |= scratchpads(self._hw, RESIDENT_CONSTANTS, together=True)
        self._sink.stack(stack)
        tiles = [layer.tiles for layer in layers]
        ports = [(stack.source(n), stack.target(n)) for n in range(len(layers))]
        for slot in stack.slots:
            self._sink.slot(slot)
            if slot.layer == LOAD:
                strip = stack.strip(slot.number)
                for load in loads_of_strip(layers[0], stack.line_buffers[0], *strip):
                    self._load(layers[0], load)
                continue
            layer, tile = layers[slot.layer], tiles[slot.layer][slot.number]
            line_buffer, to = ports[slot.layer]
            psum = self._accumulate(layer, tile, line_buffer)
            self._post(layer, tile, psum, to, stored=stack.stored[slot.layer])
        self._sink.slot(None)
        self._constants.scratchpads |= scratchpads(self._hw, RESIDENT_CONSTANTS)
        self._banks[Space.FEATURE] = map_banks(self._hw)[Space.FEATURE]

    def fused_heads(
        self,
        heads: FusedHeads,
        layers: Sequence[Layer],
        successor: Layer | None = None,
        resident: ResidentMap | None = None,
    ) -> None:
        """Schedule scores and products of the heads of an attention.

        successor: the layer whose first weights are prefetched, and its input, if its result is
        part of a resident map. Post and loads share the write port of the feature buffer. So what
        later slots need is loaded before post of a slot.
        """
        self._divide_as(layers[0])
        regions = feature_regions(layers, heads.count, self._hw)
        psums, before = self._banks[Space.PSUM], self._banks[Space.FEATURE]
        streams = any(layer.tile.weight_rows for layer in layers)
        assert regions is not None, "units of fused heads fit"
        divides_bank = regions.words < before.words
        begin = before.take_oldest() if divides_bank else 0
        self._banks[Space.FEATURE] = (regions := regions.at(begin)).banks
        ahead = None
        if successor and resident and divides_bank and not successor.tile.undivided:
            ahead = before if self._loads_rows(successor, before) else None
        for slot in head_slots(layers, heads.count, regions):
            bank = psums.take_oldest()
            for each in slot.tiles:
                self._accumulate(each.layer, each.tile, each.source, psum=bank + each.word)
            prefetch = partial(self._prefetch, slot, successor, streams, ahead)
            for each in reversed(slot.tiles):
                loads = prefetch if each is slot.tiles[0] else None
                how = each.layer, each.tile, bank + each.word, each.to
                self._post(*how, stored=heads.stored or each.to is None, loads=loads)
            if successor and ahead and slot.pending:
                self._prefetch_input(slot.pending, successor, ahead)
        self._constants.keep(())
        self._sink.change_banks((Space.FEATURE,), (begin, regions.words))
        self._banks[Space.FEATURE] = before if divides_bank else map_banks(self._hw)[Space.FEATURE]

    def _prefetch(
        self,
        slot: HeadSlot[Layer],
        successor: Layer | None,
        streams: bool,
        banks: AnyBanks | None,
    ) -> None:
        """Load weights of the next slot, or of the next layer after the last one, and queries.

        streams: these weights wait for chunks of this slot, so that post would wait for queries
        after them. The keys of the next slot stay.
        banks: of the input of the next layer, as much of which is loaded before the last softmax is
        written as takes no longer than its statistics.
        """
        if streams:
            self._load_queries(slot)
            self._constants.keep(scores_in(slot.next))
        self._constants.prefetch_tiles((each.layer, each.tile) for each in slot.next)
        if successor is not None and not slot.next:
            self._constants.prefetch((), successor)
        if not streams:
            self._load_queries(slot)
        if successor and banks and slot.pending:
            keys = (self._constants.weight_keys(layer) for layer in slot.pending)
            self._constants.prefetch({key for of_layer in keys for key in of_layer}, successor)
            layer, (out, rect, _), *_ = slot.tiles[0]
            words = layer.shape.passes * out.blocks * rect.rows * rect.cols
            self._prefetch_input(slot.pending, successor, banks, words * self._hw.cycles_per_word)

    def _prefetch_input(
        self, pending: Sequence[Layer], successor: Layer, banks: AnyBanks, most: float = inf
    ) -> None:
        """Load the input of the next layer's first tile, in at most so many cycles, but for what
        the layers of `pending` have yet to compute.
        """
        (rows, words), _ = first_part(successor, successor.tiles[0])
        part = Part(source=None, blocks=(0, successor.reads.layout.blocks), rows=rows, words=words)
        tiles = ((layer, tile) for layer in pending for tile in layer.tiles)
        late = min(late_blocks(each, successor, part)[0] for each in tiles)
        bank, _ = banks.take(successor.held)
        done = self._ahead.setdefault(successor.held, [])
        for load in loads_of_rows(successor, bank, rows, words):
            most -= load.blocks[1] * rows[1] * words[1] * self._word / self._hw.dram.rate
            if most >= 0 and sum(load.blocks) <= late and load not in done:
                self._load(successor, load)
                done.append(load)

    def _load_queries(self, slot: HeadSlot[Layer]) -> None:
        for layer, tile, *_ in slot.features:
            for chunk in tile.out.features:
                self._features(layer, chunk, tile.pre_pool)
