"""Operators that stay on the host: a segment's model in ONNX Runtime, values by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.errors import InternalError


class Hosts:
    """Sessions of a bundle's host segments, each made once."""

    def __init__(self, bundle: Bundle) -> None:
        self._models = bundle.hosts
        self._sessions: dict[str, Any] = {}

    def run(self, segment: HostSegment, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Results by value name, given the segment's inputs by value name.

        Raises InternalError when ONNX Runtime refuses the model: the compiler has made it.
        """
        names = [name for name, _ in segment.outputs]
        feeds = {name: values[value] for name, value in segment.inputs}
        try:
            found = self._session(segment.member).run(names, feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            raise InternalError("host segment", f"{segment.member}: {error}") from error
        return {value: out for (_, value), out in zip(segment.outputs, found, strict=True)}

    def _session(self, member: str) -> Any:
        if member not in self._sessions:
            self._sessions[member] = session(self._models[member])
        return self._sessions[member]


def session(model: bytes) -> Any:
    """An ONNX Runtime session on the CPU that computes the graph as it is written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
