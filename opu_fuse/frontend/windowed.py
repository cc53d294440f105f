"""Attributes of operators with windows that onnx's inference lets pass: convolutions and pools."""

import math
from collections.abc import Sequence

import onnx_ir as ir

from opu_fuse.frontend.editing import is_standard, operand, static_shape

CONVOLUTIONS = ("Conv", "ConvTranspose")
POOLS = ("MaxPool", "AveragePool", "LpPool")
_AT_LEAST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
_LARGEST = 2**31 - 1
_AUTOMATIC = {"", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}


def mistake_of_window(node: ir.Node) -> str | None:
    """What is wrong with a convolution or pool; None when nothing is, and for other operators.

    Shapes are known. An operator with fewer than three dimensions has no window.
    """
    if not is_standard(node, *CONVOLUTIONS, *POOLS):
        return None
    size = static_shape(operand(node, 0))
    if size is None:
        return None
    if len(size) < 3:
        return f"its operand has {len(size)} dimensions, at least 3 are needed"
    wrong = _lists(node, len(size) - 2)
    if wrong is None:
        wrong = _padding(node, len(size) - 2) if node.op_type in POOLS else _weight(node, size)
    return wrong or _reach(node, size[2:])


def _lists(node: ir.Node, rank: int) -> str | None:
    for name, least in _AT_LEAST.items():
        values = node.attributes.get_ints(name)
        count = 2 * rank if name == "pads" else rank
        if values is None:
            if name == "kernel_shape" and node.op_type in POOLS:
                return "kernel_shape is missing"
            continue
        if len(values) != count:
            return f"{name} is {list(values)}, {count} numbers are needed"
        if not all(least <= v <= _LARGEST for v in values):
            return f"{name} is {list(values)}, each must be at least {least}"
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    return None if mode in _AUTOMATIC else f"auto_pad is {mode!r}"


def _padding(node: ir.Node, rank: int) -> str | None:
    """ONNX Runtime has it so: no window of a pool lies in the padding alone."""
    kernel = node.attributes.get_ints("kernel_shape", ())
    pads = node.attributes.get_ints("pads", (0,) * 2 * rank)
    dilations = node.attributes.get_ints("dilations", (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(p >= s for p, s in zip(pads, spans * 2, strict=True)):
        return f"pads {list(pads)} are not smaller than the window {_text(spans)}"
    return None


def _weight(node: ir.Node, size: Sequence[int]) -> str | None:
    weight, bias = static_shape(operand(node, 1)), static_shape(operand(node, 2))
    group = node.attributes.get_int("group", 1)
    if weight is None:
        return None
    if len(weight) != len(size) or math.prod(weight) == 0:
        return f"its weight is {_text(weight)}, its operand {_text(size)}"
    if tuple(node.attributes.get_ints("kernel_shape", weight[2:])) != weight[2:]:
        return f"kernel_shape differs from its weight of {_text(weight)}"
    if group < 1:
        return f"group is {group}"
    if node.op_type == "Conv":
        channels, outputs = weight[1] * group, weight[0]
    else:
        channels, outputs = weight[0], weight[1] * group
    if channels != size[1] or channels % group or outputs % group:
        groups = f"its weight is {_text(weight)} in {group} groups"
        return f"{groups}, its operand has {size[1]} channels"
    if bias is not None and bias != (outputs,):
        return f"its bias is {_text(bias)}, it has {outputs} output channels"
    return None


def _reach(node: ir.Node, size: Sequence[int]) -> str | None:
    """A window must fit into the map and its padding: inference rounds towards zero there."""
    weight, rank = static_shape(operand(node, 1)), len(size)
    kernel = node.attributes.get_ints("kernel_shape", weight[2:] if weight else None)
    automatic = node.attributes.get_string("auto_pad", "") in {"SAME_UPPER", "SAME_LOWER"}
    if node.op_type == "ConvTranspose" or kernel is None or automatic or 0 in size:
        return None
    pads = node.attributes.get_ints("pads", (0,) * 2 * rank)
    dilations = node.attributes.get_ints("dilations", (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    room = [n + a + b for n, a, b in zip(size, pads[:rank], pads[rank:], strict=True)]
    if any(s > n for s, n in zip(spans, room, strict=True)):
        return f"its window {_text(spans)} is larger than its padded operand {_text(room)}"
    return None


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
