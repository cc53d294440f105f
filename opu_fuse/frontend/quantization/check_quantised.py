"""What the quantiser made must not saturate."""

import numpy as np
import onnx

from opu_fuse.errors import InternalError

_INT32 = np.iinfo(np.int32)


def check_quantised(qdq: onnx.ModelProto) -> None:
    """Raise InternalError if a bias saturates int32 or all weights of a tensor saturate int8."""
    for tensor in qdq.graph.initializer:
        if not tensor.name.endswith("_quantized"):
            continue
        data = onnx.numpy_helper.to_array(tensor)
        if data.dtype == np.int32 and np.any((data == _INT32.min) | (data == _INT32.max)):
            raise InternalError(stage="quantise", what=f"bias {tensor.name!r} does not fit int32")
        row = np.atleast_1d(data)[:1]  # the fill of a Pad is a single number
        saturated = (
            data.dtype == np.int8 and _saturates_everywhere(row) and _saturates_everywhere(data)
        )
        if saturated and np.unique(row).size > 2:
            raise InternalError(stage="quantise", what=f"weights {tensor.name!r} are saturated")


def _saturates_everywhere(data: np.ndarray) -> bool:
    return bool(np.all((data >= 127) | (data <= -127)))
