"""Operators that stay on the host: fused kernels, and models in ONNX Runtime, values by name."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from opu_fuse.bundle.kernels import kernel_from_json
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, HostPiece, HostSegment
from opu_fuse.errors import InternalError
from opu_fuse.kernel import Kernel
from opu_fuse.sim.generic import run_kernel

KEPT = 4
"""Programs whose kernels and sessions wait for their next run."""


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

        Raises InternalError when ONNX Runtime refuses a model, or a kernel gets values that it does
        not take: the compiler has made them.
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
        try:
            found = self._session(piece.member).run(list(piece.outputs), feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            raise InternalError("host segment", f"{piece.member}: {error}") from error
        return dict(zip(piece.outputs, found, strict=True))

    def _kernel(self, member: str) -> Kernel:
        if member not in self._kernels:
            self._kernels[member] = kernel_from_json(self._members[member], member)
        return self._kernels[member]

    def _session(self, member: str) -> Any:
        if member not in self._sessions:
            self._sessions[member] = session(self._members[member])
        return self._sessions[member]


def hosts_of(bundle: Bundle) -> Hosts:
    """The same object for equal host members, while at most `KEPT` other programs ran since."""
    return _hosts(tuple(sorted(bundle.hosts.items())))


@lru_cache(maxsize=KEPT)
def _hosts(members: tuple[tuple[str, bytes], ...]) -> Hosts:
    return Hosts(dict(members))


def session(model: bytes) -> Any:
    """An ONNX Runtime session on the CPU that computes the graph as it is written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
