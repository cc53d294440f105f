"""What the modules in front of the array can do in one pass, and what ends a group there."""

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import pipeline
from opu_fuse.hw.load import load_hw


def machine(folder, **comparators):
    """opu-tiny with a comparator and, behind it, a multiplier in front of the array; comparators:
    further ones behind it.
    """
    tree = load_hw("opu-tiny").to_tree() | {"name": "mine"}
    tree["buffers"]["pre"] = {"words": 32, "banks": 2}
    flow = tree["dataflow"]
    flow["modules"] |= {
        "pre_act": {"kind": "comparator", "bypass": True},
        "pre_mul": {"kind": "multiplier", "operand": "per_channel", "bypass": True},
    }
    flow["edges"] |= {"concat": ["pre_act"], "pre_act": ["pre_mul"], "pre_mul": ["pad"]}
    flow["operators"]["batch_norm"] = ["multiplier"]
    flow["modules"] |= {n: {"kind": "comparator"} | more for n, more in comparators.items()}
    flow["edges"]["add"] = [*comparators, *flow["edges"]["add"]]
    flow["edges"] |= {name: ["pool"] for name in comparators}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return load_hw(path)


def modules(nodes, values, folder, **comparators):
    """On what each group of a network of one input runs."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 6, 6]) for n in "xy"]
    constants = [numpy_helper.from_array(np.full(8, v, np.float32), n) for n, v in values.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    found = pipeline.compile_model(model, machine(folder, **comparators))
    return [[m.module for m in group.matches] for group in found.partition.groups]


def test_a_batch_norm_behind_an_activation_begins_another_group(tmp_path):
    values = {"scale": 0.5, "bias": 0.25, "mean": 0.125, "variance": 1.0}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("BatchNormalization", ["a", *values], ["y"]),
    ]
    assert modules(nodes, values, tmp_path)[-1] == ["pre_mul"]


@pytest.mark.parametrize("wrong", [{}, {"domain_in": "acc", "exit": True}])
def test_an_activation_alone_runs_behind_the_array_where_its_group_can_end(wrong, tmp_path):
    relu = helper.make_node("Relu", ["x"], ["y"])
    assert modules([relu], {}, tmp_path, early=wrong) == [["compare"]]
