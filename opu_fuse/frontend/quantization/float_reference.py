"""The canonical float model in ONNX Runtime: the reference for quantisation error."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.process.sandbox import ForeignError, complaints

if TYPE_CHECKING:
    import onnxruntime as ort  # slow to import: only those who run something do

_OWN = ":own"
"""Suffix of a tensor's own result in the cut graph, where the tensor itself is an input."""


class FloatModel:
    """Computes some of a float model's tensors, end to end or operator by operator.

    tensors: names of float values; names that the model does not have are ignored.
    names: those that it has.
    """

    def __init__(self, model: ir.Model, tensors: Collection[str]) -> None:
        self._proto = ir.to_proto(model)
        self.outputs = [v.name for v in self._proto.graph.output]
        computed = {name for node in self._proto.graph.node for name in node.output}
        self._computed = [name for name in tensors if name in computed]
        inputs = {v.name for v in self._proto.graph.input}
        self.names = frozenset((*self._computed, *(inputs & set(tensors))))

    @functools.cached_property
    def _whole(self) -> "ort.InferenceSession":
        return _session(self._proto, [name for name in self._computed if name not in self.outputs])

    @functools.cached_property
    def _pieces(self) -> "ort.InferenceSession":
        """The graph cut at every tensor: each is an input, and its producer writes `<name>:own`."""
        proto, cut = onnx.ModelProto(), set(self._computed)
        proto.CopyFrom(self._proto)
        graph = proto.graph
        for node in graph.node:
            node.output[:] = [name + _OWN if name in cut else name for name in node.output]
        graph.ClearField("output")
        graph.output.extend(onnx.ValueInfoProto(name=name + _OWN) for name in self._computed)
        graph.input.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in self._computed
        )
        return _session(proto)

    def run(self, sample: Sample) -> Sample:
        """Run the whole model: name -> array of the tensors, all outputs and all inputs."""
        return self._run(self._whole, [*dict.fromkeys((*self._computed, *self.outputs))], sample)

    def from_operands(self, sample: Sample, tensors: Mapping[str, np.ndarray]) -> Sample:
        """Run each operator on `tensors` (name -> real numbers) as its operands.

        So the error of an operator does not propagate to its successors. Model inputs are taken
        from the sample. Returns name -> array of the tensors and the inputs.
        """
        inputs = {v.name for v in self._pieces.get_inputs()}
        feeds = sample | {name: a for name, a in tensors.items() if name in inputs}
        own = self._run(self._pieces, [name + _OWN for name in self._computed], feeds)
        return sample | {name: own[name + _OWN] for name in self._computed}

    @staticmethod
    def _run(model: "ort.InferenceSession", names: Sequence[str], feeds: Sample) -> Sample:
        try:
            with complaints():
                values = model.run(names, feeds)
        except ForeignError as error:
            raise ModelError(
                "float model", f"ONNX Runtime cannot run it ({error})", "check the data"
            ) from error
        return feeds | dict(zip(names, map(np.asarray, values), strict=True))


def _session(proto: onnx.ModelProto, shown: Sequence[str] = ()) -> "ort.InferenceSession":
    """A session that also returns the values `shown`. Raises ModelError if it cannot be loaded."""
    try:
        with complaints():
            return session(proto, shown)
    except ForeignError as error:
        raise ModelError(
            "float model", f"ONNX Runtime cannot load it ({error})", "check the model"
        ) from error
