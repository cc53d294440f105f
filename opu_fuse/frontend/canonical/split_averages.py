"""An average over an even count becomes two: over a power of two, then over an odd count.

A machine multiplies by an approximation of 1 / count. If the count is even, ties between two steps
occur; the approximation rounds them to one side, ONNX Runtime to even. An average over a power of
two is an exact shift. One over an odd count has no ties if its result's scale is not coarser. Up to
LARGEST the approximation is exact enough for all other values. A single tie matters: the gate of a
squeeze-and-excite block multiplies a whole map by a function of such an average.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import onnx_ir as ir

from opu_fuse.frontend.editing import insert_before, quant_of, standard_nodes, static_shape
from opu_fuse.quant import REWRITE_KEY

LARGEST = 255
"""Largest odd count. The error of a result up to 127 with a 16-bit multiplier, 127 * 2^-16, must be
below the distance to the next tie, 1 / (2 * count)."""


_LONGEST = 128
"""Largest power of two as a stride: instructions encode strides in 8 bits."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_part(node) for node in standard_nodes(model.graph, "GlobalAveragePool")]
    return any(changed)


def _part(node: ir.Node) -> bool:
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or shape is None or len(shape) != 4 or shape[0] != 1 or 0 in shape:
        return False
    if quant_of(node.outputs[0]) is not None or REWRITE_KEY in node.metadata_props:
        return False  # a quantised model defines the rounding of one average
    twos = [size & -size for size in shape[2:]]
    odd = [size // two for size, two in zip(shape[2:], twos, strict=True)]
    if twos == [1, 1] or not 1 < odd[0] * odd[1] <= LARGEST:
        return False
    name, size = f"{node.name}/means", shape[2:]
    while size != (*odd,):
        window = [_window(*sizes) for sizes in zip(size, odd, strict=True)]
        size = tuple(n // part for n, part in zip(size, window, strict=True))
        strides = [
            1 if n == 1 and part > _LONGEST else part for n, part in zip(size, window, strict=True)
        ]
        attributes = {
            "kernel_shape": window,
            "strides": strides,
            "pads": [0] * 4,
            "count_include_pad": 0,
        }
        x = insert_before(
            node, "AveragePool", [x], attributes, name=name, shape=(1, shape[1], *size)
        )
        name = f"{name}/means"
    node.replace_input_with(0, x)
    node.metadata_props[REWRITE_KEY] = (
        "an average over a power of two, then over an odd count: neither rounds as halves fall"
    )
    return True


def _window(size: int, odd: int) -> int:
    """Window size of the next average along an axis, which leaves a multiple of `odd`."""
    return size // odd if odd == 1 else min(size // odd, _LONGEST)
