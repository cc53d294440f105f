"""Constant data, static shapes and ranges."""

import numpy as np
import onnx_ir as ir


def const_array(value: ir.Value | None) -> np.ndarray | None:
    """Data of a constant (initialiser or Constant node); None for computed values."""
    if value is None:
        return None
    producer = value.producer()
    if value.const_value is None and (producer is None or producer.op_type != "Constant"):
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def known_shape(value: ir.Value | None) -> tuple[int, ...]:
    """Static shape of a value; () if it is not known."""
    dims = () if value is None or value.shape is None else tuple(value.shape)
    known = tuple(d for d in dims if isinstance(d, int))
    return known if len(known) == len(dims) else ()


def slice_ranges(node: ir.Node) -> list[range] | None:
    """Range of indices that a Slice takes along each axis; None if it is not static."""
    numbers = [const_array(v) for v in node.inputs[1:]]
    starts, ends, axes, steps = (*numbers, *[None] * (4 - len(numbers)))
    static = [data is not None or not v for data, v in zip(numbers, node.inputs[1:], strict=True)]
    shape = known_shape(node.inputs[0]) if node.inputs[0] is not None else ()
    if starts is None or ends is None or not shape or not all(static):
        return None
    axes = np.arange(starts.size) if axes is None else axes
    steps = np.ones(starts.size, np.int64) if steps is None else steps
    taken = [range(size) for size in shape]
    for axis, *part in np.stack([axes, starts, ends, steps], axis=1).tolist():
        taken[axis] = range(shape[axis])[slice(*part)]
    return taken
