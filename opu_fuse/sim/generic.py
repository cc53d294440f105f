"""Executes generic kernels with numpy: whole arrays at a time, no loop over elements.

An operand becomes a strided view with one axis per loop, of size 1 where the loop does not move it,
so that a value is computed only along the loops it depends on. Work is cut along one parallel loop
into blocks that stay in the processor's cache: this is what fusing is for.
"""

from collections.abc import Mapping

import numpy as np

from opu_fuse.errors import InternalError
from opu_fuse.kernel import GenericOp, Iterator, Kernel, Result, scalar
from opu_fuse.kernel_check import results_read
from opu_fuse.sim.gather import gather
from opu_fuse.sim.scalars import Block, Value, cut, evaluate, view

BLOCK_ELEMENTS = 1 << 15


def run_kernel(kernel: Kernel, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Results by name. values: at least what `kernel.reads` names, of the shapes and dtypes the
    kernel states; they are not changed.

    Raises InternalError for values that are something else.
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
    with np.errstate(all="ignore"):
        for block in blocks(op):
            _run_block(
                op,
                [cut(v, block) for v in input_views],
                [cut(v, block) for v in result_views],
                block,
            )
    return {r.value: data for r, data in zip(op.results, results, strict=True)}


def _expect(
    op: GenericOp, name: str, values: Mapping[str, np.ndarray], shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    data = values.get(name)
    if data is None:
        raise InternalError("host kernel", f"{op.name} needs {name}, which nothing has made")
    if (data.shape, data.dtype) != (shape, np.dtype(dtype)):
        what = f"{name} is {data.dtype}{list(data.shape)}, {op.name} reads {dtype}{list(shape)}"
        raise InternalError("host kernel", what)
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


def _run_block(
    op: GenericOp, inputs: list[np.ndarray], results: list[np.ndarray], block: Block
) -> None:
    """Compute and store one block, given its views."""
    gathered = [k for k in range(len(op.results)) if op.gathering and op.reads_result(k)]
    reads = results_read(op)
    last = _last_uses(op)
    values: list[Value] = [*inputs, *results]
    for at, i in enumerate(op.body):
        later = not reads[op.first_instr + at].isdisjoint(gathered)
        values.append(None if later else evaluate(op, i, values, block))
        if not gathered:
            for dead in last[at]:
                values[dead] = None
    ready = {k: values[y] for k, y in enumerate(op.yields) if reads[y].isdisjoint(gathered)}
    if len(ready) > 1 and any(op.reads_result(k) for k in ready):
        ready = {k: np.array(value) for k, value in ready.items()}  # read all before writing any
    for k, value in ready.items():
        np.copyto(results[k], value, casting="no")  # type: ignore[arg-type]
    if gathered:
        gather(op, gathered, values, results)


def _last_uses(op: GenericOp) -> list[list[int]]:
    """Per instruction the instructions' values that nothing needs afterwards."""
    found: list[list[int]] = [[] for _ in op.body]
    seen = set(op.yields)
    for at in range(len(op.body) - 1, -1, -1):
        for a in op.body[at].args:
            if a not in seen and a >= op.first_instr:
                found[at].append(a)
            seen.add(a)
    return found
