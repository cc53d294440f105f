"""What a timed run says about groups and modules: busy engines, tiles, bounds."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, GroupInfo, MachineSegment
from opu_fuse.bundle.result import RunResult, with_head_cycle
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hdfg import build_hdfg
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.report.group_rows import GroupRow, group_rows
from opu_fuse.units.base import ModuleKind

Tree = dict[str, Any]

ENGINE_LIMITS = {"compute": "array", "post": "post", "load": "memory", "store": "memory"}
"""Engine -> what bounds a group whose longest engine it is."""


@dataclass(frozen=True)
class RunFigures:
    """A program and a run of it on an engine that has time."""

    bundle: Bundle
    hw: HwSpec
    run: RunResult

    @cached_property
    def rows(self) -> tuple[GroupRow, ...]:
        return group_rows(self.bundle, self.run)

    @cached_property
    def busy(self) -> Counter[tuple[int, str]]:
        """(group, engine) -> cycles in which it was open and first on its engine."""
        busy_cycles: Counter[tuple[int, str]] = Counter()
        for r, start in with_head_cycle(self.run.trace):
            busy_cycles[r.group, r.engine] += r.end - start
        return busy_cycles

    @cached_property
    def tiles(self) -> dict[int, list[tuple[int, ...]]]:
        """Group -> its tiles, as `MachineSegment.tiles` records them."""
        tiles_of: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for segment in self.bundle.segments:
            if isinstance(segment, MachineSegment):
                engines = (x.engine for x in decode(segment_words(self.bundle, segment)))
                posts = [
                    g for g, e in zip(segment.groups, engines, strict=True) if e is Engine.POST
                ]
                for group, tile in zip(posts, segment.tiles, strict=True):
                    tiles_of[group].append(tile)
        return tiles_of

    def groups(self) -> Iterator[Tree]:
        """A tree per group: cycles, work, memory traffic, tiles, and the engine that bounds it."""
        for row in self.rows:
            group = row.group
            busy = {e: self.busy[group.index, e] for e in ENGINE_LIMITS}
            yield {
                "index": group.index,
                "name": group.name,
                "operators": [o.op for o in group.ops],
                "modules": list(dict.fromkeys(o.module for o in group.ops if o.module)),
                "cycles": row.cycles,
                "predicted_cycles": group.cycles,
                "macs": group.macs,
                "mac_efficiency": row.mac_efficiency,
                "dram_bytes": row.dram_bytes,
                "tile": _tile(group, self.tiles[group.index]),
                "busy": busy,
                "bound_by": ENGINE_LIMITS[max(busy, key=lambda e: busy[e])],
            }

    def modules(self) -> list[Tree]:
        """A tree per module: number of uses, and the share of all cycles in which its engine is
        busy for groups that use it. Data enter through the root in every group.
        """
        flow, engine_of = self.hw.dataflow, _engine_of(self.hw)
        cycles = self.run.counters.get("cycles", 0)
        used = Counter(o.module for g in self.bundle.groups for o in g.ops if o.module)
        users: Mapping[str, list[int]] = {
            name: [
                g.index
                for g in self.bundle.groups
                if name == flow.root or any(o.module == name for o in g.ops)
            ]
            for name in flow.modules
        }
        busy = {
            name: sum(self.busy[g, engine] for g in users[name])
            for name, engine in engine_of.items()
        }
        most = max(busy, key=lambda name: busy[name])
        return [
            {
                "name": name,
                "kind": module.kind.value,
                "engine": engine_of[name],
                "operators": used[name],
                "groups": len(users[name]),
                "busy_cycles": busy[name],
                "busy_share": busy[name] / cycles if cycles else 0.0,
                "bounds": name == most,
            }
            for name, module in flow.modules.items()
        ]


def _tile(group: GroupInfo, tiles: list[tuple[int, ...]]) -> Tree:
    """How many, and output rows and columns of the largest one."""
    stored = next((s for s in group.stages if s.stored), None)
    sizes = {}
    for axis, field, whole in (("rows", 2, "rows"), ("cols", 3, "cols")):
        firsts = sorted({tile[field] for tile in tiles})
        last = getattr(stored, whole) if stored else (firsts[-1] + 1 if firsts else 0)
        sizes[axis] = max(np.diff([*firsts, last]), default=0)
    return {
        "count": len(tiles),
        "rows": int(sizes["rows"]),
        "cols": int(sizes["cols"]),
        "channel_blocks": len({tile[4] for tile in tiles}),
    }


def _engine_of(hw: HwSpec) -> dict[str, str]:
    """Module -> engine: the reader of memory, the array with its predecessors, the post chain
    after it, the writer.
    """
    import networkx as nx

    graph, kinds = build_hdfg(hw), {n: m.kind for n, m in hw.dataflow.modules.items()}
    arrays = [name for name, kind in kinds.items() if kind is ModuleKind.IPA]
    downstream = {name for array in arrays for name in nx.descendants(graph, array)} - {*arrays}
    memory = {ModuleKind.MEM_RD: "load", ModuleKind.MEM_WR: "store"}
    return {
        name: memory.get(kind, "post" if name in downstream else "compute")
        for name, kind in kinds.items()
    }
