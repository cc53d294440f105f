"""Attribute checks of convolutions and pools that onnx's shape inference does not do."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from opu_fuse.frontend.editing import is_standard, static_shape
from opu_fuse.model.operator_sets import CONVOLUTIONS, POOLS
from opu_fuse.number_text import counted

_AT_LEAST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
_LARGEST = 2**31 - 1
_READ = frozenset({*_AT_LEAST, "auto_pad", "group"})
_AUTOMATIC = {"", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}


def mistake_of_window(node: ir.Node) -> str | None:
    """Error text for a convolution or pool; None if it is valid, and for other operators.

    Shapes have to be inferred before. An operand needs three dimensions or more to have a window.
    """
    if not is_standard(node, *CONVOLUTIONS, *POOLS):
        return None
    attributes = [(name, a.value) for name, a in node.attributes.data.items() if name in _READ]
    return _mistake(node.op_type, tuple(map(static_shape, node.inputs[:3])), tuple(attributes))


_Shape = tuple[int, ...] | None
_Attributes = Mapping[str, Any]


@functools.lru_cache(maxsize=1024)
def _mistake(
    op_type: str, shapes: tuple[_Shape, ...], attributes: tuple[tuple[str, Any], ...]
) -> str | None:
    """Error text, cached since a network has few distinct layers. shapes: of the operands."""
    size, weight, bias = (*shapes, None, None)[:3]
    values = dict(attributes)
    if size is None:
        return None
    if len(size) < 3:
        return f"its operand has {len(size)} dimensions, at least 3 are needed"
    wrong = _lists(values, len(size) - 2)
    if wrong is None and op_type in POOLS:
        wrong = _padding(values, len(size) - 2)
    elif wrong is None and weight is not None:
        wrong = _weight(values, size, weight, bias, transposed=op_type == "ConvTranspose")
    return wrong or (None if op_type == "ConvTranspose" else _reach(values, size[2:], weight))


def _lists(attributes: _Attributes, rank: int) -> str | None:
    """Error text for attributes of a wrong length or range. rank: of the window."""
    for name, least in _AT_LEAST.items():
        if name not in attributes:
            continue
        values, count = attributes[name], 2 * rank if name == "pads" else rank
        if len(values) != count:
            return f"{name} is {list(values)}, {count} numbers are needed"
        if not all(least <= v <= _LARGEST for v in values):
            return f"{name} is {list(values)}, each must be at least {least}"
    mode = attributes.get("auto_pad", "NOTSET")
    return None if mode in _AUTOMATIC else f"auto_pad is {mode!r}"


def _padding(attributes: _Attributes, rank: int) -> str | None:
    """Error text if a window of a pool could cover padding only, which ONNX Runtime rejects."""
    if "kernel_shape" not in attributes:
        return "kernel_shape is missing"
    pads, spans = _pads(attributes, rank), _spans(attributes, attributes["kernel_shape"])
    if any(p >= s for p, s in zip(pads, spans * 2, strict=True)):
        return f"pads {list(pads)} are not smaller than the window {_text(spans)}"
    return None


def _weight(
    attributes: _Attributes,
    size: Sequence[int],
    weight: tuple[int, ...],
    bias: _Shape,
    *,
    transposed: bool,
) -> str | None:
    """Error text for a weight, group or bias that does not fit the operand of shape `size`."""
    group = attributes.get("group", 1)
    if len(weight) != len(size) or math.prod(weight) == 0:
        return f"its weight is {_text(weight)}, its operand {_text(size)}"
    if tuple(attributes.get("kernel_shape", weight[2:])) != weight[2:]:
        return f"kernel_shape differs from its weight of {_text(weight)}"
    if group < 1:
        return f"group is {group}"
    channels, outputs = (
        (weight[0], weight[1] * group) if transposed else (weight[1] * group, weight[0])
    )
    if channels != size[1] or channels % group or outputs % group:
        groups = f"its weight is {_text(weight)} in {counted(group, 'group')}"
        return f"{groups}, its operand has {counted(size[1], 'channel')}"
    if bias is not None and bias != (outputs,):
        return f"its bias is {_text(bias)}, it has {counted(outputs, 'output channel')}"
    return None


def _reach(attributes: _Attributes, size: Sequence[int], weight: _Shape) -> str | None:
    """Error text if the dilated window is larger than the padded map.

    onnx does not report it: its division rounds towards zero.
    """
    kernel = attributes.get("kernel_shape", weight[2:] if weight else None)
    automatic = attributes.get("auto_pad") in {"SAME_UPPER", "SAME_LOWER"}
    if kernel is None or automatic or 0 in size:
        return None
    rank = len(size)
    pads, spans = _pads(attributes, rank), _spans(attributes, kernel)
    padded = [n + a + b for n, a, b in zip(size, pads[:rank], pads[rank:], strict=True)]
    if any(s > n for s, n in zip(spans, padded, strict=True)):
        return f"its window {_text(spans)} is larger than its padded operand {_text(padded)}"
    return None


def _pads(attributes: _Attributes, rank: int) -> Sequence[int]:
    return attributes.get("pads", (0,) * 2 * rank)


def _spans(attributes: _Attributes, kernel: Sequence[int]) -> list[int]:
    """Extent of the dilated window along each axis, in rows and columns."""
    dilations = attributes.get("dilations", (1,) * len(kernel))
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
