"""How much a node of a model computes."""

import math
from collections.abc import Sequence

import onnx_ir as ir

from opu_fuse.quant import CHOICE_KEY

_FILTERS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
_PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "MatMulNBits"})
_MULTIPLYING = _PRODUCTS.union(_FILTERS, ("ConvTranspose",))


def multiplications(node: ir.Node) -> int:
    """Of convolutions, dense layers and products of matrices, in one run; 0 for others, for those
    that only choose values, and where shapes are not known.
    """
    if node.op_type not in _MULTIPLYING or not node.outputs or CHOICE_KEY in node.metadata_props:
        return 0
    result, source = _shape(node.outputs, 0), _shape(node.inputs, 0)
    window = _shape(node.inputs, _FILTERS.get(node.op_type, 1))
    if result is None or source is None:
        return 0
    if node.op_type in _PRODUCTS:
        turned = source and node.attributes.get_int("transA", 0)
        return math.prod(result) * (source[0 if turned else -1] if source else 1)
    if window is None:
        return 0
    maps = source if node.op_type == "ConvTranspose" else result
    return math.prod(maps) * math.prod(window[1:])


def _shape(values: Sequence[ir.Value | None], index: int) -> tuple[int, ...] | None:
    """Of an operand or result, where all is known of it."""
    value = values[index] if index < len(values) else None
    sizes = () if value is None or value.shape is None else value.shape.dims
    known = tuple(size for size in sizes if isinstance(size, int))
    whole = value is not None and value.shape is not None and len(known) == len(sizes)
    return known if whole else None
