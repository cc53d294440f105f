"""What is emitted, in execution order: layers alone, with a companion, or in a cascade."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from opu_fuse.cost.keeping import Keep, count_reads, find_kept
from opu_fuse.cost.segments import Unit
from opu_fuse.cost.work import Work
from opu_fuse.dfg.graph import Dfg
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.tensors import TensorUse
from opu_fuse.schedule.tiling import PlannedLayer, Rounds, Tiling, Together


class PlannedUnit(Unit, frozen=True, kw_only=True):
    """groups, layers: whose works they are; keep: what stays on chip of them."""

    groups: tuple[int, ...]
    layers: tuple[PlannedLayer, ...]
    keep: Keep | None = None

    @property
    def on_chip(self) -> tuple[int, ...]:
        """Stored values (DFG indices) that it makes and does not store."""
        if self.cascade is not None:
            both = zip(self.works, self.cascade.stored, strict=True)
            return tuple(work.writes.home for work, stored in both if not stored)
        return (self.works[0].writes.home,) if self.keep and not self.keep.stored else ()


def planned_units(
    dfg: Dfg, tiling: Tiling, hw: HwSpec, *, store_all: bool = False
) -> list[list[PlannedUnit]]:
    """Of every segment, in its order; nothing for those of the host."""
    layers, steps = tiling.layers, [t for segment in tiling.segments for t in segment.steps]
    on_host = [t.node for t in steps if t.node is not None]
    reads = count_reads(dfg, tiling.layout, [parts[0].layer for parts in layers.values()], on_host)
    together = {t.groups[0]: t for t in tiling.cascades}
    rounds = {found.groups[0]: found for found in tiling.rounds}
    several = (*tiling.cascades, *tiling.rounds)
    behind = {group for found in several for group in found.groups[1:]}
    companions = set(tiling.beside.values())
    found = []
    for segment in tiling.segments:
        units: list[PlannedUnit] = []
        for group in (t.group for t in segment.steps):
            if group is None or group not in layers or group in companions or group in behind:
                continue
            if group in rounds:
                units += _rounds(tiling, rounds[group], reads)
                continue
            if group in together:
                units.append(_cascade(tiling, together[group], store_all=store_all))
                continue
            pair = (group, tiling.beside[group]) if group in tiling.beside else (group,)
            parts = tuple(part for g in pair for part in layers[g])
            works = tuple(_work(part, tiling.uses, reads) for part in parts)
            beside = group in tiling.beside
            units.append(PlannedUnit(works=works, beside=beside, groups=pair, layers=parts))
        kept = find_kept([() if unit.cascade else unit.works for unit in units], hw)
        if store_all:
            kept = [keep and replace(keep, stored=True) for keep in kept]
        found.append([replace(u, keep=keep) for u, keep in zip(units, kept, strict=True)])
    return found


def in_rounds(
    units: Sequence[PlannedUnit], works: Sequence[Work], images: int
) -> Iterator[PlannedUnit]:
    """So many images of some layers (works: of all images) after the other."""
    for first in range(0, works[0].shape.images, images):
        for unit, work in zip(units, works, strict=True):
            yield replace(unit, works=(replace(work, images=(first, images)),), keep=None)


def _rounds(tiling: Tiling, rounds: Rounds, reads: Mapping[int, int]) -> Iterator[PlannedUnit]:
    parts = [tiling.layers[group] for group in rounds.groups]
    works = [_work(part, tiling.uses, reads) for (part,) in parts]
    units = [
        PlannedUnit(works=(work,), groups=(group,), layers=layers)
        for group, layers, work in zip(rounds.groups, parts, works, strict=True)
    ]
    return in_rounds(units, works, rounds.images)


def _cascade(tiling: Tiling, together: Together, *, store_all: bool) -> PlannedUnit:
    cascade = together.cascade
    if store_all:
        cascade = replace(cascade, stored=(True,) * len(cascade.works))
    return PlannedUnit(
        works=cascade.works,
        cascade=cascade,
        groups=together.groups,
        layers=tuple(tiling.layers[group][0] for group in together.groups),
    )


def _work(planned: PlannedLayer, uses: Mapping[int, TensorUse], reads: Mapping[int, int]) -> Work:
    layer, writes = planned.layer, uses[planned.layer.output].place
    return layer.work(
        planned.tile,
        planned.ranges,
        planned.unfold,
        uses[layer.source].place,
        writes,
        reads[writes.home],
    )
