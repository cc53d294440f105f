"""Results that gather: reductions, and whatever else reads what it stored in the iteration before.

Sums, products, maxima and minima take one call of numpy. Sums of floats are then added pairwise, in
an order that depends on the loops' extents only. Everything else goes through the gathering
loops step by step, all parallel loops at once.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from opu_fuse.host.kernel import GenericOp
from opu_fuse.host.kernel_check import results_read
from opu_fuse.host.run.scalars import Scratch, Value, evaluate

ONE_CALL: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def gather(
    op: GenericOp,
    gathered: Sequence[int],
    values: Mapping[int, Value],
    results: Sequence[np.ndarray],
) -> None:
    """Store the gathered results of one block.

    values: of the payload over the block, those that depend on a gathered result left out; results:
    views of all results.
    """
    calls = {k: call for k in gathered if (call := _one_call(op, k, gathered)) is not None}
    if len(calls) < len(gathered):
        _step_by_step(op, gathered, values, results)
        return
    for k, (function, number) in calls.items():
        out = results[k]
        out[...] = function(out, _reduced(op, k, function, values[number], out.shape))


def _one_call(op: GenericOp, k: int, gathered: Sequence[int]) -> tuple[np.ufunc, int] | None:
    """(function, number of what is gathered) where result k becomes `function(result k, value)`."""
    own, y = len(op.inputs) + k, op.yields[k]
    if y < op.first_instr or sum(i.args.count(own) for i in op.body) + op.yields.count(own) != 1:
        return None
    last = op.body[y - op.first_instr]
    if last.op not in ONE_CALL or own not in last.args:
        return None
    other = last.args[1] if last.args[0] == own else last.args[0]
    pure = results_read(op)[other].isdisjoint(gathered)
    return (ONE_CALL[last.op], other) if pure else None


def _reduced(
    op: GenericOp, k: int, function: np.ufunc, value: Value, shape: tuple[int, ...]
) -> np.ndarray:
    """The value gathered along the loops the result does not have; shape: of the result's view."""
    along = [i for i in op.gathering if i not in op.results[k].map.mentioned]
    full = [op.extents[i] if i in along else size for i, size in enumerate(shape)]
    rest = [i for i in range(len(full)) if i not in along]
    spread = np.broadcast_to(value, full).transpose([*rest, *along])
    rows = np.ascontiguousarray(spread).reshape(int(np.prod(shape, dtype=np.int64)), -1)
    return function.reduce(rows, axis=1, dtype=rows.dtype).reshape(shape)


def _step_by_step(
    op: GenericOp,
    gathered: Sequence[int],
    values: Mapping[int, Value],
    results: Sequence[np.ndarray],
) -> None:
    loops = op.gathering
    for point in np.ndindex(*(op.extents[i] for i in loops)):
        at = dict(zip(loops, point, strict=True))
        now = {n: _slice(v, at) if np.shape(v) else v for n, v in values.items()}
        stores = [_slice(r, at) for r in results]
        for number, i in enumerate(op.body, op.first_instr):
            if number not in now:
                now[number] = evaluate(op, i, now, None, Scratch())
        values_read = [np.array(now[op.yields[k]]) for k in gathered]  # before writing any
        for k, value in zip(gathered, values_read, strict=True):
            np.copyto(stores[k], value, casting="no")


def _slice(value: Value, at: Mapping[int, int]) -> np.ndarray:
    """The part of an array at one point of the gathering loops, their axes retained with size 1."""
    index = tuple(
        slice(at[i], at[i] + 1) if i in at and size > 1 else slice(None)
        for i, size in enumerate(value.shape)
    )
    return np.asarray(value)[index]
