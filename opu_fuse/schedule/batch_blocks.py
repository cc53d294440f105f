"""Batch blocking: a few images pass through several layers before the next few do.

The maps of one batch block are resident where those of the whole batch would not fit. The weights
are loaded again for every block. That pays for layers bound by the traffic of their maps, such as
depthwise ones, where the memory has spare cycles for the weights.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.batch import split_images
from opu_fuse.layout.data_layout import Storage
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.emitted_units import (
    PlannedUnit,
    PlannedUnits,
    in_batch_blocks,
    planned_units,
)
from opu_fuse.schedule.fused_stack_choice import BYTES
from opu_fuse.schedule.fused_stacks import with_fused_stacks
from opu_fuse.schedule.segment_order import UnitGroups
from opu_fuse.schedule.tile_choice import PlannedLayer, Tiling, retiled
from opu_fuse.tile_schedule.unit import with_residents
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.timing.segment_cycles import MARGIN, RESOLUTION, timed

TIMED = 3
"""Batch blocks that are timed; the others take as long as the last of them."""


class _Run(Struct, frozen=True, kw_only=True):
    """Units first .. last - 1 of a segment in batch blocks.

    layers: the tiled layers, with the shapes of all images;
    images: images per block.
    """

    first: int
    layers: tuple[PlannedLayer, ...]
    images: int

    @property
    def last(self) -> int:
        return self.first + len(self.layers)


def with_fused_stacks_and_batch_blocks(
    tiling: Tiling, hw: HwSpec, choice: FusedStackChoice, storages: Mapping[int, Storage]
) -> Tiling:
    """Add fused stacks and batch blocks of the other layers, or batch blocks alone if cheaper.

    A fused stack may block a longer batch block, so both tilings are priced.
    """
    mixed = _with_batch_blocks(with_fused_stacks(tiling, hw, choice, storages), hw)
    has_stacks = any(unit.stack for unit in mixed.units)
    if tiling.layout.images == 1 or choice is not FusedStackChoice.AUTO or not has_stacks:
        return mixed
    blocked = _with_batch_blocks(tiling, hw)
    if _price(mixed, hw) <= _price(blocked, hw):
        return mixed
    trials = [replace(trial, chosen=False, outdone=trial.chosen) for trial in mixed.stack_trials]
    return replace(blocked, stack_trials=tuple(trials))


def _price(tiling: Tiling, hw: HwSpec) -> float:
    """Cost of the whole program; lower is better."""
    times = [timed(units, hw) for units in planned_units(tiling, hw)]
    return sum(sum(each.spent.values()) + BYTES * each.memory.used for each in times)


def _with_batch_blocks(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Add batch blocks where they are faster; a batch of one image has none."""
    if tiling.layout.images == 1 or not hw.post.keep:
        return tiling
    blocks: list[UnitGroups] = []
    new: dict[int, PlannedLayer] = {}
    for units in planned_units(tiling, hw):
        for first, last in _chains(units, tiling.layout.images):
            best = _best(units, first, last, tiling.layout.images, hw)
            for run in best:
                groups = tuple(unit.groups[0] for unit in units[run.first : run.last])
                blocks.append(UnitGroups(groups=groups, images=run.images))
                new |= zip(groups, run.layers, strict=True)
    return retiled(tiling, hw, new).with_units(blocks) if blocks else tiling


def _chains(units: PlannedUnits, images: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of runs of consecutive layers that compute whole rows of whole images."""
    whole_rows = [_computes_whole_rows(unit, images) for unit in units]
    for whole, run in groupby(range(len(units)), whole_rows.__getitem__):
        first, *others = run
        if whole and others:
            yield first, others[-1] + 1


def _computes_whole_rows(unit: PlannedUnit, images: int) -> bool:
    if len(unit.layers) != 1 or unit.stack is not None:
        return False
    layer = unit.layers[0]
    if layer.partial:
        return False
    if layer.shape.images not in {1, images}:  # its images are token sequences
        return False
    if layer.shape.phased or layer.shape.permute is not None:
        return False
    return (layer.shape.upsample, layer.phase.stride) == ((1, 1), (1, 1))


def _best(units: PlannedUnits, first: int, last: int, images: int, hw: HwSpec) -> Sequence[_Run]:
    """The runs of a chain, of equal block size, that save most; empty if they save little."""
    best, most = [], 0.0
    for few in range(images // 2, 0, -1):
        if images % few:
            continue
        cuts = [_cut(units, run, hw) for run in _runs(units, first, last, images, few, hw)]
        gain = sum(gained for _, gained in cuts)
        if gain > most:
            best, most = [run for run, gained in cuts if gained], gain
    return best


def _runs(
    units: PlannedUnits, first: int, last: int, images: int, few: int, hw: HwSpec
) -> Iterator[_Run]:
    """Maximal runs of layers whose maps of `images` images are resident, and a last reader."""
    begun = first
    for at in range(first, last):
        unit, successor = units[at], units[at + 1] if at + 1 < last else None
        if successor is not None and _links(unit, successor, images, few, hw):
            continue
        new = any(unit.resident is None for unit in units[begun:at])
        layers = _retile(units[begun : at + 1], images, few, hw) if new else None
        if layers is not None:
            yield _Run(first=begun, layers=layers, images=few)
        begun = at + 1


def _links(unit: PlannedUnit, successor: PlannedUnit, images: int, few: int, hw: HwSpec) -> bool:
    """Whether the successor reads the unit's map, or both read the same one, and `few` images of
    that map fit a bank.
    """
    first, second = unit.layers[0], successor.layers[0]
    fits = second.reads.layout.words * few <= images * hw.buffers.feature.bank_words
    return fits and second.source in (first.output, first.source)


def _retile(
    units: Iterable[PlannedUnit], images: int, few: int, hw: HwSpec
) -> tuple[PlannedLayer, ...] | None:
    """Retile layers for a batch block, with shapes whose tiles end at image boundaries."""
    retiled_layers: list[PlannedLayer] = []
    for unit in units:
        layer = unit.layers[0]
        shape = split_images(layer.shape, images)
        try:
            tile, _ = choose_tile(unit.layers[0].layer.name, replace(shape, images=few), hw)
        except DoesNotFit:
            return None
        retiled_layers.append(replace(layer, shape=shape).with_tile(tile, hw))
    return tuple(retiled_layers)


def _cut(units: PlannedUnits, run: _Run, hw: HwSpec) -> tuple[_Run, float]:
    """(consecutive layers of a run that save most, cycles saved); 0 within the timing error."""
    gains, before = _saved(units, run, hw)
    sums = [0.0, *accumulate(gains[layer.output] for layer in run.layers)]
    low = list(accumulate(range(len(sums)), lambda low, at: at if sums[at] < sums[low] else low))
    last = max(range(1, len(sums)), key=lambda at: sums[at] - sums[low[at - 1]])
    first = low[last - 1]
    if last - first == 1:  # a single layer has no map that could be resident
        return run, 0.0
    if last - first < len(run.layers):
        run = replace(run, first=run.first + first, layers=run.layers[first:last])
        gains, before = _saved(units, run, hw)
    gain = sum(gains.values())
    return run, gain if gain > RESOLUTION * before else 0.0


def _saved(units: PlannedUnits, run: _Run, hw: HwSpec) -> tuple[Mapping[int | None, float], float]:
    """(cycles saved, cycles without batch blocks) of the layers of a run and its neighbours.

    Cycles saved are by DFG index of a layer's output; the key None is the weighted DRAM traffic.
    All blocks take equally long, so only the first few are timed.
    """
    front, part = units[max(run.first - MARGIN, 0) : run.first], units[run.first : run.last]
    back, blocks = units[run.last : run.last + MARGIN], run.layers[0].shape.images // run.images
    first = list(islice(in_batch_blocks(part, run.layers, run.images), TIMED * len(part)))

    def spent(middle: PlannedUnits) -> dict[int | None, float]:
        times = timed(with_residents([*front, *middle, *back], hw), hw)
        return {**times.spent, None: BYTES * times.memory.used}

    before, after, left = spent(part), spent(first), max(blocks - TIMED, 0)
    less = spent(first[: -len(part)]) if left else after
    gains = {
        output: cycles - after[output] - left * (after[output] - less[output])
        for output, cycles in before.items()
    }
    return gains, sum(before.values())
