"""Executes generic kernels with numpy: whole arrays at a time, no loop over elements.

An operand becomes a strided view with one axis per loop, of size 1 where the loop does not move it,
so that a value is computed only along the loops it depends on. Work is cut along one parallel loop
into blocks that fit the processor's cache: this is what fusing is for.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from opu_fuse.errors import InternalError, RunError
from opu_fuse.host.kernel import GenericOp, Iterator, Kernel, Result, scalar
from opu_fuse.host.kernel_check import results_read
from opu_fuse.host.run.gather import gather
from opu_fuse.host.run.scalars import Block, Scratch, Value, cut, evaluate, view

BLOCK_ELEMENTS = 1 << 16
"""Elements of a block: several arrays of this size fit a processor's cache."""


def run_kernel(kernel: Kernel, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Results by name. values: at least what `kernel.reads` names, of the shapes and dtypes the
    kernel states; they are not changed.

    Raises RunError for values of another shape, where the data decide it and the compiler has
    believed what the model declares; InternalError for those of another dtype.
    """
    op = kernel.op
    known = {**values, **kernel.constants}
    inputs = [_expect(op, x.value, known, x.shape, x.dtype) for x in op.inputs]
    results = [_started(op, r, known) for r in op.results]
    input_views = [view(data, x.map, op.extents) for data, x in zip(inputs, op.inputs, strict=True)]
    result_views = [
        view(data, r.map, op.extents, writeable=True)
        for data, r in zip(results, op.results, strict=True)
    ]
    with np.errstate(all="ignore"):  # IEEE's answers, without numpy's warnings
        plan, scratch = _plan(op), Scratch()
        for block in blocks(op):
            _run_block(
                plan,
                [cut(v, block) for v in input_views],
                [cut(v, block) for v in result_views],
                block,
                scratch,
            )
    return {r.value: data for r, data in zip(op.results, results, strict=True)}


def _expect(
    op: GenericOp, name: str, values: Mapping[str, np.ndarray], shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    data = values.get(name)
    if data is None:
        raise InternalError("host kernel", f"{op.name} needs {name}, which nothing has computed")
    what = f"{name} is {data.dtype}{list(data.shape)}, {op.name} reads {dtype}{list(shape)}"
    if data.dtype != np.dtype(dtype):
        raise InternalError("host kernel", what)
    if data.shape != shape:
        raise RunError("host kernel", what, "give inputs that lead to the declared shape")
    return data


def _started(op: GenericOp, r: Result, values: Mapping[str, np.ndarray]) -> np.ndarray:
    if r.init is not None:
        return _expect(op, r.init, values, r.shape, r.dtype).copy()
    if r.fill is not None:
        return np.full(r.shape, scalar(r.fill, r.dtype), r.dtype)
    return np.empty(r.shape, r.dtype)


def blocks(op: GenericOp) -> list[Block]:
    """Pieces of the iteration space, cut along the outermost parallel loop that is long enough."""
    total = int(np.prod(op.extents, dtype=np.int64))
    parallel = [i for i, x in enumerate(op.loops) if x.kind is Iterator.PARALLEL]
    pieces = -(-total // BLOCK_ELEMENTS)
    if pieces <= 1 or not parallel:
        return [None]
    enough = [i for i in parallel if op.extents[i] >= pieces]
    loop = enough[0] if enough else max(parallel, key=lambda i: op.extents[i])
    extent = op.extents[loop]
    step = max(1, extent // pieces)
    return [(loop, at, min(at + step, extent)) for at in range(0, extent, step)]


class _Plan(Struct, frozen=True, kw_only=True):
    """Facts that all blocks share.

    gathered: results that are read, or computed from some that are, in an operator that gathers
    ready: the other results
    known: instructions' values that are the same everywhere
    later: instructions that need a gathered result
    dead: per instruction the values nothing needs after it
    """

    op: GenericOp
    gathered: tuple[int, ...]
    ready: tuple[int, ...]
    known: Mapping[int, Value]
    later: frozenset[int]
    dead: tuple[tuple[int, ...], ...]


def _plan(op: GenericOp) -> _Plan:
    reads = results_read(op)
    own = [op.reads_result(k) or bool(reads[y]) for k, y in enumerate(op.yields)]
    gathered = tuple(k for k, is_own in enumerate(own) if is_own and op.gathering)
    later = frozenset(n for n in range(op.first_instr, len(reads)) if gathered and reads[n])
    known: dict[int, Value] = {}
    for number, i in enumerate(op.body, op.first_instr):
        if i.op == "const" or (i.args and all(a in known for a in i.args)):
            known[number] = evaluate(op, i, known, None, Scratch())
    return _Plan(
        op=op,
        gathered=gathered,
        ready=tuple(k for k in range(len(op.results)) if k not in gathered),
        known=known,
        later=later,
        dead=tuple(() for _ in op.body) if gathered else _last_uses(op),
    )


def _run_block(
    plan: _Plan,
    inputs: list[np.ndarray],
    results: list[np.ndarray],
    block: Block,
    scratch: Scratch,
) -> None:
    """Compute and store one block through its views."""
    op = plan.op
    values: dict[int, Value] = {**dict(enumerate((*inputs, *results))), **plan.known}
    computed: list[int] = []
    for number, (i, dead) in enumerate(zip(op.body, plan.dead, strict=True), op.first_instr):
        if number not in plan.known and number not in plan.later:
            values[number] = evaluate(op, i, values, block, scratch)
            computed.append(number)
        _give_back(values, [n for n in dead if n not in plan.known], scratch)
    ready = [values[op.yields[k]] for k in plan.ready]
    if len(ready) > 1 and any(op.reads_result(k) for k in plan.ready):
        ready = [np.array(value) for value in ready]  # read all before writing any
    for k, value in zip(plan.ready, ready, strict=True):
        np.copyto(results[k], np.asarray(value), casting="no")
    if plan.gathered:
        gather(op, plan.gathered, values, results)
    _give_back(values, [n for n in computed if n in values], scratch)


def _give_back(values: dict[int, Value], numbers: Iterable[int], scratch: Scratch) -> None:
    for number in numbers:
        value = values.pop(number)
        if isinstance(value, np.ndarray):
            scratch.give(value)


def _last_uses(op: GenericOp) -> tuple[tuple[int, ...], ...]:
    """Per instruction the instructions' values that nothing needs afterwards."""
    results: list[tuple[int, ...]] = []
    seen = set(op.yields)
    for i in reversed(op.body):
        results.append(tuple(a for a in set(i.args) - seen if a >= op.first_instr))
        seen.update(i.args)
    return tuple(reversed(results))
