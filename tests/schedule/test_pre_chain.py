"""What the modules in front of the array can do in one pass, and what ends a group there."""

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import pipeline
from opu_fuse.hw.load import load_hw


def machine(folder):
    """opu-tiny with a comparator and, behind it, a multiplier in front of the array."""
    tree = load_hw("opu-tiny").to_tree() | {"name": "mine"}
    tree["buffers"]["pre"] = {"words": 32, "banks": 2}
    flow = tree["dataflow"]
    flow["modules"] |= {
        "pre_act": {"kind": "comparator", "bypass": True},
        "pre_mul": {"kind": "multiplier", "operand": "per_channel", "bypass": True},
    }
    flow["edges"] |= {"concat": ["pre_act"], "pre_act": ["pre_mul"], "pre_mul": ["pad"]}
    flow["operators"]["batch_norm"] = ["multiplier"]
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return load_hw(path)


def test_a_batch_norm_behind_an_activation_begins_another_group(tmp_path):
    shape = [1, 8, 6, 6]
    values = {"scale": 0.5, "bias": 0.25, "mean": 0.125, "variance": 1.0}
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("BatchNormalization", ["a", *values], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.full(8, v, np.float32), n) for n, v in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    found = pipeline.compile_model(model, machine(tmp_path))
    assert [[m.module for m in g.matches] for g in found.partition.groups][-1] == ["pre_mul"]
