"""Scalar operations on whole arrays, and operands as arrays with one axis per loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opu_fuse.affine import AffineMap
from opu_fuse.kernel import GenericOp, Instr, scalar

Value = np.ndarray | np.generic | None
Block = tuple[int, int, int] | None
"""Part of an iteration space: a loop, its first iteration, the one after its last; None: all."""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "maxnum": np.fmax,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select": np.where,
}
"""Of every scalar operation but const, index and cast, which need the instruction."""


def evaluate(op: GenericOp, i: Instr, values: Sequence[Value], block: Block) -> Value:
    """Value of one instruction over a block."""
    match i.op:
        case "const":
            return scalar(i.literal, i.dtype)
        case "index":
            shape = [1] * len(op.loops)
            first, end = block[1:] if block and block[0] == i.dim else (0, op.extents[i.dim])
            shape[i.dim] = end - first
            return np.arange(first, end, dtype=np.int64).reshape(shape)
        case "cast":
            value = values[i.args[0]]
            assert value is not None
            return value.astype(i.dtype)
    return FUNCTIONS[i.op](*(values[a] for a in i.args))


def view(
    data: np.ndarray, index: AffineMap, extents: Sequence[int], *, writeable: bool = False
) -> np.ndarray:
    """The elements of `data` by loop: an axis per loop, of size 1 where it does not move the index.

    The map must stay inside the array (`kernel_check`).
    """
    factors = [0] * index.dims
    for e, stride in zip(index.results, data.strides, strict=True):
        for loop, factor in e.terms:
            factors[loop] += factor * stride
    moved = index.mentioned
    shape = [extent if loop in moved else 1 for loop, extent in enumerate(extents)]
    start = data[(*(slice(e.offset, None) for e in index.results), ...)]
    return as_strided(start, shape, factors, writeable=writeable)


def cut(array: np.ndarray, block: Block) -> np.ndarray:
    """The part of a view that belongs to a block."""
    if block is None or array.shape[block[0]] == 1:
        return array
    loop, first, end = block
    return array[(slice(None),) * loop + (slice(first, end),)]
