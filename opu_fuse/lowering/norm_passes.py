"""A norm in a pass: statistics of a pixel come from all of its channels, those of a map from all of
its pixels, in passes of their own.
"""

from typing import Any

from opu_fuse.dfg.graph import Node
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.lowering.handlers import Draft, ends_before
from opu_fuse.normalisation import BY_ROWS
from opu_fuse.units import BY_STAGE
from opu_fuse.units.norm import MAP_MAX


def norm_sizes(draft: Draft, pieces: Pieces) -> dict[str, Any]:
    """Fields of `Shape` about the norm of a pass, {} without one. pieces: lanes of its output.

    Raises DoesNotFit where the unit cannot normalise.
    """
    norms = [item for item in draft.stages if BY_STAGE[item.stage].passes]
    if not norms:
        return {}
    node = draft.dfg[norms[0].node]
    if len(norms) > 1:
        raise ends_before(
            draft.dfg[norms[1].node], f"a pass normalises once, and {node.name} does already"
        )
    if any(BY_STAGE[item.stage].windows for item in draft.stages):
        raise DoesNotFit(
            node.name,
            "a pass that pools has no statistics of single pixels",
            "end the group before the pool, or after it",
        )
    if pieces != ((0, draft.pre_pool[0]),):
        raise DoesNotFit(
            node.name,
            "its channels share words with those of other values",
            f"give what a Concat or Split before it joins or cuts multiples of "
            f"{draft.hw.word_channels} channels",
        )
    unit = BY_STAGE[norms[0].stage]
    if node.op in unit.lanes_read and draft.pre_pool[0] > draft.hw.word_channels:
        raise DoesNotFit(
            node.name,
            f"it has {draft.pre_pool[0]} channels, a word has {draft.hw.word_channels}",
            "give it fewer channels",
        )
    if node.op in unit.of_quarters and draft.pre_pool[0] != draft.hw.word_channels:
        raise DoesNotFit(
            node.name,
            f"its groups fill {draft.pre_pool[0]} lanes, a word has {draft.hw.word_channels}",
            "give it groups of a quarter of a word",
        )
    whole_map = node.op in unit.of_map
    if whole_map:
        _require_one_pass(draft, node)
    return {
        "passes": unit.passes[node.op],
        "exponentials": node.op in unit.looks_up,
        "whole_map": whole_map,
    }


def _require_one_pass(draft: Draft, node: Node) -> None:
    """Raise DoesNotFit unless a pass computes the whole map of a norm, and its sums hold it."""
    rows_alone = BY_ROWS in node.attrs
    if draft.transposed is not None or (draft.sequences > 1 and not rows_alone):
        raise DoesNotFit(
            node.name,
            "it normalises a whole map, and the operator before it computes parts of one",
            "end the group before it",
        )
    channels, rows, cols = draft.pre_pool
    rows = 1 if rows_alone else rows
    values = rows * cols * -(-channels // draft.hw.word_channels) * draft.hw.word_channels
    if values > MAP_MAX:
        raise DoesNotFit(
            node.name,
            f"its map has {values} values with those of unused lanes, sums hold {MAP_MAX}",
            "give it a smaller map",
        )
