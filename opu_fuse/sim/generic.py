"""Executes generic kernels with numpy: whole arrays at a time, no loop over elements.

An operand becomes a strided view with one axis per loop, of size 1 where the loop does not move it,
so that a value is computed only for the loops it depends on. Work is cut along one parallel loop
into blocks that stay in the processor's cache: this is what fusing is for.
"""

from collections.abc import Callable, Mapping

import numpy as np

from opu_fuse.affine import AffineMap
from opu_fuse.errors import InternalError
from opu_fuse.kernel import GenericOp, Instr, Iterator, Kernel, Result, scalar
from opu_fuse.kernel_check import results_read

BLOCK_ELEMENTS = 1 << 15


def _sigmoid(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
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
"""numpy's function for every scalar operation but const, index and cast, which need the
instruction."""

GATHERS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""Operations whose reductions numpy does in one call. Sums of floats are then added pairwise, in an
order that depends on the loops' extents only."""


def run_kernel(kernel: Kernel, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Results by name. values: at least what `kernel.reads` names, of the shapes and dtypes the
    kernel states; they are not changed.

    Raises InternalError for values that are something else.
    """
    op = kernel.op
    known = {**values, **kernel.constants}
    for x in op.inputs:
        _expect(op, x.value, known, x.shape, x.dtype)
    results = [_started(op, r, known) for r in op.results]
    run = _Run(op, [known[x.value] for x in op.inputs], results)
    with np.errstate(all="ignore"):
        for block in _blocks(op):
            run.block(block)
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


Block = tuple[int, int, int] | None  # loop, first iteration, end


def _blocks(op: GenericOp) -> list[Block]:
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


class _Run:
    """One execution: views of all operands, and the payload over a block of them."""

    def __init__(self, op: GenericOp, inputs: list[np.ndarray], results: list[np.ndarray]) -> None:
        self._op = op
        self._inputs = [
            _view(data, x.map, op.extents) for data, x in zip(inputs, op.inputs, strict=True)
        ]
        self._results = [
            _view(data, r.map, op.extents) for data, r in zip(results, op.results, strict=True)
        ]
        self._reads = results_read(op)
        self._last = _last_uses(op)

    def block(self, block: Block) -> None:
        """Compute and store one block."""
        op = self._op
        inputs = [_cut(view, block) for view in self._inputs]
        results = [_cut(view, block) for view in self._results]
        values: list[np.ndarray | None] = [*inputs, *results]
        gathered = {k for k in range(len(op.results)) if op.gathering and op.reads_result(k)}
        for at, i in enumerate(op.body):
            number = op.first_instr + at
            if self._reads[number] & gathered:
                values.append(None)
                continue
            values.append(self._evaluate(i, values, block))
            if not gathered:
                for dead in self._last[at]:
                    values[dead] = None
        for k, y in enumerate(op.yields):
            if not self._reads[y] & gathered:
                value = values[y]
                assert value is not None
                np.copyto(results[k], value, casting="no")
        if gathered:
            self._gather(values, results, block)

    def _evaluate(self, i: Instr, values: list[np.ndarray | None], block: Block) -> np.ndarray:
        op = self._op
        if i.op == "const":
            return np.full((1,) * len(op.loops), scalar(i.literal, i.dtype))
        if i.op == "index":
            shape = [1] * len(op.loops)
            first, end = block[1:] if block and block[0] == i.dim else (0, op.extents[i.dim])
            shape[i.dim] = end - first
            return np.arange(first, end, dtype=np.int64).reshape(shape)
        args = [values[a] for a in i.args]
        if i.op == "cast":
            assert args[0] is not None
            return args[0].astype(i.dtype)
        return FUNCTIONS[i.op](*args)

    def _gather(
        self, values: list[np.ndarray | None], results: list[np.ndarray], block: Block
    ) -> None:
        """Results that read what they held, in an operator with gathering loops."""
        op = self._op
        gathered = [k for k in range(len(op.results)) if op.reads_result(k)]
        fast = {k: how for k in gathered if (how := self._one_call(k)) is not None}
        if len(fast) < len(gathered):
            self._step_by_step(values, results, block)
            return
        for k, (function, number) in fast.items():
            whole = tuple(
                results[k].shape[i] if op.loops[i].kind is Iterator.PARALLEL else extent
                for i, extent in enumerate(op.extents)
            )
            value = values[number]
            assert value is not None
            spread = np.broadcast_to(value, _with_block(whole, op, block, results[k].shape))
            results[k][...] = function(results[k], _reduced(spread, results[k].shape, function))
