"""Separable attention (MobileViTv2): a weighted sum over the pixels of a row becomes a product.

    p = Softmax(s),  y = sum of (k * p) over the columns

s has one channel (1, 1, h, w), k has several (1, c, h, w). The columns become channels of both,
which turns (`model/products.py`) do, and rows are multiplied by themselves:

    y = product by rows of Softmax(turned s) (1, w, h, 1) and turned k (1, w, h, c)

Only for machines that have a module for the Softmax.
"""

import onnx_ir as ir

from opu_fuse.frontend.canonical.head_maps import Factor, product, turned_map
from opu_fuse.frontend.canonical.pools import reduced_axes
from opu_fuse.frontend.editing import (
    constant,
    insert_before,
    is_standard,
    quant_of,
    replace_value,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import NORMS_KEY

_COLUMNS = 3


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph = model.graph
    if "Softmax" not in graph.meta.get(NORMS_KEY, ()):
        return False
    changed = [_weighted_sum(node) for node in standard_nodes(graph, "ReduceSum")]
    return any(changed)


def _weighted_sum(total: ir.Node) -> bool:
    """Compute a sum over columns as a product, if it is a weighted one by a Softmax."""
    weighted, shape = total.inputs[0], static_shape(total.inputs[0])
    if weighted is None or shape is None or len(shape) != 4 or shape[0] != 1 or 0 in shape:
        return False
    found, axes = _factors(weighted), reduced_axes(total)
    if found is None or axes != frozenset({_COLUMNS}):
        return False
    if static_shape(total.outputs[0]) != (*shape[:_COLUMNS], 1):
        return False
    scores, keys = found
    rows, name = shape[2], f"{total.name}/weighted"
    turned = turned_map(total, scores, rows, name=f"{name}/scores")
    size = (1, shape[_COLUMNS], rows, 1)
    weights = insert_before(
        total, "Softmax", [turned], {"axis": 1}, name=f"{name}/softmax", shape=size
    )
    maps = Factor(value=weights, turned=True)
    second = Factor(value=turned_map(total, keys, rows, name=f"{name}/keys"), turned=True)
    replace_value(total.outputs[0], product(total, rows, maps, second, name))
    return True


def _factors(weighted: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """Scores before the Softmax and the values that it weights; None unless a value is such a
    product, which nothing else reads and nothing rounds.
    """
    node = weighted.producer()
    if node is None or not is_standard(node, "Mul") or sole_reader(weighted) is None:
        return None
    for weights, keys in (node.inputs, reversed(node.inputs)):
        softmax = None if weights is None else weights.producer()
        if weights is None or keys is None or softmax is None or constant(keys) is not None:
            continue
        size, own = static_shape(weighted), static_shape(weights)
        scores = softmax.inputs[0]
        if not is_standard(softmax, "Softmax") or scores is None or not size or not own:
            continue
        of_columns = softmax.attributes.get_int("axis", -1) % len(own) == _COLUMNS
        alone = sole_reader(weights) is not None and not any(map(quant_of, (weighted, weights)))
        if of_columns and alone and own == (1, 1, *size[2:]) and static_shape(keys) == size:
            return scores, keys
    return None
