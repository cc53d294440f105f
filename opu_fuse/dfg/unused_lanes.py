"""What the lanes of a map's last word that hold no channel stand for.

Where the array sums channels of two computed maps, the products of such lanes are in the sum. So
one of the maps at least has to have zeros there. A pass over the array writes zeros, since the
parameters of absent channels are zero, and so does the host. A norm writes its zero point there.
Operators of one value keep them if they map zero to zero.
"""

import numpy as np

from opu_fuse.dfg.graph import Dfg, Kind, Node

_WRITE_ZEROS = frozenset(
    (
        *("conv", "dense", "transposed_conv", "matmul", "transpose", "shuffle"),
        *("softmax", "layer_norm", "rms_norm"),
    )
)


def ends_in_zeros(dfg: Dfg, index: int) -> bool:
    """Whether unused lanes of a value stand for zero, whichever group stores it. Lanes that other
    values use do not count.
    """
    node = dfg[index]
    if node.kind is not Kind.CALL or node.is_host or node.op in {*_WRITE_ZEROS, "concat"}:
        return True
    if node.is_virtual:
        return ends_in_zeros(dfg, node.operands[0])
    if node.op == "clip":
        kept = node.attrs["min"] <= 0.0 <= node.attrs["max"]
    else:
        kept = node.op != "table" or _is_zero_at_zero(dfg, node)
    computed = [i for i in node.operands if dfg[i].kind is not Kind.CONST]
    return kept and all(ends_in_zeros(dfg, i) for i in computed)


def _is_zero_at_zero(dfg: Dfg, node: Node) -> bool:
    from opu_fuse.dfg.ort_operator import run_call  # starts ONNX Runtime

    source = dfg[node.operands[0]]
    (result,) = run_call(node, {source.value: np.zeros(source.shape, np.float32)})
    return not result.any()
