"""Masks of scores, as exporters write them, become sums that int8 holds.

1. `masked_fill` is Where(absent, lowest, scores), or Where(present, scores, lowest). Before a
   Softmax that is scores + Where(absent, lowest, 0), as other exporters write it: a sum with LOWEST
   or less is `lowest` in float32. So a sum of scores and Where(present, bias, lowest), with a
   constant bias (T5), is scores + bias + Where(present, 0, lowest). Where(present, 0, -inf) of such
   a sum becomes this, too.
2. Of constant masks, what is LOWEST or less becomes FAR, which a scale next to that of the scores
   holds. Computed masks are bounded when they are calibrated (`quantization/masks.py`).
3. PyTorch writes 0 for a softmax that is NaN, since a token sees no other: Where(IsNaN(p), 0, p) is
   p here.
4. `Attention` becomes a product with 1 for tokens that see another and 0 for the others, which is
   the largest of a mask's truth values (`decompose/attention.py`). If the mask is the same for all
   tokens, the product is left out: then either all see another, or the sequence is empty.

Minus infinity of computed masks becomes the lowest finite number, so such a token gets equal shares
instead of NaN or 0.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    operand,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.frontend.qdq import is_dequantize
from opu_fuse.model.operator_sets import ELEMENT_WISE, TRUTHS

LOWEST = -1e30
"""Scores are far from the 2**76 that would change a sum with it."""
_MOST_LINKS = 12
"""Operators that a mask is traced back through, one after another."""
FAR = -(2.0**14)
"""exp(FAR) is 0, and so it is times exp(the range of any scores of use)."""


def may_be_masks(model: ir.Model) -> bool:
    """Whether a model has scores: what else is masked remains as it is."""
    return any(is_standard(node, "Softmax") for node in model.graph)


def recognise(model: ir.Model) -> bool:
    """Rewrite all, in place. Returns whether the graph changed."""
    graph, changed = model.graph, False
    for node in standard_nodes(graph, "Where"):
        if (softmax := _guarded(node)) is not None:
            rewrite(node, "Identity", [softmax])
            changed = True
        else:
            changed |= _as_sum(graph, node)
    for node in standard_nodes(graph, "Mul"):
        if _is_of_one_mask(node):
            rewrite(node, "Identity", node.inputs[:1])
            changed = True
    for node in standard_nodes(graph, "Add"):
        if softmaxes := _softmaxes_of(node):
            changed |= _bounded(graph, node, softmaxes)
    return changed


def _softmaxes_of(node: ir.Node) -> list[ir.Node]:
    """The readers of a result, if all are Softmaxes."""
    readers = [use.node for use in node.outputs[0].uses()]
    is_score = all(is_standard(reader, "Softmax") for reader in readers)
    return readers if is_score and not node.outputs[0].is_graph_output() else []


def _as_sum(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 1."""
    result, choices = node.outputs[0], [operand(node, 1), operand(node, 2)]
    lowest = [_is_lowest(value) for value in choices]
    if lowest.count(True) != 1 or result.dtype != ir.DataType.FLOAT:
        return False
    passed = choices[lowest.index(False)]
    if passed is None or is_dequantize(passed.producer()):
        return False
    if constant(passed) is not None:
        return _finite(graph, node, lowest) or _with_bias(graph, node, passed, lowest)
    if static_shape(passed) != static_shape(result) or not _softmaxes_of(node):
        return False
    mask = _mask(graph, node, lowest)
    if mask is not None:
        rewrite(node, "Add", [passed, mask])
    return mask is not None


def _finite(graph: ir.Graph, node: ir.Node, lowest: Sequence[bool]) -> bool:
    """Case 1 for minus infinity that is added to scores."""
    index = 1 + lowest.index(True)
    data, readers = constant(node.inputs[index]), [use.node for use in node.outputs[0].uses()]
    sums = all(is_standard(reader, "Add") and _softmaxes_of(reader) for reader in readers)
    if data is None or np.isfinite(data).all() or not sums or node.outputs[0].is_graph_output():
        return False
    low = np.full(data.shape, np.finfo(np.float32).min, np.float32)
    node.replace_input_with(index, add_constant(graph, f"{node.name}/lowest", low))
    return True


def _with_bias(graph: ir.Graph, node: ir.Node, bias: ir.Value, lowest: Sequence[bool]) -> bool:
    """Case 1 for a constant that is added to scores."""
    result = node.outputs[0]
    readers = dict.fromkeys(use.node for use in result.uses())
    sums = [reader for reader in readers if is_standard(reader, "Add") and _softmaxes_of(reader)]
    mask = _mask(graph, node, lowest) if sums and np.any(constant(bias)) else None
    for total in sums if mask is not None else ():
        shape, name = static_shape(total.outputs[0]), f"{total.name}/bias"
        scores = total.inputs[total.inputs[0] is result]
        assert shape is not None
        biased = insert_before(total, "Add", [scores, bias], name=name, shape=shape)
        rewrite(total, "Add", [biased, mask])
    return mask is not None


def _mask(graph: ir.Graph, node: ir.Node, lowest: Sequence[bool]) -> ir.Value | None:
    """What a Where adds to what it passes: 0 or the lowest number; None if its shape is unknown."""
    numbers = [np.finfo(np.float32).min if low else np.float32(0) for low in lowest]
    condition = operand(node, 0)
    while condition is not None and (before := condition.producer()) is not None:
        if is_standard(before, "Not"):
            numbers.reverse()
        elif not is_standard(before, "Expand"):  # the sum repeats the mask
            break
        condition = operand(before, 0)
    name, size = f"{node.name}/mask", static_shape(condition)
    if condition is None or size is None:
        return None
    known = constant(condition)
    if known is not None:
        return add_constant(graph, name, np.where(known, *numbers))
    both = [add_constant(graph, f"{name}/{i}", np.array(n)) for i, n in enumerate(numbers)]
    return insert_before(node, "Where", [condition, *both], name=name, shape=size)


def _bounded(graph: ir.Graph, node: ir.Node, softmaxes: Sequence[ir.Node]) -> bool:
    """Case 2. Rows of which all is masked remain as they are."""
    shape, changed = static_shape(node.outputs[0]), False
    axes = {softmax.attributes.get_int("axis", -1) for softmax in softmaxes}
    for index, value in enumerate(node.inputs):
        data = constant(value)
        if value is None or data is None or shape is None or data.dtype != np.float32:
            continue
        masked = np.broadcast_to(data <= LOWEST, shape)
        if masked.any() and not any(masked.all(axis=axis).any() for axis in axes):
            bounded = np.where(data <= LOWEST, np.float32(FAR), data)
            node.replace_input_with(index, add_constant(graph, f"{value.name}/bounded", bounded))
            changed = True
    return changed


def _guarded(node: ir.Node) -> ir.Value | None:
    """Case 3: the Softmax that a Where passes, but for NaN."""
    is_nan, zero, softmax = (operand(node, i) for i in range(3))
    test, source = ((v.producer() if v is not None else None) for v in (is_nan, softmax))
    if test is None or source is None or not is_standard(source, "Softmax"):
        return None
    data = constant(zero)
    is_zero = data is not None and data.size == 1 and not data.any()
    of_it = is_standard(test, "IsNaN") and test.inputs[0] is softmax
    return softmax if of_it and is_zero else None


def _is_of_one_mask(node: ir.Node) -> bool:
    """Case 4."""
    factor = operand(node, 1)
    while (before := factor.producer() if factor is not None else None) is not None:
        if not is_standard(before, "Expand", "Reshape"):
            break
        factor = operand(before, 0)
    if before is None or not is_standard(before, "ReduceMax"):
        return False
    truth = operand(before, 0)
    cast = truth.producer() if truth is not None else None
    if cast is None or not is_standard(cast, "Cast"):
        return False
    mask = operand(cast, 0)
    of_truth = mask is not None and mask.dtype == ir.DataType.BOOL
    return of_truth and _is_same_for_queries(mask, _MOST_LINKS)


def _is_same_for_queries(mask: ir.Value | None, most: int) -> bool:
    """Whether a mask (..., n, m) is the same for all n, as far as operators of elements tell."""
    shape, known = static_shape(mask), constant(mask)
    if mask is None or shape is None:
        return False
    if len(shape) < 2 or shape[-2] == 1:
        return True
    if known is not None:
        return bool((known == known[..., :1, :]).all())
    node = mask.producer()
    if node is None or not most:
        return False
    if not is_standard(node, "Expand", "Cast", "IsInf", "Where", *ELEMENT_WISE, *TRUTHS):
        return False
    read = node.inputs[:1] if is_standard(node, "Expand") else node.inputs
    return all(_is_same_for_queries(value, most - 1) for value in read)


def _is_lowest(value: ir.Value | None) -> bool:
    data = constant(value)
    return data is not None and data.size == 1 and float(data.reshape(-1)[0]) <= LOWEST
