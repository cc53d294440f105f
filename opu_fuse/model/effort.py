"""Counts the multiplications of a node."""

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from opu_fuse.model.operator_sets import BODIES
from opu_fuse.model.opsets import STANDARD
from opu_fuse.quant import CHOICE_KEY, PRODUCTS_KEY

_FILTERS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "FusedConv": 1, "QLinearConv": 3}
"""Operand position of the weights of a convolution."""
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "MatMulNBits"}
    | {"FusedGemm", "FusedMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}
)
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_FREE = frozenset(
    {"BiasAdd", "BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "NhwcMaxPool", "QLinearAdd"}
    | {"QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu"}
    | {"QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QuantizeLinear", "QuickGelu"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
)
"""Operators of other domains that multiply no matrices."""


def multiplications(node: ir.Node) -> int:
    """Multiplications of a node in one run, like `effort`, but 0 if unknown."""
    return effort(node) or 0


def effort(node: ir.Node) -> int | None:
    """Multiplications of a node in one run.

    Counted are convolutions, matrix products, and operators that consist of them. 0 for other
    operators, and for convolutions that only select values. None if a shape is unknown, or an
    operator of another domain.
    """
    if not node.outputs or CHOICE_KEY in node.metadata_props:
        return 0
    if PRODUCTS_KEY in node.metadata_props:
        return int(node.metadata_props[PRODUCTS_KEY])
    if node.op_type in _FILTERS or node.op_type == "ConvTranspose":
        return _of_windows(node)
    if node.op_type in _PRODUCTS:
        return _of_products(node)
    if node.op_type in BODIES:
        return _of_bodies(node)
    if node.domain in STANDARD:
        counts = _STANDARD.get(node.op_type)
        return 0 if counts is None else counts(node)
    return 0 if node.op_type in _FREE else None


def _of_windows(node: ir.Node) -> int | None:
    window = _shape(node.inputs, _FILTERS.get(node.op_type, 1))
    is_transposed = node.op_type == "ConvTranspose"
    maps = _shape(node.inputs if is_transposed else node.outputs, 0)
    return None if window is None or maps is None else math.prod(maps) * math.prod(window[1:])


def _of_products(node: ir.Node) -> int | None:
    result, source = _shape(node.outputs, 0), _shape(node.inputs, 0)
    if result is None or source is None:
        return None
    transposed = source and node.attributes.get_int("transA", 0)
    return math.prod(result) * (source[0 if transposed else -1] if source else 1)


def _of_recurrent(node: ir.Node) -> int | None:
    """Multiplications of GRU, LSTM or RNN: input and state weights, at every step."""
    source, *weights = (_shape(node.inputs, i) for i in range(3))
    if source is None or None in weights:
        return None
    return math.prod(source[:-1]) * sum(math.prod(w) for w in weights if w is not None)


def _of_einsum(node: ir.Node) -> int | None:
    """Multiplications of an Einsum: product of the sizes of all its index letters."""
    left = node.attributes.get_string("equation", "").replace(" ", "").partition("->")[0]
    terms, sizes = left.split(","), dict[str, int]()
    if len(terms) < 2:
        return 0
    for index, term in enumerate(terms):
        shape = _shape(node.inputs, index)
        before, dots, after = term.partition("...")
        if (
            shape is None
            or len(shape) < len(before + after)
            or (not dots and len(shape) > len(term))
        ):
            return None
        inner = [f".{n}" for n in range(len(shape) - len(before + after), 0, -1)]
        for letter, size in zip([*before, *inner, *after], shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values()) * (len(terms) - 1)


def _of_attention(node: ir.Node) -> int | None:
    """Multiplications of queries by keys, and of attention weights by values.

    The shape of all of them is [..., positions, features].
    """
    queries, keys, result = (*(_shape(node.inputs, i) for i in (0, 1)), _shape(node.outputs, 0))
    past = _shape(node.inputs, 4)
    if queries is None or keys is None or result is None or min(map(len, (queries, keys))) < 2:
        return None
    positions = keys[-2] + (past[-2] if past else 0)
    return positions * (math.prod(queries) + math.prod(result))


def _of_bodies(node: ir.Node) -> int | None:
    """0 if the bodies multiply nothing, else None: how often they run is not known."""
    bodies = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
    return 0 if all(effort(inner) == 0 for body in bodies for inner in body) else None


_STANDARD: Mapping[str, Callable[[ir.Node], int | None]] = {
    "Attention": _of_attention,
    "Einsum": _of_einsum,
    **dict.fromkeys(_RECURRENT, _of_recurrent),
}


def _shape(values: Sequence[ir.Value | None], index: int) -> tuple[int, ...] | None:
    """Static shape of `values[index]`, None if it is absent or not static."""
    value = values[index] if index < len(values) else None
    sizes = () if value is None or value.shape is None else value.shape.dims
    known = tuple(size for size in sizes if isinstance(size, int))
    whole = value is not None and value.shape is not None and len(known) == len(sizes)
    return known if whole else None
