"""Copies of joined maps whose channels a norm, or the other operand of a sum, needs in other lanes.

A Concat of maps that fill no whole words leaves unused lanes, and a Split gives parts that begin
inside a word. Layers read any lanes. But a norm takes all channels of its words, and a sum or a
product adds lane by lane, so the host would compute it. The array copies such a map to lanes from 0
on, which costs the multiplications of a layer with as many channels. All that keeps lanes on the
way to the norm reads the copy as well: depthwise layers, functions, sums.
"""

import dataclasses
from collections.abc import Callable, Iterator

from opu_fuse.dfg.graph import PRODUCTS, Dfg, Kind, Node
from opu_fuse.dfg.packed_copies import copy_name, with_packed_copies
from opu_fuse.fuse.partition import members, views_of_groups
from opu_fuse.fuse.strategies.strategy_names import REWRITING
from opu_fuse.hw.dram_layout import is_plain
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import layouts
from opu_fuse.layout.lanes import LaneMap, keeps_lanes, map_lanes
from opu_fuse.model.operator_sets import NORM_OPERATORS
from opu_fuse.schedule.insert_copies import Fused, Tiles

_ROUNDS = 4
"""Rounds of copies, since what the machine runs with some may need others; and of leaving out the
useless ones of a round. Each fuses the graph.
"""
_BY_LANES = frozenset({"add", "multiply", *NORM_OPERATORS.values()})
"""Operators that the host computes where lanes differ."""
Regions = dict[int, list[int]]
"""Value -> all values that have its lanes through operators that keep them, itself included."""
_WHY = "copied to lanes from 0 on: {} cannot read those that a Concat or Split gives it"


def fuse_with_aligned_copies(
    dfg: Dfg, hw: HwSpec, fuse: Callable[[Dfg], Fused[Tiles]]
) -> Fused[Tiles]:
    """Fuse the graph; copy joined maps where fewer operators are left to the host then."""
    fused = fuse(dfg)
    if fused.partition.strategy not in REWRITING or not hw.build:
        return fused
    reasons: dict[str, str] = {}
    for _ in range(_ROUNDS):
        tried = _with_copies(dfg, hw, fused, fuse, reasons)
        if tried is None:
            break
        dfg, fused = tried
    if not reasons:
        return fused
    rewrites = {**fused.partition.rewrites, **reasons}
    return fused._replace(partition=dataclasses.replace(fused.partition, rewrites=rewrites))


def _with_copies(
    dfg: Dfg,
    hw: HwSpec,
    fused: Fused[Tiles],
    fuse: Callable[[Dfg], Fused[Tiles]],
    reasons: dict[str, str],
) -> tuple[Dfg, Fused[Tiles]] | None:
    """The graph with more copies, and its groups; None where they leave as much to the host.

    reasons: of the copies, by name; grows.
    """
    known = {_key(node): node.index for node in dfg.nodes}
    wanted: dict[tuple[int, int], set[str]] = {}
    for node, *edge in _misaligned(fused, hw):
        value, reader = (known.get(_key(end)) for end in edge)
        if value is not None and reader is not None:
            wanted.setdefault((value, reader), set()).add(node.name)
    for _ in range(_ROUNDS):
        if not wanted:
            break
        graph = with_packed_copies(dfg, wanted)
        tried = fuse(graph)
        on_host = {tried.dfg[op.node].name for op in tried.partition.host}
        useful = {edge: names for edge, names in wanted.items() if not names <= on_host}
        if len(useful) == len(wanted):
            if _left(tried) >= _left(fused):
                return None
            for (value, _), names in wanted.items():
                reasons[copy_name(dfg, value)] = _WHY.format(min(names - on_host))
            return graph, tried
        wanted = useful
    return None


def _left(fused: Fused[Tiles]) -> int:
    """Operators that the host computes."""
    return len(fused.partition.host) - len(views_of_groups(fused.dfg, fused.partition))


def _key(node: Node) -> tuple[str, Kind, str]:
    """What identifies a node in graphs that differ in copies."""
    return node.name, node.kind, node.op


def _misaligned(fused: Fused[Tiles], hw: HwSpec) -> Iterator[tuple[Node, Node, Node]]:
    """Yield (host operator that needs other lanes, value, reader of it that needs a copy)."""
    dfg, partition = fused.dfg, fused.partition
    on_host = {op.node for op in partition.host}
    claimants = [dfg[i] for i in sorted(on_host) if dfg[i].op in _BY_LANES]
    if not claimants:
        return
    lanes = map_lanes(dfg, hw, layouts(dfg, members(partition)))
    regions: Regions = {}
    for node in claimants:
        for operand in node.operands:
            for value, reader in _edges(dfg, hw, lanes, dfg.base(operand), regions):
                yield node, dfg[value], dfg[reader]


def _edges(
    dfg: Dfg, hw: HwSpec, lanes: LaneMap, value: int, regions: Regions
) -> Iterator[tuple[int, int]]:
    """Edges (value, reader) that have to change lanes, for a value to have them from 0 on: those to
    readers of a joined map that keep its lanes, or those to the Splits for which a layer gives
    each part words of its own.
    """
    pieces = lanes[value].pieces
    origin = _origin(dfg, hw, lanes, value)
    node = dfg[origin]
    if is_plain(pieces):
        return
    if node.op == "concat" or node.kind is Kind.TUPLE_GET:
        yield from ((origin, i) for i in dfg.users[origin] if _needs_lanes(dfg, hw, dfg[i]))
        return
    for index in _with_same_lanes(dfg, hw, lanes, value, regions):
        yield from ((index, i) for i in dfg.users[index] if dfg[i].op == "split")


def _with_same_lanes(
    dfg: Dfg, hw: HwSpec, lanes: LaneMap, value: int, regions: Regions
) -> list[int]:
    """The values that have the lanes of a value since operators between keep them."""
    if value in regions:
        return regions[value]
    found, pieces = [value], lanes[value].pieces
    regions[value] = found
    for index in found:  # grows
        near = [i for i in dfg.users[index] if keeps_lanes(dfg, hw, dfg[i])]
        if keeps_lanes(dfg, hw, dfg[index]):
            near += dfg[index].operands
        for i in near:
            if lanes[i].pieces == pieces and i not in regions:
                regions[i] = found
                found.append(i)
    return found


def _origin(dfg: Dfg, hw: HwSpec, lanes: LaneMap, value: int) -> int:
    """The value from which a value has its lanes."""
    while keeps_lanes(dfg, hw, dfg[value]):
        sources = [dfg.base(i) for i in dfg[value].operands if dfg[i].kind is not Kind.CONST]
        value = next((i for i in sources if not is_plain(lanes[i].pieces)), sources[0])
    return value


def _needs_lanes(dfg: Dfg, hw: HwSpec, node: Node) -> bool:
    """Whether a reader of a map needs its lanes: layers, Concats and the host do not."""
    return keeps_lanes(dfg, hw, node) or node.op in PRODUCTS or node.op == "split"
