"""Tile a whole model: lower groups to layers, choose their tiles, and co-schedule some of them."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.pre_array import rescales
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.coschedule import find_co_scheduled
from opu_fuse.fuse.partition import Partition, members
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.alike_rows import alike_rows
from opu_fuse.layout.batch import batched
from opu_fuse.layout.data_layout import DataLayout, lay_out, layouts, pack
from opu_fuse.layout.lanes import map_lanes
from opu_fuse.layout.shape import Shape
from opu_fuse.layout.zero_copy_joins import CannotJoin
from opu_fuse.lowering.operand_maps import storages_of
from opu_fuse.lowering.pass_geometry import structure
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.lower_group import lower_group, pass_of
from opu_fuse.schedule.memory_plan import align
from opu_fuse.schedule.misfits import Misfit, misfit_of, misfits_at
from opu_fuse.schedule.segment_order import (
    HostWork,
    Segment,
    UnitGroups,
    move_before_readers,
    order_segments,
    segment_of,
)
from opu_fuse.tile_schedule.residency import count_reads
from opu_fuse.tile_schedule.scratchpad import CONSTANTS
from opu_fuse.tile_schedule.tiled_layer import Maps, TiledLayer
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges, weight_bytes
from opu_fuse.tiling.estimate import Estimate, estimate
from opu_fuse.tiling.fastest_shape import fastest_shape
from opu_fuse.tiling.im2row import im2row_storage
from opu_fuse.tiling.tile import Tile, ceil_div, cols_per_iteration
from opu_fuse.units.base import Space
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS

_CONSTANTS = ("weights", "params", "pre", "table", "exponentials", "unit", "halo", "end")
"""Offsets of a layer's constants, in the order of the memory; those of `CONSTANTS` first."""


class PlannedLayer(TiledLayer, frozen=True, kw_only=True):
    """A tiled layer with the integer parameters of its group and the byte offsets of its constants.

    layer: the lowered group;
    estimate: closed-form cost of its tile;
    weights, params, pre, table, exponentials: byte offsets of its constants in DRAM, per on-chip
        buffer;
    unit: byte offset of the unit matrix that it reads, if it does;
    halo: byte offset of the pooling halos of its tiles, two output rows per channel block;
    end: byte offset after its constants.
    """

    layer: Layer
    estimate: Estimate
    weights: int
    params: int
    pre: int
    table: int
    exponentials: int
    unit: int
    halo: int
    end: int

    def constants_at(self, space: Space) -> int:
        """Byte offset of the constants that a buffer holds."""
        return getattr(self, _CONSTANTS[CONSTANTS.index(space)])

    @property
    def pieces(self) -> int:
        """Tiles times output ranges: the array computes one piece between two post instructions."""
        return self.tile.count(self.shape) * len(self.ranges)

    @property
    def instructions(self) -> int:
        """Lower bound of compute and post instructions; a piece may be split by part or image."""
        steps = sum(max(len(f.weights), 1) for r in self.ranges for f in r.features)
        return self.tile.count(self.shape) * (steps + len(self.ranges))


class StackTrial(Struct, frozen=True, kw_only=True):
    """A fused stack compared with its unfused groups: predicted cycles and DRAM bytes of both.

    fused: the stack;
    chosen: whether the program uses it;
    merit: cycles saved, plus the cycle value of the bytes saved; 0 if the stack is rejected;
    outdone: the stack is better than its groups, but the whole batch is better without any stack;
    cycles_alone, bytes_alone: of the unfused groups;
    cycles, bytes: of the stack.
    """

    fused: UnitGroups
    chosen: bool
    merit: float
    outdone: bool = False
    cycles_alone: int
    cycles: int
    bytes_alone: int
    bytes: int


class Tiling(Struct, frozen=True, kw_only=True):
    """The tiles and the execution order of a model.

    layers: group index -> tiled layers, one per phase (groups of views only have none);
    order: segments in execution order;
    layout: data layout of all values;
    constants_bytes: bytes of all constants;
    stack_trials: fused stacks that were tried.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    order: tuple[Segment, ...]
    layout: DataLayout
    constants_bytes: int
    stack_trials: tuple[StackTrial, ...] = ()

    @property
    def units(self) -> list[UnitGroups]:
        """Its units in execution order."""
        segments = (segment for segment in self.order if not isinstance(segment, HostWork))
        return [unit for segment in segments for unit in segment]

    @property
    def two_results(self) -> dict[int, int]:
        """Group -> group of a norm of its result, which is computed in the same passes."""
        return {unit.groups[0]: unit.groups[1] for unit in self.units if unit.two_results}

    def with_units(self, several: Iterable[UnitGroups]) -> "Tiling":
        """With these units of several groups, where the first of each runs."""
        found = {unit.groups[0]: unit for unit in several}
        others = {group for unit in found.values() for group in unit.groups[1:]}

        def joined(segment: Segment) -> Segment:
            if isinstance(segment, HostWork):
                return segment
            left = (unit for unit in segment if unit.groups[0] not in others)
            return tuple(found.get(unit.groups[0], unit) for unit in left)

        return replace(self, order=tuple(map(joined, self.order)))


def tile(dfg: Dfg, partition: Partition, hw: HwSpec, images: int) -> Tiling | tuple[Misfit, ...]:
    """Lower every group and choose its tile; return the groups that do not fit as a value.

    images: batch size.
    """
    lowered: dict[int, tuple[Layer, ...]] = {}
    on_host = {op.node for op in partition.host}
    try:
        layout = lay_out(dfg, members(partition), on_host, hw)
    except CannotJoin as error:
        return misfits_at(dfg, partition, error.node, error)
    misfits: list[Misfit] = []
    for group in partition.groups:
        try:
            phases = lower_group(dfg, group, hw, layout.lanes)
        except DoesNotFit as error:
            misfits.append(misfit_of(dfg, group, error))
            continue
        if phases:
            lowered[group.index] = phases
    if misfits:
        return tuple(misfits)
    layers = {index: parts[0] for index, parts in lowered.items()}
    stored = {n for layer in layers.values() for n in (*layer.operands, layer.output)}
    aliases = {node for node in on_host if _is_alias(dfg, node, stored, on_host)}
    segments = tuple(
        move_before_readers(s, layers, hw) for s in order_segments(dfg, partition, aliases)
    )
    machine = [segment for segment in segments if not isinstance(segment, HostWork)]
    order = [group for groups in machine for group in groups if group in layers]
    layout = replace(pack(dfg, layout, [layers[i] for i in order], hw), images=images)
    nodes = [node for s in segments if isinstance(s, HostWork) for node in s.nodes]
    reads = count_reads(dfg, layout, layers.values(), nodes)
    planned: dict[int, tuple[PlannedLayer, ...]] = {}
    offset = 0
    for index in order:
        parts = []
        for whole in lowered[index]:
            part = stored_layer(whole, layout, hw)
            stored = storages_of(dfg, layout, part, hw)
            stored = stored._replace(reads=im2row_storage(stored.reads, part.shape))
            alike = alike_rows([dfg[node] for node in part.residuals], part.shape)
            readers = reads[stored.writes.alias_root]
            maps = Maps(**stored._asdict(), readers=readers, alike=alike)
            try:
                chosen = _tile_of(part.name, part.shape, hw)
            except DoesNotFit as error:
                misfits.append(misfit_of(dfg, partition.groups[index], error))
                break
            parts.append(with_tile(part, maps, hw, offset, *chosen))
            offset = parts[-1].end
        planned[index] = tuple(parts)
    if misfits:
        return tuple(misfits)
    co_scheduled = _co_schedule(dfg, partition, machine, planned, hw)
    for partner, index in [*co_scheduled.items()]:
        (part,) = planned[index]
        chosen = _tile_of(part.layer.name, part.shape, hw, co_scheduled=True)
        if chosen[0].whole_buffers:
            del co_scheduled[partner]  # both would need the same banks
        else:
            planned[index] = (with_tile(part.layer, part.maps, hw, part.weights, *chosen),)
    units = tuple(segment_of(segment, planned) for segment in segments)
    tiling = Tiling(layers=planned, order=units, layout=layout, constants_bytes=offset)
    return tiling.with_units(UnitGroups(groups=pair) for pair in co_scheduled.items())


def misfits_by_structure(dfg: Dfg, partition: Partition, hw: HwSpec) -> tuple[Misfit, ...]:
    """Groups that no machine pass can run or no tile fits; for float models too."""
    lanes = map_lanes(dfg, hw, layouts(dfg, members(partition)))
    misfits = []
    fitting: set[Hashable] = set()
    for group in partition.groups:
        nodes = [m.node for m in group.matches]
        modules = tuple([(m.module, rescales(dfg, dfg[m.node])) for m in group.matches])
        form = modules, structure(dfg, nodes, lanes, hw)
        if form in fitting:
            continue
        try:
            geometry, _ = pass_of(dfg, group, hw, lanes)
            for _, shape in geometry.phases if geometry else ():
                _tile_of("", shape, hw)
            fitting.add(form)
        except DoesNotFit as error:
            misfits.append(misfit_of(dfg, group, error))
    return tuple(misfits)


def _co_schedule(
    dfg: Dfg,
    partition: Partition,
    segments: Iterable[Sequence[int]],
    planned: Mapping[int, tuple[PlannedLayer, ...]],
    hw: HwSpec,
) -> dict[int, int]:
    """Group -> co-scheduled group; layers of several phases are never co-scheduled."""
    single = {g: parts[0] for g, parts in planned.items() if len(parts) == 1}
    idle = {g: p.estimate for g, p in single.items() if not p.layer.shape.array}
    divided = {g: p for g, p in single.items() if not p.tile.whole_buffers}
    busy = {g: p.estimate for g, p in divided.items() if p.layer.shape.array and p.pieces > 1}
    found = (find_co_scheduled(dfg, members(partition), each, idle, busy, hw) for each in segments)
    return {group: other for pairs in found for group, other in pairs.items()}


def stored_layer(layer: Layer, layout: DataLayout, hw: HwSpec) -> Layer:
    """Set bytes per input pixel, pixels per output word, and the batch size."""
    read, written = (layout.slots.get(i, hw.word_bytes) for i in (layer.source, layer.output))
    shape = fastest_shape(layer.shape, hw, read, written)
    return replace(layer, shape=batched(shape, layout.images))


def _is_alias(
    dfg: Dfg, node: int, stored: Collection[int | None], on_host: Collection[int]
) -> bool:
    """Whether a host view needs no execution because it aliases a stored map.

    A map that the host computes does not qualify: a reader of the view may run in the same segment,
    before the map is written to DRAM.
    """
    base = dfg.base(node)
    return base in stored and dfg.producer(base) not in on_host


def _tile_of(
    name: str, shape: Shape, hw: HwSpec, *, co_scheduled: bool = False
) -> tuple[Tile, Estimate]:
    """The tile of a layer, chosen as if all its weights had 8 bits."""
    plain = replace(shape, further=()) if shape.further else shape
    tile, cost = choose_tile(name, plain, hw, co_scheduled=co_scheduled)
    return tile, estimate(shape, hw, tile) if shape.further else cost


def with_tile(
    layer: Layer, maps: Maps, hw: HwSpec, offset: int, tile: Tile, cost: Estimate
) -> PlannedLayer:
    """Tile a layer and store its constants from a byte offset on."""
    shape, ranges, word = layer.shape, output_ranges(layer.shape, tile, hw), hw.word_bytes
    blocks = ceil_div(shape.pre_pool_channels, hw.word_channels)
    sizes = (
        0 if shape.computed or layer.further else weight_bytes(ranges, hw),
        blocks * shape.param_words * word,
        ceil_div(shape.in_channels, hw.word_channels) * shape.pre_constants * word,
        shape.tables * TABLE_WORDS * word,
        EXPONENTIALS * word * shape.exponentials,
        maps.reads.layout.size_bytes * shape.unit,
        2 * blocks * shape.out_cols * word * shape.stores_halo(tile.rows),
    )
    offsets = accumulate(sizes, lambda at, size: align(at + size), initial=offset)
    return PlannedLayer(
        **layer.fields,
        tile=tile,
        ranges=ranges,
        cols_per_iteration=cols_per_iteration(shape, hw.array.modes[tile.mode], hw),
        **maps._asdict(),
        phase=layer.phase,
        looks_up=layer.norm.looks_up if layer.norm else None,
        functions=layer.functions,
        layer=layer,
        estimate=cost,
        **dict[str, Any](zip(_CONSTANTS, offsets, strict=True)),
    )


def retiled(tiling: Tiling, hw: HwSpec, new_layers: Mapping[int, TiledLayer]) -> Tiling:
    """Replace tiles and shapes of single-pass groups, and repack constants.

    new_layers: group index -> layer with the new tile and shape.
    """
    layers: dict[int, tuple[PlannedLayer, ...]] = {}
    offset = 0
    for group, parts in tiling.layers.items():
        placed: list[PlannedLayer] = []
        for part in parts:
            layer, tile, cost = part.layer, part.tile, part.estimate
            if group in new_layers:
                layer = replace(layer, shape=new_layers[group].shape)
                tile = new_layers[group].tile
                cost = estimate(layer.shape, hw, tile)
            placed.append(with_tile(layer, part.maps, hw, offset, tile, cost))
            offset = placed[-1].end
        layers[group] = tuple(placed)
    return replace(tiling, layers=layers, constants_bytes=offset)
