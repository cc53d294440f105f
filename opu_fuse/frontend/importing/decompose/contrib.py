"""Decomposes ONNX Runtime's contrib operators (com.microsoft) into standard operators, and those of
the standard that consist of others.

The optimiser of ONNX Runtime writes them into the models that it saves from level "extended" on: a
convolution with its activation becomes a FusedConv, x · sigmoid(x) a QuickGelu. No machine supports
them, and onnx infers no shapes for them.
"""

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from opu_fuse.frontend.editing import attributes_of, constant, operand, set_attributes
from opu_fuse.frontend.importing.decompose import attention, fused, gelus, normalisations, rotary
from opu_fuse.frontend.importing.decompose.replacement import Replacement, has_kinds, is_read
from opu_fuse.model.opsets import STANDARD

DOMAIN = "com.microsoft"
_OWN_IN_STANDARD = "SimplifiedLayerNormalization"
"""Contrib operator that exporters put into the standard domain, where onnx's checker rejects it."""
_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)


def own_domain(proto: onnx.ModelProto) -> None:
    """Move contrib operators from the standard domain to the contrib domain."""
    nodes = proto.graph.node
    misplaced = [n for n in nodes if n.op_type == _OWN_IN_STANDARD and n.domain in STANDARD]
    for node in misplaced:
        node.domain = DOMAIN
    if misplaced and all(opset.domain != DOMAIN for opset in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))


def decompose_contrib(model: ir.Model) -> bool:
    """Decompose contrib operators (mutates the model). Return whether a node was replaced.

    Shapes and names have to be inferred again afterwards. An operator that needs the unknown rank
    of an operand is left for the next call.
    """
    changed, shared = False, {}
    candidates = [n for n in model.graph if _is_whole(n)]
    single = _only_float_type(model) if candidates else None
    for node in candidates:
        known = [v.dtype for v in node.inputs if v is not None and v.dtype in _FLOATS]
        dtype = known[0] if known else single
        if dtype is not None:
            opset = max(model.opset_imports.get(domain, 0) for domain in STANDARD)
            made = Replacement(node, dtype=dtype, opset=opset, shared=shared)
            changed |= _meanings(node)[node.op_type](made)
    return changed


def _meanings(node: ir.Node) -> Mapping[str, "Meaning"]:
    if node.domain in STANDARD:
        return OF_STANDARD
    return MEANINGS if node.domain == DOMAIN else {}


def _is_whole(node: ir.Node) -> bool:
    """Whether a node has a decomposition, all required operands, and attributes of the right type.

    Any other node is left to ONNX Runtime, which reports the error.
    """
    if node.op_type not in _meanings(node) or not has_kinds(node, _KINDS):
        return False
    needed = [operand(node, i) for i in range(_NEEDED.get(node.op_type, 1))]
    return all(value is not None for value in needed)


def _only_float_type(model: ir.Model) -> ir.DataType | None:
    """The only float type of a model; None if it has several, or none.

    It serves as the type of results of contrib operators, for which onnx infers nothing.
    """
    graph = model.graph
    dtypes = {v.dtype for v in (*graph.inputs, *graph.initializers.values())}
    casts = {n.attributes.get_int("to", 0) for n in graph if n.op_type == "Cast"}
    floats = {kind for kind in _FLOATS if kind in dtypes or int(kind) in casts}
    return next(iter(floats)) if len(floats) == 1 else None


def _bias_add(s: Replacement) -> bool:
    s.replace(s.make("Add", s.make("Add", s.operand(0), s.operand(1)), s.operand(2)))
    return True


def _bias_dropout(s: Replacement) -> bool:
    if not _drops_nothing(s.node, 4):
        return False
    sums = s.make("Add", s.operand(0), s.operand(1))
    s.replace(s.make("Add", sums, s.operand(2)) if s.has(2) else sums)
    return True


def _bitmask_dropout(s: Replacement) -> bool:
    if not _drops_nothing(s.node, 2):
        return False
    s.replace(s.make("Identity", s.operand(0)))
    return True


def _drops_nothing(node: ir.Node, training: int) -> bool:
    mode = operand(node, training)
    off = mode is None or ((known := constant(mode)) is not None and not known.any())
    return off and not any(map(is_read, node.outputs[1:]))


def _expand_dims(s: Replacement) -> bool:
    axis = constant(s.operand(1))
    if axis is None or axis.size != 1:
        return False
    s.replace(s.make("Unsqueeze", s.operand(0), s.constant(axis.reshape(1).astype("int64"))))
    return True


def _same(op_type: str) -> "Meaning":
    def rename(s: Replacement) -> bool:
        s.node.op_type, s.node.domain = op_type, ""
        return True

    return rename


def _grid_sample(s: Replacement) -> bool:
    """Decomposition of GridSample. Opset 20 of the standard renamed its modes."""
    attributes = dict(s.node.attributes.data)
    mode = s.node.attributes.get_string("mode", "bilinear")
    names = {"bilinear": "linear", "bicubic": "cubic"} if s.opset >= 20 else {}
    set_attributes(s.node, attributes | attributes_of({"mode": names.get(mode, mode)}))
    return _same("GridSample")(s)


Meaning = Callable[[Replacement], bool]
"""Replaces a node. Returns False if it cannot, or cannot yet."""
MEANINGS: Mapping[str, Meaning] = {
    "Attention": attention.packed_attention,
    "BiasAdd": _bias_add,
    "BiasDropout": _bias_dropout,
    "BiasGelu": gelus.bias_gelu,
    "BiasSplitGelu": gelus.bias_split_gelu,
    "BitmaskDropout": _bitmask_dropout,
    "EmbedLayerNormalization": normalisations.embed_layer_normalization,
    "ExpandDims": _expand_dims,
    "FastGelu": gelus.fast_gelu,
    "FusedConv": fused.fused_conv,
    "FusedGemm": fused.fused_gemm,
    "FusedMatMul": fused.fused_matmul,
    "FusedMatMulActivation": fused.fused_matmul,
    "GatherND": _same("GatherND"),
    "Gelu": gelus.gelu,
    "GridSample": _grid_sample,
    "MultiHeadAttention": attention.multi_head_attention,
    "QuickGelu": gelus.quick_gelu,
    "RotaryEmbedding": rotary.rotary_embedding,
    "SampleOp": _same("Identity"),
    "SimplifiedLayerNormalization": normalisations.simplified_layer_normalization,
    "SkipLayerNormalization": normalisations.skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": normalisations.skip_simplified_layer_normalization,
    "TransposeMatMul": fused.fused_matmul,
    "Trilu": _same("Trilu"),
}
"""Block-quantised matrix products, attention with caches and the like are not decomposed."""
OF_STANDARD: Mapping[str, Meaning] = {
    "Attention": attention.attention,
    "RotaryEmbedding": rotary.rotary_embedding,
}
"""The same for operators of the standard that consist of others."""
_NEEDED: Mapping[str, int] = {
    "BiasAdd": 3,
    "MultiHeadAttention": 3,
    "RotaryEmbedding": 3,
    "SkipLayerNormalization": 3,
    "SkipSimplifiedLayerNormalization": 3,
    **dict.fromkeys(
        (
            "Attention",
            *("BiasDropout", "BiasGelu", "BiasSplitGelu", "ExpandDims", "FusedConv", "FusedGemm"),
            *("FusedMatMul", "FusedMatMulActivation", "GatherND", "GridSample"),
            *("SimplifiedLayerNormalization", "TransposeMatMul"),
        ),
        2,
    ),
}
"""Count of required operands, if it is more than one."""
_KINDS: Mapping[str, ir.AttributeType] = {
    "activation": ir.AttributeType.STRING,
    "activation_params": ir.AttributeType.FLOATS,
    "axis": ir.AttributeType.INT,
    "mode": ir.AttributeType.STRING,
    **dict.fromkeys(("alpha", "epsilon"), ir.AttributeType.FLOAT),
    **dict.fromkeys(
        (f"activation_{x}" for x in ("alpha", "beta", "gamma")), ir.AttributeType.FLOAT
    ),
    **dict.fromkeys((f"trans{x}" for x in ("A", "B", "BatchA", "BatchB")), ir.AttributeType.INT),
}
