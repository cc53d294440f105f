"""Networks that the tests of LiteX share."""

import onnx
from onnx import helper

from tests.runtime.test_host_segments import joined_model


def classifier() -> onnx.ModelProto:
    """The joined convolutions, and scores of their mean."""
    model = joined_model()
    graph = model.graph
    graph.node.append(helper.make_node("ReduceMean", ["y"], ["m"], axes=[2, 3], keepdims=0))
    graph.node.append(helper.make_node("Softmax", ["m"], ["scores"], axis=1))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 4)))
    return model
