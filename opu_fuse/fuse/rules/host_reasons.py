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
    HostReason.COMPUTED_PLACES: (
        "reads or writes at places that are computed: a machine walks through memory by "
        "strides that are known when the network is compiled"
    ),
    HostReason.ACROSS_CHANNELS: (
        "needs a sum, an order or the largest of values of several channels or of a whole "
        "map, most also a division by it: behind the array each channel goes its own way"
    ),
    HostReason.COMPUTED_FACTORS: (
        "multiplies values by others that are computed: the array's second operand are "
        "weights, laid out in memory when the network is compiled"
    ),
    HostReason.CONTROL_FLOW: (
        "reads in each step what the step before made, or goes another way by what it reads: "
        "a program has neither loops nor branches"
    ),
    HostReason.NOT_REAL: (
        "works on integers, truth values or bits, or tells them from numbers: a machine's "
        "values are int8 that stand for real numbers, with scales known when the network is "
        "compiled"
    ),
    HostReason.MAKES_NUMBERS: (
        "makes numbers of a shape or of nothing, which happens when the network is compiled; "
        "left is what depends on data or chance"
    ),
    HostReason.COMPLEX: ("is a transform with complex numbers"),
    HostReason.TWO_MAPS: (
        "combines two computed maps: these a machine adds or subtracts, or multiplies one by "
        "a number for each channel of the other"
    ),
    HostReason.UNBOUNDED: (
        "is a function without value in places or without bound, or one that networks hardly "
        "use: no table is made for it"
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
