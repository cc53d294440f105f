"""Reference execution: ONNX Runtime on the QDQ model, with all int8 tensors as outputs.

The sessions run without graph optimisation: each DequantizeLinear, operator and QuantizeLinear is
then computed as written, in float32. With power-of-two scales every product and sum below 2^24
units is exact in float32, so the integers are exact too. Optimised sessions use fused integer
kernels whose results may depend on the CPU.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from opu_fuse.errors import ModelError
from opu_fuse.process.sandbox import ForeignError, complaints

if TYPE_CHECKING:
    import onnxruntime as ort  # slow to import, and only needed for a run


def reference(qdq: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a QDQ model; return all QuantizeLinear (int8 or uint8) and model outputs by name.

    inputs: arrays by input name, of the model's own shapes and types. Raises ModelError when an
    input is missing or does not fit.
    """
    return Reference(qdq).run(inputs)


class Reference:
    """A session on one QDQ model for several runs."""

    def __init__(self, qdq: onnx.ModelProto) -> None:
        self.tensors = quantised_tensors(qdq)
        self._outputs = [o.name for o in qdq.graph.output]
        extra = [name for name in self.tensors if name not in self._outputs]
        try:
            with complaints():
                self._session = session(qdq, extra)
        except ForeignError as error:
            raise ModelError(
                "reference", f"ONNX Runtime cannot load the model ({error})", "check the model"
            ) from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model on `inputs`; see `reference`."""
        names = [o.name for o in self._session.get_outputs()]
        try:
            with complaints():
                values = self._session.run(names, dict(inputs))
        except ForeignError as error:
            raise ModelError(
                "reference run", str(error), "pass arrays of the model's own shapes"
            ) from error
        return {n: np.asarray(v) for n, v in zip(names, values, strict=True)}


def quantised_tensors(qdq: onnx.ModelProto) -> tuple[str, ...]:
    """Names of all QuantizeLinear outputs in graph order."""
    return tuple(n.output[0] for n in qdq.graph.node if n.op_type == "QuantizeLinear")


def session(model: onnx.ModelProto, extra: Sequence[str] = ()) -> "ort.InferenceSession":
    """A CPU session without graph optimisation. Tensors `extra` are additional outputs."""
    import onnxruntime as ort

    count = len(model.graph.output)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    try:  # no copy: one of a large network takes hundreds of megabytes
        data = model.SerializeToString()
    finally:
        del model.graph.output[count:]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
