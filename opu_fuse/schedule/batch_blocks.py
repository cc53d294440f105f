"""Batch blocking: a few images pass through several layers before the next few do.

The maps of one batch block are resident where those of the whole batch would not fit. The weights
are loaded again for every block. That pays for layers bound by the traffic of their maps, such as
depthwise ones, where the memory has spare cycles for the weights.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.batch import apart
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.emitted_units import PlannedUnit, in_rounds, planned_units
from opu_fuse.schedule.fused_stack_choice import BYTES, RESOLUTION
from opu_fuse.schedule.fused_stacks import replaced, with_cascades
from opu_fuse.schedule.tile_choice import BatchBlock, PlannedLayer, Tiling
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.timing.segment_cycles import MARGIN, cycles_and_memory

TIMED = 3
"""Rounds that are timed; the others take as long as the last of them."""


class _Run(Struct, frozen=True, kw_only=True):
    """Units first .. last - 1 of a segment in blocks of `images`; works: shapes of all images."""

    first: int
    works: tuple[PlannedLayer, ...]
    images: int

    @property
    def last(self) -> int:
        return self.first + len(self.works)


def with_cascades_or_rounds(
    dfg: Dfg, tiling: Tiling, hw: HwSpec, cascades: FusedStackChoice
) -> Tiling:
    """Add fused stacks and batch blocks of the other layers, or batch blocks alone if cheaper.

    A fused stack may block a longer batch block, so both tilings are priced.
    """
    mixed = _with_rounds(dfg, with_cascades(dfg, tiling, hw, cascades), hw)
    if tiling.layout.images == 1 or cascades is not FusedStackChoice.AUTO or not mixed.cascades:
        return mixed
    rounds = _with_rounds(dfg, tiling, hw)
    if _price(mixed, hw) <= _price(rounds, hw):
        return mixed
    weighed = tuple(replace(tried, taken=False, outdone=tried.taken) for tried in mixed.weighed)
    return replace(rounds, weighed=weighed)


def _price(tiling: Tiling, hw: HwSpec) -> float:
    """Cost of the whole program; lower is better."""
    spent = [cycles_and_memory(units, hw) for units in planned_units(tiling, hw)]
    return sum(sum(cycles.values()) + BYTES * memory for cycles, memory in spent)


def _with_rounds(dfg: Dfg, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Add batch blocks where they are faster; a batch of one image has none."""
    if tiling.layout.images == 1 or not hw.post.keep:
        return tiling
    found: list[BatchBlock] = []
    for units in planned_units(tiling, hw):
        for first, last in _chains(units):
            best = _best(units, first, last, tiling.layout.images, hw)
            for run in best:
                groups = tuple(unit.groups[0] for unit in units[run.first : run.last])
                found.append(BatchBlock(groups=groups, works=run.works, images=run.images))
    return replaced(dfg, replace(tiling, rounds=tuple(found)), hw) if found else tiling


def _chains(units: Sequence[PlannedUnit]) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of runs of consecutive layers that compute whole rows."""
    at = 0
    while at < len(units):
        behind = at
        while behind < len(units) and _plain(units[behind]):
            behind += 1
        if behind - at > 1:
            yield at, behind
        at = behind + 1


def _plain(unit: PlannedUnit) -> bool:
    if len(unit.works) != 1 or unit.stack is not None:
        return False
    work = unit.works[0]
    return (work.shape.upsample, work.phase.apart) == ((1, 1), (1, 1)) and not work.shape.phased


def _best(
    units: Sequence[PlannedUnit], first: int, last: int, images: int, hw: HwSpec
) -> Sequence[_Run]:
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
    units: Sequence[PlannedUnit], first: int, last: int, images: int, few: int, hw: HwSpec
) -> Iterator[_Run]:
    """Maximal runs of layers whose maps of `images` images are resident, and a last reader."""
    begun = first
    for at in range(first, last):
        ours, behind = units[at], units[at + 1] if at + 1 < last else None
        if behind is not None and _links(ours, behind, images, few, hw):
            continue
        new = any(unit.keep is None for unit in units[begun:at])
        works = _works(units[begun : at + 1], images, few, hw) if new else None
        if works is not None:
            yield _Run(first=begun, works=works, images=few)
        begun = at + 1


def _links(ours: PlannedUnit, behind: PlannedUnit, images: int, few: int, hw: HwSpec) -> bool:
    """Whether a layer reads its predecessor's map and a block of it fits a bank, or both read the
    same map.
    """
    made, read = ours.works[0], behind.works[0]
    fits = read.reads.layout.words * few <= images * hw.buffers.feature.bank_words
    return fits and read.source in (made.output, made.source)


def _works(
    units: Iterable[PlannedUnit], images: int, few: int, hw: HwSpec
) -> tuple[PlannedLayer, ...] | None:
    """Retile layers for a batch block, with shapes whose tiles end at image boundaries."""
    found: list[PlannedLayer] = []
    for unit in units:
        work = unit.works[0]
        shape = apart(work.shape, images)
        try:
            tile, _ = choose_tile(unit.works[0].layer.name, replace(shape, images=few), hw)
        except DoesNotFit:
            return None
        found.append(replace(work, shape=shape).with_tile(tile, hw))
    return tuple(found)


def _cut(units: Sequence[PlannedUnit], run: _Run, hw: HwSpec) -> tuple[_Run, float]:
    """(consecutive layers of a run that save most, cycles saved); 0 within the timing error."""
    gains, before = _saved(units, run, hw)
    sums = [0.0, *accumulate(gains[work.output] for work in run.works)]
    low = list(accumulate(range(len(sums)), lambda low, at: at if sums[at] < sums[low] else low))
    last = max(range(1, len(sums)), key=lambda at: sums[at] - sums[low[at - 1]])
    first = low[last - 1]
    if last - first == 1:  # a layer alone keeps nothing on chip
        return run, 0.0
    if last - first < len(run.works):
        run = replace(run, first=run.first + first, works=run.works[first:last])
        gains, before = _saved(units, run, hw)
    gain = sum(gains.values())
    return run, gain if gain > RESOLUTION * before else 0.0


def _saved(
    units: Sequence[PlannedUnit], run: _Run, hw: HwSpec
) -> tuple[Mapping[int | None, float], float]:
    """(cycles saved, cycles without batch blocks) of the layers of a run and its neighbours.

    Cycles saved are by DFG index of a layer's output; None stands for the weighted DRAM traffic.
    All blocks take equally long, so only the first few are timed.
    """
    front, part = units[max(run.first - MARGIN, 0) : run.first], units[run.first : run.last]
    back, rounds = units[run.last : run.last + MARGIN], run.works[0].shape.images // run.images
    timed = list(islice(in_rounds(part, run.works, run.images), TIMED * len(part)))

    def spent(middle: Sequence[PlannedUnit]) -> dict[int | None, float]:
        found, memory = cycles_and_memory([*front, *middle, *back], hw)
        return {**found, None: BYTES * memory}

    before, after, left = spent(part), spent(timed), max(rounds - TIMED, 0)
    less = spent(timed[: -len(part)]) if left else after
    gains = {
        made: cycles - after[made] - left * (after[made] - less[made])
        for made, cycles in before.items()
    }
    return gains, sum(before.values())
