"""The tiles of a layer in the tile schedule: loads, compute, post and stores, one by one.

Every on-chip buffer is double-buffered: its banks are used round robin, and the schedule tracks
what they hold. So features are reused across output ranges, weights across tiles, and small maps by
the next layer.
"""

from collections.abc import Callable, Hashable
from copy import copy
from itertools import product
from typing import Generic, Self, TypeVar

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.constants import ConstantLoads
from opu_fuse.tile_schedule.fused_heads import (
    ResidentTile,
)
from opu_fuse.tile_schedule.input_region import (
    PREFETCH_DISTANCE,
    Window,
    blocks_in_time,
    count_parts,
    first_part,
    late_blocks,
    window,
)
from opu_fuse.tile_schedule.line_buffers import LineBuffer
from opu_fuse.tile_schedule.residency import ResidentMap
from opu_fuse.tile_schedule.scratchpad import AnyBanks, map_banks, scratchpads
from opu_fuse.tile_schedule.sink import (
    ComputeStep,
    Destination,
    FeatureLoad,
    FeatureSource,
    PostStep,
    Read,
    TileSink,
    ToBank,
    loads_of_rows,
)
from opu_fuse.tile_schedule.slot_lines import LOAD
from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer, blocks_at_once, own_images
from opu_fuse.tiling.chunks import FeatureChunk
from opu_fuse.tiling.im2row import pieces
from opu_fuse.tiling.tile import PrePoolRect, Span, images_of, spans
from opu_fuse.units.base import Space
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS

Layer = TypeVar("Layer", bound=TiledLayer)


class LayerSchedule(Generic[Layer, Read]):
    """Schedules the tiles of a layer. Invariant: banks and scratchpads hold what the
    machine's buffers will hold when the operations so far have run.
    """

    def __init__(self, hw: HwSpec, sink: TileSink[Layer, Read]) -> None:
        self._hw, self._word = hw, hw.word_bytes
        self._sink = sink
        self._whole_buffers: tuple[str, ...] = ()
        self._banks, self._constants = map_banks(hw), ConstantLoads(hw, sink)
        self._before: tuple[TiledLayer, LayerTile] | None = None  # the previous tile
        # Of a map that is being loaded to its bank before its layer: the loads so far.
        self._ahead: dict[Hashable, list[FeatureLoad]] = {}

    def fork(self, sink: TileSink[Layer, Read]) -> Self:
        """A copy that goes its own way, with a sink of its own."""
        result = copy(self)
        result.detach(sink)
        return result

    def detach(self, sink: TileSink[Layer, Read]) -> None:
        """Copy all that changes, after a shallow copy of the whole."""
        self._sink = sink
        self._ahead = {key: loads.copy() for key, loads in self._ahead.items()}
        self._banks = {space: banks.fork() for space, banks in self._banks.items()}
        self._constants = self._constants.fork(sink)

    def layer(
        self,
        layer: Layer,
        resident: ResidentMap | None = None,
        successor: Layer | None = None,
        norm: Layer | None = None,
    ) -> None:
        """Schedule all tiles of a layer.

        resident: the resident map that its output is part of, or its norm;
        successor: the layer whose first weights are prefetched;
        norm: computed from the same partial sums. It goes first, since the next layer waits for it.
        """
        self._divide_as(layer)
        if successor is not None and successor.tile.undivided != layer.tile.undivided:
            successor = None  # its weights would be evicted
        self._constants.keep_most(layer)
        banks, tiles, rest = self._banks[Space.FEATURE], layer.tiles, None
        own_weights: set[Hashable] = set()
        if resident is not None and self._loads_rows(layer, banks):
            first, rest = first_part(layer, tiles[0])
            self._load_rows(layer, *first)
            self._ahead.pop(layer.held, None)
        for left, tile in zip(range(len(tiles), 0, -1), tiles, strict=True):
            psum = self._accumulate(layer, tile)
            if rest is not None:  # now: post will need the write port of the buffer
                self._load_rows(layer, *rest)
                rest = None
            if successor is not None and left <= PREFETCH_DISTANCE:
                own_weights = own_weights or self._constants.weight_keys(layer)
                self._constants.prefetch(own_weights, successor)
            to = None
            if resident is not None:
                bank, _ = banks.take(layer.bank_of(resident.node, resident.layout))
                to = ToBank(bank, resident)
            stored = resident is None or resident.stored
            if norm is None:
                self._post(layer, tile, psum, to, stored=stored)
            else:
                operands = self._post(norm, tile, psum, to, stored=stored)
                self._post(layer, tile, psum, again=True, operands=operands)
        self._constants.keep(())

    def _loads_rows(self, layer: Layer, banks: AnyBanks) -> bool:
        """Whether the input of a layer with a resident result is loaded to its place in a bank that
        holds the whole map.
        """
        is_in_bank = banks.find(layer.held) is not None and layer.held not in self._ahead
        return not is_in_bank and count_parts(layer, banks.banks) == banks.banks

    def _divide_as(self, layer: TiledLayer) -> None:
        """Divide the buffers into banks for a layer's tiles; evict them if the division changes."""
        whole, before = layer.tile.whole_buffers, self._whole_buffers
        if whole == before:
            return
        self._whole_buffers, hw = whole, layer.tile.sees(self._hw)
        changed = [space for space in Space if (space.value in whole) != (space.value in before)]
        banks = map_banks(hw)
        self._banks |= {space: banks[space] for space in changed if space in banks}
        if Space.WEIGHT in changed:
            self._constants.scratchpads |= scratchpads(hw, (Space.WEIGHT,))
        self._sink.change_banks(changed)

    def _accumulate(
        self,
        layer: Layer,
        tile: LayerTile,
        held: LineBuffer | ResidentTile | None = None,
        *,
        psum: int | None = None,
    ) -> int:
        """Schedule loads and compute of a tile; return the first word of its partial sums.

        held: the line buffer that holds its input, or the place where post wrote it, if any;
        psum: this word; None: that of the bank used least recently.
        """
        shape, sink, (out, rect, pre_pool) = layer.shape, self._sink, tile
        images = images_of(shape, rect.rows)
        if psum is None:
            psum = self._banks[Space.PSUM].take_oldest()
        own = own_images(layer, tile)
        line_buffer = held if isinstance(held, LineBuffer) else None
        steps = ((each, chunk) for each in out.of_one_mode for chunk in each.features)
        for each, chunk in steps:
            bank, part, resident = LOAD, None, False
            if isinstance(held, ResidentTile):
                bank, part = held.bank, window(layer, chunk, pre_pool)
            elif line_buffer is None:
                bank, part, resident = self._features(layer, chunk, pre_pool)
            source = FeatureSource(chunk, pre_pool, images, bank, part, line_buffer, resident)
            read = sink.read(layer, source)
            if not shape.array:
                sink.copy(layer, each, psum, read)
            pre = None
            if shape.pre:
                blocks = chunk.block, chunk.blocks
                first = pre_pool.row // shape.pre_pool_rows
                pre = self._constants.gates(layer, blocks, (first, images))
            for weights, (image, map_image) in product(chunk.weights, own):
                words = self._constants.weights(layer, weights, map_image)
                at = psum + (each.block - out.block) * shape.words(pre_pool.rows, pre_pool.cols)
                step = ComputeStep(each, chunk, weights, words, pre, at, image)
                sink.compute(layer, step, read)
        return psum

    def _features(
        self, layer: Layer, chunk: FeatureChunk, pre_pool: PrePoolRect
    ) -> tuple[int, Window, bool]:
        """Load a tile's input, unless a bank holds it.

        Return (first word of the bank, window read, whether the bank holds the whole map).
        """
        read, banks = window(layer, chunk, pre_pool), self._banks[Space.FEATURE]
        part = read.part
        resident = banks.find(layer.held)
        if resident is not None:
            return resident, read, True
        bank, held = banks.take(part, part.blocks[1] * part.rows[1] * read.pitch)
        if held:
            return bank, read, False

        def load(blocks: Span) -> None:
            word = bank + (blocks[0] - part.blocks[0]) * part.rows[1] * part.words[1]
            rest = blocks, part.rows, part.words, sum(part.rows)
            self._load(layer, FeatureLoad(bank, word, *rest))

        late = late_blocks(self._before, layer, part)
        for blocks in blocks_in_time(part, late):
            load(blocks)
        if late[1]:  # it waits for the previous tile: hoist other loads (no head-of-line blocking)
            image = pre_pool.row // layer.shape.pre_pool_rows if layer.shape.computed else 0
            for weights in chunk.weights[:1]:
                self._constants.weights(layer, weights, image)
            load(late)
        return bank, read, False

    def _load(self, layer: Layer, load: FeatureLoad) -> None:
        if layer.shape.im2row is None:
            self._sink.load_features(layer, load)
            return
        image = self._banks[Space.IMAGE].take_oldest()
        for piece in pieces(layer.shape.im2row, *load.rows, load.words[1], self._hw):
            self._sink.im2row(layer, load, piece, image)

    def _load_rows(self, layer: Layer, rows: Span, words: Span) -> None:
        """Load words of some rows of a layer's input to their address in the whole map."""
        bank, _ = self._banks[Space.FEATURE].take(layer.held)
        done = self._ahead.get(layer.held, ())
        for part in loads_of_rows(layer, bank, rows, words):
            if part not in done:
                self._load(layer, part)

    def _post(
        self,
        layer: Layer,
        tile: LayerTile,
        psum: int,
        to: Destination = None,
        *,
        stored: bool = True,
        again: bool = False,
        operands: int | None = None,
        loads: Callable[[], None] | None = None,
    ) -> int | None:
        """Schedule post and stores of a tile, as many channel blocks at once as the banks hold.

        again: a norm of these partial sums was computed; operands: first word of the bank with its
        second operands; loads: schedules loads that come before post. Return the bank of this
        layer's operands.
        """
        shape, sink, (out, rect, pre_pool) = layer.shape, self._sink, tile
        outputs, residuals = self._banks[Space.OUTPUT], self._banks[Space.RESIDUAL]
        offset = out.block * shape.param_words * self._word
        needed = (
            (Space.PARAM, offset, out.blocks * shape.param_words),
            (Space.TABLE, 0, shape.tables * TABLE_WORDS),
            (Space.NORM, 0, shape.exponentials * EXPONENTIALS),
        )
        constants = {each[0]: self._constants.load(layer, *each) for each in needed if each[2]}
        residual = None
        for at, count in spans(out.blocks, blocks_at_once(layer, tile, self._hw)):
            output, residual, halo, held = outputs.take_oldest(), operands, None, again
            statistics = out.blocks if shape.passes and at == 0 and not again else 0
            blocks = out.block, (out.block + at, count), statistics
            if shape.sides and not again:
                residual, held = residuals.take(layer.operand_of(blocks[1], rect))
            if shape.pools_with_halo and shape.reads_halo(rect.row):
                halo = residuals.take_oldest()
            buffers = psum, output, constants, residual, halo
            step = PostStep(*blocks, rect, pre_pool, *buffers, to)
            if residual is not None and not held:
                sink.load_residuals(layer, step)
            if halo is not None:
                sink.load_halo(layer, step)
            if loads is not None and at == 0:
                loads()
            sink.post(layer, step)
            if stored:
                sink.store(layer, step)
            if shape.pools_with_halo and shape.reads_halo(rect.row + rect.rows):
                sink.store_halo(layer, step, outputs.take_oldest())
        self._before = layer, tile
        return residual
