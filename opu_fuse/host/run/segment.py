"""Operators that run on the host CPU: fused kernels, and models in ONNX Runtime, values by name."""

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from opu_fuse.bundle.kernel_json import kernel_from_json
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, HostPiece, HostSegment
from opu_fuse.errors import ModelError, RunError
from opu_fuse.host.kernel import Kernel
from opu_fuse.host.run.generic import run_kernel
from opu_fuse.model.operator_sets import TRAPS
from opu_fuse.process.sandbox import complaints, in_child

KEPT = 4
"""Programs whose kernels and sessions wait for their next run."""
_SHOWN = 3
"""Operators named in a message."""
_PATIENCE = 3600.0
"""Seconds for what runs in a child process."""
_DIVISIONS = tuple(bytes((0x22, len(name))) + name.encode() for name in sorted(TRAPS))
"""How a node of the kind is written in a model's bytes; others may hold them, too."""

_Runner = Callable[[list[str], Mapping[str, np.ndarray]], list[Any]]


class Hosts:
    """The pieces of a program's host segments, each prepared when it first runs.

    members: kernels and serialised models by name.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members
        self._kernels: dict[str, Kernel] = {}
        self._runners: dict[str, _Runner] = {}

    def run(self, segment: HostSegment, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Results by value name, from the segment's inputs by value name; values rounded inside are
        included.

        Raises RunError when ONNX Runtime rejects the values, InternalError when a kernel gets
        values that it does not take: they come from the compiler.
        """
        known = {name: values[value] for name, value in segment.inputs}
        for piece in segment.pieces:
            known |= self._run_piece(piece, known)
        return {value: known[name] for name, value in segment.results.items()}

    def _run_piece(
        self, piece: HostPiece, known: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        if piece.member.endswith(KERNEL_SUFFIX):
            return run_kernel(self._kernel(piece.member), known)
        feeds = {name: known[name] for name in piece.inputs}
        run = self._runner(piece)
        try:
            result = run(list(piece.outputs), feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            what = f"ONNX Runtime cannot run it on these values: {_one_line(error)}"
            raise RunError(_named(piece), what, "check the inputs") from error
        return {n: np.asarray(value) for n, value in zip(piece.outputs, result, strict=True)}

    def _kernel(self, member: str) -> Kernel:
        if member not in self._kernels:
            self._kernels[member] = kernel_from_json(self._members[member], member)
        return self._kernels[member]

    def _runner(self, piece: HostPiece) -> _Runner:
        if piece.member not in self._runners:
            model = self._members[piece.member]
            try:
                run = session(model).run
            except Exception as error:  # ONNX Runtime raises classes of its own
                what = f"ONNX Runtime cannot load it: {_one_line(error)}"
                help_ = "compile the model again, for the ONNX Runtime that is installed"
                raise RunError(_named(piece), what, help_) from error
            self._runners[piece.member] = partial(_run_in_child, model) if may_trap(model) else run
        return self._runners[piece.member]


def may_fork(bundle: Bundle) -> bool:
    """Whether an operator of a program may run in a child process."""
    return any(may_trap(m) for n, m in bundle.hosts.items() if not n.endswith(KERNEL_SUFFIX))


def may_trap(model: bytes) -> bool:
    """Whether it divides integers by what may be -1: with the least one, that ends the process."""
    if not any(name in model for name in _DIVISIONS):
        return False
    import onnx  # no other model needs it

    graph = onnx.ModelProto.FromString(model).graph
    constants = {t.name: t for t in graph.initializer}
    kinds = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    kinds |= {name: t.data_type for name, t in constants.items()}
    for node in graph.node:
        if node.op_type in TRAPS:
            known = {kinds[name] for name in node.input if name in kinds}
            divisor = constants.get(node.input[1])
            computed = divisor is None or np.any(onnx.numpy_helper.to_array(divisor) == -1)
            if computed and known <= {onnx.TensorProto.INT32, onnx.TensorProto.INT64}:
                return True
    return False


def _run_in_child(
    model: bytes, outputs: list[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    def work() -> list[np.ndarray]:
        with complaints():
            return session(model).run(outputs, feeds)

    return in_child(work, seconds=_PATIENCE)


def hosts_of(bundle: Bundle) -> Hosts:
    """The hosts of a bundle, from an LRU cache of `KEPT` entries keyed by the members."""
    return _caches[-1](tuple(sorted(bundle.hosts.items())))


def _hosts(members: tuple[tuple[str, bytes], ...]) -> Hosts:
    return Hosts(dict(members))


def _begin_cache() -> None:
    """In a fork the sessions of the parent are neither used nor freed: one ends by its threads,
    which only the parent has.
    """
    _caches.append(lru_cache(maxsize=KEPT)(_hosts))


_caches: list[Callable[[tuple[tuple[str, bytes], ...]], Hosts]] = []
_begin_cache()
os.register_at_fork(after_in_child=_begin_cache)


def require_runnable(bundle: Bundle) -> None:
    """Raises ModelError for operators that the installed ONNX Runtime does not know in their form:
    what compiles, runs.
    """
    pieces = (p for s in bundle.segments if isinstance(s, HostSegment) for p in s.pieces)
    for piece in pieces:
        if piece.member.endswith(KERNEL_SUFFIX):
            continue
        try:
            session(bundle.hosts[piece.member])
        except Exception as error:  # ONNX Runtime raises classes of its own
            what = f"ONNX Runtime cannot run it on the host: {_one_line(error)}"
            help_ = "replace it by operators that ONNX Runtime runs"
            raise ModelError(_named(piece), what, help_) from error


def _named(piece: HostPiece) -> str:
    names = [name for name, _ in piece.ops] or [piece.member]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"host operator {', '.join(names[:_SHOWN])}{more}"


def _one_line(error: Exception) -> str:
    """ONNX Runtime's complaint in one line, without its code and its source locations."""
    lines = [line for line in str(error).splitlines() if line.strip()] or ["without a reason"]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", lines[0])
    text = text.removeprefix("Exception during initialization: ")
    return re.sub(r"^/\S+:\d+ .*?\) ", "", text).strip(" .")


def session(model: bytes | str) -> Any:
    """An ONNX Runtime session on the CPU that computes the graph as it is written. model: bytes, or
    the path of a file, which may have its weights in the same folder.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what it complains about is raised, too
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
