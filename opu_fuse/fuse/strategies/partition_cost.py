"""The cost model of a whole partition: execution order, layout, tiles and co-scheduled groups.

The scheduler's own functions make these decisions, so a strategy can time whole partitions as the
scheduler would run them. Only shapes and graph structure are read, no weights.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.coschedule import find_co_scheduled
from opu_fuse.fuse.group_order import order_units
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.modules import after_array
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.layout.data_layout import DataLayout, lay_out, pack
from opu_fuse.layout.lanes import LaneMap
from opu_fuse.lowering.operand_maps import storages_of
from opu_fuse.lowering.pass_geometry import Geometry, group_geometry
from opu_fuse.tile_schedule.residency import count_reads
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.unit import Unit
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.fastest_shape import fastest_shape
from opu_fuse.tiling.im2row import im2row_storage
from opu_fuse.tiling.tile import cols_per_iteration


class Plans:
    """Plans of one graph on one machine. Geometries and tiles are cached across partitions."""

    def __init__(self, context: MatchContext) -> None:
        self.hw = context.hw
        self._context = context
        self._lanes: LaneMap = ()
        self._geometries: dict[tuple[Match, ...], Geometry | None] = {}

    def units(
        self, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
    ) -> tuple[Unit[TiledLayer], ...] | None:
        """The tiled units of a partition in execution order, without host segments.

        None when a group fits no pass or tile, or a map would need a copy.
        """
        try:
            return self._units(groups, host)
        except DoesNotFit:
            return None

    def _units(
        self, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
    ) -> tuple[Unit[TiledLayer], ...]:
        dfg, hw = self._context.dfg, self._context.hw
        members = [[m.node for m in group] for group in groups]
        layout = lay_out(dfg, members, {op.node for op in host}, hw)
        if layout.lanes != self._lanes:  # cached geometries count channels in the old lanes
            self._lanes, self._geometries = layout.lanes, {}
        steps, _ = order_units(dfg, groups, host)
        geometries = {
            s.group: self._geometry(groups[s.group]) for s in steps if s.group is not None
        }
        passes = {group: geometry for group, geometry in geometries.items() if geometry is not None}
        layout = pack(dfg, layout, passes.values(), hw)
        reads = count_reads(dfg, layout, passes.values(), [op.node for op in host])
        tiled_layers = {group: self._tile_layers(layout, g, reads) for group, g in passes.items()}
        co_scheduled = self._co_schedule(members, tiled_layers)
        units: list[Unit[TiledLayer]] = []
        for group, layers in tiled_layers.items():
            if group in co_scheduled:
                layer_pair = (
                    *layers,
                    *self._tile_layers(
                        layout, passes[co_scheduled[group]], reads, co_scheduled=True
                    ),
                )
                units.append(Unit(layers=layer_pair, interleaved=True))
            elif group not in co_scheduled.values():
                units.append(Unit(layers=layers))
        return tuple(units)

    def _geometry(self, group: Sequence[Match]) -> Geometry | None:
        key = tuple(group)
        if key not in self._geometries:
            dfg, hw = self._context.dfg, self._context.hw
            placed = after_array(self._context.modules, dfg, list(group))
            front = {m.node for m in placed if m.module in chain_of(hw).front}
            members = [m.node for m in placed]
            self._geometries[key] = group_geometry(dfg, members, hw, self._lanes, front)
        return self._geometries[key]

    def _tile_layers(
        self,
        layout: DataLayout,
        geometry: Geometry,
        read: Mapping[int, int],
        *,
        co_scheduled: bool = False,
    ) -> tuple[TiledLayer, ...]:
        """The tiled layers of a group: one per phase of its sub-pixel decomposition."""
        dfg, hw = self._context.dfg, self._context.hw
        stored = storages_of(dfg, layout, geometry, hw)
        layers: list[TiledLayer] = []
        for phase, phase_shape in geometry.phases:
            shape = fastest_shape(
                phase_shape, hw, stored.reads.layout.slot, stored.writes.layout.slot
            )
            tile, _ = choose_tile("", shape, hw, co_scheduled=co_scheduled)
            layer = TiledLayer(
                **replace(geometry, shape=shape).fields,
                tile=tile,
                ranges=output_ranges(shape, tile, hw),
                cols_per_iteration=cols_per_iteration(shape, hw.array.modes[tile.mode], hw),
                **stored._replace(reads=im2row_storage(stored.reads, shape))._asdict(),
                readers=read[stored.writes.alias_root],
                phase=phase,
            )
            layers.append(layer)
        return tuple(layers)

    def _co_schedule(
        self, members: Sequence[Sequence[int]], tiled_layers: Mapping[int, tuple[TiledLayer, ...]]
    ) -> dict[int, int]:
        idle: dict[int, Estimate] = {}
        busy: dict[int, Estimate] = {}
        for group, (layer, *other_phases) in tiled_layers.items():
            shape, tile = layer.shape, layer.tile
            _, estimate = choose_tile("", shape, self.hw)
            if other_phases:
                continue
            if not shape.array:
                idle[group] = estimate
            elif tile.count(shape) * len(layer.ranges) > 1:
                busy[group] = estimate
        context = self._context
        return find_co_scheduled(context.dfg, members, list(tiled_layers), idle, busy, context.hw)
