"""A fused stack before its time slots are ordered, and the pace of these slots."""

from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.line_buffers import LineBuffer
from opu_fuse.tile_schedule.slot_lines import Pace
from opu_fuse.tile_schedule.stack_wiring import Wiring
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.estimate import STEP_OVERHEAD, Estimate
from opu_fuse.tiling.im2row import load_of_rows
from opu_fuse.units.base import Space
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS

STEP = 8
"""Cycles lost per instruction of the compute engine when its features and weights are resident."""


class Sized(Struct, frozen=True, kw_only=True):
    """A fused stack before its time slots are ordered.

    load_rows: input rows per load;
    wanted: base allocation of a map -> rows that a tile of a reader reads and the one before did
    not;
    layers: tiled layers;
    stored, wires: as of FusedStack;
    line_buffers: per map; all at address 0 until they are allocated;
    costs: closed-form estimate per layer;
    words: constant words per buffer;
    array: cycles of the array;
    cycles, dram_bytes: totals, predicted in closed form.
    """

    load_rows: int
    wanted: Mapping[int, int] = {}
    layers: tuple[TiledLayer, ...] = ()
    stored: tuple[bool, ...] = ()
    wires: Wiring = Wiring()
    line_buffers: tuple[LineBuffer, ...] = ()
    costs: tuple[Estimate, ...] = ()
    words: Mapping[Space, int] = {}
    array: float = 0.0
    cycles: float = 0.0
    dram_bytes: int = 0

    @property
    def shares_tables(self) -> bool:
        """Whether layers have tables with the same entries."""
        return self.words[Space.TABLE] < TABLE_WORDS * sum(x.shape.tables for x in self.layers)


def pace_of(sized: Sized, hw: HwSpec) -> Pace:
    """The pace of the slots of a stack."""
    tile_counts = [len(layer.tiles) for layer in sized.layers]
    rate = hw.dram.rate
    strip, im2row_cycles = strip_load(sized, hw)
    constants, tables = [constant_words(layer) for layer in sized.layers], 0
    if tables_overflow(sized, hw):
        tables = hw.buffers.table.words // TABLE_WORDS if hw.buffers.table else 0
        constants = [{**words, Space.TABLE: 0} for words in constants]
    stores, adds = _moved_by_slots(sized, hw) if hw.dram.is_slow else ((), ())
    return Pace(
        array=tuple(cycles / n for cycles, n in zip(array_cycles(sized), tile_counts, strict=True)),
        post=tuple(cost.post_cycles / n for cost, n in zip(sized.costs, tile_counts, strict=True)),
        constants=tuple(constant_bytes(words, hw) / rate for words in constants),
        load=strip / rate + hw.dram.latency + im2row_cycles,
        tables=tables,
        table=constant_bytes({Space.TABLE: TABLE_WORDS}, hw) / rate,
        stores=stores,
        adds=adds,
        latency=hw.dram.latency,
    )


def _moved_by_slots(sized: Sized, hw: HwSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Cycles to store the results of a slot, and to load its second operands, of each layer; empty
    where no layer of the stack loads any: then stores and loads do not wait for each other.
    """
    stores: list[float] = []
    adds: list[float] = []
    for layer, stored in zip(sized.layers, sized.stored, strict=True):
        slot = layer.writes.layout.words * hw.word_bytes / hw.dram.rate / len(layer.tiles)
        stores.append(slot * stored)
        adds.append(slot * sum(not side.broadcast for side in layer.shape.sides))
    return (tuple(stores), tuple(adds)) if any(adds) else ((), ())


def strip_load(sized: Sized, hw: HwSpec) -> tuple[int, int]:
    """(bytes, im2row cycles) of one load of input rows."""
    im2row = sized.layers[0].shape.im2row
    if im2row is not None:
        return load_of_rows(im2row, sized.load_rows, hw)
    return sized.load_rows * sized.line_buffers[0].pitch * hw.word_bytes, 0


def array_cycles(sized: Sized) -> list[float]:
    """Array cycles of every layer, whose weights are resident."""
    cycles: list[float] = []
    for layer, cost in zip(sized.layers, sized.costs, strict=True):
        chunks = sum(len(chunk.weights) for out in layer.ranges for chunk in out.features)
        steps = layer.tile.count(layer.shape) * chunks
        cycles.append(cost.compute_cycles - steps * (STEP_OVERHEAD - STEP))
    return cycles


def constant_words(layer: TiledLayer) -> dict[Space, int]:
    """Words of its constants that are resident in a fused stack, per buffer."""
    shape, blocks = layer.shape, sum(out.blocks for out in layer.ranges)
    chunks = {part.offset: part.words for part in layer.weight_chunks}  # equal ones only once
    return {
        Space.WEIGHT: sum(chunks.values()),
        Space.PARAM: blocks * shape.param_words,
        Space.TABLE: shape.tables * TABLE_WORDS,
        Space.NORM: shape.exponentials * EXPONENTIALS,
    }


def constant_bytes(words: Mapping[Space, int], hw: HwSpec) -> int:
    """Bytes of constants of so many words per buffer."""
    width = {Space.WEIGHT: hw.buffers.weight.width}
    return sum(count * width.get(space, hw.word_bytes) for space, count in words.items())


def tables_overflow(sized: Sized, hw: HwSpec) -> bool:
    """Whether not all tables of a stack fit."""
    tables = hw.buffers.table
    return tables is not None and sized.words[Space.TABLE] > tables.words
