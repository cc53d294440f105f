"""The same graphs for TVM's own FuseOps (C++), when `apache-tvm` is importable.

The wheels of today have no Relay; Relax's FuseOps runs the same partitioner over `call_tir` calls,
whose kinds are attributes of the functions they call (`op_pattern`), as its own passes would
set them.

    python benchmarks/tvm_fuseops.py GRAPH SIZE REPEAT

prints CPU seconds. A process of its own, because its recursion ends large graphs with a crash.
"""

import importlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from scaling_graphs import CHANNELS, COLS, GRAPHS, INPUT, ROWS, Op

ELEM_WISE, INJECTIVE, OUT_EWISE_FUSABLE = 0, 2, 4
PATTERNS = {
    "conv": OUT_EWISE_FUSABLE,
    "bias": ELEM_WISE,  # all operands have the result's shape here
    "relu": ELEM_WISE,
    "pool": OUT_EWISE_FUSABLE,
    "add": ELEM_WISE,
    "concat": INJECTIVE,
}
OPT_LEVEL = 2


INSTALL = "not installed, so not measured (pip install 'opu-fuse[tvm]')"


def _tvm(part: str = "") -> Any:
    """TVM or a part of it, which is an extra: nothing in the environment says what is in it."""
    return importlib.import_module(f"tvm.{part}" if part else "tvm")


def version() -> str | None:
    """TVM's version and the dialect that is timed; None when it is not installed."""
    try:
        tvm = _tvm()
        _tvm("relax")  # is it installed?
    except ImportError:
        return None
    return f"{tvm.__version__}, Relax FuseOps"


def measured(graph: str, size: int, repeat: int) -> float | None:
    """Smallest CPU seconds of some runs in a process with all the stack it may have; None when TVM
    does not survive.
    """
    done = subprocess.run(
        [sys.executable, __file__, graph, str(size), str(repeat)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        preexec_fn=_whole_stack,
    )
    return float(done.stdout) if done.returncode == 0 else None


def _whole_stack() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (most, most))


def relax_module(ops: Sequence[Op]) -> Any:
    """The IRModule of a description; values that nobody reads are the function's results."""
    tvm, relax = _tvm(), _tvm("relax")
    builder = relax.BlockBuilder()
    small = relax.TensorType((CHANNELS, ROWS, COLS), "float32")
    functions: dict[tuple[str, int], Any] = {}
    x, weight, bias = (relax.Var(name, small) for name in ("x", "w", "b"))
    values: list[Any] = []
    bindings: list[Any] = []

    def call(kind: str, operands: list[Any]) -> Any:
        wide = len(operands) if kind == "concat" else 1
        key = (kind, len(operands))
        if key not in functions:
            name = f"{kind}_{len(operands)}"
            function = _function(kind, len(operands)).with_attr("global_symbol", name)
            function = function.with_attr("op_pattern", PATTERNS[kind])
            functions[key] = builder.add_func(function, name)
        type_ = relax.TensorType((wide * CHANNELS, ROWS, COLS), "float32") if wide > 1 else small
        result = relax.DataflowVar(f"v{len(bindings)}", type_)
        call_tir = relax.call_tir(functions[key], operands, type_)
        bindings.append(relax.VarBinding(result, call_tir))
        return result

    for op in ops:
        operands = [x if o == INPUT else values[o] for o in op.operands]
        if op.kind == "conv":
            values.append(call("bias", [call("conv", [*operands, weight]), bias]))
        else:
            values.append(call(op.kind, operands))
    read = {o for op in ops for o in op.operands}
    results = [value for i, value in enumerate(values) if i not in read]
    result = relax.Tuple(results) if len(results) > 1 else results[0]
    type_ = relax.TupleType([r.ty for r in results]) if len(results) > 1 else small
    output = relax.Var("out", type_)
    bindings.append(relax.VarBinding(output, result))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], output)
    main = relax.Function([x, weight, bias], body, type_, is_pure=True)
    module = builder.get()
    module["main"] = main.with_attr("global_symbol", "main")
    return tvm.IRModule(dict(module.functions))  # a copy, without the builder and its state


def _function(kind: str, count: int) -> Any:
    """A function with the right operands and result; FuseOps never looks inside."""
    te = _tvm("te")
    inputs = [te.placeholder((CHANNELS, ROWS, COLS), name=f"a{i}") for i in range(count)]
    wide = count if kind == "concat" else 1
    result = te.compute(
        (wide * CHANNELS, ROWS, COLS), lambda c, h, w: inputs[0][c % CHANNELS, h, w], name="result"
    )
    return te.create_prim_func([*inputs, result])


def seconds(module: Any) -> float:
    """CPU seconds of one run of FuseOps."""
    relax = _tvm("relax")
    fuse = relax.transform.FuseOps(fuse_opt_level=OPT_LEVEL)
    begin = time.process_time()
    fuse(module)
    return time.process_time() - begin


if __name__ == "__main__":
    name, length, times = sys.argv[1:]
    built = relax_module(GRAPHS[name](int(length)))
    print(min(seconds(built) for _ in range(int(times))))
