"""Constant data and static shape of a value."""

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
