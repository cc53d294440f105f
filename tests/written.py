"""Models written as text."""

import numpy as np
import onnx


def written(text: str, seed: int) -> onnx.ModelProto:
    """The model of a text; weights that it gives no values are seeded noise, of floats or bytes."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for weight in model.graph.value_info:
        size = [d.dim_value for d in weight.type.tensor_type.shape.dim]
        data = rng.normal(size=size).astype(np.float32)
        if weight.type.tensor_type.elem_type == onnx.TensorProto.INT8:
            data = rng.integers(-127, 128, size).astype(np.int8)
        tensor = onnx.numpy_helper.from_array(data, weight.name)
        model.graph.initializer.append(tensor)
    model.graph.ClearField("value_info")
    return model
