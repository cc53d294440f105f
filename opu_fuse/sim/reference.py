"""What ONNX Runtime makes of the quantised model: every tensor that a QuantizeLinear gives.

Optimisations are off, so the model is computed as it is written: with power-of-two scales,
float32 sums of int8 products are exact below 2**24 and QuantizeLinear rounds them once, as the
machine does. Nothing is fused into 8-bit kernels, whose intermediate saturation depends on the
processor.
"""

from collections.abc import Mapping

import numpy as np
import onnx

from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import ProgramError
from opu_fuse.sim.host import session

NAME = "onnxruntime (QDQ model, optimisations off)"


class Reference:
    """The quantised model of a bundle, ready to run. Raises ProgramError if there is none."""

    def __init__(self, bundle: Bundle) -> None:
        if not bundle.qdq:
            raise ProgramError(
                bundle.model, "holds no quantised model to check against", "compile it again"
            )
        model = onnx.load_from_string(bundle.qdq)
        self.zero_points = _expose(model)
        self.names = tuple(self.zero_points)
        self._session = session(model.SerializeToString())

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample -> int8 by name of QuantizeLinear's output; uint8 is shifted by 128."""
        found = self._session.run(list(self.names), dict(inputs))
        return {n: as_int8(a) for n, a in zip(self.names, found, strict=True)}


def as_int8(array: np.ndarray) -> np.ndarray:
    """uint8 with zero point z stands for the same as int8 with z - 128."""
    if array.dtype == np.uint8:
        return (array.astype(np.int16) - 128).astype(np.int8)
    return array


def _expose(model: onnx.ModelProto) -> dict[str, int]:
    """Make every 8-bit QuantizeLinear output of an activation a graph output.

    Returns their zero points (as int8) by name, in graph order.
    """
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    outputs = {o.name for o in graph.output}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        zero = constants.get(node.input[2]) if len(node.input) > 2 else None
        kind = zero.data_type if zero is not None else onnx.TensorProto.UINT8
        if kind not in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
            continue
        value = onnx.numpy_helper.to_array(zero) if zero is not None else np.zeros(1, np.uint8)
        found[node.output[0]] = int(as_int8(value).reshape(-1)[0])
        if node.output[0] not in outputs:
            graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], kind, None))
    return found
