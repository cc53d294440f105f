"""Models written as text."""

import numpy as np
import onnx


def written(text: str, seed: int) -> onnx.ModelProto:
    """The model of a text; weights that it gives no values are seeded noise."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for weight in model.graph.value_info:
        data = rng.normal(size=[d.dim_value for d in weight.type.tensor_type.shape.dim])
        tensor = onnx.numpy_helper.from_array(data.astype(np.float32), weight.name)
        model.graph.initializer.append(tensor)
    model.graph.ClearField("value_info")
    return model
