"""The maps of a pass: lanes of the channels that the array sums, rows that have weights of their
own, and where input and output are stored.
"""

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout, Storage, unit_storage
from opu_fuse.layout.lanes import LaneMap, alone, in_a_word, loads_zeros, sharing_words
from opu_fuse.layout.pixel_packing import Pass
from opu_fuse.lowering.handlers import Draft, ends_before
from opu_fuse.units import BY_STAGE


def summed_lanes(draft: Draft, lanes: LaneMap) -> Pieces:
    """Lanes of the input channels of a pass, over which the array sums.

    A map that the array reads as weights gives its own lanes, since products are formed lane by
    lane: the first operand must have the same ones, and the unit matrix has any. Raises DoesNotFit
    where lanes of other channels would join the sum.
    """
    if draft.second is None or draft.anchor is None:
        return lanes[draft.source].pieces
    dfg, hw, node = draft.dfg, draft.hw, draft.dfg[draft.anchor]
    width = hw.word_channels
    own = lanes[draft.second].pieces
    shared = [] if in_a_word(draft.second, lanes, hw) else [draft.second]
    if node.op == "matmul":
        if not (alone(draft.second, lanes, width) or loads_zeros(dfg, node, lanes, hw)):
            shared.append(draft.second)
        if lanes[draft.source].pieces != own:
            shared.append(draft.source)
        shared += sharing_words(dfg, node, lanes, hw)
    for value in shared:
        raise DoesNotFit(
            node.name,
            f"{dfg[value].name} shares words with other channels, and a product of two "
            "maps takes whole words",
            f"give heads and parts multiples of {width} channels",
        )
    return own


def sequences(draft: Draft) -> int:
    """Rows of the maps of a product that are multiplied one by one, 1 for other passes.

    Each row has weights of its own, and is tiled like an image of a batch. Raises DoesNotFit where
    a later stage reads pixels of several rows.
    """
    across_rows = (i for i in draft.stages if i.broadcast or BY_STAGE[i.stage].windows)
    stage = next(across_rows, None)
    if draft.sequences > 1 and stage is not None:
        first = draft.anchor if draft.anchor is not None else draft.stages[0].node
        raise ends_before(
            draft.dfg[stage.node],
            f"{draft.dfg[first].name} computes its {draft.sequences} rows one by one",
        )
    return draft.sequences


class Storages(NamedTuple):
    """Storage in DRAM of the maps of a pass: its source, its output, the map that the array reads
    as weights, the residuals, and the gate.
    """

    reads: Storage
    writes: Storage
    reads_second: Storage | None
    reads_residuals: tuple[Storage, ...]
    reads_gate: Storage | None


def storages_of(dfg: Dfg, layout: DataLayout, layer: Pass, hw: HwSpec) -> Storages:
    """Storage of the maps of a pass."""
    shape, of = layer.shape, partial(layout.storage, dfg, hw)
    if shape.unit:
        reads = unit_storage(shape.in_channels, shape.in_cols, hw)
    else:
        reads = of(layer.source)
        reads = replace(reads, layout=reads.layout.of_cols(shape.in_cols))
    second, gate = (None if node is None else of(node) for node in (layer.second, layer.gate))
    return Storages(reads, of(layer.output), second, tuple(map(of, layer.residuals)), gate)
