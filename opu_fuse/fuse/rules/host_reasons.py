"""Why no machine runs an ONNX operator, whatever its data flow. For messages and docs/operators.md.

The supported forms of the other operators are in the records of their units (`units.FORMS`).
"""

from collections.abc import Mapping

from opu_fuse.model.operator_record import HostReason
from opu_fuse.model.operators import OPERATORS

_SENTENCES: Mapping[HostReason, str] = {
    HostReason.MOVES_CHANNELS: (
        "puts single values elsewhere: a machine reads and writes words of all channels of a "
        "pixel, and takes channels as a whole"
    ),
    HostReason.COMPUTED_ADDRESSES: (
        "reads or writes at addresses that are computed: a machine's addresses advance by "
        "strides that are known when the network is compiled"
    ),
    HostReason.ACROSS_CHANNELS: (
        "needs a sum, an order or the largest of values of several channels or of a whole "
        "map, most also a division by it: after the array each channel is computed alone"
    ),
    HostReason.COMPUTED_FACTORS: (
        "multiplies values by others that are computed: the array's second operand are "
        "weights, laid out in memory when the network is compiled"
    ),
    HostReason.CONTROL_FLOW: (
        "reads in each step the result of the step before, or branches on what it reads: "
        "a program has neither loops nor branches"
    ),
    HostReason.NOT_REAL: (
        "reads integers, truth values or bits, or separates them from numbers: a machine's "
        "values are int8 that represent real numbers, with scales known when the network is "
        "compiled"
    ),
    HostReason.MAKES_NUMBERS: (
        "computes numbers of a shape or of nothing, which happens when the network is compiled; "
        "left is what depends on data or chance"
    ),
    HostReason.COMPLEX: ("is a transform with complex numbers"),
    HostReason.TWO_MAPS: (
        "combines two computed maps in another way than machines do, which add, subtract or "
        "multiply them"
    ),
    HostReason.UNBOUNDED: (
        "is a function that is undefined for some numbers or unbounded, or one that networks "
        "hardly use: no table is computed for it"
    ),
    HostReason.NOT_TENSORS: (
        "handles sequences, texts or files, which a network's tensors are not"
    ),
}
HOST_REASONS: Mapping[str, str] = {
    name: _SENTENCES[operator.host] for name, operator in OPERATORS.items() if operator.host
}
"""Sentence by name of the ONNX operator."""


def families() -> Mapping[str, tuple[str, ...]]:
    """Reason -> names of its operators."""
    return {
        why: tuple(name for name, own in HOST_REASONS.items() if own == why)
        for why in _SENTENCES.values()
    }
