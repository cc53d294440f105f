"""The forms in which machines know an ONNX operator; whatever is written differently runs on the
host.

In words, what `dfg/lower.py` decides in code.
"""

from collections.abc import Mapping

_WINDOW = "one four-dimensional operand of known shape, explicit pads and no ceil_mode"
_KNOWN = "operands and a result of known shape that stand for real numbers"

FORMS: Mapping[str, str] = {
    "Conv": "constant weights (o, i, h, w), a constant bias and explicit pads",
    "Gemm": "a two-dimensional operand, constant weights and a constant bias",
    "MatMul": "a two-dimensional operand and constant weights",
    "Add": _KNOWN,
    "Mul": _KNOWN,
    "Relu": _KNOWN,
    "Clip": f"{_KNOWN}, and constant bounds",
    "LeakyRelu": _KNOWN,
    "MaxPool": _WINDOW,
    "AveragePool": _WINDOW,
    "GlobalMaxPool": _WINDOW,
    "GlobalAveragePool": _WINDOW,
    "Pad": "mode constant, four dimensions, constant pads that add something, batch left alone",
    "Concat": _KNOWN,
    "Resize": "mode nearest, whole factors for rows and columns, and asymmetric coordinates with "
    "floor or half_pixel ones with round_prefer",
    "Reshape": _KNOWN,
}
