"""Tile a whole model: lower groups to layers, choose their tiles, and co-schedule some of them."""

from collections.abc import Collection, Hashable, Iterable, Mapping

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
    SegmentSteps,
    move_before_readers,
    order_segments,
    pair_co_scheduled,
)
from opu_fuse.schedule.tensors import TensorUse, tensor_uses
from opu_fuse.tile_schedule.fused_stack import FusedStack
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
from opu_fuse.units.norm import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS


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
        offsets = self.weights, self.params, self.pre, self.table, self.exponentials
        return offsets[CONSTANTS.index(space)]

    @property
    def pieces(self) -> int:
        """Tiles times output ranges: the array computes one piece between two post instructions."""
        return self.tile.count(self.shape) * len(self.ranges)

    @property
    def instructions(self) -> int:
        """Lower bound of compute and post instructions; a piece may be split by part or image."""
        steps = sum(max(len(f.weights), 1) for r in self.ranges for f in r.features)
        return self.tile.count(self.shape) * (steps + len(self.ranges))


class StackGroups(Struct, frozen=True, kw_only=True):
    """A fused stack and its groups, in execution order."""

    groups: tuple[int, ...]
    stack: FusedStack


class BatchBlock(Struct, frozen=True, kw_only=True):
    """Groups that run batch block by batch block.

    layers: the tiled layers, with the shapes of all images and the tiles of one block;
    images: images per block.
    """

    groups: tuple[int, ...]
    layers: tuple[TiledLayer, ...]
    images: int


class StackTrial(Struct, frozen=True, kw_only=True):
    """A fused stack compared with its unfused groups: predicted cycles and DRAM bytes of both.

    fused: the stack;
    chosen: whether the program uses it;
    merit: cycles saved, plus the cycle value of the bytes saved; 0 if the stack is rejected;
    outdone: the stack is better than its groups, but the whole batch is better without any stack;
    cycles_alone, bytes_alone: of the unfused groups;
    cycles, bytes: of the stack.
    """

    fused: StackGroups
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
    co_scheduled: group -> co-scheduled group, whose tiles are interleaved with its tiles;
    two_results: group -> group of a norm of its result, which is computed in the same passes;
    first_ranges: co-scheduled group -> output ranges that it computes before, in a unit of its own;
    fused_heads: first group of each unit of fused heads, whose others are co-scheduled -> heads;
    order, uses: execution order, and the live ranges that follow from it;
    layout: data layout of all values;
    constants_bytes: bytes of all constants;
    fused_stacks: fused stacks;
    stack_trials: fused stacks that were tried;
    batch_blocks: groups that run batch block by batch block.
    """

    layers: Mapping[int, tuple[PlannedLayer, ...]]
    co_scheduled: Mapping[int, int]
    order: tuple[SegmentSteps, ...]
    uses: Mapping[int, TensorUse]
    layout: DataLayout
    constants_bytes: int
    fused_stacks: tuple[StackGroups, ...] = ()
    stack_trials: tuple[StackTrial, ...] = ()
    batch_blocks: tuple[BatchBlock, ...] = ()
    two_results: Mapping[int, int] = {}
    first_ranges: Mapping[int, int] = {}
    fused_heads: Mapping[int, int] = {}

    @property
    def partner_of(self) -> dict[int, int]:
        """Co-scheduled group -> group whose tiles are interleaved with its tiles."""
        fused = {group for groups in self.head_groups for group in groups}
        return {norm: group for group, norm in self.co_scheduled.items() if group not in fused}

    @property
    def head_groups(self) -> list[tuple[int, ...]]:
        """The groups of each unit of fused heads, in execution order."""
        return [self.together(first) for first in self.fused_heads]

    def together(self, group: int) -> tuple[int, ...]:
        """A group, and those whose tiles are interleaved with its own or computed in its passes."""
        after = self.co_scheduled if group in self.co_scheduled else self.two_results
        found = [group]
        while found[-1] in after:
            found.append(after[found[-1]])
        return tuple(found)

    @property
    def pass_of(self) -> dict[int, int]:
        """Group of a second result -> group whose passes compute it."""
        return {norm: group for group, norm in self.two_results.items()}

    @property
    def same_step(self) -> list[int]:
        """Groups that run in the same step as their predecessor."""
        several = (*self.fused_stacks, *self.batch_blocks)
        others = (group for unit in several for group in unit.groups[1:])
        return [*self.co_scheduled.values(), *self.two_results.values(), *others]


TileCache = dict[tuple[Shape, bool], tuple[Tile, Estimate]]
"""Tiles of one machine, by (layer shape, whether the layer is co-scheduled).

Equal layers share a search, also across repeated partitions, and where only some of them have
weights wider than 8 bits.
"""


def tile(
    dfg: Dfg, partition: Partition, hw: HwSpec, cache: TileCache, images: int
) -> Tiling | tuple[Misfit, ...]:
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
    order = [t.group for s in segments for t in s.steps if t.group in layers]
    layout = replace(pack(dfg, layout, [layers[i] for i in order], hw), images=images)
    nodes = [t.node for s in segments for t in s.steps if t.node is not None]
    reads = count_reads(dfg, layout, layers.values(), nodes)
    planned: dict[int, tuple[PlannedLayer, ...]] = {}
    offset = 0
    for index in order:
        parts = []
        for whole in lowered[index]:
            part = stored_layer(whole, layout, hw)
            source, writes, second = storages_of(dfg, layout, part, hw)
            source = im2row_storage(source, part.shape)
            alike = alike_rows([dfg[node] for node in part.residuals], part.shape)
            maps = Maps(source, writes, reads[writes.alias_root], second, alike)
            try:
                chosen = _tile_of(part.name, part.shape, hw, cache)
            except DoesNotFit as error:
                misfits.append(misfit_of(dfg, partition.groups[index], error))
                break
            parts.append(with_tile(part, maps, hw, offset, *chosen))
            offset = parts[-1].end
        planned[index] = tuple(parts)
    if misfits:
        return tuple(misfits)
    co_scheduled = _co_schedule(dfg, partition, segments, planned, hw)
    for partner, index in [*co_scheduled.items()]:
        (part,) = planned[index]
        chosen = _tile_of(part.layer.name, part.shape, hw, cache, co_scheduled=True)
        if chosen[0].whole_buffers:
            del co_scheduled[partner]  # both would need the same banks
        else:
            planned[index] = (with_tile(part.layer, part.maps, hw, part.weights, *chosen),)
    segments = tuple(pair_co_scheduled(s, co_scheduled) for s in segments)
    uses = tensor_uses(dfg, layers, segments, hw, layout, co_scheduled.values())
    return Tiling(
        layers=planned,
        co_scheduled=co_scheduled,
        order=segments,
        uses=uses,
        layout=layout,
        constants_bytes=offset,
    )


def misfits_by_structure(
    dfg: Dfg, partition: Partition, hw: HwSpec, cache: TileCache
) -> tuple[Misfit, ...]:
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
                _tile_of("", shape, hw, cache)
            fitting.add(form)
        except DoesNotFit as error:
            misfits.append(misfit_of(dfg, group, error))
    return tuple(misfits)


def _co_schedule(
    dfg: Dfg,
    partition: Partition,
    segments: Iterable[SegmentSteps],
    planned: Mapping[int, tuple[PlannedLayer, ...]],
    hw: HwSpec,
) -> dict[int, int]:
    """Group -> co-scheduled group; layers of several phases are never co-scheduled."""
    single = {g: parts[0] for g, parts in planned.items() if len(parts) == 1}
    idle = {g: p.estimate for g, p in single.items() if not p.layer.shape.array}
    divided = {g: p for g, p in single.items() if not p.tile.whole_buffers}
    busy = {g: p.estimate for g, p in divided.items() if p.layer.shape.array and p.pieces > 1}
    orders = ([t.group for t in s.steps if t.group is not None] for s in segments)
    found = (find_co_scheduled(dfg, members(partition), each, idle, busy, hw) for each in orders)
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
    name: str, shape: Shape, hw: HwSpec, cache: TileCache, *, co_scheduled: bool = False
) -> tuple[Tile, Estimate]:
    key = replace(shape, further=()) if shape.further else shape, co_scheduled
    if key not in cache:
        cache[key] = choose_tile(name, key[0], hw, co_scheduled=co_scheduled)
    tile, cost = cache[key]
    return tile, estimate(shape, hw, tile) if shape.further else cost


def with_tile(
    layer: Layer, maps: Maps, hw: HwSpec, offset: int, tile: Tile, cost: Estimate
) -> PlannedLayer:
    """Tile a layer and store its constants from a byte offset on."""
    shape, ranges = layer.shape, output_ranges(layer.shape, tile, hw)
    params = align(offset + (0 if shape.computed or layer.further else weight_bytes(ranges, hw)))
    blocks = ceil_div(shape.pre_pool_channels, hw.word_channels)
    pre = align(params + blocks * shape.param_words * hw.word_bytes)
    in_blocks = ceil_div(shape.in_channels, hw.word_channels)
    table = align(pre + in_blocks * shape.pre_constants * hw.word_bytes)
    exponentials = align(table + shape.tables * TABLE_WORDS * hw.word_bytes)
    unit = align(exponentials + EXPONENTIALS * hw.word_bytes * shape.exponentials)
    halo = align(unit + maps.reads.layout.size_bytes * shape.unit)
    outputs = blocks * shape.out_cols
    return PlannedLayer(
        **layer.fields,
        tile=tile,
        ranges=ranges,
        cols_per_iteration=cols_per_iteration(shape, hw.array.modes[tile.mode], hw),
        **maps._asdict(),
        phase=layer.phase,
        looks_up=layer.norm.looks_up if layer.norm else None,
        layer=layer,
        estimate=cost,
        weights=offset,
        params=params,
        pre=pre,
        table=table,
        exponentials=exponentials,
        unit=unit,
        halo=halo,
        end=align(halo + 2 * outputs * hw.word_bytes * shape.stores_halo(tile.rows)),
    )


def with_uses(dfg: Dfg, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Derive the live ranges again, from the layers and their order."""
    layers = {group: parts[0].layer for group, parts in tiling.layers.items()}
    uses = tensor_uses(dfg, layers, tiling.order, hw, tiling.layout, tiling.same_step)
    return replace(tiling, uses=uses)


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
