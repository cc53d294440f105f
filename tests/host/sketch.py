"""Short notation for generic operators, and running them."""

from collections.abc import Mapping, Sequence

import numpy as np

from opu_fuse.affine import parse_map
from opu_fuse.host.build.linalg.driver import Fused
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.kernel import GenericOp, Input, Iterator, Kernel, Loop, Result
from opu_fuse.host.kernel_check import checked
from opu_fuse.host.run.generic import run_kernel

KINDS = {"p": Iterator.PARALLEL, "r": Iterator.REDUCTION, "w": Iterator.WINDOW}


def read(value: str, shape: Sequence[int], index: str, dtype: str = "float32") -> Input:
    return Input(value=value, shape=tuple(shape), dtype=dtype, map=parse_map(index))


def write(
    value: str,
    shape: Sequence[int],
    index: str,
    dtype: str = "float32",
    *,
    init: str | None = None,
    fill: str | None = None,
) -> Result:
    return Result(
        value=value, shape=tuple(shape), dtype=dtype, map=parse_map(index), init=init, fill=fill
    )


def generic(
    name: str,
    loops: str,
    inputs: Sequence[Input],
    results: Sequence[Result],
    payload,
) -> GenericOp:
    """loops: "p4 r3"; payload(body, *operands) -> number(s) to yield."""
    body = Payload([x.dtype for x in (*inputs, *results)])
    yields = payload(body, *range(len(inputs) + len(results)))
    return checked(
        GenericOp(
            name=name,
            loops=tuple(Loop(kind=KINDS[w[0]], extent=int(w[1:])) for w in loops.split()),
            inputs=tuple(inputs),
            results=tuple(results),
            body=body.instructions,
            yields=yields if isinstance(yields, tuple) else (yields,),
        )
    )


def binary(op: str):
    """The payload that applies an operation to the first two operands."""
    return lambda body, *operands: body.emit(op, *operands[:2])


def ops_of(op: GenericOp) -> list[str]:
    return [i.op for i in op.body]


def maps_of(op: GenericOp) -> list[str]:
    return [str(x.map) for x in op.inputs]


def generic_members(fused: Fused) -> list[GenericOp]:
    """What operators were fused into, where all of them are generic."""
    members = [m for m in fused.members if isinstance(m, GenericOp)]
    assert len(members) == len(fused.members), fused.members
    return members


def run_all(ops: Sequence[GenericOp], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values after running operators one after the other."""
    known = dict(values)
    for op in ops:
        known |= run_kernel(Kernel(op=op), known)
    return known


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, dtypes and bits; a NaN equals any NaN."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    bits = np.dtype(f"u{a.dtype.itemsize}")
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return bool(((x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y))).all())
