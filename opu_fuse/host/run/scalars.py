"""Scalar operations on whole arrays, and operands as arrays with one axis per loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opu_fuse.affine import AffineMap
from opu_fuse.host.kernel import GenericOp, Instr, scalar

Value = np.ndarray | np.generic
Block = tuple[int, int, int] | None
"""Part of an iteration space: a loop, its first iteration, the one after its last; None: all."""


class Scratch:
    """Arrays of dead values, for values to come: fresh memory costs more than work on a block."""

    def __init__(self) -> None:
        self._free: dict[tuple[tuple[int, ...], np.dtype[Any]], list[np.ndarray]] = {}

    def take(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """An array with anything in it."""
        free = self._free.get((shape, np.dtype(dtype)))
        return free.pop() if free else np.empty(shape, dtype)

    def give(self, array: np.ndarray) -> None:
        """Return an array that `take` gave and nobody reads any more."""
        self._free.setdefault((array.shape, array.dtype), []).append(array)


def _sigmoid(x: np.ndarray, *, out: np.ndarray) -> None:
    one = x.dtype.type(1)
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, one, out=out)
    np.divide(one, out, out=out)


def _select(condition: np.ndarray, a: np.ndarray, b: np.ndarray, *, out: np.ndarray) -> None:
    """np.where on the bits, without a branch per element: much faster where conditions vary."""
    bits = np.dtype(f"u{out.dtype.itemsize}")
    unless = np.asarray(condition).astype(bits)
    unless -= bits.type(1)  # all ones where it does not hold
    a_bits, out_bits = a.view(bits), out.view(bits)
    np.bitwise_xor(a_bits, b.view(bits), out=out_bits)
    out_bits &= unless
    out_bits ^= a_bits


FUNCTIONS: Mapping[str, Callable[..., object]] = {
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
    "select": _select,
}
"""Functions of every scalar operation but const, index and cast, which need the instruction."""


def evaluate(
    op: GenericOp, i: Instr, values: Mapping[int, Value], block: Block, scratch: Scratch
) -> Value:
    """Value of one instruction over a block, in an array of `scratch`; a constant's is a scalar."""
    if i.op == "const":
        return scalar(i.literal, i.dtype)
    if i.op == "index":
        first, end = block[1:] if block and block[0] == i.dim else (0, op.extents[i.dim])
        out = scratch.take(
            (*(1,) * i.dim, end - first, *(1,) * (len(op.loops) - 1 - i.dim)), i.dtype
        )
        out.reshape(-1)[:] = np.arange(first, end)
        return out
    args = [values[a] for a in i.args]
    shapes = [a.shape for a in args if a.shape]  # of one rank; of constants: ()
    out = scratch.take(tuple(max(sizes) for sizes in zip(*shapes, strict=True)), i.dtype)
    if i.op == "cast":
        np.copyto(out, args[0], casting="unsafe")
    else:
        FUNCTIONS[i.op](*args, out=out)
    return out


def view(
    data: np.ndarray, index: AffineMap, extents: Sequence[int], *, writeable: bool = False
) -> np.ndarray:
    """The elements of `data` by loop: an axis per loop, of size 1 where it does not move the index.

    The map must index inside the array (`kernel_check`).
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
