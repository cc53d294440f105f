"""Maps that a pass reads and writes: lanes that the array sums, rows, and where they are stored."""

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout, Storage, unit_storage
from opu_fuse.layout.lanes import LaneMap, alone, in_a_word, loads_zeros, sharing_words
from opu_fuse.layout.pixel_packing import Pass
from opu_fuse.lowering.handlers import UNIT, Draft, ends_before
from opu_fuse.units import BY_STAGE


def summed_lanes(draft: Draft, lanes: LaneMap) -> Pieces:
    """Lanes of the channels that the array sums. Raises DoesNotFit where the maps of a product
    share words with other channels.
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
    """Rows of a pass that have weights of their own, each of which is tiled like an image of a
    batch. Raises DoesNotFit for operators after them that look at several rows.
    """
    whole = (i for i in draft.stages if i.broadcast or BY_STAGE[i.stage].windows)
    reader = next(whole, None)
    if draft.sequences > 1 and reader is not None:
        assert draft.anchor is not None, "a product has sequences"
        raise ends_before(
            draft.dfg[reader.node],
            f"{draft.dfg[draft.anchor].name} computes its {draft.sequences} rows one by one",
        )
    return draft.sequences


def storages_of(dfg: Dfg, layout: DataLayout, found: Pass, hw: HwSpec) -> tuple[Storage, Storage]:
    """Storage of the input of a pass and of its output."""
    writes = layout.storage(dfg, hw, found.output)
    if found.source == UNIT:
        return unit_storage(found.shape.in_channels, found.shape.in_cols, hw), writes
    reads = layout.storage(dfg, hw, found.source)
    return replace(reads, layout=reads.layout.of_cols(found.shape.in_cols)), writes
