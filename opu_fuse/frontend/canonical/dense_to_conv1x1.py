"""Pointwise dense layers become 1x1 convolutions.

Channels-last frameworks write the dense layers of a ConvNeXt or of squeeze-and-excite blocks as
MatMuls over the last axis of a map, or reshape the map to rows of pixels first. Transformers have
tokens (n, c), (1, n, c), or (b, n, c) with a batch of windows. All of them are pixels.

1. MatMul of (1, h, w, c) with a constant matrix: a 1x1 Conv between two Transposes, which
   `transposes` merges with the network's own.
2. MatMul or Gemm of values that a Reshape made of such a map: as case 1 on that map, with the
   Reshape after it.
3. Any other MatMul or Gemm of several tokens: as case 2 on the image (1, 1, tokens, c).
4. MatMul of one token (1, 1, c) with a constant matrix: that of a row (1, c), which `dense`
   converts.

`tokens` moves the Reshapes of cases 2 and 3 past operators that treat all pixels alike.
"""

from collections.abc import Collection, Sequence

import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.canonical.dense import is_final
from opu_fuse.frontend.canonical.token_images import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    as_image,
    as_row,
    image_shape,
    is_image,
    map_of,
    reshape_after,
)
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    is_standard,
    move_before,
    operand,
    quant_of,
    rewrite,
    static_shape,
)


def convert(graph: ir.Graph, node: ir.Node, later: Collection[ir.Value]) -> bool:
    """Convert a MatMul or Gemm. Returns whether the graph changed.

    later: values to which case 2 may apply once the nodes before them have changed.
    """
    x, w = node.inputs[0], operand(node, 1)
    weight = constant(w)
    if x is None or w is None or weight is None or weight.ndim != 2:
        return False
    if (quant_of(x) is None) != (quant_of(w) is None) or x.dtype != ir.DataType.FLOAT:
        return False  # the host computes it unchanged
    is_gemm = is_standard(node, "Gemm")
    if is_gemm and not is_final(node):
        return False  # `dense` converts it, if it can
    source = x if is_image(x) and not is_gemm else map_of(x)  # Case 2
    if source is None:  # Case 3
        if image_shape(x) is None or x in later:
            return as_row(graph, node)  # Case 4
        source = as_image(node, x)
    if source is not x:
        reshape_after(graph, node, source)
    quant = quant_of(w)
    if quant is not None and quant.axis is not None and not is_gemm:
        quant = replace(quant, axis=1 - quant.axis % 2)
    taps = (weight if is_gemm else weight.T)[..., None, None]
    bias = operand(node, 2)
    filters = add_constant(graph, f"{w.name}/pixel", taps, quant)
    _convolve(node, source, [filters] if bias is None else [filters, bias])
    return True


def _convolve(node: ir.Node, source: ir.Value, weights: Sequence[ir.Value]) -> None:
    """Case 1: replace a node that reads `source` by a Conv between two Transposes."""
    size, target = static_shape(source), static_shape(node.outputs[0])
    assert size is not None
    assert target is not None
    name, shape = f"{node.name}/channels", [size[axis] for axis in CHANNELS_FIRST]
    x = move_before(node, "Transpose", [source], {"perm": CHANNELS_FIRST}, name=name, shape=shape)
    inverse = {"perm": CHANNELS_LAST}
    name, shape = f"{node.name}/last", [target[axis] for axis in CHANNELS_FIRST]
    insert_after(node, node.outputs[0], "Transpose", (), inverse, name=name, shape=shape)
    rewrite(node, "Conv", [x, *weights])  # `convolutions` adds its attributes
