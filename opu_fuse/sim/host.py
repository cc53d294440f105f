"""Operators that stay on the host: a segment's model in ONNX Runtime, values by name."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx

from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.errors import InternalError


class Hosts:
    """Sessions of a bundle's host segments, each made once. capture: show what they round inside,
    too.
    """

    def __init__(self, bundle: Bundle, *, capture: bool = False) -> None:
        self._models, self._capture = bundle.hosts, capture
        self._sessions: dict[str, Any] = {}

    def run(self, segment: HostSegment, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Results by value name, given the segment's inputs by value name.

        Raises InternalError when ONNX Runtime refuses the model: the compiler has made it.
        """
        results = dict(segment.outputs)
        if self._capture:
            results |= {f"{value}:int8": value for value, _ in segment.rounded}
        feeds = {name: values[value] for name, value in segment.inputs}
        try:
            found = self._session(segment.member, results).run(list(results), feeds)
        except Exception as error:  # ONNX Runtime raises classes of its own
            raise InternalError("host segment", f"{segment.member}: {error}") from error
        return dict(zip(results.values(), found, strict=True))

    def _session(self, member: str, results: Collection[str]) -> Any:
        if member not in self._sessions:
            self._sessions[member] = session(self._models[member], results)
        return self._sessions[member]


def session(model: bytes, results: Collection[str] = ()) -> Any:
    """An ONNX Runtime session on the CPU that computes the graph as it is written.

    results: tensors to be shown even if the model does not name them as outputs.
    """
    import onnxruntime

    if results:
        shown = onnx.load_from_string(model)
        known = {o.name for o in shown.graph.output}
        shown.graph.output.extend(onnx.ValueInfoProto(name=r) for r in results if r not in known)
        model = shown.SerializeToString()

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
