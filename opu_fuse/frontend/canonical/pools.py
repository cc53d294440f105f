"""Pooling with everything explicit.

1. Whole-map reductions, possibly after a Transpose:
   - GlobalMaxPool -> MaxPool over the whole map; AveragePool of the map's size -> GlobalAveragePool
   - ReduceMean and ReduceMax over rows and columns -> GlobalAveragePool and GlobalMaxPool, with a
     Reshape if the shape differs; over rows or columns alone -> AveragePool and MaxPool
   - ReduceSum followed by a division by the number of its values -> as ReduceMean
2. MaxPool, AveragePool: explicit kernel_shape, strides, dilations and pads; auto_pad is resolved;
   count_include_pad is set only with padding. ceil_mode becomes larger end pads if that is
   equivalent (max, or an average that does not count padding) and ONNX Runtime accepts them (pads
   below the undilated kernel size).

ONNX's shape inference counts a last window that starts in the end padding; its specification and
ONNX Runtime do not. If the shapes differ, those of all successors are cleared and inferred again.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.window_arithmetic import ceil_pads, explicit_pads
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    operand,
    quant_of,
    real_constant,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
    values_of,
)

WHOLE_MAP = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
"""The pool equivalent to a reduction over rows and columns."""
_SUM = "ReduceSum"
"""Part of a mean if a division by the number of values follows, as JAX writes it."""
_POOLS = ("GlobalMaxPool", "MaxPool", "AveragePool")


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    pools = standard_nodes(model.graph, *WHOLE_MAP, _SUM, *_POOLS)
    changed = [_pool(model.graph, node) for node in pools]
    return any(changed)


def _pool(graph: ir.Graph, node: ir.Node) -> bool:
    size = static_shape(node.inputs[0])
    if size is None or len(size) != 4:
        return False
    if node.op_type == "GlobalMaxPool":  # Case 1
        rewrite(node, "MaxPool", node.inputs, {"kernel_shape": list(size[2:])})
        _explicit(node, size[2:])
        return True
    if node.op_type in WHOLE_MAP:
        return _reduced(graph, node, WHOLE_MAP[node.op_type])
    if node.op_type == _SUM:
        division = _division(node)
        if division is None or not _reduced(graph, node, WHOLE_MAP["ReduceMean"]):
            return False
        rewrite(division, "Identity", [node.outputs[0]])
        return True
    if len(node.outputs) > 1 or node.attributes.get_int("storage_order", 0):
        return False
    return _explicit(node, size[2:])  # Case 2


def _division(node: ir.Node) -> ir.Node | None:
    """The only reader of a sum, if it divides by the number of values; else None."""
    result, source = node.outputs[0], static_shape(node.inputs[0])
    reader, shape = sole_reader(result), static_shape(result)
    if reader is None or not shape or source is None or not is_standard(reader, "Div", "Mul"):
        return None
    if quant_of(result) is not None or static_shape(reader.outputs[0]) != shape:
        return None
    sum_is_first = reader.inputs[0] is result
    factor = real_constant(reader.inputs[1 if sum_is_first else 0])
    count = np.float32(math.prod(source) / math.prod(shape))
    expected = count if reader.op_type == "Div" else 1 / count
    is_count = factor is not None and np.all(np.float32(factor) == np.float32(expected))
    return reader if is_count and (sum_is_first or reader.op_type == "Mul") else None


def reduced_axes(node: ir.Node) -> frozenset[int] | None:
    """Nonnegative axes of a reduction; empty if it is the identity; None if they are computed."""
    size, axes_operand = static_shape(node.inputs[0]), operand(node, 1)
    axes = node.attributes.get_ints("axes", ()) if axes_operand is None else constant(axes_operand)
    if size is None or axes is None:
        return None
    if not len(axes) and not node.attributes.get_int("noop_with_empty_axes", 0):
        axes = range(len(size))
    return frozenset(int(axis) % len(size) for axis in axes)


def _reduced(graph: ir.Graph, node: ir.Node, pool: str) -> bool:
    x, result, axes_reduced = node.inputs[0], node.outputs[0], reduced_axes(node)
    if x is None or axes_reduced is None or x.dtype is not ir.DataType.FLOAT:
        return False
    order, source = before_transpose(x)
    remaining_axes = [axis for number, axis in enumerate(order) if number not in axes_reduced]
    if remaining_axes == [0, 3] and axes_reduced == frozenset({2, 3}):
        source, remaining_axes = x, [0, 1]  # the Transpose put channels first
    x, size, target = source, static_shape(source), static_shape(result)
    if remaining_axes not in ([0, 1], [0, 1, 2], [0, 1, 3]) or size is None or target is None:
        return False
    shape = tuple([n if axis in remaining_axes else 1 for axis, n in enumerate(size)])
    attributes = None
    if remaining_axes != [0, 1]:
        pool = pool.removeprefix("Global")
        window = [n // count for n, count in zip(size[2:], shape[2:], strict=True)]
        attributes = {"kernel_shape": window, "strides": [1, 1]}
    if target == shape:
        rewrite(node, pool, [x], attributes)
        return True
    name = f"{node.name}/pool"
    pooled = insert_before(
        node, pool, [x], attributes, name=name, shape=shape, quant=quant_of(result)
    )
    rewrite(node, "Reshape", [pooled, add_constant(graph, f"{node.name}/shape", np.array(target))])
    return True


def reduced_map(node: ir.Node) -> tuple[ir.Value, frozenset[int]] | None:
    """The map (1, c, h, w) that a reduction reads, maybe through a Transpose, and its axes that are
    reduced; None for others, and where those that remain have another order in the result.
    """
    x, axes, target = node.inputs[0], reduced_axes(node), static_shape(node.outputs[0])
    if x is None or not axes or target is None or len(static_shape(x) or ()) != 4:
        return None
    order, x = before_transpose(x)
    size = static_shape(x)
    if size is None or size[0] != 1 or 0 in size or x.dtype is not ir.DataType.FLOAT:
        return None
    left = [source for axis, source in enumerate(order) if axis not in axes and size[source] > 1]
    return (x, frozenset(order[axis] for axis in axes)) if left == sorted(left) else None


def before_transpose(x: ir.Value) -> tuple[Sequence[int], ir.Value]:
    """Permutation and operand of the Transpose that computes `x`; the identity and `x` if none."""
    node = x.producer()
    source = None if node is None or not is_standard(node, "Transpose") else node.inputs[0]
    if node is None or source is None or quant_of(x) not in {None, quant_of(source)}:
        return range(4), x
    return node.attributes.get_ints("perm", (3, 2, 1, 0)), source


def _explicit(node: ir.Node, size: tuple[int, ...]) -> bool:
    kernel = tuple(node.attributes.get_ints("kernel_shape"))  # type: ignore[arg-type]  # the checker requires it
    strides = tuple(node.attributes.get_ints("strides", (1, 1)))
    dilations = tuple(node.attributes.get_ints("dilations", (1, 1)))
    pads = explicit_pads(values_of(node), size, kernel, strides, dilations)
    average = node.op_type == "AveragePool"
    counts_padding = average and bool(node.attributes.get_int("count_include_pad", 0)) and any(pads)
    ceil = bool(node.attributes.get_int("ceil_mode", 0))
    if ceil:
        ceil_end_pads = ceil_pads(size, kernel, strides, dilations, pads)
        # ONNX Runtime rejects pads that reach the kernel size.
        runnable = all(p < k for p, k in zip(ceil_end_pads, kernel * 2, strict=True))
        if ceil_end_pads != pads and (counts_padding or not runnable):
            return False
        pads = ceil_end_pads
    if average and kernel == tuple(size) and not any(pads) and dilations == (1, 1):
        rewrite(node, "GlobalAveragePool", node.inputs)  # Case 1
        return True
    old_attributes = {name: str(value) for name, value in node.attributes.items()}
    attributes: dict[str, list[int] | int] = {
        "kernel_shape": list(kernel),
        "strides": list(strides),
        "pads": list(pads),
    }
    if not average or dilations != (1, 1):  # AveragePool has dilations since opset 19
        attributes["dilations"] = list(dilations)
    if average:
        attributes["count_include_pad"] = int(counts_padding)
    rewrite(node, node.op_type, node.inputs, attributes)
    if ceil:
        out = [
            _rows(*a)
            for a in zip(size, kernel, strides, dilations, pads[:2], pads[2:], strict=True)
        ]
        _correct_shape(node.outputs[0], out)
    return old_attributes != {name: str(value) for name, value in node.attributes.items()}


def _rows(size: int, kernel: int, stride: int, dilation: int, begin: int, end: int) -> int:
    """Output rows (or columns), rounded down."""
    return (size + begin + end - (kernel - 1) * dilation - 1) // stride + 1


def _correct_shape(value: ir.Value, out: list[int]) -> None:
    """Set rows and columns of a value to `out` and clear the shapes of all its successors."""
    shape = static_shape(value)
    if shape is not None and list(shape[2:]) == out:
        return
    todo = [value]
    while todo:
        changed = todo.pop()
        for usage in changed.uses():
            todo += [v for v in usage.node.outputs if v.shape is not None]
            for result in usage.node.outputs:
                result.shape = None
    if shape is not None:
        value.shape = ir.Shape([*shape[:2], *out])
