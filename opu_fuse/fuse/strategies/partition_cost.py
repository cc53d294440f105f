"""Groups as the machine would run them: in order, laid out, tiled, with companions.

What the scheduler will decide for a partition, decided by the same functions, so that a strategy
can time whole partitions. Nothing is read but structure.
"""

from collections.abc import Mapping, Sequence

from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.coschedule import find_co_scheduled
from opu_fuse.fuse.group_order import order_units
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.modules import after_array
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.layout.data_layout import DataLayout, lay_out, pack
from opu_fuse.layout.lanes import LaneMap
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.pass_geometry import Geometry, group_geometry
from opu_fuse.tile_schedule.residency import count_reads
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.traversal import Unit
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import OutputRange, output_ranges
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.im2row import im2row_place
from opu_fuse.tiling.stored_view import stored_shape
from opu_fuse.tiling.tile import Tile, ceil_div, unfold

Tiled = tuple[Tile, Estimate, tuple[OutputRange, ...]]


class Plans:
    """Plans of one graph on one machine; what partitions have in common is made once."""

    def __init__(self, context: MatchContext) -> None:
        self.hw = context.hw
        self._scope = context
        self._lanes: LaneMap = ()
        self._geometries: dict[tuple[Match, ...], Geometry | None] = {}
        self._tiles: dict[tuple[Shape, bool], Tiled] = {}

    def units(
        self, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
    ) -> tuple[Unit[TiledLayer], ...] | None:
        """In the order in which they run, host segments left out; None when a group fits no pass
        or tile, or a map would have to be copied.
        """
        try:
            return self._units(groups, host)
        except DoesNotFit:
            return None

    def _units(
        self, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
    ) -> tuple[Unit[TiledLayer], ...]:
        dfg, hw = self._scope.dfg, self._scope.hw
        members = [[m.node for m in group] for group in groups]
        layout = lay_out(dfg, members, {op.node for op in host}, hw)
        if layout.lanes != self._lanes:
            self._lanes, self._geometries = layout.lanes, {}
        steps, _ = order_units(dfg, groups, host)
        found = {s.group: self._geometry(groups[s.group]) for s in steps if s.group is not None}
        passes = {group: geometry for group, geometry in found.items() if geometry is not None}
        layout = pack(dfg, layout, passes.values(), hw)
        reads = count_reads(dfg, layout, passes.values(), [op.node for op in host])
        alone = {group: self._works(layout, g, reads) for group, g in passes.items()}
        beside = self._companions(members, alone)
        found_units: list[Unit[TiledLayer]] = []
        for group, works in alone.items():
            if group in beside:
                both = (*works, *self._works(layout, passes[beside[group]], reads, beside=True))
                found_units.append(Unit(works=both, beside=True))
            elif group not in beside.values():
                found_units.append(Unit(works=works))
        return tuple(found_units)

    def _geometry(self, group: Sequence[Match]) -> Geometry | None:
        key = tuple(group)
        if key not in self._geometries:
            dfg, hw = self._scope.dfg, self._scope.hw
            placed = after_array(self._scope.modules, dfg, list(group))
            front = {m.node for m in placed if m.module in chain_of(hw).front}
            members = [m.node for m in placed]
            self._geometries[key] = group_geometry(dfg, members, hw, self._lanes, front)
        return self._geometries[key]

    def _works(
        self,
        layout: DataLayout,
        geometry: Geometry,
        read: Mapping[int, int],
        *,
        beside: bool = False,
    ) -> tuple[TiledLayer, ...]:
        """One per phase."""
        dfg, hw = self._scope.dfg, self._scope.hw
        reads, writes = (layout.place(dfg, hw, i) for i in (geometry.source, geometry.output))
        works: list[TiledLayer] = []
        for phase, whole in geometry.phases:
            shape = stored_shape(whole, hw, reads.layout.slot, writes.layout.slot)
            tile, _, ranges = self._tiled(shape, beside=beside)
            work = TiledLayer(
                shape=shape,
                source=geometry.source,
                residuals=geometry.residuals,
                output=geometry.output,
                tile=tile,
                ranges=ranges,
                unfold=unfold(shape, hw.array.modes[tile.mode], hw),
                reads=im2row_place(reads, shape),
                writes=writes,
                readers=read[writes.home],
                phase=phase,
                gate=geometry.gate,
            )
            works.append(work)
        return tuple(works)

    def _tiled(self, shape: Shape, *, beside: bool) -> Tiled:
        key = shape, beside
        if key not in self._tiles:
            hw = self._scope.hw
            tile, estimate = choose_tile("", shape, hw, beside=beside)
            self._tiles[key] = tile, estimate, output_ranges(shape, tile, hw)
        return self._tiles[key]

    def _companions(
        self, members: Sequence[Sequence[int]], works: Mapping[int, tuple[TiledLayer, ...]]
    ) -> dict[int, int]:
        idle: dict[int, Estimate] = {}
        busy: dict[int, Estimate] = {}
        for group, (first, *others) in works.items():
            shape, tile = first.shape, first.tile
            _, estimate, ranges = self._tiled(shape, beside=False)
            rects = ceil_div(shape.out_rows, tile.rows) * ceil_div(shape.out_cols, tile.cols)
            if others:
                continue
            if not shape.array:
                idle[group] = estimate
            elif rects * len(ranges) > 1:
                busy[group] = estimate
        context = self._scope
        return find_co_scheduled(context.dfg, members, list(works), idle, busy, context.hw)
