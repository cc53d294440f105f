"""Validity of a generic operator; whoever builds or reads one asks here."""

from collections.abc import Iterator as Lazy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opu_fuse.affine import Affine, AffineMap, value_range
from opu_fuse.errors import InternalError
from opu_fuse.host.kernel import (
    DTYPES,
    INDEX_DTYPE,
    SCALAR_OPS,
    GenericOp,
    Input,
    Instr,
    Iterator,
    Kernel,
    Result,
    Typing,
    scalar,
)


def checked(op: GenericOp) -> GenericOp:
    """The operator itself. Raises InternalError with its first mistake."""
    mistake = first_mistake(op)
    if mistake is not None:
        raise InternalError("generic operator", f"{op.name}: {mistake}")
    return op


def first_mistake(op: GenericOp) -> str | None:
    """The first mistake of an operator, or None."""
    for part in (_loops, _operands, _body, _yields, _stores):
        for mistake in part(op):
            return mistake
    return None


def kernel_mistake(kernel: Kernel) -> str | None:
    """The mistake of a kernel: of its operator, or a constant unlike the operand that reads it."""
    mistake = first_mistake(kernel.op)
    if mistake is not None:
        return mistake
    starts = [replace(r, value=r.init) for r in kernel.op.results if r.init is not None]
    for x in (*kernel.op.inputs, *starts):
        data = kernel.constants.get(x.value)
        if data is not None and (data.shape, data.dtype) != (x.shape, np.dtype(x.dtype)):
            return f"constant {x.value} is {data.dtype}{list(data.shape)}, not {x.dtype}{x.shape}"
    return None


def loops_moving(op: GenericOp) -> tuple[frozenset[int], ...]:
    """Per value of the payload the loops it changes along (of a result's former element: its map's
    loops)."""
    moving = [x.map.mentioned for x in (*op.inputs, *op.results)]
    for i in op.body:
        own = {i.dim} if i.op == "index" else set()
        moving.append(frozenset(own.union(*(moving[a] for a in i.args))))
    return tuple(moving)


def results_read(op: GenericOp) -> tuple[frozenset[int], ...]:
    """Per value of the payload the results whose former elements it is computed from."""
    n = len(op.inputs)
    reads = [frozenset({k - n} if k >= n else ()) for k in range(op.first_instr)]
    for i in op.body:
        reads.append(frozenset().union(*(reads[a] for a in i.args)))
    return tuple(reads)


def whole_result(extents: Sequence[int], r: Result) -> bool:
    """Every element of a result is written: its map takes loops, each once, over their whole
    extent; index 0 where the size is 1.
    """
    plain = r.map.plain
    for loop, e, size in zip(plain, r.map.results, r.shape, strict=True):
        extent = extents[loop] if loop is not None else 1
        if extent != size or (loop is None and e != Affine()) or plain.count(loop) > 1 < extent:
            return False
    return True


def _loops(op: GenericOp) -> Lazy[str]:
    for n, loop in enumerate(op.loops):
        if loop.extent < 1:
            yield f"loop d{n} has {loop.extent} iterations"


def _operands(op: GenericOp) -> Lazy[str]:
    if not op.results:
        yield "there is no result"
    for x in (*op.inputs, *op.results):
        if x.dtype not in DTYPES:
            yield f"{x.value} has the unknown dtype {x.dtype!r}"
        yield from _inside(op, x, x.map)
    for r in op.results:
        if not whole_result(op.extents, r):
            yield f"{r.value}{list(r.shape)} is not written whole, once, by {r.map}"
        if r.init is not None and r.fill is not None:
            yield f"{r.value} starts from {r.init} and from {r.fill}"
        if r.fill is not None:
            yield from _readable(r.fill, r.dtype)
    names = [r.value for r in op.results]
    if len(set(names)) != len(names):
        yield f"a result is written twice: {names}"
    own = {x.value for x in op.inputs} | {r.init for r in op.results}
    yield from (f"{name} is read and written" for name in names if name in own)


def _inside(op: GenericOp, x: Input | Result, m: AffineMap) -> Lazy[str]:
    if m.dims != len(op.loops) or len(m.results) != len(x.shape):
        yield f"{x.value}{list(x.shape)} does not fit its map {m} over {len(op.loops)} loops"
        return
    if any(loop not in range(m.dims) for loop in m.mentioned):
        yield f"{x.value}: {m} names a loop that does not exist"
        return
    for e, size in zip(m.results, x.shape, strict=True):
        low, high = value_range(e, op.extents)
        if low < 0 or high >= size:
            yield f"{x.value}{list(x.shape)} is accessed at {low}..{high} by {m}"


def _readable(text: str, dtype: str) -> Lazy[str]:
    try:
        scalar(text, dtype)
    except (ValueError, OverflowError):
        yield f"{text!r} is no {dtype}"


def _body(op: GenericOp) -> Lazy[str]:
    for number, i in enumerate(op.body, op.first_instr):
        known = SCALAR_OPS.get(i.op)
        if known is None or i.dtype not in DTYPES:
            yield f"%{number}: there is no {i.op!r} of {i.dtype!r}"
        elif len(i.args) != known.arity or any(a not in range(number) for a in i.args):
            yield f"%{number}: {i.op} takes {known.arity} earlier values, got {i.args}"
        elif not _typed(i, [op.dtype_of(a) for a in i.args], known.typing):
            yield f"%{number}: {i.op} of {[op.dtype_of(a) for a in i.args]} is no {i.dtype}"
        elif i.op == "const":
            yield from _readable(i.literal, i.dtype)
        elif i.op == "index" and (i.dim not in range(len(op.loops)) or i.dtype != INDEX_DTYPE):
            yield f"%{number}: index of d{i.dim} as {i.dtype}"


def _typed(i: Instr, args: list[str], typing: Typing) -> bool:
    match typing:
        case Typing.SAME:
            floating = i.op in ("div", "sqrt", "exp", "tanh", "sigmoid")
            return set(args) == {i.dtype} and (not floating or i.dtype.startswith("float"))
        case Typing.COMPARE:
            return len(set(args)) == 1 and i.dtype == "bool"
        case Typing.LOGIC:
            return {*args, i.dtype} == {"bool"}
        case Typing.SELECT:
            return args[0] == "bool" and {*args[1:]} == {i.dtype}
        case Typing.FREE:
            return True


def _yields(op: GenericOp) -> Lazy[str]:
    if len(op.yields) != len(op.results):
        yield f"{len(op.yields)} values for {len(op.results)} results"
    values = op.first_instr + len(op.body)
    for r, y in zip(op.results, op.yields, strict=False):
        if y not in range(values) or op.dtype_of(y) != r.dtype:
            yield f"{r.value}: %{y} is no {r.dtype} of the payload"


def _stores(op: GenericOp) -> Lazy[str]:
    """No element is stored twice, except by gathering loops that read what was stored."""
    moving, reads = loops_moving(op), results_read(op)
    for k, (r, y) in enumerate(zip(op.results, op.yields, strict=True)):
        if op.reads_result(k) and not r.starts:
            yield f"{r.value} is read, but starts from nothing"
        for loop in sorted(moving[y] - r.map.mentioned):
            gathers = op.loops[loop].kind is not Iterator.PARALLEL and k in reads[y]
            if op.loops[loop].extent > 1 and not gathers:
                yield f"{r.value} is overwritten along d{loop}"
