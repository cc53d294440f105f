"""Units of a tile schedule: layers that are scheduled as one."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.fused_heads import FusedHeads
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.residency import ResidentMap, find_residents
from opu_fuse.tile_schedule.tiled_layer import TiledLayer

Layer_co = TypeVar("Layer_co", bound=TiledLayer, covariant=True)


class Unit(Struct, Generic[Layer_co], frozen=True, kw_only=True):
    """Layers scheduled as one: the phases of a group in sequence, a group with its co-scheduled
    group (`interleaved`; layers before a norm on the array share its banks of partial sums), or the
    layers of a fused stack (`stack`) or of fused heads (`heads`). two_results: a layer, and a norm
    of its result in the same passes. resident: the map that its output, or the norm's, is part of.
    """

    layers: tuple[Layer_co, ...]
    interleaved: bool = False
    two_results: bool = False
    stack: FusedStack | None = None
    heads: FusedHeads | None = None
    resident: ResidentMap | None = None


AnyUnit = TypeVar("AnyUnit", bound=Unit[TiledLayer])
Units = Sequence[Unit[TiledLayer]]
"""The units of a machine segment, in execution order."""


def with_residents(units: Sequence[AnyUnit], hw: HwSpec) -> list[AnyUnit]:
    """The units with the resident maps that their outputs are part of."""
    layers = [() if unit.stack or unit.heads else unit.layers[unit.two_results :] for unit in units]
    residents = find_residents(layers, hw)
    return [replace(unit, resident=x) for unit, x in zip(units, residents, strict=True)]
