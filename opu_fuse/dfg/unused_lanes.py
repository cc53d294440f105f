"""What the lanes of a map's last word that hold no channel stand for.

Where the array sums channels of two computed maps, the products of such lanes are in the sum. So
one of the maps at least has to have zeros there. A pass over the array writes zeros, since the
parameters of absent channels are zero, and so does the host. A norm writes its zero point there.
Other operators apply to all lanes of a word: they keep zeros if they map zero to zero.
"""

from collections.abc import Iterator

import numpy as np

from opu_fuse.dfg.graph import Dfg, Kind, Node


def ends_in_zeros(dfg: Dfg, index: int) -> bool:
    """Whether unused lanes of a value stand for zero, whichever group stores it. Lanes that other
    values use do not count.
    """
    return all(_keeps_zeros(dfg, node) for node in lane_sources(dfg, index) if node.passes_lanes)


def lane_sources(dfg: Dfg, index: int) -> Iterator[Node]:
    """A value, and those that its unused lanes are computed from, each once."""
    stack, seen = [index], {index}
    while stack:
        node = dfg[stack.pop()]
        yield node
        if node.passes_lanes:
            computed = [i for i in node.operands if dfg[i].kind is not Kind.CONST]
            stack += [i for i in computed if i not in seen]
            seen.update(computed)


def _keeps_zeros(dfg: Dfg, node: Node) -> bool:
    match node.op:
        case "clip":
            return node.attrs["min"] <= 0.0 <= node.attrs["max"]
        case "pad":
            return node.attrs["value"] == 0.0
        case "table":
            return _is_zero_at_zero(dfg, node)
        case _:
            return True


def _is_zero_at_zero(dfg: Dfg, node: Node) -> bool:
    from opu_fuse.dfg.ort_operator import run_call  # starts ONNX Runtime

    source = dfg[node.operands[0]]
    (result,) = run_call(node, {source.value: np.zeros(source.shape, np.float32)})
    return not result.any()
