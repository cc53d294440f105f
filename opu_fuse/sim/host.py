"""Operators that stay on the host: fused kernels, and models in ONNX Runtime, values by name."""

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from opu_fuse.bundle.kernels import kernel_from_json
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, HostPiece, HostSegment
from opu_fuse.errors import ModelError, RunError
from opu_fuse.kernel import Kernel
from opu_fuse.sim.generic import run_kernel

KEPT = 4
"""Programs whose kernels and sessions wait for their next run."""
_SHOWN = 3
"""Operators named in a message."""


class Hosts:
    """The pieces of a program's host segments, each made ready when it first runs.

    members: kernels and serialised models by name.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members
        self._kernels: dict[str, Kernel] = {}
        self._sessions: dict[str, Any] = {}

    def run(self, segment: HostSegment, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Results by value name, what is rounded inside included, given the segment's inputs by
        value name.

        Raises RunError when ONNX Runtime stops at the values it is given, InternalError when a
        kernel gets values that it does not take: the compiler has made them.
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
        running = self._session(piece)
        try:
            found = running.run(list(piece.outputs), feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            what = f"ONNX Runtime cannot run it on these values: {_said(error)}"
            raise RunError(_named(piece), what, "check the inputs that are given") from error
        return {n: np.asarray(value) for n, value in zip(piece.outputs, found, strict=True)}

    def _kernel(self, member: str) -> Kernel:
        if member not in self._kernels:
            self._kernels[member] = kernel_from_json(self._members[member], member)
        return self._kernels[member]

    def _session(self, piece: HostPiece) -> Any:
        if piece.member not in self._sessions:
            try:
                self._sessions[piece.member] = session(self._members[piece.member])
            except Exception as error:  # ONNX Runtime raises classes of its own
                what = f"ONNX Runtime cannot load it: {_said(error)}"
                help_ = "compile the model again, for the ONNX Runtime that is installed"
                raise RunError(_named(piece), what, help_) from error
        return self._sessions[piece.member]


def hosts_of(bundle: Bundle) -> Hosts:
    """The same object for equal host members, while at most `KEPT` other programs ran since."""
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
            what = f"ONNX Runtime cannot run it on the host: {_said(error)}"
            help_ = "replace it by operators that ONNX Runtime runs"
            raise ModelError(_named(piece), what, help_) from error


def _named(piece: HostPiece) -> str:
    names = [name for name, _ in piece.ops] or [piece.member]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"host operator {', '.join(names[:_SHOWN])}{more}"


def _said(error: Exception) -> str:
    """ONNX Runtime's complaint in one line, without its code and the places in its sources."""
    lines = [line for line in str(error).splitlines() if line.strip()] or ["no reason given"]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", lines[0])
    text = text.removeprefix("Exception during initialization: ")
    return re.sub(r"^/\S+:\d+ .*?\) ", "", text).strip(" .")


def session(model: bytes) -> Any:
    """An ONNX Runtime session on the CPU that computes the graph as it is written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
