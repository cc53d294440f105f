"""Masked scores of a softmax do not widen the range that int8 covers.

Attention adds a mask to its scores: 0 where a token counts, and -3.4e38, -10000 or -100 where it
does not. Any number that is far enough below the scores gives the same softmax, since int8
saturates. So what is masked is taken as MARGIN below the mean score. A mask's own scale covers
several times the range of the scores, so that the sum saturates. Where a mask is minus infinity
and the importer has not replaced it (`importing/recognise_masks.py`), the host adds it.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import is_standard
from opu_fuse.frontend.quantization.activation_ranges import Range, not_finite
from opu_fuse.model.operator_sets import PERMUTES, UNMOVED
from opu_fuse.quant import FLOAT_KEY, INFINITE

MARGIN = 8.0
"""exp(-8) is a twelfth of the step of a softmax result with scale 1/256."""
GAP = 32.0
"""Least distance of masked values from the others, which also exceeds the range of these."""
_TIMES = 4.0
"""Range of a mask over that of the scores: more than twice, as a score may be at either end."""


def without_masks(graph: ir.Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """`ranges`, with masked values of scores and masks moved next to the others."""
    kinds = _read_by_softmax(graph)
    found = {
        name: floor
        for name, r in ranges.items()
        if name in kinds and (floor := _floor(r)) is not None
    }
    scores = {n: _lowest_score(ranges[n], floor) for n, floor in found.items() if kinds[n]}
    reach = max((ranges[n].high - low for n, low in scores.items()), default=0.0)
    lows = {name: scores.get(name, -_TIMES * reach) for name in found}
    return {n: _raised(r, lows[n]) if n in lows else r for n, r in ranges.items()}


def leave_infinite(values: Sequence[ir.Value], ranges: Mapping[str, Range]) -> str:
    """Mark what reads or writes these values to remain in floats. Returns the warning.

    values: not finite, in graph order. Raises ModelError if one is NaN and not the result of an
    operator that reads another: then the mask is not the cause.
    """
    marked: set[ir.Node | None] = set()
    for value in values:
        name, producer = value.name or "", value.producer()
        if np.isnan(ranges[name].low) and producer not in marked:
            raise not_finite(name)
        marked |= {producer, *value.consumers()}
    for node in filter(None, marked):
        node.metadata_props[FLOAT_KEY] = INFINITE
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    return (
        f"tensor {values[0].name!r}{more}: the float model computes minus infinity, so the host"
        " runs the operators around it; let masks hold a finite number, -10000 for example"
    )


def _read_by_softmax(graph: ir.Graph) -> dict[str, bool]:
    """Values that nothing but a Softmax reads, directly or through moves and sums -> whether no sum
    comes between.
    """
    kinds: dict[ir.Value, bool] = {}
    outputs = set(graph.outputs)

    def of_use(node: ir.Node, index: int) -> bool | None:
        if is_standard(node, "Softmax"):
            return True
        moves = index == 0 and is_standard(node, *UNMOVED, *PERMUTES)
        if not (moves or is_standard(node, "Add")):
            return None
        read = kinds.get(node.outputs[0])
        return read if moves or read is None else False

    written = (node.outputs for node in reversed(graph))
    for results in (*written, graph.inputs):
        for value in results:
            uses = {of_use(use.node, use.idx) for use in value.uses()}
            if uses and None not in uses and value not in outputs:
                kinds[value] = uses == {True}
    return {value.name or "": kind for value, kind in kinds.items()}


def _floor(r: Range) -> float | None:
    """The least value that is not masked; None if no values are masked."""
    values = np.unique(r.samples).astype(np.float64)
    gaps = np.diff(values)
    if not gaps.size:
        return None
    above = int(np.argmax(gaps)) + 1
    is_mask = gaps[above - 1] > max(GAP, values[-1] - values[above])
    return float(values[above]) if is_mask else None


def _lowest_score(r: Range, floor: float) -> float:
    mean = float(np.mean(r.samples[r.samples >= floor], dtype=np.float64))
    return min(floor, mean - MARGIN)


def _raised(r: Range, low: float) -> Range:
    return msgspec.structs.replace(r, low=low, samples=np.maximum(r.samples, np.float32(low)))
