"""ONNX Runtime as the reference, and samples on which operators must agree with it."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

OPSET = 17


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """As the engines run host segments: the graph as it is written."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_model(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [o.name for o in model.graph.output]
    feeds = {i.name: values[i.name] for i in model.graph.input}
    found = session(model).run(names, feeds)
    return dict(zip(names, map(np.asarray, found), strict=True))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """A model of nodes; inputs: arrays of the wanted shapes and dtypes."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "test",
        infos,
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [onnx.numpy_helper.from_array(x, n) for n, x in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def dense_floats(rng: np.random.Generator, count: int = 60_000) -> np.ndarray:
    """Specials, ties of rounding, a fine grid, normal numbers, and random bit patterns."""
    specials = np.array([0, 1, 3, 6, 0.5, 1.5, 2.5, 1e-45, 1.1754942e-38, 3.4e38, np.inf])
    parts = [
        specials,
        -specials,
        [np.nan],
        np.arange(-2048, 2048) / 2,
        np.linspace(-12, 12, count // 3),
        rng.normal(size=count // 3),
        rng.integers(0, 1 << 32, count // 3, dtype=np.uint64).astype(np.uint32).view(np.float32),
    ]
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


def zeros_and_neighbours(rng: np.random.Generator, count: int) -> np.ndarray:
    """Values that only a careful order of operations gets right, at random positions."""
    values = np.array([0.0, -0.0, 1, -1, 3, -3, 6, np.nan, np.inf, -np.inf], np.float32)
    return rng.choice(values, count)
