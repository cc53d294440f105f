"""Narrow maps that share words with others are copied to words of several pixels, or computed again
in such words, where that is faster.

A map that a Concat joins or a Split cuts has one pixel in a word, so that all its readers find its
channels in the same lanes. A convolution of few channels that reads it leaves most of the array
idle: data fetch reads two words a cycle, so it computes two pixels at a time, and four from a copy
with four pixels in a word. If the map is a part of one that a point convolution computes from words
of several pixels, that is faster than a copy, which reads one pixel at a time.

A sum has as many pixels in a word as the maps that are added. So a joined sum leaves whole words to
a chain of sums before it. Its copy is joined instead, and the chain has words of several pixels:
the first convolution of the chain computes those of a word one after the other.
"""

import dataclasses
from collections.abc import Callable, Iterator
from heapq import nlargest
from itertools import chain
from math import prod

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.packed_copies import copy_name, layer_of_part, with_packed_copies
from opu_fuse.fuse.strategies.strategy_names import REWRITING
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.emitted_units import planned_units
from opu_fuse.schedule.insert_copies import Fitted
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.tile_choice import Tiling
from opu_fuse.timing.segment_cycles import cycles

_TRIED = 8
"""Copies that are tried, those for the longest convolutions: each fuses the graph once more."""

_WHY = "copied with several pixels in a word: a convolution of few channels reads it"
_JOINED = "copied to whole words for a concatenation: the sums before have several pixels in a word"
_AGAIN = "computed again with several pixels in a word: a convolution of few channels reads it"


def fuse_with_packed_copies(dfg: Dfg, hw: HwSpec, fuse: Callable[[Dfg], Fitted]) -> Fitted:
    """Fuse the graph; copy narrow maps where the timed tile schedule is faster then."""
    fused = fuse(dfg)
    if fused.partition.strategy not in REWRITING or not hw.build:
        return fused
    taken: list[tuple[int, int]] = []
    candidates = chain(_narrow_readers(dfg, fused, hw), _joined_sums(dfg, fused, hw))
    narrow = nlargest(_TRIED, candidates)
    again = {value for _, value, _ in narrow if _reads_slots(dfg, value, fused, hw)}
    before = _cycles(fused.tiling, hw) if narrow else 0.0
    for _, value, reader in narrow:
        graph = with_packed_copies(dfg, [*taken, (value, reader)], again)
        tried = fuse(graph)
        name, after = copy_name(dfg, value), _cycles(tried.tiling, hw)
        on_host = {tried.dfg[op.node].name for op in tried.partition.host}
        if name not in on_host and after < before:
            reason = _JOINED if dfg[reader].kind is Kind.TUPLE else _WHY
            why = {**fused.partition.rewrites, name: _AGAIN if value in again else reason}
            fused = tried._replace(partition=dataclasses.replace(tried.partition, rewrites=why))
            before = after
            taken.append((value, reader))
    return fused


def _cycles(tiling: Tiling, hw: HwSpec) -> float:
    return sum(cycles(units, hw) for units in planned_units(tiling, hw) if units)


def _narrow_readers(dfg: Dfg, fitted: Fitted, hw: HwSpec) -> Iterator[tuple[int, int, int]]:
    """Yield (array cycles, value, convolution that reads it) where a copy may pay, as indices of
    the graph.
    """
    most = max(mode.px for mode in hw.array.modes)
    by_name = {node.name: node for node in dfg.calls if node.op == "conv"}
    for parts in fitted.tiling.layers.values():
        layer = parts[0].layer
        node = None if layer.anchor is None else by_name.get(fitted.dfg[layer.anchor].name)
        if node is None or layer.source not in fitted.tiling.layout.sharers:
            continue
        if _is_narrow(layer, most, hw):
            yield parts[0].estimate.compute_cycles, node.operands[0], node.index


def _joined_sums(dfg: Dfg, fitted: Fitted, hw: HwSpec) -> Iterator[tuple[int, int, int]]:
    """Yield (array cycles, value, tuple of a concat that reads it) where a narrow residual sum has
    whole words only because it is joined, and so have the maps added before it.
    """
    most = max(mode.px for mode in hw.array.modes)
    by_name = {node.name: node.index for node in dfg.calls}
    sharers = fitted.tiling.layout.sharers
    for parts in fitted.tiling.layers.values():
        layer, shape = parts[0].layer, parts[0].layer.shape
        channels = sum(lanes for _, lanes in layer.out_pieces)
        joined = layer.output in sharers and not sharers.issuperset(layer.residuals)
        few = shape.px < most and channels * most <= hw.word_channels
        value = by_name.get(fitted.dfg[layer.output].name)
        if joined and few and value is not None and prod(shape.window.kernel) > 1:
            readers = [u for u in dfg.users[value] if dfg[u].kind is Kind.TUPLE]
            yield from ((parts[0].estimate.compute_cycles, value, u) for u in readers)


def _reads_slots(dfg: Dfg, value: int, fitted: Fitted, hw: HwSpec) -> bool:
    """Whether a value is part of what a point convolution computes from words of several pixels."""
    names = {node.name for node in layer_of_part(dfg, value)[:1]}
    layers = (parts[0].layer for parts in fitted.tiling.layers.values())
    return any(
        layer.shape.slot < hw.word_bytes
        for layer in layers
        if layer.anchor is not None and fitted.dfg[layer.anchor].name in names
    )


def _is_narrow(layer: Layer, most: int, hw: HwSpec) -> bool:
    """Whether `most` pixels of a layer's input fit a word, and the array computes few of them at a
    time although each is in several windows.
    """
    shape, channels = layer.shape, sum(lanes for _, lanes in layer.in_pieces)
    reads = shape.slot == hw.word_bytes and not (shape.depthwise or shape.pre or shape.phased)
    few = shape.px < most and channels * most <= hw.word_channels
    return reads and few and prod(shape.window.kernel) > 1 and not shape.computed
