"""Products of two computed maps, as the canonical form writes them.

A *product* multiplies the channels of every pixel of a map by those of every pixel of a second one:
(1, k, h, w) and (1, k, 1, m) give (1, m, h, w). The array reads the second map as weights. That
is a dense layer whose weights are computed, so attention's two products are two of these. Where the
channels to be summed are pixels of a map, a *turn* exchanges channels and pixels first: the array
multiplies it by the unit matrix. Layers over tokens and norms of groups read turns as well.

A *turned layer* multiplies every pixel by constants instead: (1, k, b, n) and (d, k) give
(1, n, b, d), which is a 1x1 convolution and a turn of its result.

A batch of b token sequences is a map with b rows. A product *by rows* multiplies every row by the
same row of the second map: (1, k, b, n) and (1, k, b, m) give (1, m, b, n). A turn exchanges
channels and columns of every row.
"""

import onnx_ir as ir

from opu_fuse.model.known_values import const_array, known_shape
from opu_fuse.model.operator_sets import CONVOLUTIONS, ELEMENT_WISE, NORMS, TRANSFERS
from opu_fuse.model.opsets import STANDARD

PRODUCT = "nchw,ncvm->nmhw"
"""Equation of the Einsum that is a product. v has one element."""
PRODUCT_BY_ROWS = "nchw,nchm->nmhw"
"""Equation of the Einsum that is a product by rows."""
TURNED_LAYER = "nkhw,dk->nwhd"
"""Equation of the Einsum that is a turned layer."""
TURN = (0, 3, 2, 1)
"""Permutation of a turn."""


def is_product(node: ir.Node) -> bool:
    """Whether a node is the product of two computed maps."""
    if node.op_type != "Einsum" or node.domain not in STANDARD or len(node.inputs) != 2:
        return False
    equation = node.attributes.get_string("equation", "")
    if equation not in {PRODUCT, PRODUCT_BY_ROWS}:
        return False
    (maps, second), made = map(known_shape, node.inputs), known_shape(node.outputs[0])
    if len(made) != 4 or len(maps) != 4 or len(second) != 4 or min(maps + second) < 1:
        return False
    computed = all(const_array(v) is None for v in node.inputs)
    rows = 1 if equation == PRODUCT else maps[2]
    return computed and maps[0] == second[0] == 1 and second[2] == rows


def has_turned_form(node: ir.Node) -> bool:
    """Whether a node has the equation of a turned layer, whatever its operands are."""
    known = node.op_type == "Einsum" and node.domain in STANDARD and len(node.inputs) == 2
    return known and node.attributes.get_string("equation", "") == TURNED_LAYER


def is_turned_layer(node: ir.Node) -> bool:
    """Whether a node is a turned layer, for products alone."""
    if not has_turned_form(node):
        return False
    x, w = map(known_shape, node.inputs)
    maps = len(x) == 4 and x[0] == 1 and min(x) > 0 and len(w) == 2
    constant = const_array(node.inputs[0]) is None and const_array(node.inputs[1]) is not None
    return maps and constant and _only_for_products(node.outputs[0])


def product_operator(node: ir.Node) -> str | None:
    """The operator of the data-flow graph that an Einsum is, if it is one."""
    if is_product(node):
        return "matmul"
    return "transpose" if is_turned_layer(node) else None


def is_turn(node: ir.Node) -> bool:
    """Whether a node exchanges channels and columns of every row of a map, for products and layers
    alone.
    """
    if not node.inputs:
        return False
    x, y = known_shape(node.inputs[0]), known_shape(node.outputs[0])
    if len(x) != 4 or min(x) < 1 or y != (x[0], x[3], x[2], x[1]) or x[0] != 1:
        return False
    if node.op_type == "Transpose":
        transposes = tuple(node.attributes.get_ints("perm", ())) == TURN
    else:  # of one channel or one pixel
        transposes = node.op_type == "Reshape" and x[2] == 1 and 1 in x[1::2] and x != y
    value = node.outputs[0]
    known = transposes and node.domain in STANDARD
    return known and (_only_for_products(value) or _only_for_maps(value))


def _only_for_products(value: ir.Value) -> bool:
    """Whether products alone read a value, or what a Pad, constants, a Softmax or a norm of the
    channels make of it.
    """
    uses = value.uses()
    return (
        bool(uses)
        and not value.is_graph_output()
        and all(is_product(u.node) or _is_for_products(u.node) for u in uses)
    )


def _only_for_maps(value: ir.Value) -> bool:
    """Whether layers alone read a map, and sums and products with other maps, also after operators
    that only move its channels or pixels.
    """
    known, waiting = {value}, [value]
    while waiting:
        moved = waiting.pop()
        if moved.is_graph_output() or not moved.uses():
            return False
        for node, index in moved.uses():
            if node.op_type in TRANSFERS and node.op_type != "Transpose":
                waiting += [result for result in node.outputs if result not in known]
                known.update(node.outputs)
            elif not _reads_map(node, index):
                return False
    return True


def _reads_map(node: ir.Node, index: int) -> bool:
    """Whether a node is a layer of a map, an operator of its elements, or begins a norm of it."""
    if node.op_type == "Transpose":
        return _end_of_norm(node) is not None
    if node.op_type in ELEMENT_WISE:
        return index < 2 and len(known_shape(node.outputs[0])) == 4
    layer = node.op_type in CONVOLUTIONS or node.op_type == "BatchNormalization"
    return layer and index == 0 and const_array(node.inputs[1]) is not None


def _is_for_products(node: ir.Node) -> bool:
    """Whether a node pads a value for products, adds a constant to it, is a Softmax of it or begins
    a norm of it.
    """
    added = node.op_type == "Add" and any(const_array(v) is not None for v in node.inputs)
    softmax = node.op_type == "Softmax" and node.attributes.get_int("axis", -1) == 1
    if node.op_type == "Transpose":
        return (last := _end_of_norm(node)) is not None and _only_for_products(last)
    return (added or softmax or node.op_type == "Pad") and _only_for_products(node.outputs[0])


def _end_of_norm(first: ir.Node) -> ir.Value | None:
    """The result of a norm between two Transposes, of which this is the first; None for others."""
    norm = _reader(first)
    last = None if norm is None or norm.op_type not in NORMS else _reader(norm)
    ends = last is not None and last.op_type == "Transpose"
    return last.outputs[0] if ends and last is not None else None


def _reader(node: ir.Node) -> ir.Node | None:
    uses = node.outputs[0].uses()
    return next(iter(uses)).node if len(uses) == 1 else None
